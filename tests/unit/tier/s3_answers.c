// SPDX-License-Identifier: Apache-2.0
/* What the S3 tier makes of answers that set it right: region, clock, credentials, what a server
 * cannot do; and of those that no S3 would give. */
#include <stdio.h>
#include <time.h>

#include "../expect.h"
#include "bad_tier.h"
#include "base/clock.h"
#include "base/io.h"

TestSuite(s3_answers, .init = bad_begin, .fini = bad_end, .timeout = 600);

static char *date_in(time_t seconds, const char *format)
{
    char text[64];
    time_t t = time(NULL) + seconds;
    struct tm tm;
    cr_assert_gt(strftime(text, sizeof text, format, gmtime_r(&t, &tm)), 0);
    return xstrdup(text);
}

static char *dated(time_t seconds, const char *status, const char *body)
{
    _cleanup_free_ char *date = date_in(seconds, "%a, %d %b %Y %H:%M:%S GMT");
    return xasprintf("HTTP/1.1 %s S\r\n" ID "Date: %s\r\nContent-Length: %zu\r\n" END "%s", status,
                     date, strlen(body), body);
}

Test(s3_answers, another_region)
{
    BAD_TIER({WITH_BODY("301", "x-amz-bucket-region: eu-west-3\r\nContent-Length: 0\r\n", "")},
             {STORED});
    EXPECT(try_put(), 0, 2);
    cr_assert(bad_request_has(0, "/us-east-1/s3/aws4_request"));
    cr_assert(bad_request_has(1, "/eu-west-3/s3/aws4_request"));
    EXPECT(try_put(), 0, 3);
    cr_assert(bad_request_has(2, "/eu-west-3/s3/aws4_request"), "remembered");
}

Test(s3_answers, another_region_told_in_the_body)
{
    BAD_TIER(
        {WITH_BODY(
            "400", "",
            "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>")},
        {STORED});
    EXPECT(try_put(), 0, 2);
    cr_assert(bad_request_has(1, "/eu-west-3/s3/aws4_request"));
}

Test(s3_answers, another_region_told_to_a_head)
{
    BAD_TIER({WITH_BODY("400", "x-amz-bucket-region: eu-west-3\r\n", "")},
             {WITH_BODY("200", "ETag: \"e\"\r\nContent-Length: 77\r\n", "")});
    uint64_t len;
    EXPECT(tier->ops->stat(tier, "packs/1", &len), 0, 2);
    assert_u64(len, 77);
}

Test(s3_answers, regions_in_a_circle)
{
    BAD_TIER({WITH_BODY("301", "x-amz-bucket-region: eu-west-3\r\nContent-Length: 0\r\n", "")},
             {WITH_BODY("301", "x-amz-bucket-region: us-east-1\r\nContent-Length: 0\r\n", "")});
    EXPECT(try_put(), -ENODEV, 2);
    expect_reported("set the region");
}

Test(s3_answers, a_wrong_clock_here)
{
    _cleanup_free_ char *late = dated(3600, "403", ERROR_BODY("RequestTimeTooSkewed"));
    BAD_TIER({late}, {STORED}, {STORED}, {late});
    EXPECT(try_put(), 0, 2);
    _cleanup_free_ char *now = date_in(0, "x-amz-date: %Y%m%dT%H"),
                        *then = date_in(3600, "x-amz-date: %Y%m%dT%H");
    cr_assert(bad_request_has(0, now));
    cr_assert(bad_request_has(1, then));
    EXPECT(try_put(), 0, 3);
    cr_assert(bad_request_has(2, then), "remembered");
    EXPECT(try_put(), -EACCES, 5);
    expect_reported("this machine's clock is wrong");
}

Test(s3_answers, the_servers_clock)
{
    _cleanup_free_ char *first = dated(3600, "403", ""), *second = dated(3602, "200", "");
    int64_t now, again;
    BAD_TIER({first}, {second});
    EXPECT(tier->ops->now(tier, &now), 0, 1);
    cr_assert_lt(llabs(now - clock_realtime_ns() - 3600000000000), 60000000000);
    EXPECT(tier->ops->now(tier, &again), 0, 1);
    cr_assert_geq(again, now);
    cr_assert(strncmp(bad_request(0), "HEAD /bucket ", 13) == 0);
}

