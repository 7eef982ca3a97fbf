// SPDX-License-Identifier: Apache-2.0
/* What has lost its last name, and what was made without one. */
#include <fcntl.h>
#include <stdio.h>

#include "../expect.h"
#include "../numbered.h"
#include "fs_fixture.h"

TestSuite(nameless, .init = fs_fixture_setup, .fini = fs_fixture_teardown, .timeout = 600);

/* What has no name lives until it is open nowhere and the kernel has forgotten it, whatever comes
 * first. */
static void expect_end(struct file file, bool forgotten_first)
{
    struct stat st;
    if (forgotten_first)
        assert_i64(fs_forget(fs, file.ino), 0);
    else
        close_file(file);
    expect_text(file.ino, "abcdef");
    if (forgotten_first)
        close_file(file);
    else
        assert_i64(fs_forget(fs, file.ino), 0);
    expect_i64(fs_getattr(fs, file.ino, &st), -ENOENT);
    fixture_wait(&fixture);
    expect_u64(stage_usage(store_stage(fixture.store)).dirty_bytes, 0);
}

Test(nameless, unlinked_while_open)
{
    for (unsigned i = 0; i < 4; i++) {
        struct file file = create("a");
        put_text(file, 0, "abc");
        if (i & 1) {
            assert_i64(fs_flush(fs, file.ino, file.handle), 0);
            fixture_wait(&fixture);
        }
        assert_i64(fs_unlink(fs, ROOT_INO, "a"), 0);
        expect_u64(ino_of("a"), 0);
        expect_u64(stat_of(file.ino).st_nlink, 0);
        put_text(file, 3, "def");
        expect_text(file.ino, "abcdef");
        fixture_wait(&fixture);
        expect_text(file.ino, "abcdef");
        struct stat st;
        expect_i64(fs_link(fs, file.ino, ROOT_INO, "b", &st), -ENOENT);
        expect_end(file, i & 2);
    }
}

Test(nameless, known_without_a_name)
{
    struct fs_opened opened;
    struct stat st, set = {.st_size = 2};
    uint64_t file = make_file("a", "text"), dir = make_dir("d"), other = make_file("b", "other");
    fixture_wait(&fixture);
    assert_i64(fs_unlink(fs, ROOT_INO, "a"), 0);
    assert_i64(remove_dir("d"), 0);
    assert_i64(fs_forget(fs, other), 0, "it has a name");
    expect_text(other, "other");
    fixture_wait(&fixture);
    for (unsigned i = 0; i < 2; i++) { /* again and again */
        assert_i64(fs_open(fs, file, O_RDWR, &opened), 0);
        expect_text(file, i ? "te" : "text");
        assert_i64(fs_setattr(fs, file, FS_SET_SIZE, &set, &root, &st), 0);
        expect_i64(fs_release(fs, opened.handle, false), 0);
    }
    assert_i64(fs_setxattr(fs, dir, "user.x", "1", 1, 0), 0);
    const struct fs_new_inode below = {dir, "below", 0755, 0, &root};
    expect_i64(fs_mkdir(fs, &below, &st), -ENOENT);
    assert_i64(fs_forget(fs, file), 0);
    assert_i64(fs_forget(fs, dir), 0);
    expect_i64(fs_getattr(fs, file, &st), -ENOENT);
    expect_i64(fs_getattr(fs, dir, &st), -ENOENT);
    assert_i64(fs_forget(fs, file), 0, "twice");
    fixture_wait(&fixture);
    expect_u64(stage_usage(store_stage(fixture.store)).dirty_bytes, 0);
}

