// SPDX-License-Identifier: Apache-2.0
/* Where credentials come from, each source against a real process or a real server. */
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../expect.h"
#include "aws.h"
#include "base/clock.h"
#include "lookup.h"
#include "web.h"

static const char *server;

TestSuite(s3_credentials, .init = lookup_begin, .fini = lookup_end, .timeout = 600);

static void expect(const char *profile, const char *key_id, const char *secret, const char *token)
{
    assert_i64(lookup_get(profile), 0, "%s", lookup.error);
    assert_str(lookup.found.key_id, key_id);
    assert_str(lookup.found.secret, secret);
    assert_str(lookup.found.token ? lookup.found.token : "(none)", token ? token : "(none)");
}

#define KEYS(n) "aws_access_key_id = AK" n "\naws_secret_access_key = SK" n "\n"

static void set_env_keys(void)
{
    setenv("AWS_ACCESS_KEY_ID", "AKenv", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SKenv", 1);
}

Test(s3_credentials, none_says_where_was_looked)
{
    lookup_expect_error(NULL, -ENOKEY, "AWS_ACCESS_KEY_ID");
    cr_assert_not_null(strstr(lookup.error, "AWS_WEB_IDENTITY_TOKEN_FILE"));
    cr_assert_not_null(strstr(lookup.error, "/.aws/credentials"));
    cr_assert_not_null(strstr(lookup.error, "AWS_CONTAINER_CREDENTIALS_FULL_URI"));
    cr_assert_not_null(strstr(lookup.error, "AWS_EC2_METADATA_DISABLED"));
}

Test(s3_credentials, environment_comes_first_and_a_chosen_profile_before_it)
{
    aws_write(".aws/credentials",
              "[default]\n" KEYS("1") "[two]\n" KEYS("2") "aws_session_token = T2\n");
    expect(NULL, "AK1", "SK1", NULL);
    setenv("AWS_PROFILE", "two", 1);
    expect(NULL, "AK2", "SK2", "T2");
    set_env_keys();
    expect(NULL, "AKenv", "SKenv", NULL);
    setenv("AWS_SESSION_TOKEN", "Tenv", 1);
    expect(NULL, "AKenv", "SKenv", "Tenv");
    expect("default", "AK1", "SK1", NULL);
    assert_i64(lookup.found.expires_ns, 0);
}

Test(s3_credentials, half_a_pair_and_what_is_no_text_are_errors)
{
    setenv("AWS_ACCESS_KEY_ID", "AKenv", 1);
    lookup_expect_error(NULL, -EINVAL, "secret access key is missing");
    setenv("AWS_SECRET_ACCESS_KEY", "SK\r\nX-Evil: 1", 1);
    lookup_expect_error(NULL, -EINVAL, "not plain text");
    cr_assert_null(strstr(lookup.error, "Evil"), "a secret is in the message");
    aws_write(".aws/credentials", "[a]\naws_access_key_id = AK\n");
    lookup_expect_error("a", -EINVAL, "profile \"a\": the secret access key is missing");
}

Test(s3_credentials, environment_needs_no_file)
{
    aws_write(".aws/config", "nonsense\n");
    lookup_expect_error(NULL, -EINVAL, "config:1:");
    set_env_keys();
    expect(NULL, "AKenv", "SKenv", NULL);
}

Test(s3_credentials, a_profile_that_is_not_there_is_an_error)
{
    lookup_expect_error("ghost", -EINVAL, "\"ghost\" is not in");
    aws_write(".aws/config", "[profile sso]\nsso_session = corp\n[profile empty]\nregion = x\n");
    lookup_expect_error("sso", -EINVAL, "aws configure export-credentials --profile sso");
    lookup_expect_error("empty", -ENOKEY, "\"empty\"");
}

/* --- credential_process ---------------------------------------------------------------------- */

static void write_script(const char *text)
{
    aws_write("script", "#!/bin/sh\n%s\n", text);
    _cleanup_free_ char *path = aws_path("script");
    assert_i64(chmod(path, 0700), 0);
    aws_write(".aws/config", "[profile p]\ncredential_process = %s 'two words'\n", path);
}

Test(s3_credentials, process_answers)
{
    write_script(
        "test \"$1\" = 'two words' || exit 3\n"
        "cat <<.\n{\"Version\": 1, \"AccessKeyId\": \"AKp\", \"SecretAccessKey\": \"SKp\",\n"
        "\"SessionToken\": \"Tp\", \"Expiration\": \"2100-01-01T00:00:00Z\"}\n.");
    expect("p", "AKp", "SKp", "Tp");
    assert_i64(lookup.found.expires_ns, 4102444800ll * 1000000000);
}

Test(s3_credentials, process_that_fails_says_why)
{
    write_script("echo 'log in first' >&2; exit 7");
    lookup_expect_error("p", -EACCES, "exited with status 7: log in first");
    aws_write(".aws/config", "[profile p]\ncredential_process = kill -9 $$\n");
    lookup_expect_error("p", -EACCES, "was killed by signal 9");
    write_script("echo '{\"Version\": 2}'");
    lookup_expect_error("p", -EINVAL, "Version");
    write_script("echo '{\"Version\": 1, \"AccessKeyId\": \"AK\"}'");
    lookup_expect_error("p", -EINVAL, "secret access key is missing");
    write_script("echo '{\"Version\": 1, \"AccessKeyId\": \"AK\", \"SecretAccessKey\": \"SK\", "
                 "\"Expiration\": \"soon\"}'");
    lookup_expect_error("p", -EINVAL, "expiry time");
    write_script("echo 'SECRET and no JSON'");
    lookup_expect_error("p", -EINVAL, "not a JSON");
    cr_assert_null(strstr(lookup.error, "SECRET"), "output is in the message");
    write_script("head -c 100000 /dev/zero");
    lookup_expect_error("p", -EINVAL, "more than 64 KiB");
    aws_write(".aws/config", "[profile p]\ncredential_process = /nowhere/at/all\n");
    lookup_expect_error("p", -EACCES, "status 127");
}

/* Faster than it can be read. */
Test(s3_credentials, process_that_writes_without_end, .timeout = 30)
{
    aws_write(".aws/config", "[profile p]\ncredential_process = yes\n");
    lookup_expect_error("p", -EINVAL, "the answer has more than 64 KiB");
}

/* It leaves a process behind that keeps its output open. */
Test(s3_credentials, process_that_leaves_another_behind_is_not_waited_for)
{
    write_script("sleep 100 &\necho '{\"Version\": 1, \"AccessKeyId\": \"AKp\", "
                 "\"SecretAccessKey\": \"SKp\"}'");
    int64_t start = clock_monotonic_ns();
    expect("p", "AKp", "SKp", NULL);
    cr_assert_lt(clock_monotonic_ns() - start, 60000000000);
}

Test(s3_credentials, process_does_not_inherit_ignored_or_masked_signals)
{
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_BLOCK, &all, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    /* SIGPIPE is bit 12. The mask some shells clear themselves (dash), others do not (bash). */
    write_script("grep -q '^SigBlk:.0*$' /proc/self/status || exit 3\n"
                 "grep -q '^SigIgn:.*[02468ace]...$' /proc/self/status || exit 4\n"
                 "echo '{\"Version\": 1, \"AccessKeyId\": \"AKp\", \"SecretAccessKey\": \"SKp\"}'");
    expect("p", "AKp", "SKp", NULL);
    (void)sigemptyset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
}

/* --- Container. ------------------------------------------------------------------------------- */

static char *json_answer(const char *token_name, const char *n, const char *expires)
{
    return xasprintf("{\"AccessKeyId\":\"AK%s\",\"SecretAccessKey\":\"SK%s\",\"%s\":\"T%s\","
                     "\"Expiration\":\"%s\"}",
                     n, n, token_name, n, expires);
}

static void serve_container(const struct web_request *request, struct web_answer *answer)
{
    const char *authorization = web_header(request, "Authorization");
    if (strcmp(request->path, "/role") != 0 || strcmp(request->method, "GET") != 0)
        answer->status = 404;
    else if (authorization && strcmp(authorization, "Bearer bad") == 0)
        answer->status = 403, answer->body = xstrdup("no\nsuch\ntoken");
    else
        answer->body =
            json_answer("Token", authorization ? strrchr(authorization, ' ') + 1 : "none",
                        "2100-01-01T00:00:00Z");
}

static void set_container(const char *path)
{
    _cleanup_free_ char *url = xasprintf("%s%s", server, path);
    setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url, 1);
}

