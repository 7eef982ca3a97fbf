// SPDX-License-Identifier: Apache-2.0
/* What view_remote.h promises of tracking and of places in the remote, each by itself. */
#include "../expect.h"
#include "../numbered.h"
#include "remote_fixture.h"
#include "view/db.h"

#include <stdio.h>

TestSuite(view_remote, .init = begin_remote, .fini = end_remote);

/* A daemon is killed between the creation of a head and the note of it. Its head calls a pack
 * unreferenced; in the view, a file needs that pack again. */
Test(view_remote, a_whole_run_follows_a_head_that_was_not_noted)
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
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    c = cut_now();
    (void)remote_make(&remote, c, 6);
    remote_publish(&remote, NULL, c);
    view_cut_close(c);
    FILE_OF(4, "again", 1);
    apply_ok(&f);
    assert_i64(view_report_all(f.view), 0);
    (void)publish(cut_now(), 7);
    cr_assert(remote_pack_of(f.view, 1) == 100 && !view_remote(f.view).is_whole);
    expect_same_adopted();
}

/* --- tracking --------------------------------------------------------------------------------- */

Test(view_remote, tracking_begins_with_everything_pending)
{
    FILE_OF(2, "a", 1, 2);
    PACK_OF(10, 1, 3);
    apply_ok(&f);
    struct view_remote r = view_remote(f.view);
    struct view_cut *c;
    cr_assert_not(r.tracks);
    assert_i64(view_cut_open(f.view, &c), -EINVAL);
    assert_i64(view_track(f.view), 0);
    r = view_remote(f.view);
    cr_assert(r.tracks && r.is_whole && r.head == 0 && r.packs == 0);
    assert_u64(r.pending_chunks, 2);
    assert_u64(r.pending_bytes, 1001, "chunk 2 has no place here, chunk 3 no references");
    expect_check_ok(f.view);
    assert_i64(view_track(f.view), 0);
    assert_u64(view_remote(f.view).pending_chunks, 2, "nothing the second time");
    fixture_reopen(&f);
    r = view_remote(f.view);
    cr_assert(r.tracks && r.is_whole && r.pending_chunks == 2 && r.pending_bytes == 1001);
}

/* What a crash leaves of a beginning: rows of chunks, some of which nothing refers to by now. */
static void leave_pending(uint32_t first, uint32_t count)
{
    for (uint32_t id = first; id < first + count; id++) {
        struct key key;
        uint8_t value[PENDING_UPLOAD_VALUE_LEN];
        struct chunk_name name = chunk_of(id);
        key_of_name(&key, KEY_PENDING_UPLOAD, &name);
        raw_put(&key, value, pending_upload_encode(77, value));
    }
}

Test(view_remote, tracking_that_was_cut_short_begins_again)
{
    FILE_OF(2, "a", 1, 2);
    PACK_OF(10, 1, 2);
    apply_ok(&f);
    leave_pending(2, 3);
    expect_check_ok(f.view);
    fixture_reopen(&f);
    cr_assert_not(view_remote(f.view).tracks);
    FILE_OF(3, "b", 5);
    apply_ok(&f);
    assert_i64(view_track(f.view), 0);
    assert_u64(view_remote(f.view).pending_chunks, 3);
    assert_u64(view_remote(f.view).pending_bytes, 2003);
}

/* More chunks than go into one write. */
Test(view_remote, many_become_pending_in_steps)
{
    enum { FILES = 1300, EACH = 16 };
    for (uint32_t i = 0; i < FILES; i++) {
        uint32_t ids[EACH];
        for (uint32_t k = 0; k < EACH; k++)
            ids[k] = 1 + i * EACH + k;
        add_file_of(2 + i, numbered("f%u", i), ids, EACH);
        if (i % 100 == 99 || i + 1 == FILES)
            apply_ok(&f);
    }
    assert_i64(view_track(f.view), 0);
    assert_u64(view_remote(f.view).pending_chunks, FILES * EACH);
    expect_check_ok(f.view);
    assert_i64(view_forget_remote(f.view), 0);
    assert_u64(view_remote(f.view).pending_chunks, FILES * EACH);
    fixture_reopen(&f);
    assert_u64(view_remote(f.view).pending_chunks, FILES * EACH);
}

Test(view_remote, pending_uploads_follow_references_and_local_places)
{
    assert_i64(view_track(f.view), 0);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    assert_u64(view_remote(f.view).pending_chunks, 2);
    assert_u64(view_remote(f.view).pending_bytes, 0);
    PACK_OF(10, 1, 2, 3);
    apply_ok(&f);
    assert_u64(view_remote(f.view).pending_bytes, 2003);
    FILE_OF(3, "b", 2);
    apply_ok(&f);
    assert_u64(view_remote(f.view).pending_chunks, 2);
    add(&f, (struct record){.type = REC_DROP, .flags = RECORD_EVICTED, .pack = 10});
    apply_ok(&f);
    expect_check_ok(f.view);
    assert_u64(view_remote(f.view).pending_bytes, 0);
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    assert_u64(view_remote(f.view).pending_chunks, 1);
}

