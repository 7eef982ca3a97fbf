// SPDX-License-Identifier: Apache-2.0
/* Which address a request goes to. */

#include "tier/s3/internal.h"

#include "../expect.h"
#include "bad_tier.h"

TestSuite(s3_place, .init = bad_begin, .fini = bad_end);

static void goes_to(const struct s3_options options, const char *region, const char *object,
                    const char *url, const char *host, const char *path)
{
    struct s3_address a;
    char *error = NULL;
    assert_i64(s3_tier_open(&options, &tier, &error), 0, "%s", error);
    s3_address_make(&s3_of(tier)->place, region, object, object ? NULL : "a=b", &a);
    assert_str(a.url, url);
    assert_str(a.host, host);
    assert_str(a.path, path);
    s3_address_done(&a);
    tier->ops->close(tier);
    tier = NULL;
}

Test(s3_place, of_aws)
{
    goes_to((struct s3_options){.bucket = "bucket", .prefix = "a/b c"}, "eu-west-3", "packs/1",
            "https://bucket.s3.eu-west-3.amazonaws.com/a/b%20c/packs/1",
            "bucket.s3.eu-west-3.amazonaws.com", "/a/b%20c/packs/1");
    goes_to((struct s3_options){.bucket = "bucket"}, "eu-west-3", NULL,
            "https://bucket.s3.eu-west-3.amazonaws.com/?a=b", "bucket.s3.eu-west-3.amazonaws.com",
            "/");
    goes_to((struct s3_options){.bucket = "my.bucket"}, "us-east-1", "packs/1",
            "https://s3.us-east-1.amazonaws.com/my.bucket/packs/1", "s3.us-east-1.amazonaws.com",
            "/my.bucket/packs/1");
    goes_to((struct s3_options){.bucket = "bucket"}, "cn-north-1", "x",
            "https://bucket.s3.cn-north-1.amazonaws.com.cn/x",
            "bucket.s3.cn-north-1.amazonaws.com.cn", "/x");
    goes_to((struct s3_options){.bucket = "bucket", .addressing = S3_ADDRESSING_PATH}, "us-east-1",
            NULL, "https://s3.us-east-1.amazonaws.com/bucket?a=b", "s3.us-east-1.amazonaws.com",
            "/bucket");
}

Test(s3_place, of_an_endpoint)
{
    goes_to((struct s3_options){.bucket = "bucket", .endpoint_url = "http://Host:9000/"}, "r", "x",
            "http://host:9000/bucket/x", "host:9000", "/bucket/x");
    goes_to((struct s3_options){.bucket = "bucket", .endpoint_url = "https://host:443/base/"}, "r",
            "x", "https://host/base/bucket/x", "host", "/base/bucket/x");
    goes_to((struct s3_options){.bucket = "bucket", .endpoint_url = "http://[::1]:9000"}, "r", "x",
            "http://[::1]:9000/bucket/x", "[::1]:9000", "/bucket/x");
    goes_to((struct s3_options){.bucket = "bucket",
                                .endpoint_url = "https://host",
                                .addressing = S3_ADDRESSING_VIRTUAL},
            "r", "x", "https://bucket.host/x", "bucket.host", "/x");
    goes_to((struct s3_options){.bucket = "bucket",
                                .endpoint_url = "http://10.0.0.1",
                                .addressing = S3_ADDRESSING_VIRTUAL},
            "r", "x", "http://10.0.0.1/bucket/x", "10.0.0.1", "/bucket/x");
    assert_i64(setenv("AWS_ENDPOINT_URL_S3", "http://other", 1), 0);
    goes_to((struct s3_options){.bucket = "bucket"}, "r", "x", "http://other/bucket/x", "other",
            "/bucket/x");
}
