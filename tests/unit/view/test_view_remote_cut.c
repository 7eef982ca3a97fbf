// SPDX-License-Identifier: Apache-2.0
/* What view_remote.h promises of cuts and of the runs made of them, each by itself. */
#include "../expect.h"
#include "remote_fixture.h"

#include <stdio.h>

TestSuite(view_remote_cut, .init = begin_remote, .fini = end_remote);

static uint64_t unpublished(uint64_t ino)
{
    uint64_t cut_seq = 77;
    assert_i64(view_unpublished(f.view, ino, &cut_seq), 0);
    return cut_seq;
}

struct names {
    struct chunk_name at[16];
    uint64_t packs;
    size_t count, stop;
};

static int note_name(const struct chunk_entry *entry, void *arg)
{
    struct names *names = arg;
    if (names->count)
        cr_assert_lt(memcmp(&names->at[names->count - 1], &entry->name, sizeof entry->name), 0);
    names->at[names->count++] = entry->name;
    names->packs += entry->pack;
    return names->count == names->stop;
}

Test(view_remote_cut, pending_at_the_cut_whatever_comes_after)
{
    struct names names = {.stop = 3}, rest = {0}, error = {0};
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1, 2, 3, 4);
    FILE_OF(2, "a", 1, 2, 3, 4, 5);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    add_drop(&f, 10);
    FILE_OF(3, "b", 6);
    apply_ok(&f);
    PLACE(100, 1, 2, 3, 4, 5, 6);
    assert_i64(view_cut_pending(c, NULL, note_name, &names), 0);
    assert_u64(names.count, 3);
    assert_i64(view_cut_pending(c, &names.at[2], note_name, &rest), 0);
    assert_u64(rest.count, 2);
    cr_assert_lt(memcmp(&names.at[2], &rest.at[0], sizeof rest.at[0]), 0);
    assert_u64(names.packs + rest.packs, 40, "where they lay; 5 lay nowhere");
    assert_i64(view_cut_pending(c, &rest.at[1], note_name, &error), 0);
    assert_u64(error.count, 0);
    assert_u64(view_cut_state(c).chunks, 5);
    assert_u64(publish(c, 5), 0);
}

static int note_row(const struct run_row *row, void *arg)
{
    char *text = arg;
    const char *key = row->key;
    sprintf(text + strlen(text), "%c%s", key[0], row->value ? "" : "-");
    return 0;
}

Test(view_remote_cut, a_run_has_what_changed)
{
    char text[200] = "";
    uint64_t missing;
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    PLACE(100, 1);
    assert_i64(view_cut_rows(c, 5, note_row, text, &missing), 0);
    assert_str(text, "CDEHIIQ");
    (void)publish(c, 5);
    c = cut_now();
    text[0] = 0;
    assert_i64(view_cut_rows(c, 6, note_row, text, &missing), 0);
    assert_str(text, "", "nothing changed");
    view_cut_close(c);
    add_xattr(&f, 2, "user.x", "v");
    apply_ok(&f);
    c = cut_now();
    add_unlink(&f, 2, ROOT_INO, "a", 0); /* comes too late */
    apply_ok(&f);
    text[0] = 0;
    assert_i64(view_cut_rows(c, 7, note_row, text, &missing), 0);
    assert_str(text, "IX");
    (void)publish(c, 7);
    c = cut_now();
    text[0] = 0;
    assert_i64(view_cut_rows(c, 8, note_row, text, &missing), 0);
    assert_str(text, "C-D-E-H-II-QX-");
    (void)publish(c, 8);
    expect_same_adopted();
}

static int fail_row(const struct run_row *row, void *arg)
{
    (void)row;
    return --*(int *)arg == 0 ? -EDQUOT : 0;
}

