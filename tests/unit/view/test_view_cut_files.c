// SPDX-License-Identifier: Apache-2.0
/* Files as they are at a cut, whatever comes after it. */
#include "../expect.h"
#include "remote_fixture.h"
#include "view/cut_files.h"

struct listed {
    uint64_t inos[8];
    char text[128];
    size_t count, stop;
};

static int note_file(const struct view_inode *file, void *arg)
{
    struct listed *listed = arg;
    listed->inos[listed->count++] = file->ino;
    return listed->count == listed->stop;
}

static int note_name(const char *name, uint64_t ino, void *arg)
{
    struct listed *listed = arg;
    (void)snprintf(listed->text + strlen(listed->text), 24, "%s=%u ", name, (unsigned)ino);
    return ++listed->count == listed->stop;
}

static int note_chunk(const struct view_extent *part, void *arg)
{
    struct listed *listed = arg;
    listed->inos[listed->count++] = chunk_id(&part->extent.chunk);
    return listed->count == listed->stop;
}

static struct listed changed(struct view_cut *cut, size_t stop)
{
    struct listed listed = {.stop = stop};
    assert_i64(view_cut_changed_files(cut, note_file, &listed), 0);
    return listed;
}

static void expect_path(struct view_cut *cut, uint64_t ino, const char *expected)
{
    _cleanup_free_ char *path = view_cut_path(cut, ino);
    expect_str(path, expected);
}

static void expect_names(struct view_cut *cut, uint64_t parent, const char *prefix, size_t stop,
                         const char *expected)
{
    struct listed listed = {.stop = stop};
    assert_i64(view_cut_names(cut, parent, prefix, strlen(prefix), note_name, &listed), 0);
    expect_str(listed.text, expected);
}

static void begin_tree(void)
{
    begin_tracking();
    PACK_OF(10, 1, 2, 3, 4, 5, 6);
    add_dir(&f, 2, ROOT_INO, "run7");
    add_dir(&f, 3, 2, "step1");
    FILE_OF(4, "latest", 1, 2);
    add_file(&f, 5, 3, "model", 0);
    add_seal(&f, 5, 2, 0, MIB, (struct extent[]){chunk_extent(0, MIB, 3, 0)}, 1);
    add_dir(&f, 6, 2, "step2");
    add_dir(&f, 7, 2, "logs");
    apply_ok(&f);
}

TestSuite(view_cut_files, .init = begin_tree, .fini = end_remote);

Test(view_cut_files, a_first_cut_has_all_files_and_a_later_one_what_changed)
{
    struct view_cut *cut = cut_now();
    struct listed all = changed(cut, 0);
    assert_u64(all.count, 2);
    expect_u64(all.inos[0], 4);
    expect_u64(all.inos[1], 5);
    expect_u64(changed(cut, 1).count, 1);
    PLACE(100, 1, 2, 3);
    (void)publish(cut, 5);

    cut = cut_now();
    expect_u64(changed(cut, 0).count, 0);
    view_cut_close(cut);

    FILE_OF(8, "other", 4);
    add_unlink(&f, 4, ROOT_INO, "latest", 0);
    apply_ok(&f);
    cut = cut_now();
    add_unlink(&f, 8, ROOT_INO, "other", 0);
    FILE_OF(9, "later", 5);
    apply_ok(&f);
    struct listed some = changed(cut, 0);
    assert_u64(some.count, 1, "not what is gone, nor what came later");
    expect_u64(some.inos[0], 8);
    view_cut_close(cut);
}

Test(view_cut_files, names_and_paths_are_those_of_the_cut)
{
    struct view_inode inode;
    struct view_cut *cut = cut_now();
    add_rename(&f, 3, 2, "step1", ROOT_INO, "moved", 0, 0);
    add_dir(&f, 10, 2, "step10");
    apply_ok(&f);
    expect_path(cut, 5, "/run7/step1/model");
    expect_path(cut, 4, "/latest");
    assert_i64(view_cut_lookup(cut, "/run7/step1/model", &inode), 0);
    expect_u64(inode.ino, 5);
    expect_u64(inode.attrs.size, MIB);
    assert_i64(view_cut_lookup(cut, "", &inode), 0);
    expect_u64(inode.ino, ROOT_INO);
    expect_i64(view_cut_lookup(cut, "/moved/model", &inode), -ENOENT);
    expect_i64(view_cut_lookup(cut, "/latest/model", &inode), -ENOENT);
    expect_names(cut, 2, "step", 0, "step1=3 step2=6 ");
    expect_names(cut, 2, "step", 1, "step1=3 ");
    expect_names(cut, 2, "", 0, "logs=7 step1=3 step2=6 ");
    expect_names(cut, 3, "step", 0, "");
    expect_names(cut, 99, "", 0, "");
    view_cut_close(cut);
}

Test(view_cut_files, content_and_places_are_those_of_the_cut)
{
    struct chunk_name one = chunk_of(1), none = chunk_of(77);
    struct chunk_entry entry;
    struct listed listed = {0};
    struct view_cut *cut = cut_now();
    add_seal(&f, 4, 3, 0, MIB, (struct extent[]){chunk_extent(0, MIB, 6, 0)}, 1);
    PACK_OF(11, 1);
    apply_ok(&f);
    assert_i64(view_cut_content(cut, 4, note_chunk, &listed), 0);
    assert_u64(listed.count, 2);
    expect_u64(listed.inos[0], 1);
    expect_u64(listed.inos[1], 2);
    assert_i64(view_cut_chunk(cut, &one, &entry), 0);
    expect_u64(entry.pack, 10);
    expect_u64(entry.raw_len, MIB);
    expect_i64(view_cut_chunk(cut, &none, &entry), -ENOENT);
    expect_i64(view_cut_content(cut, 99, note_chunk, &listed), -ENOENT);
    view_cut_close(cut);
}
