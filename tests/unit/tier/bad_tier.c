// SPDX-License-Identifier: Apache-2.0
#include "bad_tier.h"
#include "../expect.h"

struct s3_options bad_options;

void bad_begin(void)
{
    static const char *const away[] = {"AWS_SESSION_TOKEN", "AWS_PROFILE",  "AWS_ENDPOINT_URL",
                                       "AWS_REGION",        "http_proxy",   "https_proxy",
                                       "all_proxy",         "AWS_CA_BUNDLE"};
    for (size_t i = 0; i < ARRAY_LEN(away); i++)
        assert_i64(unsetenv(away[i]), 0);
    assert_i64(setenv("AWS_ACCESS_KEY_ID", "AKtest", 1), 0);
    assert_i64(setenv("AWS_SECRET_ACCESS_KEY", "not-a-secret", 1), 0);
    assert_i64(setenv("AWS_CONFIG_FILE", "/dev/null", 1), 0);
    assert_i64(setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1), 0);
    assert_i64(setenv("AWS_EC2_METADATA_DISABLED", "true", 1), 0);
    bad_options = (struct s3_options){.bucket = "bucket",
                                      .prefix = "pre",
                                      .region = "us-east-1",
                                      .patience_ns = 60000000000,
                                      .stall_ns = 60000000000};
}

void bad_tier(const char *endpoint)
{
    char *error = NULL;
    bad_options.endpoint_url = endpoint;
    assert_i64(s3_tier_open(&bad_options, &tier, &error), 0, "%s", error);
}

void bad_end(void)
{
    if (tier)
        tier->ops->close(tier);
    tier = NULL;
    bad_close();
}

int try_put(void)
{
    _cleanup_free_ void *buf = content_new(5000, 1);
    return tier->ops->put(tier, "packs/1", buf, 5000);
}

int try_put_new(void)
{
    _cleanup_free_ void *buf = content_new(5000, 1);
    return tier->ops->put_new(tier, "packs/1", buf, 5000);
}

int try_get(void)
{
    char got[10] = {0};
    int r = tier->ops->get_range(tier, "packs/1", 0, got, sizeof got);
    if (r == 0)
        cr_assert_arr_eq(got, "0123456789", 10);
    return r;
}

void expect_reported(const char *text)
{
    char error[512];
    tier->ops->last_error(tier, error, sizeof error);
    cr_assert_not_null(strstr(error, text), "\"%s\" is not in: %s", text, error);
    cr_assert_null(strstr(error, "not-a-secret"));
}
