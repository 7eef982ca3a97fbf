// SPDX-License-Identifier: Apache-2.0
#include <pwd.h>
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "aws.h"
#include "tier/s3/credentials_source.h"
#include "tier/s3/profiles.h"

static struct s3_profiles *profiles;
static struct s3_settings settings;
static char *error;

static void end(void)
{
    s3_profiles_free(profiles);
    s3_settings_done(&settings);
    free(error);
    aws_end();
}

TestSuite(s3_profiles, .init = aws_begin, .fini = end);
TestSuite(s3_settings, .init = aws_begin, .fini = end);

static void read_ok(void)
{
    assert_i64(s3_profiles_read(&profiles, &error), 0, "%s", error);
}

/* As printed; NULL is "(none)". */
static void expect(const char *profile, const char *key, const char *value)
{
    const char *got = s3_profiles_get(profiles, profile, key);
    assert_str(got ? got : "(none)", value ? value : "(none)", "%s of %s", key, profile);
}

Test(s3_profiles, no_files_are_no_profiles)
{
    read_ok();
    cr_assert_not(s3_profiles_has(profiles, "default"));
    expect("default", "region", NULL);
    cr_assert_not_null(strstr(s3_profiles_where(profiles), "/.aws/config or /tmp/cairn-aws-"));
}

Test(s3_profiles, both_files_are_one_profile)
{
    aws_write(".aws/config",
              "[default]\nregion = eu-1\noutput=json\n[profile train]\nregion=us-9\n");
    aws_write(".aws/credentials",
              "[default]\naws_access_key_id = AK\naws_secret_access_key = SK\nregion = eu-2\n");
    read_ok();
    expect("default", "region", "eu-2");
    expect("default", "output", "json");
    expect("default", "aws_access_key_id", "AK");
    expect("train", "region", "us-9");
    expect("train", "aws_access_key_id", NULL);
    cr_assert(s3_profiles_has(profiles, "train"));
    cr_assert_not(s3_profiles_has(profiles, "trai"));
}

Test(s3_profiles, keys_of_two_files_are_not_mixed)
{
    aws_write(".aws/config",
              "[default]\naws_access_key_id=A1\naws_secret_access_key=S1\naws_session_token=T1\n");
    aws_write(".aws/credentials", "[default]\naws_access_key_id=A2\naws_secret_access_key=S2\n");
    read_ok();
    expect("default", "aws_access_key_id", "A2");
    expect("default", "aws_secret_access_key", "S2");
    expect("default", "aws_session_token", NULL);
}

Test(s3_profiles, what_people_write_is_understood)
{
    aws_write(".aws/config", "\xef\xbb\xbf# a remark\r\n"
                             "; another\r\n"
                             "\r\n"
                             "[ profile  \"two words\" ]  # remark\r\n"
                             "  REGION\t=  eu-1   # remark\r\n"
                             "  output = a#b;c ; remark\r\n"
                             "  empty =\r\n"
                             "  credential_process = sh -c 'echo # no remark'\r\n"
                             "[default]\nregion=old\n"
                             "[profile default]\nregion=new\n"
                             "[default]\nregion=old again\n"
                             "[sso-session x]\nregion=other\n[plain]\nregion=none\n"
                             "[profile last]\nregion=no newline at the end");
    read_ok();
    expect("two words", "region", "eu-1");
    expect("two words", "output", "a#b;c");
    expect("two words", "empty", NULL);
    expect("two words", "credential_process", "sh -c 'echo # no remark'");
    expect("default", "region", "new");
    expect("plain", "region", NULL);
    expect("last", "region", "no newline at the end");
}

Test(s3_profiles, nested_settings_have_the_name_of_their_parent)
{
    aws_write(".aws/config", "[default]\n"
                             "region = one\n"
                             "  more of the value, which is not wanted\n"
                             "s3 =\n"
                             "    addressing_style = path\n"
                             "    region = nested\n"
                             "endpoint_url = http://a\n"
                             "[services local]\n"
                             "s3 =\n"
                             "  endpoint_url = http://b\n"
                             "sts =\n"
                             "  endpoint_url = http://c\n");
    read_ok();
    expect("default", "region", "one");
    expect("default", "s3.addressing_style", "path");
    expect("default", "s3.region", "nested");
    expect("default", "addressing_style", NULL);
    expect("default", "endpoint_url", "http://a");
    assert_str(s3_profiles_get_service(profiles, "local", "s3.endpoint_url"), "http://b");
    assert_str(s3_profiles_get_service(profiles, "local", "sts.endpoint_url"), "http://c");
    cr_assert_null(s3_profiles_get_service(profiles, "other", "s3.endpoint_url"));
    cr_assert_not(s3_profiles_has(profiles, "local"));
}

