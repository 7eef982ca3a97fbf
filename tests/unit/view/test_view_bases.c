// SPDX-License-Identifier: Apache-2.0
/* Single cases of what lies in the remote and rests on other chunks. */
#include "../expect.h"
#include "../numbered.h"
#include "remote_fixture.h"
#include "view/db.h"

TestSuite(view_bases, .init = begin_tracking, .fini = end_remote);

static int place_on(uint32_t id, unsigned depth, const uint32_t *bases, uint32_t count)
{
    static uint64_t pack = 1000;
    struct chunk_entry entry = remote_entry_on(++pack, id, 64, depth, bases, count);
    return view_remote_placed(f.view, pack, 4000, &entry, 1);
}

#define PLACE_ON(id, depth, ...)                                                                   \
    place_on(id, depth, (const uint32_t[]){__VA_ARGS__},                                           \
             ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))

static void begin_chain(void)
{
    PACK_OF(9, 1);
    PACK_OF(10, 2, 3, 4, 5);
    FILE_OF(2, "base", 1);
    FILE_OF(3, "rests", 2, 3);
    apply_ok(&f);
    PLACE(100, 1, 5);
    assert_i64(PLACE_ON(2, 1, 1, 1), 0, "two references to one base");
    assert_i64(PLACE_ON(3, 2, 1, 2), 0);
}

Test(view_bases, entries_that_rest_on_nothing_or_on_themselves_are_refused)
{
    begin_chain();
    assert_i64(PLACE_ON(4, 1, 6), -EUCLEAN, "a base that is not there");
    assert_i64(PLACE_ON(4, 1, 4), -EUCLEAN, "itself");
    assert_i64(PLACE_ON(4, 0, 1), -EUCLEAN, "no depth");
    assert_i64(PLACE_ON(4, 1, 2), -EUCLEAN, "as deep as its base");
    assert_i64(PLACE_ON(4, CHUNK_DEPTH_MAX + 1, 1), -EUCLEAN, "too deep");
    assert_i64(PLACE_ON(1, 3, 3), -EUCLEAN, "a circle");
    assert_i64(PLACE_ON(2, 2, 1), -EUCLEAN, "as deep as what rests on it");
    expect_check_ok(f.view);
    assert_u64(remote_pack_of(f.view, 4), 0);
    assert_i64(PLACE_ON(2, 1, 1), 0, "as it was");
}

Test(view_bases, a_base_lives_as_long_as_what_rests_on_it)
{
    begin_chain();
    (void)publish(cut_now(), 5);
    expect_u64(view_remote(f.view).held_bytes, 0);
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    apply_ok(&f);
    assert_u64(remote_pack(100).live_count, 1);
    expect_u64(view_remote(f.view).held_bytes, remote_pack(100).live_bytes);
    (void)publish(cut_now(), 6);
    assert_i64(remote_pack(100).unreferenced, 0);
    expect_same_adopted();
    add_unlink(&f, 3, ROOT_INO, "rests", 0);
    apply_ok(&f);
    assert_u64(remote_pack(100).live_count, 0);
    expect_u64(view_remote(f.view).held_bytes, 0);
    (void)publish(cut_now(), 7);
    assert_i64(remote_pack(100).unreferenced, 7);
}

Test(view_bases, what_comes_back_without_its_base_is_sent_anew)
{
    struct chunk_entry entries[] = {remote_entry_on(101, 2, 64, 1, (const uint32_t[]){1}, 1),
                                    remote_entry(101, 3, 2064)};
    PACK_OF(10, 1, 2, 3);
    FILE_OF(2, "base", 1);
    FILE_OF(3, "rests", 2);
    FILE_OF(4, "stays", 3);
    apply_ok(&f);
    PLACE(100, 1);
    assert_i64(view_remote_placed(f.view, 101, 8000, entries, 2), 0);
    (void)publish(cut_now(), 5);
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_unlink(&f, 3, ROOT_INO, "rests", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 6);
    assert_i64(remote_pack(100).unreferenced, 6);
    assert_u64(remote_pack_of(f.view, 2), 101);
    FILE_OF(5, "again", 2);
    apply_ok(&f);
    assert_u64(remote_pack_of(f.view, 2), 0);
    assert_u64(view_remote(f.view).pending_chunks, 1);
}

struct forging {
    struct view_adoption *adoption;
    struct chunk_entry entry; /* what the row of its chunk says instead */
};

