// SPDX-License-Identifier: Apache-2.0
/* Roles: STS against a real server that checks what it is asked, with the signature
 * computed anew. */
#include <stdio.h>
#include <time.h>

#include "../expect.h"
#include "aws.h"
#include "tier/s3/sign.h"
#include "lookup.h"
#include "web.h"

#define ARN "arn:aws:iam::123456789012:role/train"
#define ARN_ENCODED "arn%3Aaws%3Aiam%3A%3A123456789012%3Arole%2Ftrain"

static const char *server;

/* The last request, and what to answer. */
static struct web_request seen;
static int answer_status;
static const char *answer_text;

static void serve_sts(const struct web_request *request, struct web_answer *answer)
{
    seen = *request;
    answer->status = answer_status;
    if (answer_text)
        answer->body = xstrdup(answer_text);
    else
        answer->body = xasprintf(
            "<?xml version=\"1.0\"?>\n"
            "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">"
            "<AssumeRoleResult><AssumedRoleUser><Arn>arn</Arn></AssumedRoleUser><Credentials>\n"
            " <AccessKeyId>AKsts%u</AccessKeyId>\n <SecretAccessKey>S&amp;K</SecretAccessKey>\n"
            " <SessionToken>Tsts</SessionToken>\n"
            " <Expiration>2100-01-01T00:00:00.123Z</Expiration>\n"
            "</Credentials></AssumeRoleResult></AssumeRoleResponse>",
            request->number);
}

static void begin(void)
{
    lookup_begin();
    answer_status = 200;
    answer_text = NULL;
    server = web_open(serve_sts);
    setenv("AWS_ENDPOINT_URL_STS", server, 1);
}

TestSuite(s3_roles, .init = begin, .fini = lookup_end, .timeout = 600);

static void expect_role(const char *profile)
{
    assert_i64(lookup_get(profile), 0, "%s", lookup.error);
    assert_i64(strncmp(lookup.found.key_id, "AKsts", 5), 0);
    assert_str(lookup.found.secret, "S&K");
    assert_str(lookup.found.token, "Tsts");
    assert_i64(lookup.found.expires_ns, 4102444800ll * 1000000000);
}

static void expect_form(const char *part)
{
    cr_assert_not_null(strstr(seen.body, part), "'%s' lacks '%s'", seen.body, part);
}

/* What the server would compute from the secret that it knows. */
static void expect_signed_by(const char *key_id, const char *secret, const char *token,
                             const char *region)
{
    static const char *const headers[] = {
        "Content-Type: application/x-www-form-urlencoded; charset=utf-8", NULL};
    struct s3_credentials c = {
        .key_id = (char *)key_id, .secret = (char *)secret, .token = (char *)token};
    const char *date = web_header(&seen, "x-amz-date");
    struct tm tm = {0};
    cr_assert_not_null(date);
    cr_assert_not_null(strptime(date, "%Y%m%dT%H%M%SZ", &tm));
    struct s3_sign_request request = {.method = "POST",
                                      .host = server + strlen("http://"),
                                      .path = "/",
                                      .headers = headers,
                                      .body = seen.body,
                                      .body_len = strlen(seen.body),
                                      .region = region,
                                      .service = "sts",
                                      .time_ns = timegm(&tm) * 1000000000};
    struct s3_signed s;
    assert_i64(s3_sign(&request, &c, &s), 0);
    char **last = s.headers;
    while (last[1])
        last++;
    const char *got = web_header(&seen, "Authorization");
    assert_str(got ? got : "(none)", *last + strlen("Authorization: "));
    s3_signed_done(&s);
}

Test(s3_roles, web_identity_of_the_environment)
{
    _cleanup_free_ char *path = aws_path("token");
    aws_write("token", "eyJ.one/+=\n");
    aws_write(".aws/credentials", "[default]\naws_access_key_id=AK\naws_secret_access_key=SK\n");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    setenv("AWS_ROLE_ARN", ARN, 1);
    expect_role(NULL);
    assert_str(seen.method, "POST");
    cr_assert_null(web_header(&seen, "Authorization"));
    expect_form("Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=" ARN_ENCODED
                "&RoleSessionName=cairn-");
    expect_form("&WebIdentityToken=eyJ.one%2F%2B%3D");
    setenv("AWS_ROLE_SESSION_NAME", "job 7", 1);
    aws_write("token", "eyJ.two");
    expect_role(NULL);
    expect_form("&RoleSessionName=job%207&WebIdentityToken=eyJ.two");
}