static void expect_refused(const char *text, unsigned line, const char *words)
{
    aws_write(".aws/config", "%s", text);
    assert_i64(s3_profiles_read(&profiles, &error), -EINVAL, "'%s' was taken", text);
    profiles = NULL;
    _cleanup_free_ char *path = aws_path(".aws/config");
    _cleanup_free_ char *begin = xasprintf("%s:%u: ", path, line);
    assert_i64(strncmp(error, begin, strlen(begin)), 0, "'%s' does not begin with '%s'", error,
               begin);
    cr_assert_not_null(strstr(error, words), "'%s' does not say '%s'", error, words);
    free(error);
    error = NULL;
}

Test(s3_profiles, what_is_wrong_is_told_with_file_and_line)
{
    expect_refused("\n[default\nregion=x\n", 2, "']'");
    expect_refused("[default] x\n", 1, "follows");
    expect_refused("[]\n", 1, "without a name");
    expect_refused("[profile \"\"]\n", 1, "without a name");
    expect_refused("# x\nregion=x\n", 2, "before the first");
    expect_refused("[default]\r\n\r\nregion eu-1\r\n", 3, "'='");
    expect_refused("[default]\n = x\n", 2, "without a name");
    expect_refused("[default]\ns3 =\n  path\n", 3, "'='");
}

Test(s3_profiles, secrets_are_not_in_the_message)
{
    aws_write(".aws/credentials", "[default]\naws_secret_access_key SECRET\n");
    assert_i64(s3_profiles_read(&profiles, &error), -EINVAL);
    profiles = NULL;
    cr_assert_null(strstr(error, "SECRET"));
}

Test(s3_profiles, a_zero_byte_is_refused)
{
    _cleanup_free_ char *path = aws_path(".aws/config");
    FILE *file = fopen(path, "w");
    (void)fwrite("[default]\nregion=\0x\n", 1, 20, file);
    (void)fclose(file);
    assert_i64(s3_profiles_read(&profiles, &error), -EINVAL);
    profiles = NULL;
    cr_assert_not_null(strstr(error, "config:2: "), "%s", error);
}

Test(s3_profiles, a_file_that_is_too_long_or_a_directory_is_refused)
{
    _cleanup_free_ char *path = aws_path(".aws/config");
    aws_write(".aws/config", "[default]\n");
    assert_i64(truncate(path, 2 * 1024 * 1024), 0);
    assert_i64(s3_profiles_read(&profiles, &error), -EINVAL);
    cr_assert_not_null(strstr(error, "cannot be read"), "%s", error);
    free(error);
    assert_i64(unlink(path), 0);
    assert_i64(mkdir(path, 0700), 0);
    assert_i64(s3_profiles_read(&profiles, &error), -EINVAL);
    profiles = NULL;
}

Test(s3_profiles, too_many_lines_are_refused)
{
    _cleanup_free_ char *text = xmalloc(200000);
    strcpy(text, "[default]\n");
    char *end_of = text + strlen(text);
    for (unsigned i = 0; i < 21000; i++)
        end_of = stpcpy(end_of, "a=b\n");
    expect_refused(text, 20001, "too many");
}

/* Kubernetes mounts secrets as links to links. */
Test(s3_profiles, files_may_be_elsewhere_and_links)
{
    _cleanup_free_ char *link = aws_path("link"), *target = aws_path("target");
    aws_write("target", "[default]\nregion=here\n");
    assert_i64(symlink(target, link), 0);
    setenv("AWS_CONFIG_FILE", link, 1);
    setenv("AWS_SHARED_CREDENTIALS_FILE", "~/nothing", 1);
    read_ok();
    expect("default", "region", "here");
    cr_assert_not_null(strstr(s3_profiles_where(profiles), "/tmp/cairn-aws-"));
    cr_assert_null(strchr(s3_profiles_where(profiles), '~'));
}