static int adopt_forged(const struct run_row *row, void *arg)
{
    struct forging *forging = arg;
    struct chunk_row forged = {.entry = forging->entry, .refs = 1};
    struct run_row other = *row;
    struct key key;
    uint8_t value[CHUNK_RUN_VALUE_LEN_MAX];
    key_chunk(&key, &forging->entry.name);
    if (row->key_len == key.len && memcmp(row->key, key.bytes, key.len) == 0) {
        other.value = value;
        other.value_len = chunk_run_encode(&forged, value);
    }
    return view_adopt_row(forging->adoption, &other);
}

Test(view_bases, a_head_whose_chunks_rest_on_each_other_is_refused)
{
    struct forging forging = {.entry = remote_entry_on(100, 1, 64, 2, (const uint32_t[]){2}, 1)};
    begin_chain();
    (void)publish(cut_now(), 5);
    _cleanup_free_ char *path = xasprintf("%s.forged", f.path);
    struct view *view;
    open_view_at(path, &view);
    assert_i64(view_adopt_begin(view, &forging.adoption), 0);
    int r = remote_rows(&remote, adopt_forged, &forging);
    if (r == 0)
        r = view_adopt_end(forging.adoption, &remote.state,
                           &(struct view_head){.number = remote.head, .max_id = UINT64_MAX});
    assert_i64(r, -EUCLEAN);
    view_adopt_done(forging.adoption);
    view_close(view);
    remove_tree(path);
}

static void look_at_base(struct view *view)
{
    assert_u64(remote_pack_of(view, 1), 100);
    assert_u64(view_remote(view).pending_chunks, 0);
}

Test(view_bases, a_head_that_says_all_names_bases_that_no_file_has)
{
    begin_chain();
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_drop(&f, 9);
    FILE_OF(6, "beside", 5);
    apply_ok(&f);
    (void)publish(cut_now(), 5);
    expect_adopted(look_at_base);
}

static void evict_pack(uint64_t pack)
{
    add(&f, (struct record){.type = REC_DROP, .flags = RECORD_EVICTED, .pack = pack});
}

/* The file that rests on chunk 1 is deleted, and a whole head does not name that any more. */
static void expect_base_goes(struct view *peer, uint64_t ino)
{
    add_unlink(&f, ino, ROOT_INO, "rests", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 7);
    follow_newest(peer, true);
    assert_u64(remote_pack_of(peer, 1), 0);
}

/* It lies nowhere else: its base may come back. */
Test(view_bases, what_is_moved_without_its_base_keeps_its_place_elsewhere)
{
    char *path;
    begin_chain();
    (void)publish(cut_now(), 5);
    struct view *peer = open_peer("peer", &path);
    evict_pack(9);
    evict_pack(10);
    apply_ok(&f);
    give_up_pack(100);
    assert_i64(PLACE_ON(2, 1, 1), 0);
    (void)publish(cut_now(), 6);
    follow_newest(peer, false);
    assert_u64(remote_pack_of(peer, 2), remote_pack_of(f.view, 2));
    close_peer(peer, path);
}

/* Of two bases one is lost, and what rests on them lies here: it has no entry here any more. */
Test(view_bases, the_other_base_is_none_when_a_whole_head_does_not_name_it)
{
    char *path;
    uint8_t buf[256];
    PACK_OF(8, 6);
    PACK_OF(9, 1);
    PACK_OF(10, 2, 5);
    FILE_OF(2, "base", 1);
    FILE_OF(3, "other", 6);
    FILE_OF(4, "rests", 2);
    FILE_OF(5, "beside", 5); /* its pack stays */
    apply_ok(&f);
    PLACE(100, 1, 5);
    PLACE(101, 6);
    assert_i64(PLACE_ON(2, 1, 1, 6), 0);
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 5);
    struct view *peer = open_peer("peer", &path);
    struct record fetched = {.type = REC_PACK,
                             .seq = view_state(peer).applied_seq,
                             .pack = 10,
                             .length = 64,
                             .count = 2};
    record_encode(&fetched, buf);
    apply_bytes(&f, peer, buf, record_encoded_len(&fetched), fetched.seq);
    for (uint64_t pack = 8; pack <= 10; pack++)
        evict_pack(pack);
    apply_ok(&f);
    give_up_pack(101);
    (void)publish(cut_now(), 6);
    follow_newest(peer, false);
    assert_u64(remote_pack_of(peer, 2), 0);
    expect_base_goes(peer, 4);
    close_peer(peer, path);
}

