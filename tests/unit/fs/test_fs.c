// SPDX-License-Identifier: Apache-2.0
/* What files mean, on a store, without FUSE. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "../expect.h"
#include "fs_fixture.h"
#include "stage/layout.h"

TestSuite(fs, .init = fs_fixture_setup, .fini = fs_fixture_teardown, .timeout = 600);

/* --- names ------------------------------------------------------------------------------------ */

Test(fs, a_rename_replaces)
{
    uint64_t a = make_file("a", "aaa");
    (void)make_file("b", "bbb");
    assert_i64(rename_file("a", "b", 0), 0);
    expect_u64(ino_of("a"), 0);
    expect_u64(ino_of("b"), a);
    expect_text(a, "aaa");
    fs_fixture_restart();
    expect_text(ino_of("b"), "aaa");
}

Test(fs, rules_of_rename)
{
    (void)make_file("a", "a");
    (void)make_file("b", "b");
    uint64_t d = make_dir("d");
    (void)make_dir("e");
    const struct fs_new_inode in = {d, "in", 0755, 0, &root};
    struct stat st;
    assert_i64(fs_mkdir(fs, &in, &st), 0);
    expect_i64(rename_file("none", "b", 0), -ENOENT);
    expect_i64(rename_file("a", "b", RENAME_NOREPLACE), -EEXIST);
    expect_i64(rename_file("a", "none", RENAME_EXCHANGE), -ENOENT);
    expect_i64(rename_file("a", "d", 0), -EISDIR);
    expect_i64(rename_file("d", "a", 0), -ENOTDIR);
    expect_i64(rename_file("e", "d", 0), -ENOTEMPTY);
    expect_i64(rename_file("a", "b", 1u << 10), -EINVAL);
    expect_i64(rename_file("a", "a", 0), 0);
    assert_i64(rename_file("d", "e", 0), 0, "over an empty directory");
    expect_u64(ino_of("e"), d);
    expect_u64(stat_of(ROOT_INO).st_nlink, 3);
    uint64_t a = ino_of("a");
    assert_i64(rename_file("a", "e", RENAME_EXCHANGE), 0);
    expect_u64(ino_of("e"), a);
    expect_u64(ino_of("a"), d);
}

/* The kernel does not ask for it by the names that it knows; by those that there are it may. */
Test(fs, no_directory_moves_into_itself)
{
    uint64_t outer = make_dir("outer");
    (void)make_dir("aside");
    const struct fs_new_inode in = {outer, "inner", 0755, 0, &root};
    struct fs_renamed renamed;
    struct stat inner;
    assert_i64(fs_mkdir(fs, &in, &inner), 0);
    const struct fs_rename below = {ROOT_INO, "outer", inner.st_ino, "loop", 0},
                           within = {ROOT_INO, "outer", outer, "loop", 0},
                           exchanges = {ROOT_INO, "outer", outer, "inner", RENAME_EXCHANGE},
                           out = {outer, "inner", ROOT_INO, "inner", 0};
    expect_i64(fs_rename(fs, &below, &root, &renamed), -EINVAL);
    expect_i64(fs_rename(fs, &within, &root, &renamed), -EINVAL);
    expect_i64(fs_rename(fs, &exchanges, &root, &renamed), -EINVAL);
    expect_i64(fs_rename(fs, &out, &root, &renamed), 0);
    expect_u64(ino_of("outer"), outer);
}

Test(fs, what_lost_or_changed_its_name_is_said)
{
    uint64_t a = make_file("a", "a"), b = make_file("b", "b"), d = make_dir("d"), removed = 0;
    struct fs_renamed renamed = {0};
    static const struct fs_rename moves = {ROOT_INO, "a", ROOT_INO, "c", 0},
                                  exchanges = {ROOT_INO, "c", ROOT_INO, "d", RENAME_EXCHANGE},
                                  replaces = {ROOT_INO, "d", ROOT_INO, "b", 0};
    assert_i64(fs_rename(fs, &moves, &root, &renamed), 0);
    expect_u64(renamed.source, a);
    expect_u64(renamed.target, 0);
    assert_i64(fs_rename(fs, &exchanges, &root, &renamed), 0);
    expect_u64(renamed.source, a);
    expect_u64(renamed.target, d);
    assert_i64(fs_rename(fs, &replaces, &root, &renamed), 0);
    expect_u64(renamed.source, a);
    expect_u64(renamed.target, b);
    assert_i64(fs_rmdir(fs, ROOT_INO, "c", &removed), 0);
    expect_u64(removed, d);
}