/* As under systemd. */
Test(s3_profiles, without_home_the_user_database_is_asked)
{
    unsetenv("HOME");
    setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
    if (s3_profiles_read(&profiles, &error) < 0)
        cr_skip_test("the user's own ~/.aws/config cannot be read");
    struct passwd *user = getpwuid(geteuid());
    _cleanup_free_ char *expected = xasprintf("%s/.aws/config or /dev/null", user->pw_dir);
    assert_str(s3_profiles_where(profiles), expected);
}

static void expect_settings(const char *profile, const char *region, const char *endpoint,
                            const char *ca_bundle)
{
    assert_i64(s3_settings_read(profile, &settings, &error), 0, "%s", error);
    assert_str(settings.region ? settings.region : "(none)", region);
    assert_str(settings.endpoint_url ? settings.endpoint_url : "(none)", endpoint);
    assert_str(settings.ca_bundle ? settings.ca_bundle : "(none)", ca_bundle);
    s3_settings_done(&settings);
}

Test(s3_settings, nothing_is_set)
{
    expect_settings(NULL, "(none)", "(none)", "(none)");
}

Test(s3_settings, environment_counts_more_than_profile_and_services_more_than_general)
{
    aws_write(".aws/config",
              "[default]\nregion=r1\nendpoint_url=http://general\nca_bundle=/ca1\n"
              "[profile two]\nregion=r2\nservices=local\nendpoint_url=http://general2\n"
              "[profile three]\nservices=gone\nendpoint_url=http://general3\n"
              "[services local]\ns3=\n  endpoint_url=http://s3local\n");
    expect_settings(NULL, "r1", "http://general", "/ca1");
    expect_settings("two", "r2", "http://s3local", "(none)");
    expect_settings("three", "(none)", "http://general3", "(none)");
    setenv("AWS_PROFILE", "two", 1);
    expect_settings(NULL, "r2", "http://s3local", "(none)");
    expect_settings("default", "r1", "http://general", "/ca1");
    setenv("AWS_DEFAULT_REGION", "r3", 1);
    setenv("AWS_ENDPOINT_URL", "http://env", 1);
    setenv("AWS_CA_BUNDLE", "/ca2", 1);
    expect_settings(NULL, "r3", "http://env", "/ca2");
    setenv("AWS_REGION", "r4", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://envs3", 1);
    setenv("AWS_ENDPOINT_URL_STS", "http://envsts", 1);
    expect_settings(NULL, "r4", "http://envs3", "/ca2");
}

Test(s3_settings, configured_endpoints_can_be_ignored)
{
    aws_write(".aws/config",
              "[default]\nendpoint_url=http://a\n"
              "[profile no]\nendpoint_url=http://b\nignore_configured_endpoint_urls = True\n");
    expect_settings("no", "(none)", "(none)", "(none)");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "false", 1);
    expect_settings("no", "(none)", "http://b", "(none)");
    setenv("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true", 1);
    setenv("AWS_ENDPOINT_URL", "http://env", 1);
    expect_settings(NULL, "(none)", "(none)", "(none)");
}

Test(s3_settings, a_profile_that_is_not_there_is_an_error)
{
    assert_i64(s3_settings_read("ghost", &settings, &error), -ENOENT);
    cr_assert_not_null(strstr(error, "\"ghost\""));
    free(error);
    setenv("AWS_PROFILE", "ghost", 1);
    assert_i64(s3_settings_read(NULL, &settings, &error), -ENOENT);
}

Test(s3_settings, times)
{
    static const struct {
        const char *text;
        int64_t seconds; /* -1: refused */
    } cases[] = {
        {"2019-05-29T00:21:43Z", 1559089303},
        {"2019-05-29T00:21:43.359Z", 1559089303},
        {"2019-05-29T02:21:43+02:00", 1559089303},
        {"2019-05-28T17:51:43-0630", 1559089303},
        {"9999-12-31T23:59:59Z", 0},
        {"2019-05-29T00:21:43", -1},
        {"2019-05-29", -1},
        {"", -1},
        {"soon", -1},
        {"2019-05-29T00:21:43Zx", -1},
        {"2019-05-29T00:21:43+99:00", -1},
        {"1969-05-29T00:21:43Z", -1},
        {"2019-05-29T00:21:43+0", -1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int64_t ns = -1;
        assert_i64(s3_time_parse(cases[i].text, &ns), cases[i].seconds < 0 ? -EINVAL : 0, "%s",
                   cases[i].text);
        assert_i64(ns, cases[i].seconds < 0 ? -1 : cases[i].seconds * 1000000000, "%s",
                   cases[i].text);
    }
}