Test(nameless, made_without_a_name)
{
    struct fs_opened opened;
    struct stat st;
    uint64_t dir = make_dir("d");
    for (unsigned i = 0; i < 3; i++) { /* forgotten, named, named and removed */
        assert_i64(create_in(dir, NULL, O_RDWR, &st, &opened), 0);
        struct file file = {.ino = st.st_ino, .handle = opened.handle};
        expect_u64(st.st_nlink, 0);
        put_text(file, 0, "abcdef");
        assert_i64(fs_setxattr(fs, file.ino, "user.x", "1", 1, 0), 0);
        fixture_wait(&fixture);
        assert_i64(remove_dir("d"), 0, "nothing is in it");
        dir = make_dir("d");
        if (i > 0) {
            assert_i64(fs_link(fs, file.ino, dir, "name", &st), 0);
            expect_u64(st.st_nlink, 1);
            expect_i64(fs_link(fs, file.ino, dir, "name", &st), -EEXIST);
            assert_i64(fs_lookup(fs, dir, "name", &st), 0);
            expect_u64(st.st_ino, file.ino);
            assert_i64(fs_forget(fs, file.ino), 0, "it has a name");
            fixture_wait(&fixture);
            expect_text(file.ino, "abcdef");
        }
        if (i == 1) {
            close_file(file);
            expect_text(file.ino, "abcdef");
        }
        cr_assert(i == 0 || fs_unlink(fs, dir, "name") == 0);
        if (i == 1)
            assert_i64(fs_forget(fs, file.ino), 0);
        else
            expect_end(file, i & 2);
        expect_i64(fs_getattr(fs, file.ino, &st), -ENOENT);
    }
}

/* It was closed, and is known still. */
Test(nameless, named_after_it_was_closed)
{
    struct fs_opened opened;
    struct stat st, after;
    assert_i64(create_in(ROOT_INO, NULL, O_RDWR, &st, &opened), 0);
    struct file file = {.ino = st.st_ino, .handle = opened.handle};
    put_text(file, 0, "text");
    close_file(file);
    struct stat before = stat_of(ROOT_INO);
    assert_i64(fs_link(fs, file.ino, ROOT_INO, "a", &st), 0);
    after = stat_of(ROOT_INO);
    cr_expect(after.st_mtim.tv_sec > before.st_mtim.tv_sec ||
              after.st_mtim.tv_nsec > before.st_mtim.tv_nsec);
    assert_i64(fs_forget(fs, file.ino), 0);
    expect_text(file.ino, "text");
    cr_assert_not(fs_is_nameless(fs, file.ino));
}

Test(nameless, xattrs_without_a_name_are_bounded)
{
    static char value[65536];
    struct fs_opened opened;
    struct stat st;
    int r = 0;
    assert_i64(create_in(ROOT_INO, NULL, O_RDWR, &st, &opened), 0);
    unsigned count = 0;
    for (; count < 100 && r == 0; count++)
        r = fs_setxattr(fs, st.st_ino, numbered("user.%u", count), value, sizeof value, 0);
    expect_i64(r, -ENOSPC);
    assert_i64(fs_link(fs, st.st_ino, ROOT_INO, "a", &st), 0, "with all that it took");
    expect_i64(fs_getxattr(fs, st.st_ino, "user.0", NULL, 0), sizeof value);
    expect_i64(fs_setxattr(fs, st.st_ino, numbered("user.%u", count - 1), value, sizeof value, 0),
               0, "what was refused");
    expect_i64(fs_release(fs, opened.handle, false), 0);
}

Test(nameless, nothing_without_a_name_is_left_at_the_end)
{
    struct fs_opened opened;
    struct stat st;
    struct file open = create("open");
    uint64_t known = make_file("known", "text"), dir = make_dir("d");
    assert_i64(create_in(ROOT_INO, NULL, O_RDWR, &st, &opened), 0);
    assert_i64(fs_unlink(fs, ROOT_INO, "open"), 0);
    assert_i64(fs_unlink(fs, ROOT_INO, "known"), 0);
    assert_i64(remove_dir("d"), 0);
    fs_settle(fs);
    const uint64_t inos[] = {open.ino, known, dir, st.st_ino};
    for (unsigned i = 0; i < 4; i++)
        expect_i64(fs_getattr(fs, inos[i], &st), -ENOENT);
    fixture_wait(&fixture);
    expect_u64(stage_usage(store_stage(fixture.store)).dirty_bytes, 0);
}