Test(fs, a_close_seals_what_could_be_written_or_was_made)
{
    uint64_t a = make_file("a", "a");
    struct fs_opened opened;
    struct stat st;
    static const struct {
        int flags;
        bool seals;
    } opens[] = {
        {O_RDONLY, false}, {O_RDONLY | O_NOATIME, false}, {O_WRONLY, true}, {O_RDWR, true}};
    for (size_t i = 0; i < ARRAY_LEN(opens); i++) {
        assert_i64(fs_open(fs, a, opens[i].flags, &opened), 0);
        cr_expect(opened.seals == opens[i].seals);
        (void)fs_release(fs, opened.handle, false);
    }
    assert_i64(create_in(ROOT_INO, "b", O_CREAT | O_RDONLY, &st, &opened), 0);
    cr_expect(opened.seals, "it becomes part of history");
    assert_i64(fs_opened_again(fs, opened.handle, &opened), 0);
    cr_expect(opened.seals, "for a successor, too");
    (void)fs_release(fs, opened.handle, false);
}

Test(fs, a_rename_of_a_draft_seals_it_first)
{
    struct file file = create("tmp");
    put_text(file, 0, "content");
    assert_i64(rename_file("tmp", "model", 0), 0);
    struct stage_file_state state;
    (void)stage_file_state(store_stage(fixture.store), file.ino, &state);
    cr_expect_not(state.has_draft);
    put_text(file, 7, " more");
    close_file(file);
    expect_text(ino_of("model"), "content more");
}

Test(fs, a_rename_over_a_file_that_is_new_and_open)
{
    struct file target = create("b");
    put_text(target, 0, "old");
    (void)make_file("a", "new");
    assert_i64(rename_file("a", "b", 0), 0);
    expect_text(target.ino, "old");
    put_text(target, 3, "er");
    expect_text(target.ino, "older");
    close_file(target);
    assert_i64(fs_forget(fs, target.ino), 0);
    struct stat st;
    expect_i64(fs_getattr(fs, target.ino, &st), -ENOENT);
    expect_text(ino_of("b"), "new");
}

Test(fs, hard_links)
{
    struct stat st;
    uint64_t a = make_file("a", "text"), d = make_dir("d");
    assert_i64(fs_link(fs, a, d, "b", &st), 0);
    expect_u64(st.st_nlink, 2);
    expect_i64(fs_link(fs, a, d, "b", &st), -EEXIST);
    expect_i64(fs_link(fs, d, ROOT_INO, "dd", &st), -EPERM);
    expect_i64(remove_dir("d"), -ENOTEMPTY);
    expect_i64(remove_dir("a"), -ENOTDIR);
    expect_i64(fs_unlink(fs, ROOT_INO, "d"), -EISDIR);
    assert_i64(fs_unlink(fs, ROOT_INO, "a"), 0);
    assert_i64(fs_lookup(fs, d, "b", &st), 0);
    expect_u64(st.st_nlink, 1);
    expect_text(st.st_ino, "text");
}

Test(fs, long_names)
{
    char name[258];
    const struct fs_new_inode new = {ROOT_INO, name, 0755, 0, &root};
    struct stat st;
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    expect_i64(fs_mkdir(fs, &new, &st), -ENAMETOOLONG);
    expect_i64(fs_lookup(fs, ROOT_INO, name, &st), -ENAMETOOLONG);
    expect_i64(rename_file("a", name, 0), -ENAMETOOLONG);
    name[255] = '\0';
    expect_i64(fs_mkdir(fs, &new, &st), 0);
    expect_i64(fs_mkdir(fs, &new, &st), -EEXIST);
}

static int count_name(const struct fs_entry *entry, void *arg)
{
    unsigned *count = arg;
    cr_expect(strcmp(entry->name, ".") == 0 ? entry->ino == ROOT_INO : entry->offset > 1);
    (*count)++;
    return 0;
}

