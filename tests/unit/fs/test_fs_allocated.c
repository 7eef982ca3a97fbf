// SPDX-License-Identifier: Apache-2.0
/* What fallocate gave to a file, and how it is kept: bytes that a newer daemon, and other nodes,
 * must understand. */
#include <fcntl.h>
#include <linux/falloc.h>

#include "../expect.h"
#include "format/le.h"
#include "fs_fixture.h"

#define LIST "cairn.allocated"
#define KEEP FALLOC_FL_KEEP_SIZE

TestSuite(allocated, .init = fs_fixture_setup, .fini = fs_fixture_teardown, .timeout = 600);

static void give(uint64_t ino, int mode, uint64_t offset, uint64_t length)
{
    assert_i64(fs_fallocate(fs, ino, mode, offset, length, &root), 0);
}

static ssize_t list_of(uint64_t ino, uint8_t *buf, size_t size)
{
    return ns_getxattr(store_ns(fixture.store), ino, LIST, strlen(LIST), buf, size);
}

static void set_list(uint64_t ino, const void *bytes, size_t len)
{
    struct record rec = {.type = REC_SETXATTR,
                         .ino = ino,
                         .name = LIST,
                         .name_len = strlen(LIST),
                         .value = bytes,
                         .value_len = (uint32_t)len};
    struct ns_inode inode;
    assert_i64(ns_hold(store_ns(fixture.store), ino, &inode), 0);
    assert_i64(history_commit(store_commit(fixture.store)->history, &rec), 0);
    ns_drop(store_ns(fixture.store), ino);
}

Test(allocated, bytes_of_the_list)
{
    static const uint8_t expected[] = {
        1, 0,    0, 0, 0, 0, 0, 0,                            /* version */
        0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0x20, 0, 0, 0, 0, 0, 0, /* 8 KiB at 4 KiB */
        0, 0,    1, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 0, 0, /* 4 KiB at 64 KiB */
    };
    uint8_t is[sizeof expected + 1];
    uint64_t file = make_file("a", "text");
    give(file, KEEP, 65536, 1);
    give(file, KEEP, 4097, 4096);
    assert_i64(list_of(file, is, sizeof is), (ssize_t)sizeof expected);
    cr_expect_arr_eq(is, expected, sizeof expected);
    expect_i64(stat_of(file).st_blocks, 8 + 16 + 8);
    fs_fixture_restart();
    expect_i64(stat_of(file).st_blocks, 8 + 16 + 8);
    struct stat set = {.st_size = 4}, st;
    assert_i64(fs_setattr(fs, file, FS_SET_SIZE, &set, &root, &st), 0);
    expect_i64(st.st_blocks, 8, "behind the end all is given back");
    expect_i64(list_of(file, is, sizeof is), -ENODATA);
    expect_text(file, "text");
}

/* The most ranges that are kept; with more, the smallest are not counted, and nothing else is
 * different. */
Test(allocated, many_ranges)
{
    uint8_t is[4096];
    uint64_t file = make_file("a", "x");
    for (uint64_t i = 1; i <= 200; i++)
        give(file, KEEP, i * 65536, i > 100 ? 8192 : 4096);
    expect_i64(list_of(file, is, sizeof is), 8 + 128 * 16);
    expect_i64(stat_of(file).st_blocks, (100 * 8192 + 28 * 4096 + 4096) / 512);
    give(file, KEEP, 0, 256 * 65536);
    expect_i64(list_of(file, is, sizeof is), 8 + 16);
    expect_i64(stat_of(file).st_blocks, 256 * 65536 / 512);
    expect_text(file, "x");
}

/* Content outside of what was given, and holes within: each byte counts once, in the stage and on
 * NVMe. */
Test(allocated, counted_once)
{
    static char kib64[65536];
    struct file file = create("a");
    struct stat set = {.st_size = 16 * MIB}, st;
    memset(kib64, 'x', sizeof kib64);
    assert_i64(fs_setattr(fs, file.ino, FS_SET_SIZE, &set, &root, &st), 0);
    give(file.ino, 0, 1 * MIB,
         2 * MIB); /* less than half of the file: holes in it are looked for */
    for (uint64_t at = 0; at < 4; at++)
        assert_i64(write_as(&root, file.ino, at * MIB, kib64, sizeof kib64), 0);
    for (unsigned i = 0; i < 3; i++) {
        expect_i64(stat_of(file.ino).st_blocks, (2 * MIB + 2 * 65536) / 512);
        assert_i64(fs_flush(fs, file.ino, file.handle), 0);
        fixture_wait(&fixture);
    }
    give(file.ino, 0, 1 * MIB, 14 * MIB); /* more than half: content outside is */
    expect_i64(stat_of(file.ino).st_blocks, (14 * MIB + 65536) / 512);
    give(file.ino, 0, 0, 16 * MIB);
    expect_i64(stat_of(file.ino).st_blocks, 16 * MIB / 512);
    close_file(file);
}

/* Another version's, or a damaged one, is none; what the file holds does not depend on it. */
Test(allocated, hostile_lists)
{
    uint64_t file = make_file("a", "text");
    uint8_t list[40] = {1};
    static const struct {
        uint64_t from, length, from2, length2;
    } wrong[] = {{1, 4096, 8192, 4096},     {0, 4095, 8192, 4096},    {0, 0, 8192, 4096},
                 {8192, 4096, 0, 4096},     {0, 8192, 4096, 4096},    {0, 8192, 8192, 4096},
                 {0, 4096, 8192, ~4095ull}, {0, 4096, ~4095ull, 4096}};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        put_le64(list + 8, wrong[i].from);
        put_le64(list + 16, wrong[i].length);
        put_le64(list + 24, wrong[i].from2);
        put_le64(list + 32, wrong[i].length2);
        set_list(file, list, sizeof list);
        expect_i64(stat_of(file).st_blocks, 8, "list %zu", i);
    }
    for (size_t len = 0; len < sizeof list; len++) {
        set_list(file, list, len);
        expect_i64(stat_of(file).st_blocks, 8);
    }
    list[0] = 2;
    set_list(file, list, sizeof list);
    expect_i64(stat_of(file).st_blocks, 8);
    static uint8_t long_list[65536];
    set_list(file, long_list, sizeof long_list);
    expect_i64(stat_of(file).st_blocks, 8);
    give(file, KEEP, 4096, 4096);
    expect_i64(stat_of(file).st_blocks, 16);
    expect_text(file, "text");
}