Test(view_remote, forgetting_the_remote_wants_everything_again)
{
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    struct view_cut *c = cut_now();
    PLACE(100, 1, 2);
    assert_u64(publish(c, 5), 0);
    assert_u64(view_remote(f.view).pending_chunks, 0);
    assert_i64(view_forget_remote(f.view), 0);
    struct view_remote r = view_remote(f.view);
    cr_assert(r.tracks && r.is_whole && r.head == 0 && r.cut == 0 && r.packs == 0 &&
              r.pack_bytes == 0);
    cr_assert(r.pending_chunks == 2 && r.pending_bytes == 2003);
    assert_u64(remote_pack_of(f.view, 1), 0);
    expect_check_ok(f.view);
    c = cut_now();
    cr_assert(view_cut_is_whole(c));
    PLACE(101, 1, 2);
    assert_u64(publish(c, 6), 0);
    assert_u64(remote.count, 1);
    expect_same_adopted();
}

/* --- places ----------------------------------------------------------------------------------- */

static void expect_pack_forgotten(uint64_t id)
{
    struct view_remote_pack pack;
    assert_i64(view_remote_pack(f.view, id, &pack), -ENOENT);
}

Test(view_remote, placed_chunks_have_their_place_there)
{
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    assert_i64(view_track(f.view), 0);
    assert_u64(remote_pack_of(f.view, 1), 0);
    PLACE(100, 1, 7); /* 7 is dead, or was never here */
    struct view_remote_pack p = remote_pack(100);
    cr_assert(p.length == 64 + 4000 && p.count == 2 && p.live_count == 1 && p.live_bytes == 1001);
    cr_assert(p.head == 0 && p.unreferenced == 0 && p.gone == false);
    cr_assert(remote_pack_of(f.view, 1) == 100 && remote_pack_of(f.view, 7) == 100 &&
              remote_pack_of(f.view, 2) == 0);
    assert_u64(view_remote(f.view).pending_chunks, 1);
    assert_u64(view_remote(f.view).pack_bytes, p.length);
    PLACE(101, 1, 2); /* also those that had another */
    cr_assert(remote_pack_of(f.view, 1) == 101 && remote_pack(100).live_count == 0 &&
              remote_pack(101).live_bytes == 2003);
    struct chunk_entry e = remote_entry(101, 3, 64);
    assert_i64(view_remote_placed(f.view, 101, 100, &e, 1), -EUCLEAN, "known already");
    assert_u64(view_remote(f.view).packs, 2);
    FILE_OF(3, "b", 7);
    apply_ok(&f);
    assert_u64(remote_pack(100).live_count, 1, "it lies in the remote already");
    assert_u64(view_remote(f.view).pending_chunks, 0);
}

static int count_pack(const struct view_remote_pack *pack, void *arg)
{
    uint64_t *sum = arg;
    *sum = *sum * 1000 + pack->pack;
    return pack->pack == 101;
}

static int count_chunk(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    uint64_t *sum = arg;
    *sum += chunk_id(&entry->name) * 100 + is_needed;
    return chunk_id(&entry->name) == 2;
}

Test(view_remote, packs_and_their_chunks_are_listed)
{
    uint64_t sum = 0;
    struct view_remote_pack pack;
    assert_i64(view_track(f.view), 0);
    FILE_OF(2, "a", 1, 2, 2);
    apply_ok(&f);
    PLACE(100, 1, 9);
    PLACE(101, 2);
    PLACE(102, 5);
    assert_i64(view_remote_packs(f.view, count_pack, &sum), 0);
    assert_u64(sum, 100101, "ended by 1");
    sum = 0;
    assert_i64(view_remote_pack_chunks(f.view, 100, count_chunk, &sum), 0);
    assert_u64(sum, 101 + 900);
    sum = 0;
    assert_i64(view_remote_pack_chunks(f.view, 101, count_chunk, &sum), 0);
    assert_u64(sum, 201);
    sum = 0;
    assert_i64(view_remote_pack_chunks(f.view, 103, count_chunk, &sum), 0);
    assert_u64(sum, 0);
    assert_i64(view_remote_pack(f.view, 103, &pack), -ENOENT);
}

