// SPDX-License-Identifier: Apache-2.0
/* What only the local tier does: spare files, a full medium, leftovers. */
#include <fcntl.h>
#include <sys/stat.h>

#include "../expect.h"
#include "base/io.h"
#include "store.h"
#include "tier/room.h"

TestSuite(nvme, .init = store_open, .fini = store_close);
TestSuite(nvme_full, .fini = store_close);

Test(nvme, nothing_is_overwritten)
{
    put_ok("packs/1", 5000, 1);
    _cleanup_free_ void *other = content_new(6000, 2);
    assert_i64(tier->ops->put(tier, "packs/1", other, 6000), -EEXIST);
    assert_i64(tier->ops->log_create(tier, "packs/1", 4096), -EEXIST);
    expect_content("packs/1", 5000, 1);
}

static uint64_t reserve_ok(uint64_t bytes)
{
    uint64_t held = 0;
    assert_i64(tier->ops->reserve(tier, bytes, 0, &held), 0);
    cr_assert_geq(held, bytes);
    return held;
}

Test(nvme, spare_files_become_objects)
{
    assert_u64(reserve_ok(100 * MIB), 100 * MIB);
    assert_u64(files_in("room"), 4);
    put_ok("packs/1", 20 * MIB + 5, 1);
    assert_u64(files_in("room"), 3, "taken over");
    put_ok("packs/2", 5000, 2);
    assert_u64(files_in("room"), 3, "small objects leave the room alone");
    expect_content("packs/1", 20 * MIB + 5, 1);
    expect_content("packs/2", 5000, 2);
    struct stat st;
    _cleanup_free_ char *path = xasprintf("%s/packs/1", store);
    assert_i64(stat(path, &st), 0);
    assert_u64(st.st_mode & 07777, 0600);
    cr_assert_leq((uint64_t)st.st_blocks * 512, 21 * MIB,
                  "what the object does not need is free again");
}

Test(nvme, objects_longer_than_a_spare_file)
{
    (void)reserve_ok(ROOM_SPARE_LEN);
    put_ok("packs/1", ROOM_SPARE_LEN + 4097, 1);
    assert_u64(files_in("room"), 0);
    expect_content("packs/1", ROOM_SPARE_LEN + 4097, 1);
}

Test(nvme, room_grows_and_shrinks)
{
    assert_u64(reserve_ok(ROOM_SPARE_LEN + 1), ROOM_SPARE_LEN + MIB);
    assert_u64(reserve_ok(ROOM_SPARE_LEN), ROOM_SPARE_LEN);
    assert_u64(reserve_ok(ROOM_SPARE_LEN - 1), ROOM_SPARE_LEN);
    assert_u64(files_in("room"), 1);
    assert_u64(reserve_ok(0), 0);
    assert_u64(files_in("room"), 0);
}

static uint64_t disk_usage_of_room(void)
{
    static const char *const names[] = {"0000000000000001", "0000000000000002", "0000000000000003"};
    uint64_t bytes = 0;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        struct stat st;
        _cleanup_free_ char *path = xasprintf("%s/room/%s", store, names[i]);
        bytes += stat(path, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    }
    return bytes;
}

/* A cap is kept to the MiB: what is held takes no more of the disk than it says. */
Test(nvme, room_is_as_large_as_asked)
{
    assert_u64(reserve_ok(2 * ROOM_SPARE_LEN), 2 * ROOM_SPARE_LEN);
    for (uint64_t bytes = 50 * MIB; bytes > 0; bytes -= 10 * MIB) {
        assert_u64(reserve_ok(bytes), bytes);
        cr_assert_leq(disk_usage_of_room(), bytes + 64 * KIB);
    }
    assert_u64(reserve_ok(20 * MIB), 20 * MIB);
    put_ok("packs/1", 15 * MIB, 1);
    put_ok("packs/2", 15 * MIB, 2);
    expect_content("packs/1", 15 * MIB, 1);
    expect_content("packs/2", 15 * MIB, 2);
}

