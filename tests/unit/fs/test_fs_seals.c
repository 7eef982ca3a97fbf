// SPDX-License-Identifier: Apache-2.0
/* When closing makes a version: at once, or, where others write the file, before the next operation
 * of the history. */
#include <fcntl.h>
#include <stdio.h>

#include "../expect.h"
#include "../numbered.h"
#include "fs_fixture.h"
#include "../commit/commit_peek.h"
#include "commit/shared.h"

#include <criterion/parameterized.h>

/* Nothing is sealed by itself: the tests say when. */
static void setup(void)
{
    fs_fixture_setup();
    fixture.options.writeback_delay_ns = 3600ll * 1000000000;
    fs_fixture_restart();
}

TestSuite(fs_seals, .init = setup, .fini = fs_fixture_teardown, .timeout = 600);

static struct file open_again(uint64_t ino)
{
    struct fs_opened opened;
    assert_i64(fs_open(fs, ino, O_RDWR, &opened), 0);
    return (struct file){ino, opened.handle};
}

static bool is_draft(uint64_t ino)
{
    struct stage_file_state state;
    (void)stage_file_state(store_stage(fixture.store), ino, &state);
    return state.has_draft;
}

static uint64_t version_of(uint64_t ino)
{
    struct ns_inode inode;
    assert_i64(ns_inode(store_ns(fixture.store), ino, &inode), 0);
    return inode.version;
}

/* As a program does for each tensor. */
static void write_and_close(uint64_t ino, uint64_t offset, const char *text)
{
    struct file file = open_again(ino);
    put_text(file, offset, text);
    close_file(file);
}

Test(fs_seals, closes_beside_a_writer_make_one_version)
{
    struct file header = create("file");
    for (unsigned i = 0; i < 100; i++)
        write_and_close(header.ino, i, "t");
    cr_expect(is_draft(header.ino));
    expect_u64(version_of(header.ino), 0);
    close_file(header);
    cr_expect_not(is_draft(header.ino));
    expect_u64(version_of(header.ino), 1);
}

static size_t pending_ops(void)
{
    size_t count;
    history_looked(store_commit(fixture.store)->history,
                   history_look(store_commit(fixture.store)->history, &count));
    return count;
}

Test(fs_seals, closes_in_a_row_are_two_operations)
{
    uint64_t ino = make_file("file", "header");
    for (unsigned i = 0; i < 100; i++) {
        write_and_close(ino, 6 + i, "t");
        cr_assert_not(is_draft(ino), "it has no other writer");
    }
    expect_u64(pending_ops(), 2, "its birth and the newest seal");
    (void)make_dir("between");
    write_and_close(ino, 0, "H");
    write_and_close(ino, 1, "E");
    expect_u64(pending_ops(), 4, "what has something in between stays");
    fixture_wait(&fixture);
    fs_fixture_restart();
    expect_i64(stat_of(ino).st_size, 106);
}

struct entry_of_history {
    const char *what;
    void (*enter)(struct file file);
};

static void by_mkdir(struct file file)
{
    (void)file;
    (void)make_dir("marker");
}

static void by_new_file(struct file file)
{
    (void)file;
    (void)make_file("marker", "done");
}

static void by_xattr(struct file file)
{
    assert_i64(fs_setxattr(fs, file.ino, "user.complete", "1", 1, 0), 0);
}

static void by_mode(struct file file)
{
    struct stat set = {.st_mode = S_IFREG | 0400}, st;
    assert_i64(fs_setattr(fs, file.ino, FS_SET_MODE, &set, &root, &st), 0);
}

static void by_rename(struct file file)
{
    (void)file;
    assert_i64(rename_file("other", "latest", 0), 0);
}

static void by_whiteout(struct file file)
{
    (void)file;
    assert_i64(rename_file("other", "latest", RENAME_WHITEOUT), 0);
}

static void by_link(struct file file)
{
    struct stat st;
    (void)file;
    assert_i64(fs_link(fs, ino_of("other"), ROOT_INO, "latest", &st), 0);
}

static void by_unlink(struct file file)
{
    (void)file;
    assert_i64(fs_unlink(fs, ROOT_INO, "other"), 0);
}

static void by_nameless(struct file file)
{
    struct stat st;
    struct fs_opened opened;
    (void)file;
    assert_i64(create_in(ROOT_INO, NULL, O_RDWR, &st, &opened), 0);
    assert_i64(fs_link(fs, st.st_ino, ROOT_INO, "latest", &st), 0);
    (void)fs_release(fs, opened.handle, false);
}