/* Chunk 1 lies here, too, and chunk 3 there alone. */
static void make_suspect(void)
{
    PACK_OF(10, 1, 2);
    PACK_OF(11, 3);
    FILE_OF(2, "a", 1);
    FILE_OF(3, "b", 3);
    apply_ok(&f);
    assert_i64(view_track(f.view), 0);
    struct view_cut *c = cut_now();
    PLACE(100, 1, 2, 3);
    (void)publish(c, 5);
    add(&f, (struct record){.type = REC_DROP, .flags = RECORD_EVICTED, .pack = 11});
    apply_ok(&f);
    assert_i64(view_remote_pack_suspect(f.view, 99, 7), -ENOENT);
    assert_i64(view_remote_pack_suspect(f.view, 100, 7), 0);
}

static void look_suspect(struct view *view)
{
    assert_u64(remote_pack_of(view, 3), 100, "others learn its last known place");
    assert_i64(remote_pack(100).unreferenced, 0);
}

Test(view_remote, what_lies_in_a_suspect_pack_alone_keeps_its_place)
{
    make_suspect();
    cr_assert(remote_pack_of(f.view, 1) == 0 && remote_pack_of(f.view, 3) == 100);
    cr_assert(remote_pack(100).suspect == 7 && !remote_pack(100).gone);
    struct view_remote r = view_remote(f.view);
    cr_assert(r.pending_chunks == 1 && r.pending_bytes == 1001 && r.packs == 1);
    cr_assert(r.suspect_packs == 1 && r.suspect_chunks == 1);
    expect_check_ok(f.view);
    fixture_reopen(&f);
    r = view_remote(f.view);
    cr_assert(r.suspect_packs == 1 && r.suspect_chunks == 1, "it is remembered");
    struct view_cut *c = cut_now();
    PLACE(101, 1);
    assert_u64(publish(c, 6), 0);
    expect_adopted(look_suspect);
    assert_i64(view_remote_pack_trusted(f.view, 100), 0);
    r = view_remote(f.view);
    cr_assert(r.suspect_packs == 0 && r.suspect_chunks == 0 && r.packs == 2);
    cr_assert(remote_pack_of(f.view, 1) == 101 && remote_pack_of(f.view, 3) == 100);
    expect_check_ok(f.view);
}

/* The same content again: it is not taken for stored. */
Test(view_remote, what_comes_here_of_a_suspect_pack_is_sent_anew)
{
    make_suspect();
    struct view_cut *c = cut_now();
    PLACE(101, 1);
    assert_u64(publish(c, 6), 0);
    PACK_OF(12, 3);
    FILE_OF(4, "c", 3);
    apply_ok(&f);
    assert_u64(remote_pack_of(f.view, 3), 0);
    assert_u64(view_remote(f.view).pending_chunks, 1);
    assert_u64(view_remote(f.view).suspect_chunks, 0);
    expect_check_ok(f.view);
    c = cut_now();
    PLACE(102, 3);
    assert_u64(publish(c, 7), 0);
    assert_i64(remote_pack(100).unreferenced, 7);
    assert_u64(view_remote(f.view).suspect_packs, 0);
    expect_same_adopted();
}

static int add_pending_name(const struct chunk_name *name, bool is_local, void *arg)
{
    (void)name;
    *(unsigned *)arg += is_local ? 1 : 100;
    return 0;
}

/* A view of 0.2.0, which gave the pack up: its chunks have no place. */
Test(view_remote, a_pack_that_was_given_up_returns)
{
    struct chunk_entry entries[3];
    uint32_t placed;
    unsigned pending = 0;
    make_suspect();
    struct view_cut *c = cut_now();
    PLACE(101, 1);
    (void)publish(c, 6);
    give_up_pack(100);
    assert_i64(view_pending_chunks(f.view, add_pending_name, &pending), 0);
    assert_u64(pending, 100);
    assert_u64(publish(cut_now(), 7), 1);
    expect_pack_forgotten(100);
    for (uint32_t i = 0; i < 3; i++)
        entries[i] = remote_entry(100, i + 1, 64 + 2000ull * i);
    assert_i64(view_remote_pack_returned(f.view, 100, 10000, entries, 2, &placed), 0);
    assert_u64(placed, 0, "no lost chunk is in it");
    assert_i64(view_remote_pack_returned(f.view, 100, 10000, entries, 3, &placed), 0);
    assert_u64(placed, 1);
    assert_u64(remote_pack_of(f.view, 3), 100);
    assert_u64(remote_pack_of(f.view, 1), 101);
    assert_u64(view_remote(f.view).pending_chunks, 0);
    expect_check_ok(f.view);
    assert_u64(publish(cut_now(), 8), 0);
    expect_same_adopted();
}