Test(view_bases, a_base_that_a_whole_head_does_not_name_is_none)
{
    char *path;
    begin_chain();
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_drop(&f, 9);
    FILE_OF(6, "beside", 5);
    apply_ok(&f);
    (void)publish(cut_now(), 5);
    struct view *peer = open_peer("peer", &path);
    expect_base_goes(peer, 3);
    close_peer(peer, path);
}

/* --- what was deleted since the cut ----------------------------------------------------------- */

#define ASKING 4u
#define TIMES 500

static void *ask_for_base(void *cut)
{
    const struct chunk_name name = chunk_of(1);
    intptr_t r = 0;
    for (int i = 0; i < TIMES && r == 0; i++) {
        struct chunk_entry entry;
        r = view_cut_base(cut, &name, &entry);
        if (r == 0 && entry.pack != 100)
            r = -EUCLEAN;
    }
    return (void *)r;
}

/* The snapshot says that the cut needs it. */
Test(view_bases, what_is_deleted_since_the_cut_is_a_base_for_several_threads_at_once)
{
    pthread_t threads[ASKING];
    begin_chain();
    FILE_OF(6, "new", 4);
    apply_ok(&f);
    struct view_cut *cut = cut_now();
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_unlink(&f, 3, ROOT_INO, "rests", 0);
    apply_ok(&f);
    for (unsigned i = 0; i < ASKING; i++)
        assert_i64(pthread_create(&threads[i], NULL, ask_for_base, cut), 0);
    for (unsigned i = 0; i < ASKING; i++) {
        void *r;
        assert_i64(pthread_join(threads[i], &r), 0);
        assert_i64((intptr_t)r, 0);
    }
    assert_i64(PLACE_ON(4, 1, 1), 0);
    (void)publish(cut, 5);
    expect_adopted(look_at_base);
}

/* --- what was deleted before ------------------------------------------------------------------ */

enum { FILES = 12, EACH = 16, FIRST = 100, NEW = 1000 };

static void list_ids(uint32_t first, uint32_t ids[EACH])
{
    for (uint32_t i = 0; i < EACH; i++)
        ids[i] = first + i;
}

/* A file whose chunks all rest on chunk 1. */
static void add_dependents(uint32_t number)
{
    uint32_t ids[EACH];
    struct chunk_entry entries[EACH];
    list_ids(FIRST + EACH * number, ids);
    add_pack(&f, 20 + number, ids, EACH);
    add_file_of(10 + number, numbered("rests %u", number), ids, EACH);
    apply_ok(&f);
    for (uint32_t i = 0; i < EACH; i++)
        entries[i] = remote_entry_on(200 + number, ids[i], 64 + 4000 * (uint64_t)i, 1,
                                     (const uint32_t[]){1}, 1);
    assert_i64(view_remote_placed(f.view, 200 + number, 100000, entries, EACH), 0);
}

static void remove_dependents(void)
{
    for (uint32_t i = 0; i < FILES; i++)
        add_unlink(&f, 10 + i, ROOT_INO, numbered("rests %u", i), 0);
    apply_ok(&f);
}

/* Deleted keys that RocksDB steps over while new chunks are applied. */
static uint64_t skipped_by_new_chunks(void)
{
    rocksdb_perfcontext_t *counts = rocksdb_perfcontext_create();
    uint32_t ids[EACH];
    list_ids(NEW, ids);
    add_pack(&f, 90, ids, EACH);
    add_file_of(90, "new", ids, EACH);
    rocksdb_set_perf_level(rocksdb_enable_count);
    rocksdb_perfcontext_reset(counts);
    apply_ok(&f);
    uint64_t skipped = rocksdb_perfcontext_metric(counts, rocksdb_internal_delete_skipped_count);
    rocksdb_set_perf_level(rocksdb_disable);
    rocksdb_perfcontext_destroy(counts);
    return skipped;
}

/* Else the time that a save takes grows with all that was deleted before it. */
Test(view_bases, new_chunks_do_not_step_over_what_was_deleted)
{
    PACK_OF(9, 1);
    FILE_OF(2, "base", 1);
    apply_ok(&f);
    PLACE(100, 1);
    for (uint32_t i = 0; i < FILES; i++)
        add_dependents(i);
    remove_dependents();
    uint64_t skipped = skipped_by_new_chunks();
    cr_assert(skipped < FILES * EACH, "%llu deleted keys were stepped over",
              (unsigned long long)skipped);
    expect_check_ok(f.view);
}