Test(s3_roles, web_identity_that_lacks_something_is_an_error)
{
    _cleanup_free_ char *path = aws_path("token");
    setenv("AWS_WEB_IDENTITY_TOKEN_FILE", path, 1);
    lookup_expect_error(NULL, -EINVAL, "AWS_ROLE_ARN");
    setenv("AWS_ROLE_ARN", ARN, 1);
    lookup_expect_error(NULL, -EINVAL, "No such file");
    aws_write("token", "\n");
    lookup_expect_error(NULL, -EINVAL, "holds no token");
    aws_write("token", "to\x01ken");
    lookup_expect_error(NULL, -EINVAL, "holds no token");
    assert_u64(web_count(), 0);
}

Test(s3_roles, web_identity_of_a_profile)
{
    _cleanup_free_ char *path = aws_path("token");
    aws_write("token", "eyJ.three");
    aws_write(".aws/config",
              "[profile w]\nrole_arn=" ARN "\nweb_identity_token_file=%s\nrole_session_name=me\n",
              path);
    expect_role("w");
    expect_form("&RoleSessionName=me&WebIdentityToken=eyJ.three");
}

Test(s3_roles, source_profile_signs)
{
    aws_write(".aws/config", "[profile r]\nrole_arn=" ARN "\nsource_profile=base\nexternal_id=x/y\n"
                             "duration_seconds=900\nregion=eu-central-1\n");
    aws_write(".aws/credentials",
              "[base]\naws_access_key_id=AKbase\naws_secret_access_key=SKbase\n");
    expect_role("r");
    expect_form("Action=AssumeRole&Version=2011-06-15&RoleArn=" ARN_ENCODED
                "&RoleSessionName=cairn-");
    expect_form("&ExternalId=x%2Fy&DurationSeconds=900");
    cr_assert_null(strstr(seen.body, "WebIdentityToken"));
    expect_signed_by("AKbase", "SKbase", NULL, "eu-central-1");
    cr_assert_null(strstr(seen.headers, "SKbase"));
}

Test(s3_roles, roles_can_be_chained)
{
    aws_write(".aws/config", "[profile r2]\nrole_arn=" ARN "2\nsource_profile=r1\n"
                             "[profile r1]\nrole_arn=" ARN "1\nsource_profile=base\n");
    aws_write(".aws/credentials",
              "[base]\naws_access_key_id=AKbase\naws_secret_access_key=SKbase\n");
    expect_role("r2");
    assert_u64(web_count(), 2);
    expect_form(ARN_ENCODED "2&");
    assert_str(web_header(&seen, "x-amz-security-token"), "Tsts");
    expect_signed_by("AKsts1", "S&K", "Tsts", "us-east-1");
}

Test(s3_roles, a_profile_may_be_its_own_source)
{
    aws_write(".aws/credentials", "[r]\nrole_arn=" ARN "\nsource_profile=r\naws_access_key_id=AKr\n"
                                  "aws_secret_access_key=SKr\n");
    expect_role("r");
    expect_signed_by("AKr", "SKr", NULL, "us-east-1");
}

Test(s3_roles, circles_end)
{
    aws_write(".aws/config", "[profile a]\nrole_arn=" ARN "\nsource_profile=b\n"
                             "[profile b]\nrole_arn=" ARN "\nsource_profile=a\n"
                             "[profile c]\nrole_arn=" ARN "\nsource_profile=c\n");
    lookup_expect_error("a", -EINVAL, "circle");
    lookup_expect_error("c", -EINVAL, "no credentials");
    aws_write(
        ".aws/config",
        "[profile 0]\nrole_arn=x\nsource_profile=1\n[profile 1]\nrole_arn=x\nsource_profile=2\n"
        "[profile 2]\nrole_arn=x\nsource_profile=3\n[profile 3]\nrole_arn=x\nsource_profile=4\n"
        "[profile 4]\nrole_arn=x\nsource_profile=5\n[profile 5]\nrole_arn=x\nsource_profile=6\n"
        "[profile 6]\nrole_arn=x\nsource_profile=7\n[profile 7]\nrole_arn=x\nsource_profile=8\n"
        "[profile 8]\nrole_arn=x\nsource_profile=9\n[profile 9]\naws_access_key_id=A\n");
    lookup_expect_error("0", -EINVAL, "circle");
    assert_u64(web_count(), 0);
}

