#include "store.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <sys/mount.h>

#include "../base/seeded.h"

struct tier *tier;
char store[64];
static bool mounted;

void store_open(void)
{
    strcpy(store, "/var/tmp/cairn-tier-XXXXXX");
    cr_assert_not_null(mkdtemp(store));
    cr_assert_eq(nvme_tier_open(store, &tier), 0);
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
    cr_assert_eq(nvme_tier_open(store, &tier), 0);
    return true;
}

void store_close(void)
{
    if (tier)
        tier->ops->close(tier);
    tier = NULL;
    if (mounted)
        cr_assert_eq(umount(store), 0);
    mounted = false;
    _cleanup_free_ char *command = xasprintf("rm -rf %s", store);
    cr_assert_eq(system(command), 0);
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
    cr_assert_eq(tier->ops->put(tier, object, buf, len), 0);
}

void expect_content(const char *object, size_t len, uint64_t seed)
{
    _cleanup_free_ uint8_t *expected = content_new(len, seed);
    _cleanup_free_ uint8_t *got = xcalloc(1, len + 1);
    uint64_t object_len = 0;
    cr_assert_eq(tier->ops->stat(tier, object, &object_len), 0);
    cr_assert_eq(object_len, len);
    cr_assert_eq(tier->ops->get_range(tier, object, 0, got, len), 0);
    cr_assert_eq(memcmp(got, expected, len), 0);
    cr_assert_eq(tier->ops->get_range(tier, object, 0, got, len + 1), -EUCLEAN, "the object ends before");
    if (len > 10) {
        cr_assert_eq(tier->ops->get_range(tier, object, len / 2, got, 5), 0);
        cr_assert_eq(memcmp(got, expected + len / 2, 5), 0);
    }
}

unsigned files_in(const char *folder)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", store, folder);
    DIR *dir = opendir(path);
    cr_assert_not_null(dir);
    unsigned count = 0;
    struct dirent *d;
    while ((d = readdir(dir)))
        count += d->d_name[0] != '.';
    (void)closedir(dir);
    return count;
}
