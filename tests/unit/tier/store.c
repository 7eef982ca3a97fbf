// SPDX-License-Identifier: Apache-2.0
#include "store.h"
#include "../../remove_tree.h"
#include "../expect.h"

#include <dirent.h>
#include <stdio.h>
#include <sys/mount.h>

#include "../base/seeded.h"
#include "base/clock.h"
#include "tier/s3/sign.h"

#define BUCKET "cairn-unit-tests"

struct tier *tier;
char store[64];
static bool mounted;

void store_open(void)
{
    strcpy(store, "/var/tmp/cairn-tier-XXXXXX");
    cr_assert_not_null(mkdtemp(store));
    assert_i64(nvme_tier_open(store, &tier), 0);
}

bool store_open_small(unsigned mib)
{
    strcpy(store, "/var/tmp/cairn-tier-XXXXXX");
    cr_assert_not_null(mkdtemp(store));
    _cleanup_free_ char *options = xasprintf("size=%um", mib);
    if (mount("tmpfs", store, "tmpfs", 0, options) < 0) {
        (void)rmdir(store);
        cr_log_warn("skipped: a small tmpfs cannot be mounted here (%s)", strerror(errno));
        return false;
    }
    mounted = true;
    assert_i64(nvme_tier_open(store, &tier), 0);
    return true;
}

void store_open_dir(void)
{
    char *error = NULL;
    strcpy(store, "/var/tmp/cairn-tier-XXXXXX");
    cr_assert_not_null(mkdtemp(store));
    _cleanup_free_ char *path = xasprintf("%s/remote", store);
    assert_i64(dir_tier_open(&(struct dir_options){.path = path}, &tier, &error), 0, "%s", error);
}

void s3_make_bucket(const char *endpoint, const char *bucket)
{
    struct http_options options = {
        .connections = 1, .stall_ns = 15000000000, .ca_bundle = getenv("AWS_CA_BUNDLE")};
    char key_id[] = "cairntest", secret[] = "cairnsecret";
    struct s3_credentials keys = {.key_id = key_id, .secret = secret};
    _cleanup_free_ char *path = xasprintf("/%s", bucket), *url = xasprintf("%s%s", endpoint, path);
    struct s3_sign_request sign = {.method = "PUT",
                                   .host = strstr(endpoint, "://") + 3,
                                   .path = path,
                                   .payload_header = true,
                                   .region = "us-east-1",
                                   .service = "s3",
                                   .time_ns = clock_realtime_ns()};
    struct s3_signed signature;
    struct http *http;
    struct http_response response;
    assert_i64(s3_sign(&sign, &keys, &signature), 0);
    assert_i64(http_open(&options, &http), 0);
    struct http_request request = {
        .method = "PUT", .url = url, .headers = (const char *const *)signature.headers};
    assert_i64(http_perform(http, &request, &response), 0, "%s: %s", url, response.cause);
    cr_assert(response.status == 200 || response.status == 409, "%ld %s", response.status,
              response.text.at);
    http_response_done(&response);
    http_close(http);
    s3_signed_done(&signature);
}

bool s3_test_options(const char *prefix, struct s3_options *ret_options)
{
    const char *endpoint = getenv("CAIRN_TEST_S3_ENDPOINT");
    if (!endpoint || !*endpoint)
        return false;
    assert_i64(setenv("AWS_ACCESS_KEY_ID", "cairntest", 1), 0);
    assert_i64(setenv("AWS_SECRET_ACCESS_KEY", "cairnsecret", 1), 0);
    assert_i64(unsetenv("AWS_SESSION_TOKEN"), 0);
    s3_make_bucket(endpoint, BUCKET);
    *ret_options = (struct s3_options){.bucket = BUCKET,
                                       .prefix = prefix,
                                       .endpoint_url = endpoint,
                                       .region = "us-east-1",
                                       .connections = 5};
    return true;
}

void store_open_s3(void)
{
    char *error = NULL;
    struct s3_options options;
    _cleanup_free_ char *prefix =
        xasprintf("unit & <tests>/%d-%lld", getpid(), (long long)clock_realtime_ns());
    if (!s3_test_options(prefix, &options))
        return;
    assert_i64(s3_tier_open(&options, &tier, &error), 0, "%s", error);
}

static int remove_one(const struct tier_object *object, void *arg)
{
    (void)arg;
    return tier->ops->remove(tier, object->name);
}

static void remove_all(void)
{
    static const char *const directories[] = {"packs", "heads", "journal"};
    for (size_t i = 0; i < ARRAY_LEN(directories); i++)
        (void)tier->ops->list(tier, directories[i], NULL, remove_one, NULL);
    (void)tier->ops->remove(tier, "superblock");
}

void store_close(void)
{
    if (tier && !*store)
        remove_all();
    if (tier)
        tier->ops->close(tier);
    tier = NULL;
    if (!*store)
        return;
    if (mounted)
        assert_i64(umount(store), 0);
    mounted = false;
    remove_tree(store);
}

void *content_new(size_t len, uint64_t seed)
{
    size_t room = align_up(len + 1, 4096);
    uint8_t *buf = aligned_alloc(4096, room);
    cr_assert_not_null(buf);
    struct seeded s = {seed};
    memset(buf, 0, room);
    for (size_t i = 0; i < len; i += 509)
        buf[i] = (uint8_t)seeded_u64(&s);
    return buf;
}

void put_ok(const char *object, size_t len, uint64_t seed)
{
    _cleanup_free_ void *buf = content_new(len, seed);
    assert_i64(tier->ops->put(tier, object, buf, len), 0);
}

void expect_content(const char *object, size_t len, uint64_t seed)
{
    _cleanup_free_ uint8_t *expected = content_new(len, seed);
    _cleanup_free_ uint8_t *got = xcalloc(1, len + 1);
    uint64_t object_len = 0;
    assert_i64(tier->ops->stat(tier, object, &object_len), 0);
    assert_u64(object_len, len);
    assert_i64(tier->ops->get_range(tier, object, 0, got, len), 0);
    assert_i64(memcmp(got, expected, len), 0);
    assert_i64(tier->ops->get_range(tier, object, 0, got, len + 1), -EUCLEAN,
               "the object ends before");
    if (len > 10) {
        assert_i64(tier->ops->get_range(tier, object, len / 2, got, 5), 0);
        assert_i64(memcmp(got, expected + len / 2, 5), 0);
    }
}

unsigned files_in(const char *directory)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", store, directory);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    unsigned count = 0;
    struct dirent *d;
    while ((d = readdir(dir)))
        count += d->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}