Test(s3_roles, credential_source_environment)
{
    aws_write(".aws/config",
              "[profile e]\nrole_arn=" ARN "\ncredential_source=Environment\n"
              "[profile m]\nrole_arn=" ARN "\ncredential_source=Ec2InstanceMetadata\n"
              "[profile c]\nrole_arn=" ARN "\ncredential_source=EcsContainer\n"
              "[profile x]\nrole_arn=" ARN "\ncredential_source=Magic\n");
    lookup_expect_error("e", -EINVAL, "AWS_ACCESS_KEY_ID is not set");
    lookup_expect_error("m", -EINVAL, "switched off");
    lookup_expect_error("c", -EINVAL, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    lookup_expect_error("x", -EINVAL, "\"Magic\" is none of");
    setenv("AWS_ACCESS_KEY_ID", "AKenv", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "SKenv", 1);
    setenv("AWS_SESSION_TOKEN", "Tenv", 1);
    expect_role("e");
    expect_signed_by("AKenv", "SKenv", "Tenv", "us-east-1");
}

Test(s3_roles, profiles_that_lack_something_are_errors)
{
    aws_write(".aws/config",
              "[profile none]\nrole_arn=" ARN "\naws_access_key_id=A\naws_secret_access_key=S\n"
              "[profile both]\nrole_arn=" ARN
              "\nsource_profile=none\ncredential_source=Environment\n"
              "[profile gone]\nrole_arn=" ARN "\nsource_profile=ghost\n"
              "[profile mfa]\nrole_arn=" ARN "\nsource_profile=none\nmfa_serial=arn\n");
    lookup_expect_error("none", -EINVAL, "wants one of source_profile");
    lookup_expect_error("both", -EINVAL, "wants one of source_profile");
    lookup_expect_error("gone", -EINVAL, "\"ghost\" is not in");
    lookup_expect_error("mfa", -EINVAL, "mfa_serial");
    assert_u64(web_count(), 0);
}

/* --- Answers. --------------------------------------------------------------------------------- */

static void use_role(void)
{
    aws_write(".aws/config", "[profile r]\nrole_arn=" ARN "\nsource_profile=base\n");
    aws_write(".aws/credentials",
              "[base]\naws_access_key_id=AKbase\naws_secret_access_key=SKbase\n");
}

#define REFUSAL(code, message)                                                                     \
    "<ErrorResponse "                                                                              \
    "xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><Error><Type>Sender</Type>"               \
    "<Code>" code "</Code><Message>" message                                                       \
    "</Message></Error><RequestId>1</RequestId></ErrorResponse>"

Test(s3_roles, refusals_say_why)
{
    use_role();
    answer_status = 403;
    answer_text = REFUSAL("AccessDenied", "not allowed to assume");
    lookup_expect_error("r", -EACCES, "answered 403: AccessDenied: not allowed to assume");
    assert_u64(web_count(), 1);
    cr_assert_not_null(strstr(lookup.error, ARN));
    answer_text = "<html>a proxy's page";
    lookup_expect_error("r", -EACCES, "answered 403: <html>a proxy's page");
    answer_status = 400;
    answer_text = REFUSAL("Throttling", "Rate exceeded");
    lookup_expect_error("r", -EAGAIN, "Throttling");
    answer_status = 500;
    answer_text = REFUSAL("InternalFailure", "");
    unsigned before = web_count();
    lookup_expect_error("r", -EAGAIN, "InternalFailure");
    assert_u64(web_count() - before, 3, "a fault of the server is tried again");
}

Test(s3_roles, answers_that_are_none_are_errors)
{
    static const char *const bad[] = {
        "",
        "no XML",
        "<a><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey></"
        "Credentials>",
        "<a><Credentials><AccessKeyId>AK</AccessKeyId></Credentials></a>",
        "<a><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>S\nK</SecretAccessKey></"
        "Credentials></"
        "a>",
        "<!DOCTYPE a [<!ENTITY x "
        "\"AK\">]><a><Credentials><AccessKeyId>&x;</AccessKeyId><SecretAccessKey>SK</"
        "SecretAccessKey></"
        "Credentials></a>",
        "<a><Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</"
        "SecretAccessKey><Expiration>soon</"
        "Expiration></Credentials></a>",
        "<Credentials><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey></"
        "Credentials>",
        "<a><Other><AccessKeyId>AK</AccessKeyId><SecretAccessKey>SK</SecretAccessKey></Other></a>",
    };
    use_role();
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        answer_text = bad[i];
        assert_i64(lookup_get("r"), -EINVAL, "'%s' was taken", bad[i]);
    }
}

Test(s3_roles, settings_of_sts_are_checked)
{
    use_role();
    setenv("AWS_REGION", "evil.example/?", 1);
    lookup_expect_error("r", -EINVAL, "not a region name");
    unsetenv("AWS_REGION");
    setenv("AWS_ENDPOINT_URL_STS", "not a url", 1);
    lookup_expect_error("r", -EINVAL, "not a URL");
    assert_u64(web_count(), 0);
}