static void write_keys(const char *path, const char *key_id)
{
    _cleanup_free_ char *text =
        xasprintf("[default]\naws_access_key_id=%s\naws_secret_access_key=not-a-secret\n", key_id);
    assert_i64(io_write_file_durable(path, text, strlen(text)), 0);
}

Test(s3_answers, expired_credentials)
{
    char path[] = "/var/tmp/cairn-keys-XXXXXX";
    int fd = mkstemp(path);
    cr_assert_geq(fd, 0);
    (void)close(fd);
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    assert_i64(setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1), 0);
    write_keys(path, "AKfirst");
    BAD_TIER({STORED}, {ERROR("400", "ExpiredToken")}, {STORED}, {ERROR("400", "ExpiredToken")});
    EXPECT(try_put(), 0, 1);
    write_keys(path, "AKsecond");
    EXPECT(try_put(), 0, 3);
    cr_assert(bad_request_has(1, "Credential=AKfirst/"));
    cr_assert(bad_request_has(2, "Credential=AKsecond/"));
    EXPECT(try_put(), -EKEYEXPIRED, 5);
    expect_reported("renew");
    (void)unlink(path);
}

Test(s3_answers, a_key_that_may_only_read)
{
    BAD_TIER({ERROR("403", "AccessDenied")});
    EXPECT(try_put(), -EACCES, 1);
    expect_reported("must allow it to get, put, delete and list objects here, or mount with -o ro");
    EXPECT(try_get(), -EACCES, 2);
    char error[512];
    tier->ops->last_error(tier, error, sizeof error);
    cr_assert_null(strstr(error, "-o ro"));
}

Test(s3_answers, no_credentials)
{
    (void)unsetenv("AWS_ACCESS_KEY_ID");
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    BAD_TIER({STORED});
    EXPECT(try_put(), -EACCES, 0);
    expect_reported("no credentials for S3");
}

Test(s3_answers, unsigned_requests)
{
    bad_options.unsigned_requests = true;
    BAD_TIER({TEN});
    EXPECT(try_get(), 0, 1);
    cr_assert_not(bad_request_has(0, "Authorization"));
}

/* --- what servers lack ------------------------------------------------------------------------ */

Test(s3_answers, no_checksums)
{
    bad_options.unsigned_requests = true; /* over http a signature is checksum enough */
    BAD_TIER({ERROR("501", "NotImplemented")}, {ERROR("400", "InvalidRequest")}, {STORED});
    EXPECT(try_put(), 0, 3);
    cr_assert(bad_request_has(0, "x-amz-checksum-crc32: ") && !bad_request_has(0, "Content-MD5"));
    cr_assert(bad_request_has(1, "Content-MD5: ") && !bad_request_has(1, "x-amz-checksum-crc32"));
    cr_assert(!bad_request_has(2, "Content-MD5") && !bad_request_has(2, "x-amz-checksum-crc32"));
    EXPECT(try_put(), 0, 4);
    cr_assert(!bad_request_has(3, "Content-MD5") && !bad_request_has(3, "x-amz-checksum-crc32"),
              "remembered");
}

Test(s3_answers, the_checksum_is_not_what_is_wrong)
{
    bad_options.unsigned_requests = true;
    BAD_TIER({ERROR("501", "NotImplemented")}, {ERROR("501", "NotImplemented")},
             {ERROR("501", "NotImplemented")}, {STORED});
    EXPECT(try_put_new(), -EOPNOTSUPP, 3);
    EXPECT(try_put(), 0, 4);
    cr_assert(bad_request_has(3, "x-amz-checksum-crc32: "), "nothing was learned");
}

Test(s3_answers, checksums_are_right)
{
    static const char digits[4096] __attribute__((aligned(4096))) = "123456789";
    bad_options.checksum = S3_CHECKSUM_CRC32;
    bad_options.storage_class = "STANDARD_IA";
    bad_options.sse = "aws:kms";
    bad_options.sse_kms_key_id = "key-1";
    BAD_TIER({STORED});
    EXPECT(tier->ops->put(tier, "packs/1", digits, 9), 0, 1);
    cr_assert(bad_request_has(0, "x-amz-checksum-crc32: y/Q5Jg==\r\n"));
    cr_assert(bad_request_has(0, "x-amz-storage-class: STANDARD_IA\r\n"));
    cr_assert(bad_request_has(0, "x-amz-server-side-encryption: aws:kms\r\n"));
    cr_assert(bad_request_has(0, "x-amz-server-side-encryption-aws-kms-key-id: key-1\r\n"));
    cr_assert_not(bad_request_has(0, "Expect"));
    bad_end();
    bad_options.checksum = S3_CHECKSUM_MD5;
    BAD_TIER({STORED});
    EXPECT(tier->ops->put(tier, "packs/1", digits, 9), 0, 1);
    cr_assert(bad_request_has(0, "Content-MD5: JfnnlDI7RTiF9RgfG2JNCw==\r\n"));
}