static void by_fsync_of_a_directory(struct file file)
{
    struct fs_barrier barrier;
    (void)file;
    assert_i64(fs_fsync(fs, ROOT_INO, &barrier), 0);
}

static void by_fsync_of_another(struct file file)
{
    struct fs_barrier barrier;
    (void)file;
    assert_i64(fs_fsync(fs, ino_of("other"), &barrier), 0);
}

static void by_truncation(struct file file)
{
    struct stat set = {.st_size = 0}, st;
    assert_i64(fs_setattr(fs, file.ino, FS_SET_SIZE, &set, &root, &st), 0);
}

static void by_hole(struct file file)
{
    assert_i64(fs_fallocate(fs, file.ino, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 2, &root),
               0);
}

static const struct entry_of_history entries[] = {
    {"mkdir", by_mkdir},
    {"a new file", by_new_file},
    {"an xattr", by_xattr},
    {"a mode", by_mode},
    {"rename", by_rename},
    {"a whiteout", by_whiteout},
    {"link", by_link},
    {"unlink", by_unlink},
    {"linkat", by_nameless},
    {"a hole", by_hole},
    {"truncation", by_truncation},
    {"fsync of a directory", by_fsync_of_a_directory},
    {"fsync of another", by_fsync_of_another},
};

/* By their numbers: each test is a process, with addresses of its own. */
ParameterizedTestParameters(fs_seals, a_seal_that_waits_enters_before_anything_else)
{
    static size_t numbers[ARRAY_LEN(entries)];
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        numbers[i] = i;
    return cr_make_param_array(size_t, numbers, ARRAY_LEN(numbers));
}

/* Is the first operation after `seq` the seal of this file? */
static bool is_seal_first_after(uint64_t seq, uint64_t ino)
{
    size_t count, i = 0;
    struct op **ops = history_look(store_commit(fixture.store)->history, &count);
    while (i < count && ops[i]->seq <= seq)
        i++;
    bool is_seal = i < count && ops[i]->type == REC_SEAL && ops[i]->ino == ino;
    history_looked(store_commit(fixture.store)->history, ops);
    return is_seal;
}

/* P4: no operation enters the history before what was closed before it. */
ParameterizedTest(size_t *number, fs_seals, a_seal_that_waits_enters_before_anything_else)
{
    const struct entry_of_history *entry = &entries[*number];
    (void)make_file("other", "other");
    struct file file = create("file");
    write_and_close(file.ino, 0, "closed");
    assert_u64(version_of(file.ino), 0, "%s", entry->what);
    uint64_t before = history_newest(store_commit(fixture.store)->history);
    entry->enter(file);
    cr_expect(is_seal_first_after(before, file.ino), "before %s", entry->what);
    close_file(file);
}

Test(fs_seals, what_is_closed_twice_counts_once)
{
    struct file header = create("file"), tensor = open_again(header.ino);
    put_text(tensor, 0, "t");
    assert_i64(fs_flush(fs, tensor.ino, tensor.handle), 0); /* of a duplicate */
    assert_i64(fs_flush(fs, tensor.ino, tensor.handle), 0);
    cr_expect(is_draft(header.ino), "the header is still being written");
    assert_i64(fs_flush(fs, header.ino, header.handle), 0);
    cr_expect_not(is_draft(header.ino), "each of its writers has closed something");
    (void)fs_release(fs, tensor.handle, false);
    (void)fs_release(fs, header.handle, false);
    struct file again = open_again(header.ino);
    put_text(again, 1, "u");
    close_file(again);
    cr_expect_not(is_draft(header.ino), "nothing is left of those before");
}

Test(fs_seals, more_than_can_wait)
{
    struct file files[STAGE_DUE_MAX + 6];
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        files[i] = create(numbered("file-%zu", i));
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        write_and_close(files[i].ino, 0, "t");
    cr_expect_leq(seals_due(fixture.store), STAGE_DUE_MAX);
    (void)make_dir("marker");
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        cr_expect_not(is_draft(files[i].ino));
        close_file(files[i]);
    }
}

/* Of a file without a name nothing is ever sealed, and of one that is gone nothing is
 * left to do. */
Test(fs_seals, a_seal_that_waits_for_what_is_removed)
{
    struct file header = create("file");
    write_and_close(header.ino, 0, "closed");
    assert_i64(fs_unlink(fs, ROOT_INO, "file"), 0);
    write_and_close(header.ino, 6, " and again");
    (void)make_dir("marker");
    expect_text(header.ino, "closed and again");
    close_file(header);
    assert_i64(fs_forget(fs, header.ino), 0);
    expect_u64(seals_due(fixture.store), 0);
}