Test(nvme, leftovers_are_removed)
{
    (void)reserve_ok(1);
    put_ok("packs/1", 5000, 1);
    tier->ops->close(tier);
    assert_u64(files_in("room"), 1);
    assert_i64(nvme_tier_open(store, &tier), 0);
    assert_u64(files_in("room"), 0);
    expect_content("packs/1", 5000, 1);
}

Test(nvme, directories)
{
    struct stat st;
    static const char *const directories[] = {"packs", "journal", "room"};
    for (size_t i = 0; i < ARRAY_LEN(directories); i++) {
        _cleanup_free_ char *path = xasprintf("%s/%s", store, directories[i]);
        assert_i64(stat(path, &st), 0);
        assert_u64(st.st_mode & 07777, 0700);
    }
    struct tier *other;
    assert_i64(nvme_tier_open("/nowhere/at/all", &other), -ENOENT);
    _cleanup_free_ char *path = xasprintf("%s/file", store);
    assert_i64(io_write_file_durable(path, "x", 1), 0);
    assert_i64(nvme_tier_open(path, &other), -ENOTDIR);
}

Test(nvme, symbolic_links_are_not_followed)
{
    _cleanup_free_ char *path = xasprintf("%s/packs/link", store);
    assert_i64(symlink("/etc/passwd", path), 0);
    char byte;
    uint64_t len;
    assert_i64(tier->ops->get_range(tier, "packs/link", 0, &byte, 1), -ELOOP);
    assert_i64(tier->ops->stat(tier, "packs/link", &len), -ENOENT);
    _cleanup_free_ void *buf = content_new(100, 1);
    assert_i64(tier->ops->put(tier, "packs/link", buf, 100), -EEXIST);
}

Test(nvme, a_failed_log_stays_failed)
{
    assert_i64(tier->ops->log_create(tier, "journal/1", 4096), 0);
    assert_i64(tier->ops->log_append(tier, "journal/1", 0, "x", 1), 0);
    cr_assert_lt(tier->ops->log_append(tier, "journal/1", 1ull << 63, "x", 1), 0);
    assert_i64(tier->ops->log_append(tier, "journal/1", 1, "y", 1), -EIO);
    char byte;
    assert_i64(tier->ops->get_range(tier, "journal/1", 0, &byte, 1), 0);
}

Test(nvme_full, put_fails_cleanly)
{
    if (!store_open_small(16))
        return;
    _cleanup_free_ void *buf = content_new(20 * MIB, 1);
    assert_i64(tier->ops->put(tier, "packs/1", buf, 20 * MIB), -ENOSPC);
    assert_u64(files_in("room"), 0);
    assert_u64(files_in("packs"), 0);
    assert_i64(tier->ops->put(tier, "packs/1", buf, 10 * MIB), 0);
    expect_content("packs/1", 10 * MIB, 1);
    assert_i64(tier->ops->log_create(tier, "journal/1", 10 * MIB), -ENOSPC);
    struct tier_space space;
    assert_i64(tier->ops->space(tier, &space), 0);
    assert_u64(space.total_bytes, 16 * MIB);
    cr_assert_leq(space.free_bytes, 6 * MIB);
    assert_i64(tier->ops->remove(tier, "packs/1"), 0);
    assert_i64(tier->ops->space(tier, &space), 0);
    cr_assert_geq(space.free_bytes, 15 * MIB, "free at once, cached descriptors or not");
}

Test(nvme_full, what_was_reserved_is_there)
{
    if (!store_open_small(32))
        return;
    uint64_t held;
    assert_i64(tier->ops->reserve(tier, 100 * MIB, 0, &held), -ENOSPC);
    cr_assert_geq(held, 28 * MIB, "what can be had is kept");
    struct tier_space space;
    assert_i64(tier->ops->space(tier, &space), 0);
    cr_assert_lt(space.free_bytes, 3 * MIB);
    put_ok("packs/1", 3 * MIB, 1);
    put_ok("packs/2", 20 * MIB, 2);
    assert_i64(tier->ops->log_create(tier, "journal/1", MIB), 0);
    expect_content("packs/1", 3 * MIB, 1);
    expect_content("packs/2", 20 * MIB, 2);
    char byte;
    assert_i64(tier->ops->get_range(tier, "journal/1", MIB - 1, &byte, 1), 0);
    assert_i64(byte, 0);
}