Test(fs, special_files_and_listing)
{
    struct stat st;
    char target[4096];
    const struct fs_new_inode link = {ROOT_INO, "link", 0, 0, &user},
                              fifo = {ROOT_INO, "fifo", S_IFIFO | 0600, 0, &root},
                              plain = {ROOT_INO, "plain", S_IFREG | 0600, 0, &root};
    assert_i64(fs_symlink(fs, "to/there", &link, &st), 0);
    expect_i64(st.st_size, 8);
    expect_u64(st.st_uid, 1000);
    assert_i64(fs_readlink(fs, st.st_ino, target), 8);
    assert_i64(fs_mknod(fs, &fifo, &st), 0);
    assert_i64(fs_mknod(fs, &plain, &st), 0);
    unsigned count = 0;
    const struct fs_listing all = {
        .dir = ROOT_INO, .until = UINT64_MAX, .expected = 64, .fn = count_name, .arg = &count};
    assert_i64(fs_readdir(fs, &all), 0);
    expect_u64(count, 5);
    fs_fixture_restart();
    assert_i64(fs_readlink(fs, ino_of("link"), target), 8);
    expect_u64(stat_of(ino_of("fifo")).st_mode, S_IFIFO | 0600);
    expect_i64(stat_of(ino_of("plain")).st_size, 0);
}

/* --- content ---------------------------------------------------------------------------------- */

Test(fs, truncation)
{
    struct file file = create("a");
    struct stat st = {.st_size = 3};
    put_text(file, 0, "abcdef");
    fixture_wait(&fixture);
    assert_i64(fs_setattr(fs, file.ino, FS_SET_SIZE, &st, &root, &st), 0);
    expect_i64(st.st_size, 3);
    st.st_size = 5;
    assert_i64(fs_setattr(fs, file.ino, FS_SET_SIZE, &st, &root, &st), 0);
    expect_text(file.ino, "abc..");
    close_file(file);
    struct fs_opened opened;
    assert_i64(fs_open(fs, file.ino, O_WRONLY, &opened), 0);
    st.st_size = 0;
    assert_i64(fs_setattr(fs, file.ino, FS_SET_SIZE, &st, &root, &st), 0);
    expect_i64(stat_of(file.ino).st_size, 0);
    (void)fs_release(fs, opened.handle, false);
    fs_fixture_restart();
    expect_i64(stat_of(ino_of("a")).st_size, 0);
}

Test(fs, fallocate)
{
    struct file file = create("a");
    put_text(file, 0, "abcdefgh");
    const int keep = FALLOC_FL_KEEP_SIZE, punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    expect_i64(fs_fallocate(fs, file.ino, 0, 0, 10, &root), 0);
    expect_text(file.ino, "abcdefgh..");
    expect_i64(fs_fallocate(fs, file.ino, keep, 0, 100, &root), 0);
    expect_i64(stat_of(file.ino).st_size, 10);
    expect_i64(fs_fallocate(fs, file.ino, punch, 2, 2, &root), 0);
    expect_text(file.ino, "ab..efgh..");
    expect_i64(fs_fallocate(fs, file.ino, punch, 7, 100, &root), 0);
    expect_text(file.ino, "ab..efg...");
    expect_i64(fs_fallocate(fs, file.ino, FALLOC_FL_ZERO_RANGE, 6, 6, &root), 0);
    expect_text(file.ino, "ab..ef......");
    expect_i64(fs_fallocate(fs, file.ino, punch, 50, 5, &root), 0);
    expect_i64(stat_of(file.ino).st_size, 12);
    expect_i64(fs_fallocate(fs, file.ino, FALLOC_FL_PUNCH_HOLE, 0, 1, &root), -EOPNOTSUPP);
    expect_i64(fs_fallocate(fs, file.ino, FALLOC_FL_COLLAPSE_RANGE, 0, 1, &root), -EOPNOTSUPP);
    expect_i64(fs_fallocate(fs, file.ino, 0, 0, 0, &root), -EINVAL);
    expect_i64(fs_fallocate(fs, file.ino, 0, INT64_MAX, 10, &root), -EFBIG);
    expect_i64(fs_fallocate(fs, ROOT_INO, 0, 0, 10, &root), -ENODEV);
    close_file(file);
    fs_fixture_restart();
    expect_text(ino_of("a"), "ab..ef......");
}

Test(fs, seeking)
{
    struct file file = create("a");
    put_text(file, 0, "abc");
    put_text(file, 100, "xyz");
    for (unsigned i = 0; i < 2; i++) {
        expect_i64(fs_lseek(fs, file.ino, 0, SEEK_DATA), 0);
        expect_i64(fs_lseek(fs, file.ino, 1, SEEK_HOLE), 3);
        expect_i64(fs_lseek(fs, file.ino, 3, SEEK_DATA), 100);
        expect_i64(fs_lseek(fs, file.ino, 50, SEEK_HOLE), 50);
        expect_i64(fs_lseek(fs, file.ino, 100, SEEK_HOLE), 103);
        expect_i64(fs_lseek(fs, file.ino, 103, SEEK_DATA), -ENXIO);
        expect_i64(fs_lseek(fs, file.ino, 103, SEEK_HOLE), -ENXIO);
        if (i)
            break;
        close_file(file);
        fs_fixture_restart();
        file.ino = ino_of("a");
    }
    expect_i64(fs_lseek(fs, file.ino, 0, SEEK_SET), -EINVAL);
}