Test(view_remote, gone_is_for_unreferenced_packs)
{
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    assert_i64(view_track(f.view), 0);
    struct view_cut *c = cut_now();
    PLACE(100, 1);
    (void)publish(c, 5);
    assert_i64(view_remote_pack_gone(f.view, 100), -EINVAL);
    assert_i64(view_remote_pack_gone(f.view, 99), -ENOENT);
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 6);
    assert_i64(remote_pack(100).unreferenced, 6);
    assert_u64(view_remote(f.view).packs, 0);
    assert_i64(view_remote_pack_gone(f.view, 100), 0);
    cr_assert(remote_pack(100).gone);
    struct key key;
    uint8_t value[256];
    key_u64(&key, KEY_REMOTE_PACK, 100);
    assert_i64(remote_row(&remote, key.bytes, key.len, value), (ssize_t)REMOTE_PACK_RUN_VALUE_LEN);
    add_dir(&f, 3, ROOT_INO, "d");
    apply_ok(&f);
    (void)publish(cut_now(), 7);
    assert_i64(remote_row(&remote, key.bytes, key.len, value), -1);
    expect_same_adopted();
}

/* --- what earlier states have ----------------------------------------------------------------- */

static bool spare(uint64_t pack, void *arg)
{
    return pack != *(const uint64_t *)arg;
}

/* Publishes the cut; the view is not to leave this pack unreferenced. */
static void publish_sparing(struct view_cut *cut, int64_t now, uint64_t pack)
{
    (void)remote_make(&remote, cut, now);
    view_cut_spare(cut, spare, &pack);
    remote_publish(&remote, f.view, cut);
    view_cut_close(cut);
}

/* Pack 100, which only an earlier state needs. */
static struct chunk_entry leave_a_pack(void)
{
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    assert_i64(view_track(f.view), 0);
    struct view_cut *c = cut_now();
    PLACE(100, 1);
    (void)publish(c, 5);
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 6);
    assert_i64(remote_pack(100).unreferenced, 6);
    assert_u64(remote_pack_of(f.view, 1), 0);
    return remote_entry(100, 1, 64);
}

Test(view_remote, a_claimed_pack_is_needed_again)
{
    struct chunk_entry entry = leave_a_pack();
    assert_i64(view_remote_pack_claimed(f.view, 100, &entry, 1), 0);
    assert_i64(remote_pack(100).unreferenced, 0);
    assert_i64(view_remote_pack_gone(f.view, 100), -EINVAL, "gc leaves it");
    expect_check_ok(f.view);
    publish_sparing(cut_now(), 7, 100);
    assert_i64(remote_pack(100).unreferenced, 0, "something that is staged refers to it");
    assert_u64(remote_pack_of(f.view, 1), 100);
    FILE_OF(3, "b", 1);
    apply_ok(&f);
    assert_u64(view_remote(f.view).pending_chunks, 0, "nothing is to be uploaded");
    (void)publish(cut_now(), 8);
    cr_assert(remote_pack(100).head == remote.head && is_published(1));
    expect_check_ok(f.view);
    expect_same_adopted();
}

Test(view_remote, a_claim_that_nothing_came_of_ends)
{
    struct chunk_entry entry = leave_a_pack();
    assert_i64(view_remote_pack_claimed(f.view, 100, &entry, 1), 0);
    (void)publish(cut_now(), 7);
    assert_i64(remote_pack(100).unreferenced, 7);
    assert_u64(remote_pack_of(f.view, 1), 0);
    expect_check_ok(f.view);
    expect_same_adopted();
}

Test(view_remote, a_pack_that_goes_cannot_be_claimed)
{
    struct chunk_entry entry = leave_a_pack();
    assert_i64(view_remote_pack_gone(f.view, 100), 0);
    assert_i64(view_remote_pack_claimed(f.view, 100, &entry, 1), -ENOENT);
    assert_i64(view_remote_pack_claimed(f.view, 99, &entry, 1), -ENOENT);
    assert_u64(remote_pack_of(f.view, 1), 0);
    expect_check_ok(f.view);
}

/* A file was made to refer to the pack after the cut that calls it unreferenced. */
Test(view_remote, what_came_to_be_needed_since_the_cut_stays)
{
    struct chunk_entry entry = leave_a_pack();
    assert_i64(view_remote_pack_claimed(f.view, 100, &entry, 1), 0);
    struct view_cut *c = cut_now();
    FILE_OF(3, "b", 1);
    apply_ok(&f);
    publish_sparing(c, 7, 0);
    cr_assert(remote_pack(100).unreferenced == 0 && remote_pack(100).head == 0);
    assert_u64(remote_pack_of(f.view, 1), 100);
    cr_assert_not(is_published(1), "NVMe's copy stays until the next head");
    (void)publish(cut_now(), 8);
    cr_assert(is_published(1));
    expect_check_ok(f.view);
    expect_same_adopted();
}