Test(view_remote_cut, an_abandoned_cut_changes_nothing)
{
    int rows = 3;
    uint64_t missing;
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    PLACE(100, 1);
    assert_i64(view_cut_rows(c, 5, fail_row, &rows, &missing), -EDQUOT);
    view_cut_close(c);
    view_cut_close(NULL);
    cr_assert(view_remote(f.view).is_whole && remote_pack(100).head == 0);
    (void)publish(cut_now(), 6);
    cr_assert(remote_pack(100).head == 1 && !view_remote(f.view).is_whole);
    assert_u64(view_remote(f.view).cut, f.seq);
    expect_same_adopted();
}

static void look_missing(struct view *view)
{
    cr_assert(remote_pack_of(view, 1) == 100 && remote_pack_of(view, 2) == 0);
    cr_assert(view_remote(view).pending_chunks == 1 && view_remote(view).pending_bytes == 0);
}

static void look_found(struct view *view)
{
    cr_assert(remote_pack_of(view, 2) == 101 && view_remote(view).pending_chunks == 0);
}

Test(view_remote_cut, missing_chunks_are_told_until_they_have_a_place)
{
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    PLACE(100, 1);
    assert_u64(publish(c, 5), 1);
    expect_adopted(look_missing);
    assert_u64(publish(cut_now(), 6), 1);
    c = cut_now();
    PLACE(101, 2);
    assert_u64(publish(c, 7), 0);
    expect_adopted(look_found);
    expect_same_adopted();
}

Test(view_remote_cut, dead_packs_are_unreferenced_and_what_comes_to_life_is_pending)
{
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1);
    FILE_OF(3, "b", 2);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    PLACE(100, 1);
    PLACE(101, 2);
    (void)publish(c, 5);
    cr_assert(remote_pack(100).unreferenced == 0 && remote_pack(100).head == 1 && is_published(1));
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    c = cut_now();
    FILE_OF(4, "c", 1);
    apply_ok(&f);
    assert_u64(remote_pack_of(f.view, 1), 100);
    cr_assert_not(is_published(1), "the open cut may doom its pack");
    cr_assert(is_published(2));
    (void)publish(c, 6);
    cr_assert(remote_pack(100).unreferenced == 6 && remote_pack(101).unreferenced == 0 &&
              remote_pack_of(f.view, 1) == 0);
    assert_u64(view_remote(f.view).pending_chunks, 1);
    assert_u64(view_remote(f.view).packs, 1);
    c = cut_now();
    PLACE(102, 1);
    (void)publish(c, 7);
    cr_assert(is_published(1) && remote_pack(102).head == 3);
    expect_same_adopted();
}

Test(view_remote_cut, a_chunk_that_moves_is_told_by_the_next_run)
{
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    PLACE(100, 1, 2);
    (void)publish(c, 5);
    c = cut_now();
    PLACE(101, 1, 2);
    cr_assert_not(is_published(1));
    (void)publish(c, 6);
    assert_i64(remote_pack(100).unreferenced, 0, "the head still says that they lie there");
    expect_same_adopted();
    (void)publish(cut_now(), 7);
    assert_i64(remote_pack(100).unreferenced, 7);
    cr_assert(is_published(1));
    expect_same_adopted();
}

Test(view_remote_cut, unpublished_changes_of_an_inode)
{
    add_dir(&f, 2, ROOT_INO, "d");
    add_dir(&f, 3, 2, "e");
    apply_ok(&f);
    uint64_t before = f.seq;
    assert_u64(unpublished(2), before, "nothing is published");
    assert_i64(view_track(f.view), 0);
    assert_u64(unpublished(2), before);
    assert_u64(unpublished(99), 0);
    struct view_cut *c = cut_now();
    add_file(&f, 4, 2, "x", 0);
    apply_ok(&f);
    assert_u64(unpublished(2), f.seq);
    (void)publish(c, 5);
    assert_u64(unpublished(3), 0);
    cr_assert(unpublished(2) == f.seq && unpublished(4) == f.seq);
    (void)publish(cut_now(), 6);
    cr_assert(unpublished(2) == 0 && unpublished(4) == 0);
}