static ssize_t copy_whole(uint64_t from, uint64_t to, size_t length)
{
    size_t done = 0;
    while (done < length) {
        const struct fs_copy rest = {from, done, to, done, length - done};
        ssize_t n = fs_copy(fs, &rest, &root);
        if (n <= 0)
            return n;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

Test(fs, copying)
{
    struct file from = create("from");
    fixture_fill(&fixture, from.ino, 0, 3, 3 * MIB);
    fixture_fill(&fixture, from.ino, 4 * MIB, 3, 1000);
    for (unsigned i = 0; i < 2; i++) {
        struct file to = create(i ? "to-1" : "to-0");
        assert_i64(copy_whole(from.ino, to.ino, 4 * MIB + 1000), (ssize_t)(4 * MIB + 1000));
        put_text(to, 5, "x");
        close_file(to);
        assert_i64(fs_flush(fs, from.ino, from.handle), 0);
        fixture_wait(&fixture);
    }
    (void)fs_release(fs, from.handle, false);
    fs_fixture_restart();
    for (unsigned i = 0; i < 2; i++) {
        uint64_t to = ino_of(i ? "to-1" : "to-0");
        char byte = 0;
        assert_i64(stat_of(to).st_size, 4 * MIB + 1000);
        fixture_expect_fill(&fixture, to, 0, 3, 5);
        assert_i64(read_file(to, 5, &byte, 1, NULL), 1);
        expect_i64(byte, 'x');
        fixture_expect_fill(&fixture, to, 6, 3, 3 * MIB - 6);
        assert_i64(read_file(to, 3 * MIB + 5, &byte, 1, NULL), 1);
        expect_i64(byte, 0);
        fixture_expect_fill(&fixture, to, 4 * MIB, 3, 1000);
    }
    cr_expect_lt(fixture_status(&fixture).view.pack_bytes, 8 * MIB,
                 "what was durable is copied by reference");
}

/* More than the stage holds: what fits is copied, for the rest it waits. */
Test(fs, copying_while_there_is_little_room)
{
    struct file from = create("from"), to = create("to");
    fixture_fill(&fixture, from.ino, 0, 4, 20 * MIB);
    for (uint64_t done = 0; done < 100 * MIB;) {
        uint64_t at = done % (20 * MIB);
        const struct fs_copy part = {from.ino, at, to.ino, done, 20 * MIB - at};
        ssize_t n = fs_copy(fs, &part, &root);
        cr_assert(n > 0 || n == -EAGAIN, "is %zd", n);
        horizon_note_waiting(store_commit(fixture.store)->horizon, n < 0);
        done += n > 0 ? (uint64_t)n : 0;
        if (n < 0)
            (void)usleep(1000);
    }
    horizon_note_waiting(store_commit(fixture.store)->horizon, 0);
    close_file(from);
    close_file(to);
    fs_fixture_restart();
    static uint8_t is[4096], expected[4096];
    for (uint64_t at = 0; at < 100 * MIB - sizeof is; at += 999999) {
        fixture_read(&fixture, ino_of("to"), at, is, sizeof is);
        for (size_t i = 0; i < sizeof is; i++)
            fixture_read(&fixture, ino_of("from"), (at + i) % (20 * MIB), &expected[i],
                         i % 512 == 0);
        for (size_t i = 0; i < sizeof is; i += 512)
            assert_u64(is[i], expected[i], "byte %llu", (unsigned long long)(at + i));
    }
}

/* What is large is copied in slabs of its own: a piece is as large as a request. */
Test(fs, copying_what_is_not_durable)
{
    struct file from = create("from"), to = create("to");
    fixture_fill(&fixture, from.ino, 0, 4, 12 * MIB + 300);
    const struct fs_copy most = {from.ino, 100, to.ino, 7, 12 * MIB + 200};
    assert_i64(fs_copy(fs, &most, &root), (ssize_t)most.length);
    static uint8_t is[12 * MIB], expected[4096];
    struct got got;
    assert_i64(read_file(to.ino, 0, is, sizeof is, &got), (ssize_t)sizeof is);
    cr_expect(got.at_once);
    cr_expect_lt(got.iov_count, 30, "is %zu", got.iov_count);
    for (uint64_t at = 0; at < 12 * MIB; at += 999999) {
        fixture_read(&fixture, from.ino, 100 + at, expected, sizeof expected);
        fixture_read(&fixture, to.ino, 7 + at, is, sizeof expected);
        assert_i64(memcmp(is, expected, sizeof expected), 0);
    }
    close_file(from);
    close_file(to);
    fixture_wait(&fixture);
}

Test(fs, reading_from_memory)
{
    struct file file = create("a");
    struct got got;
    char is[100];
    put_text(file, 0, "abc");
    put_text(file, 5, "d");
    assert_u64(read_file(file.ino, 1, is, sizeof is, &got), 5);
    cr_expect(got.at_once);
    expect_u64(got.iov_count, 3, "nothing is copied");
    expect_i64(memcmp(is, "bc\0\0d", 5), 0);
    assert_u64(read_file(file.ino, 6, is, sizeof is, &got), 0);
    cr_expect(got.at_once);
    close_file(file);
    fixture_wait(&fixture);
    fs_fixture_restart();
    expect_text(ino_of("a"), "abc..d");
}

/* --- attributes ------------------------------------------------------------------------------- */

Test(fs, attributes)
{
    uint64_t ino = make_file("a", "text");
    struct stat st = {.st_mode = S_IFREG | 04755, .st_uid = 5, .st_mtim = {.tv_sec = 77}};
    assert_i64(fs_setattr(fs, ino, FS_SET_MODE | FS_SET_MTIME, &st, &root, &st), 0);
    expect_u64(st.st_mode, S_IFREG | 04755);
    struct fs_opened opened;
    assert_i64(fs_open(fs, ino, O_WRONLY, &opened), 0);
    assert_i64(write_as(&user, ino, 0, "T", 1), 0);
    expect_u64(stat_of(ino).st_mode, S_IFREG | 0755, "a write clears the privilege");
    st.st_mtim.tv_sec = 77;
    assert_i64(fs_setattr(fs, ino, FS_SET_MTIME, &st, &user, &st), 0);
    expect_i64(st.st_mtim.tv_sec, 77);
    (void)fs_release(fs, opened.handle, false);
    fs_fixture_restart();
    expect_i64(stat_of(ino_of("a")).st_mtim.tv_sec, 77);
    expect_i64(stat_of(ino_of("a")).st_blocks, 8, "as on other filesystems: whole blocks");
}

Test(fs, xattrs)
{
    struct file file = create("a");
    char value[64], list[64];
    for (unsigned i = 0; i < 2; i++) {
        expect_i64(fs_setxattr(fs, file.ino, "user.k", "v1", 2, 0), 0);
        expect_i64(fs_setxattr(fs, file.ino, "user.gone", "v", 1, 0), 0);
        expect_i64(fs_removexattr(fs, file.ino, "user.gone"), 0);
        expect_i64(fs_removexattr(fs, file.ino, "user.gone"), -ENODATA);
        expect_i64(fs_getxattr(fs, file.ino, "user.k", value, sizeof value), 2);
        expect_i64(fs_getxattr(fs, file.ino, "user.gone", value, sizeof value), -ENODATA);
        expect_i64(fs_listxattr(fs, file.ino, &root, list, sizeof list), 7);
        if (i == 0)
            close_file(file);
        fixture_wait(&fixture);
    }
    fs_fixture_restart();
    expect_i64(fs_getxattr(fs, ino_of("a"), "user.k", value, sizeof value), 2);
}

static void expect_xattr(const char *name, const char *value)
{
    char is[64];
    ssize_t len = fs_getxattr(fs, ino_of("a"), name, is, sizeof is);
    expect_i64(len, (int64_t)strlen(value), "%s", name);
    cr_expect(len >= 0 && memcmp(is, value, (size_t)len) == 0, "%s is %.*s", name, (int)len, is);
}

static void expect_xattrs_of_a(void)
{
    char value[64];
    expect_xattr("user.long", "a value of some length");
    expect_xattr("user.empty", "");
    expect_xattr("user.k", "v2");
    expect_i64(fs_getxattr(fs, ino_of("a"), "user.gone", value, sizeof value), -ENODATA);
}

Test(fs, xattrs_of_a_new_file_come_with_its_first_version)
{
    struct file file = create("a");
    expect_i64(fs_setxattr(fs, file.ino, "user.long", "a value of some length", 22, 0), 0);
    expect_i64(fs_setxattr(fs, file.ino, "user.empty", "", 0, 0), 0);
    expect_i64(fs_setxattr(fs, file.ino, "user.gone", "v", 1, 0), 0);
    expect_i64(fs_removexattr(fs, file.ino, "user.gone"), 0);
    expect_i64(fs_setxattr(fs, file.ino, "user.k", "v1", 2, 0), 0);
    expect_i64(fs_setxattr(fs, file.ino, "user.k", "v2", 2, 0), 0);
    put_text(file, 0, "text");
    close_file(file);
    expect_xattrs_of_a();
    fs_fixture_restart();
    expect_xattrs_of_a();
    fixture_wait(&fixture);
    fs_fixture_restart();
    expect_xattrs_of_a();
}

/* --- handles ---------------------------------------------------------------------------------- */

Test(fs, a_file_that_no_handle_is_left_for_is_not_made)
{
    struct stage *stage = store_stage(fixture.store);
    uint64_t handle, ino = make_file("old", "text");
    uint32_t flags;
    struct stat st;
    struct fs_opened opened;
    while (stage_handle_open(stage, 1, 0, &handle) == 0)
        ;
    expect_i64(create_in(ROOT_INO, "new", O_RDWR, &st, &opened), -ENFILE);
    expect_u64(ino_of("new"), 0);
    expect_i64(fs_open(fs, ino, O_RDWR, &opened), -ENFILE);
    expect_text(ino, "text");
    (void)stage_handle_close(stage, 7, &flags);
    expect_i64(create_in(ROOT_INO, "old", O_RDWR, &st, &opened), -EEXIST);
    assert_i64(create_in(ROOT_INO, "new", O_RDWR, &st, &opened), 0, "the handle was given back");
    assert_i64(fs_unlink(fs, ROOT_INO, "new"), 0);
    (void)fs_release(fs, opened.handle, false);
    assert_i64(fs_forget(fs, st.st_ino), 0);
    expect_i64(fs_getattr(fs, st.st_ino, &st), -ENOENT);
}

/* The kernel may know handles of a stage that is gone. */
Test(fs, a_handle_that_is_none_of_this_stage_is_as_one_that_is_closed)
{
    struct file file = create("a");
    struct fs_opened opened;
    put_text(file, 0, "text");
    const uint64_t others[] = {file.handle | 1ull << 32, UINT64_MAX, HANDLES_MAX};
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        cr_expect_not(stage_has_handle(store_stage(fixture.store), others[i]));
        expect_i64(fs_flush(fs, file.ino, others[i]), 0);
        expect_i64(fs_handle_flags(fs, others[i]), 0);
        expect_i64(fs_opened_again(fs, others[i], &opened), -ENOENT);
        cr_expect(fs_listing_end(fs, others[i], 5) > 0);
        expect_i64(fs_release(fs, others[i], true), 0);
        expect_i64(fs_release(fs, others[i], false), 0, "and again");
    }
    cr_expect(stage_has_handle(store_stage(fixture.store), file.handle));
    cr_expect(fs_is_open(fs, file.ino));
    expect_u64(stage_usage(store_stage(fixture.store)).handles, 1);
    expect_text(file.ino, "text");
    close_file(file);
    cr_expect_not(fs_is_open(fs, file.ino));
}

/* --- against the background ------------------------------------------------------------------- */

static void *seal_again_and_again(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg))
        cr_assert(history_seal_below(store_commit(fixture.store)->history, ROOT_INO) <= 0);
    return NULL;
}

/* A seal moves what is known of a file from one place to another: it must not be seen
 * in neither. */
Test(fs, size_and_time_while_it_is_sealed)
{
    struct file file = create("a");
    _Atomic bool stop = false;
    pthread_t thread;
    assert_i64(pthread_create(&thread, NULL, seal_again_and_again, &stop), 0);
    struct stat before = {0};
    for (unsigned i = 1; i < 30000; i++) {
        int r;
        while ((r = write_as(&root, file.ino, i - 1, "x", 1)) == -EAGAIN)
            (void)usleep(1000);
        assert_i64(r, 0);
        for (unsigned look = 0; look < 3; look++) {
            struct stat st = stat_of(file.ino);
            assert_i64(st.st_size, i);
            cr_assert_geq(st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                          before.st_mtim.tv_sec * 1000000000 + before.st_mtim.tv_nsec);
            before = st;
        }
    }
    atomic_store(&stop, true);
    (void)pthread_join(thread, NULL);
    close_file(file);
}