static int read_zeros(uint64_t offset, void *buf, size_t len, void *arg)
{
    const uint64_t *bad_at = arg;
    memset(buf, 0, len);
    return offset + len > *bad_at ? -EIO : 0;
}

static void expect_same_header(const char *name)
{
    const char *a = strstr(bad_request(0), name), *b = strstr(bad_request(1), name);
    cr_assert(a && b, "%s", name);
    assert_i64(strncmp(a, b, strcspn(a, "\r")), 0, "%s", name);
}

/* What is not in memory has the same checksums, and is signed alike. */
Test(s3_answers, checksums_of_what_is_elsewhere)
{
    uint64_t bad_at = UINT64_MAX;
    struct tier_source source = {.len = MIB + 1, .read = read_zeros, .arg = &bad_at};
    _cleanup_free_ void *zeros = xcalloc(1, MIB + 1);
    for (int md5 = 0; md5 < 2; md5++) {
        bad_options.checksum = md5 ? S3_CHECKSUM_MD5 : S3_CHECKSUM_CRC32;
        BAD_TIER({STORED});
        EXPECT(tier->ops->put(tier, "packs/1", zeros, MIB + 1), 0, 1);
        EXPECT(tier_put_from(tier, "packs/1", &source), 0, 2);
        expect_same_header(md5 ? "Content-MD5:" : "x-amz-checksum-crc32:");
        expect_same_header("x-amz-content-sha256:");
        expect_same_header("Content-Length: 1048577");
        bad_at = MIB;
        EXPECT(tier_put_from(tier, "packs/1", &source), -EIO, 2);
        bad_at = UINT64_MAX;
        bad_end();
    }
}

/* Found while it is sent: nothing reads it before. */
Test(s3_answers, what_is_elsewhere_cannot_be_read_to_its_end)
{
    uint64_t bad_at = MIB;
    struct tier_source source = {.len = MIB + 1, .read = read_zeros, .arg = &bad_at};
    bad_options.checksum = S3_CHECKSUM_NONE;
    bad_options.unsigned_requests = true;
    BAD_TIER({STORED});
    assert_i64(tier_put_from(tier, "packs/1", &source), -EIO);
    assert_i64(source.error, -EIO);
    struct tier_traffic t;
    tier->ops->traffic(tier, &t);
    assert_u64(t.requests, 1);
}

static const char *const three[] = {"packs/1", "packs/2", "packs/3"};

Test(s3_answers, no_deletes_of_many)
{
    BAD_TIER({ERROR("501", "NotImplemented")}, {EMPTY("204")}, {ERROR("404", "NoSuchKey")},
             {EMPTY("204")});
    EXPECT(tier->ops->remove_many(tier, three, 3), 0, 4);
    cr_assert(strncmp(bad_request(0), "POST /bucket?delete= ", 20) == 0);
    cr_assert(bad_request_has(0, "Content-MD5: "));
    cr_assert(strncmp(bad_request(3), "DELETE /bucket/pre/packs/3 ", 26) == 0);
    EXPECT(tier->ops->remove_many(tier, three, 3), 0, 7);
}

#define REFUSED(key, code) "<Error><Key>pre/" key "</Key><Code>" code "</Code></Error>"
#define DELETED(refused) WITH_BODY("200", "", "<DeleteResult>" refused "</DeleteResult>")

Test(s3_answers, deletes_that_are_refused_one_by_one)
{
    BAD_TIER({DELETED(REFUSED("packs/2", "InternalError") REFUSED("packs/3", "NoSuchKey"))},
             {EMPTY("204")});
    EXPECT(tier->ops->remove_many(tier, three, 3), 0, 2);
    cr_assert(strncmp(bad_request(1), "DELETE /bucket/pre/packs/2 ", 26) == 0);
    bad_end();
    BAD_TIER({DELETED(REFUSED("packs/2", "AccessDenied"))});
    EXPECT(tier->ops->remove_many(tier, three, 3), -EACCES, 1);
    expect_reported("packs/2: answered AccessDenied");
    bad_end();
    BAD_TIER({DELETED(REFUSED("packs/9", "InternalError"))});
    EXPECT(tier->ops->remove_many(tier, three, 3), -EPROTO, 1);
}