Test(s3_credentials, container_answers)
{
    server = web_open(serve_container);
    set_container("/role");
    expect(NULL, "AKnone", "SKnone", "Tnone");
    assert_i64(lookup.found.expires_ns, 4102444800ll * 1000000000);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer plain", 1);
    expect(NULL, "AKplain", "SKplain", "Tplain");
}

Test(s3_credentials, container_token_file_is_read_every_time)
{
    _cleanup_free_ char *path = aws_path("token");
    server = web_open(serve_container);
    set_container("/role");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer plain", 1);
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", path, 1);
    aws_write("token", "Bearer one\n");
    expect(NULL, "AKone", "SKone", "Tone");
    struct s3_credentials old = lookup.found;
    lookup.found = (struct s3_credentials){0};
    aws_write("token", "Bearer two\n");
    assert_i64(s3_credentials_get(lookup.source, NULL, &lookup.found, &lookup.error), 0);
    assert_str(lookup.found.key_id, "AKone", "they hold for long and must not be asked for again");
    s3_credentials_done(&lookup.found);
    assert_i64(s3_credentials_get(lookup.source, &old, &lookup.found, &lookup.error), 0);
    assert_str(lookup.found.key_id, "AKtwo", "the token file was not read again");
    s3_credentials_done(&old);
    assert_i64(unlink(path), 0);
    lookup_expect_error(NULL, -EINVAL, "token file");
}