/* --- lists ------------------------------------------------------------------------------------ */

#define LIST(content)                                                                              \
    WITH_BODY("200", "",                                                                           \
              "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"http://s3\">" content              \
              "</ListBucketResult>")
#define KEY(name)                                                                                  \
    "<Contents><Key>" name                                                                         \
    "</Key><Size>5</Size><LastModified>2026-01-02T03:04:05.678Z</LastModified></Contents>"

static char listed[256];

static int note(const struct tier_object *object, void *arg)
{
    (void)arg;
    assert_u64(object->len, 5);
    assert_i64(object->modified_ns, 1767323045000000000, "whole seconds");
    strcat(strcat(listed, object->name), " ");
    return 0;
}

static int try_list(void)
{
    *listed = '\0';
    return tier->ops->list(tier, "packs", NULL, note, NULL);
}

Test(s3_answers, lists_in_pages)
{
    BAD_TIER({LIST("<EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>"
                   "<NextContinuationToken>a+b/=</NextContinuationToken>" KEY("pre/packs/%31"))},
             {EMPTY("500")},
             {LIST("<IsTruncated>false</IsTruncated>" KEY("pre/packs/2") KEY("pre/packs/3/"))});
    EXPECT(try_list(), 0, 3);
    assert_str(listed, "packs/1 packs/2 ");
    cr_assert(bad_request_has(
        0, "GET /bucket?list-type=2&encoding-type=url&max-keys=1000&prefix=pre%2Fpacks%2F "));
    cr_assert(bad_request_has(2, "&continuation-token=a%2Bb%2F%3D "));
}

Test(s3_answers, lists_without_a_token)
{
    BAD_TIER({LIST("<IsTruncated>true</IsTruncated>" KEY("pre/packs/1"))},
             {LIST(KEY("pre/packs/2"))});
    EXPECT(try_list(), 0, 2);
    assert_str(listed, "packs/1 packs/2 ");
    cr_assert(bad_request_has(1, "&start-after=pre%2Fpacks%2F1 "));
}

Test(s3_answers, lists_that_are_none)
{
    static const char *const wrong[] = {
        LIST(KEY("pre/packs/2") KEY("pre/packs/1")),
        LIST(KEY("pre/packs/1") KEY("pre/packs/1")),
        LIST(KEY("other/packs/1")),
        LIST("<IsTruncated>true</IsTruncated>"),
        LIST("<Contents><Key>pre/packs/1</Key><Size>-1</Size></Contents>"),
        LIST("<Contents><Size>1</Size></Contents>"),
        LIST("<EncodingType>url</EncodingType>" KEY("pre/packs/%00")),
        WITH_BODY("200", "", "<html><body>Hello</body></html>"),
        WITH_BODY("200", "",
                  "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult></ListBucketResult>"),
        WITH_BODY("200", "", "<ListBucketResult>"),
        WITH_BODY("200", "", ""),
    };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        BAD_TIER({wrong[i]});
        EXPECT(try_list(), -EPROTO, 1);
        bad_end();
    }
}

Test(s3_answers, lists_that_do_not_end)
{
#define MORE(token)                                                                                \
    LIST("<IsTruncated>true</IsTruncated>"                                                         \
         "<NextContinuationToken>" token "</NextContinuationToken>")
    BAD_TIER({MORE("t")});
    EXPECT(try_list(), -EPROTO, 2);
    expect_reported("does not end");
    bad_end();
    /* Empty pages with a new token each. */
    struct bad_step pages[200];
    for (size_t i = 0; i < ARRAY_LEN(pages); i++)
        pages[i] = (struct bad_step){i % 2 ? MORE("a") : MORE("b")};
    bad_tier(bad_open(pages, ARRAY_LEN(pages)));
    EXPECT(try_list(), -EPROTO, 100);
    expect_reported("does not end");
}

/* --- a HEAD has no words ---------------------------------------------------------------------- */

Test(s3_answers, a_refused_head_is_explained)
{
    uint64_t len;
    BAD_TIER({EMPTY("403")}, {ERROR("403", "SignatureDoesNotMatch")});
    EXPECT(tier->ops->stat(tier, "packs/1", &len), -EACCES, 2);
    cr_assert(bad_request_has(1, "GET /bucket/pre/packs/1 ") &&
              bad_request_has(1, "Range: bytes=0-0\r\n"));
    expect_reported("the secret does not match");
    bad_end();
    BAD_TIER({EMPTY("404")}, {ERROR("404", "NoSuchBucket")});
    EXPECT(tier->ops->stat(tier, "packs/1", &len), -ENODEV, 2);
    bad_end();
    BAD_TIER({EMPTY("404")}, {ERROR("404", "NoSuchKey")}, {EMPTY("404")});
    EXPECT(tier->ops->stat(tier, "packs/1", &len), -ENOENT, 2);
    EXPECT(tier->ops->stat(tier, "packs/1", &len), -ENOENT, 3);
    bad_end();
    BAD_TIER({EMPTY("400")},
             {WITH_BODY("206", "Content-Range: bytes 0-0/4242\r\nContent-Length: 1\r\n", "<")});
    EXPECT(tier->ops->stat(tier, "packs/1", &len), 0, 2);
    assert_u64(len, 4242);
}

/* --- no S3 ------------------------------------------------------------------------------------ */

Test(s3_answers, something_else_answers)
{
    static const char page[] = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n" END "<html></html>";
    static const char missing[] =
        "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\n" END "<html></html>";
    uint64_t len;
    BAD_TIER({page});
    EXPECT(try_put(), -EPROTO, 1);
    expect_reported("the server there is not S3");
    EXPECT(tier->ops->stat(tier, "packs/1", &len), -EPROTO, 2);
    EXPECT(try_list(), -EPROTO, 3);
    bad_end();
    BAD_TIER({missing});
    EXPECT(try_put(), -EPROTO, 1);
    EXPECT(try_get(), -EPROTO, 2);
    EXPECT(tier->ops->stat(tier, "packs/1", &len), -EPROTO, 4);
    bad_end();
    BAD_TIER({"220 mail.example.com ready\r\n"});
    EXPECT(try_put(), -EPROTO, 1);
    cr_assert_not(tier_error_is_transient(-EPROTO));
}

Test(s3_answers, http_where_tls_was_expected)
{
    _cleanup_free_ char *url = xasprintf("https%s", BAD_OPEN({STORED}) + 4);
    bad_tier(url);
    int r = try_put();
    cr_assert(r == -EPROTO || r == -ETIMEDOUT, "%s", strerror(-r));
}

Test(s3_answers, too_large_for_one_put)
{
    BAD_TIER({STORED});
    EXPECT(tier->ops->put(tier, "packs/1", NULL, 5 * GIB + 1), -EFBIG, 0);
}

/* --- options ---------------------------------------------------------------------------------- */

static void refused_as(int code, const struct s3_options options, const char *why)
{
    _cleanup_free_ char *error = NULL;
    assert_i64(s3_tier_open(&options, &tier, &error), code);
    cr_assert_not_null(strstr(error, why), "%s", error);
}

static void refused(const struct s3_options options, const char *why)
{
    refused_as(-EINVAL, options, why);
}

Test(s3_answers, options_that_are_wrong)
{
    refused((struct s3_options){0}, "is not a bucket name");
    refused((struct s3_options){.bucket = "a/b"}, "is not a bucket name");
    refused((struct s3_options){.bucket = "bucket", .prefix = "/a"}, "prefix");
    refused((struct s3_options){.bucket = "bucket", .prefix = "a/../b"}, "prefix");
    refused((struct s3_options){.bucket = "bucket", .endpoint_url = "localhost:9000"}, "not a URL");
    refused((struct s3_options){.bucket = "bucket", .endpoint_url = "ftp://host"},
            "neither http nor https");
    refused((struct s3_options){.bucket = "bucket", .endpoint_url = "http://user:word@host"},
            "(one with a password in it)");
    refused((struct s3_options){.bucket = "bucket", .region = "a\r\nb"}, "region");
    refused((struct s3_options){.bucket = "bucket", .storage_class = "a\r\nb"},
            "x-amz-storage-class");
    /* Not wrong: it may be there a minute later. */
    refused_as(-ENOENT, (struct s3_options){.bucket = "bucket", .ca_bundle = "/nowhere"},
               "/nowhere");
}