Test(s3_credentials, container_that_refuses_is_not_passed_over)
{
    server = web_open(serve_container);
    set_container("/role");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer bad", 1);
    lookup_expect_error(NULL, -EACCES, "answered 403: no such token");
    assert_u64(web_count(), 1, "a refusal is no reason to ask again");
    setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "Bearer x\r\nX-Evil: 1", 1);
    lookup_expect_error(NULL, -EINVAL, "not plain text");
    web_close();
    unsetenv("AWS_CONTAINER_AUTHORIZATION_TOKEN");
    lookup_expect_error(NULL, -ECONNREFUSED, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
}

static void serve_trouble_first(const struct web_request *request, struct web_answer *answer)
{
    if (request->number < 3)
        answer->status = 503;
    else
        serve_container(request, answer);
}

Test(s3_credentials, container_in_trouble_is_asked_again)
{
    server = web_open(serve_trouble_first);
    set_container("/role");
    expect(NULL, "AKnone", "SKnone", "Tnone");
    assert_u64(web_count(), 3);
}

Test(s3_credentials, clear_text_goes_to_this_machine_and_container_agents_only)
{
    static const char *const refused[] = {
        "http://example.com/x",        "http://10.0.0.1/x",
        "http://127.0.0.1@10.0.0.1/x", "http://169.254.170.3/x",
        "http://[fd00:ec2::24]/x",     "http://127.0.0.1.example/x",
        "http://localhost.example/x",  "ftp://127.0.0.1/x",
        "http://[::ffff:10.0.0.1]/x",  "/role",
        "file:///etc/passwd",
    };
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", refused[i], 1);
        lookup_expect_error(NULL, -EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    }
    /* Port 1 refuses: these were let through. */
    static const char *const allowed[] = {"http://localhost:1/x", "http://127.9.9.9:1/x",
                                          "http://[::1]:1/x", "https://127.0.0.1:1/x"};
    for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
        setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", allowed[i], 1);
        int r = lookup_get(NULL);
        cr_assert(r < 0 && r != -EINVAL && r != -ENOKEY, "%s: %d %s", allowed[i], r, lookup.error);
    }
    setenv("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "@example.com/x", 1);
    lookup_expect_error(NULL, -EINVAL, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
}

/* --- Instance metadata. ---------------------------------------------------------------------- */

#define ROLES "/latest/meta-data/iam/security-credentials/"
static const char *role_name;

static void serve_metadata(const struct web_request *request, struct web_answer *answer)
{
    const char *token = web_header(request, "X-aws-ec2-metadata-token");
    const char *ttl = web_header(request, "X-aws-ec2-metadata-token-ttl-seconds");
    bool is_put = strcmp(request->method, "PUT") == 0;
    if (is_put && strcmp(request->path, "/latest/api/token") == 0 && ttl && atoi(ttl) > 0)
        answer->body = xstrdup("TOKEN==");
    else if (is_put || !token || strcmp(token, "TOKEN==") != 0)
        answer->status = 401;
    else if (role_name && strcmp(request->path, ROLES) == 0)
        answer->body = xstrdup(role_name);
    else if (strcmp(request->path, ROLES "trainer") == 0)
        answer->body = xstrdup("{\"Code\":\"Success\",\"AccessKeyId\":\"AKi\",\"SecretAccessKey\":"
                               "\"SKi\",\"Token\":\"Ti\","
                               "\"Expiration\":\"2100-01-01T00:00:00Z\"}");
    else if (strcmp(request->path, ROLES "broken") == 0)
        answer->body =
            xstrdup("{\"Code\":\"AssumeRoleUnauthorizedAccess\",\"Message\":\"not trusted\"}");
    else
        answer->status = 404;
}

static void serve_instance(const char *role)
{
    role_name = role;
    server = web_open(serve_metadata);
    _cleanup_free_ char *base = xasprintf("%s/", server);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", base, 1);
    unsetenv("AWS_EC2_METADATA_DISABLED");
}

Test(s3_credentials, metadata_answer)
{
    serve_instance("trainer\n");
    expect(NULL, "AKi", "SKi", "Ti");
    assert_u64(web_count(), 3);
    setenv("AWS_EC2_METADATA_DISABLED", "TRUE", 1);
    lookup_expect_error(NULL, -ENOKEY, "switched off");
    assert_u64(web_count(), 3, "asked though it is switched off");
}

Test(s3_credentials, metadata_without_a_role_or_with_a_bad_one)
{
    serve_instance(NULL);
    lookup_expect_error(NULL, -ENOKEY, "this instance has no role");
    role_name = "broken";
    lookup_expect_error(NULL, -ENOKEY, "not trusted");
    role_name = "../../secrets";
    lookup_expect_error(NULL, -ENOKEY, "no role name");
}

static void serve_slowly(const struct web_request *request, struct web_answer *answer)
{
    (void)request;
    answer->delay_ms = 100000;
}

Test(s3_credentials, metadata_are_not_waited_for_long)
{
    server = web_open(serve_slowly);
    setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", server, 1);
    unsetenv("AWS_EC2_METADATA_DISABLED");
    int64_t start = clock_monotonic_ns();
    lookup_expect_error(NULL, -ENOKEY, "instance metadata: no answer");
    cr_assert_lt(clock_monotonic_ns() - start, 60000000000);
}
