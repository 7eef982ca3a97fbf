// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "remote_fixture.h"

static void setup(void)
{
    begin_view();
    add_file(&f, 10, ROOT_INO, "a", 0);
    add_file(&f, 11, ROOT_INO, "b", 0);
    apply_ok(&f);
}

TestSuite(chunks, .init = setup, .fini = end_view);

static struct view_pack pack_of(uint64_t pack)
{
    struct view_pack p = {0};
    assert_i64(view_pack(f.view, pack, &p), 0);
    return p;
}

static void show(uint64_t ino, uint64_t version, uint32_t id)
{
    struct extent e = chunk_extent(0, 100, id, 0);
    add_seal(&f, ino, version, 0, 100, &e, 1);
}

Test(chunks, accounts_through_create_dedup_overwrite_unlink)
{
    add_pack(&f, 1, (uint32_t[]){1, 2, 3}, 3);
    show(10, 2, 1);
    show(11, 2, 1);
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), 2);
    expect_u64(refs_of(&f, 2), 0);
    expect_u64(pack_of(1).live_bytes, 1001);
    expect_u64(pack_of(1).live_count, 1);
    expect_u64(pack_of(1).count, 3);
    expect_u64(view_state(f.view).chunks, 1);
    expect_u64(view_state(f.view).stored_bytes, 1001);
    expect_u64(view_state(f.view).packs, 1);
    expect_u64(view_state(f.view).pack_bytes, pack_of(1).length);
    show(10, 3, 2);
    apply_ok(&f);
    expect_u64(pack_of(1).live_bytes, 2003);
    add_unlink(&f, 11, ROOT_INO, "b", 0);
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), 0);
    expect_u64(pack_of(1).live_bytes, 1002);
    show(10, 4, 1); /* comes back */
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), 1);
    expect_u64(pack_of(1).live_bytes, 1001);
}

Test(chunks, orphans_keep_their_references)
{
    add_pack(&f, 1, (uint32_t[]){1}, 1);
    show(10, 2, 1);
    add_unlink(&f, 10, ROOT_INO, "a", RECORD_ORPHAN);
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), 1);
    add(&f, (struct record){.type = REC_REAP, .ino = 10});
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), 0);
}

Test(chunks, references_before_the_pack)
{
    show(10, 2, 1);
    apply_ok(&f);
    struct chunk_name name = chunk_of(1);
    struct chunk_entry entry;
    uint64_t refs;
    expect_i64(view_chunk(f.view, &name, &entry, &refs), 0);
    expect_u64(entry.pack, 0);
    expect_u64(view_state(f.view).stored_bytes, 0);
    add_pack(&f, 5, (uint32_t[]){1}, 1);
    apply_ok(&f);
    expect_i64(view_chunk(f.view, &name, &entry, &refs), 0);
    expect_u64(entry.pack, 5);
    expect_u64(entry.encoding, ENCODING_LZ4);
    expect_u64(refs, 1);
    expect_u64(view_state(f.view).stored_bytes, 1001);
}

Test(chunks, compaction_and_drop)
{
    add_pack(&f, 1, (uint32_t[]){1, 2, 3}, 3);
    add_pack(&f, 2, (uint32_t[]){4}, 1);
    show(10, 2, 2);
    apply_ok(&f);
    add_drop(&f, 1);
    apply_bad(&f); /* chunk 2 is used */
    add_pack(&f, 3, (uint32_t[]){2, 4}, 2);
    add_drop(&f, 1);
    f.packs[0].gone = true;
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), UINT64_MAX);
    expect_u64(refs_of(&f, 3), UINT64_MAX);
    expect_u64(refs_of(&f, 2), 1);
    expect_u64(refs_of(&f, 4), 0);
    expect_u64(pack_of(3).live_bytes, 1002);
    struct view_pack gone;
    expect_i64(view_pack(f.view, 1, &gone), -ENOENT);
    add_drop(&f, 2); /* its chunk moved */
    f.packs[1].gone = true;
    apply_ok(&f);
    expect_u64(refs_of(&f, 4), 0);
    expect_u64(view_state(f.view).packs, 1);
    show(10, 3, 9);
    apply_ok(&f);
    add_drop(&f, 3);
    f.packs[2].gone = true;
    apply_ok(&f);
    expect_u64(refs_of(&f, 2), UINT64_MAX);
    expect_u64(view_state(f.view).pack_bytes, 0);
}

Test(chunks, a_pack_made_and_dropped_in_one_batch)
{
    uint32_t ids[500];
    for (uint32_t i = 0; i < 500; i++)
        ids[i] = i + 1;
    add_pack(&f, 1, ids, 500);
    add_drop(&f, 1);
    apply_ok(&f);
    expect_u64(refs_of(&f, 7), UINT64_MAX);
}

Test(chunks, a_pack_whose_file_is_gone_is_only_noted)
{
    add_pack(&f, 1, (uint32_t[]){1}, 1);
    f.packs[0].gone = true;
    show(10, 2, 1);
    apply_ok(&f);
    expect_u64(pack_of(1).live_count, 0);
    expect_u64(pack_of(1).count, 0, "what it holds is not known");
    show(10, 3, 2);
    add_drop(&f, 1);
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), UINT64_MAX);
}

static int count_users(uint64_t ino, uint64_t offset, void *arg)
{
    *(uint64_t *)arg = *(uint64_t *)arg * 100000 + ino * 1000 + offset;
    return 0;
}

static int count_chunks(const struct view_local_chunk *chunk, void *arg)
{
    *(uint64_t *)arg += chunk->refs;
    return 0;
}

Test(chunks, users)
{
    struct extent e[] = {chunk_extent(0, 100, 1, 0), chunk_extent(100, 100, 2, 0),
                         chunk_extent(200, 100, 2, 0)};
    add_seal(&f, 10, 2, 0, 300, e, 3);
    show(11, 2, 2);
    apply_ok(&f);
    struct chunk_name name = chunk_of(2);
    uint64_t found = 0, refs = 0;
    expect_i64(view_chunk_users(f.view, &name, count_users, &found), 0);
    expect_u64(found, 1010011000ull);
    expect_i64(view_chunks(f.view, count_chunks, &refs), 0);
    expect_u64(refs, 4);
}

Test(chunks, refused)
{
    add_pack(&f, 1, (uint32_t[]){1}, 1);
    apply_ok(&f);
    add(&f, (struct record){.type = REC_PACK, .pack = 1, .count = 1});
    apply_bad(&f);
    add(&f, (struct record){.type = REC_PACK, .pack = 0, .count = 0});
    apply_bad(&f);
    add_drop(&f, 7);
    apply_bad(&f);
    add_pack(&f, 2, (uint32_t[]){2, 3}, 2);
    f.packs[1].count = 1; /* the index has fewer than the record says */
    apply_bad(&f);
    add_pack(&f, 3, (uint32_t[]){2}, 1);
    f.packs[2].entries[0].pack = 9;
    apply_bad(&f);
    f.packs[0].entries[0].raw_len = 50;
    add_pack(&f, 4, (uint32_t[]){5}, 1);
    f.packs[3].entries[0].raw_len = 50;
    show(10, 2, 5); /* 100 bytes of a chunk of 50 */
    apply_bad(&f);
    f.packs[0].entries[0].raw_len = CHUNK_SIZE_MAX;
}

/* --- chunks that rest on others on NVMe ------------------------------------------------------- */

static struct view_local_chunk local_of(uint32_t id)
{
    struct view_local_chunk chunk = {0};
    struct chunk_name name = chunk_of(id);
    assert_i64(view_local_chunk(f.view, &name, &chunk), 0);
    return chunk;
}

/* Chunk 1 in pack 1, and 2, which rests on it, in pack 2; files a and b show them. */
static void one_on_another(void)
{
    add_pack(&f, 1, (uint32_t[]){1}, 1);
    add_pack(&f, 2, (uint32_t[]){2}, 1);
    rest_on(&f, 0, 1, 1);
    rest_on(&f, 0, 1, 1); /* two stretches of it: it counts once */
    show(10, 2, 1);
    show(11, 2, 2);
    apply_ok(&f);
    expect_u64(local_of(1).dependents, 1);
}

Test(chunks, a_base_lives_while_others_rest_on_it)
{
    one_on_another();
    add_unlink(&f, 10, ROOT_INO, "a", 0);
    apply_ok(&f);
    expect_u64(local_of(1).refs, 0);
    expect_u64(view_is_live(&(struct view_local_chunk){local_of(1).entry, 0, 1}), true);
    expect_u64(pack_of(1).live_count, 1);
    expect_u64(pack_of(1).live_bytes, 1001);
    expect_u64(view_state(f.view).chunks, 1);
    expect_u64(view_state(f.view).stored_bytes, 2003);
    expect_u64(view_state(f.view).held_bytes, 1001);
    add_unlink(&f, 11, ROOT_INO, "b", 0);
    apply_ok(&f);
    expect_u64(pack_of(1).live_count, 1, "its dependent is dead, and may be wanted again");
    expect_u64(pack_of(2).live_count, 0);
    add_drop(&f, 2);
    f.packs[1].gone = true;
    apply_ok(&f);
    expect_u64(pack_of(1).live_count, 0);
    expect_u64(view_state(f.view).stored_bytes, 0);
    expect_u64(view_state(f.view).held_bytes, 0);
    add_drop(&f, 1);
    f.packs[0].gone = true;
    apply_ok(&f);
    expect_u64(refs_of(&f, 1), UINT64_MAX);
}

Test(chunks, a_chunk_that_is_stored_anew_leaves_its_base)
{
    one_on_another();
    add_unlink(&f, 10, ROOT_INO, "a", 0);
    add_pack(&f, 3, (uint32_t[]){2, 3}, 2); /* by itself */
    apply_ok(&f);
    expect_u64(local_of(1).dependents, 0);
    expect_u64(pack_of(1).live_count, 0);
    add_pack(&f, 4, (uint32_t[]){2}, 1);
    rest_on(&f, 0, 3, 1);
    apply_ok(&f);
    expect_u64(local_of(3).dependents, 1);
    expect_u64(pack_of(3).live_count, 1, "the base, and not what moved");
}

Test(chunks, a_base_moves_under_what_rests_on_it)
{
    one_on_another();
    add_unlink(&f, 10, ROOT_INO, "a", 0);
    apply_ok(&f);
    add_pack(&f, 3, (uint32_t[]){1}, 1);
    add_drop(&f, 1);
    f.packs[0].gone = true;
    apply_ok(&f);
    expect_u64(local_of(1).entry.pack, 3);
    expect_u64(pack_of(3).live_count, 1);
    expect_u64(local_of(1).dependents, 1);
}

Test(chunks, an_entry_that_comes_before_its_base)
{
    add_pack(&f, 1, (uint32_t[]){2}, 1);
    rest_on(&f, 0, 1, 1);
    show(11, 2, 2);
    add_pack(&f, 2, (uint32_t[]){1}, 1);
    apply_ok(&f);
    expect_u64(local_of(1).dependents, 1);
    expect_u64(pack_of(2).live_count, 1);
}

/* A crash may repeat a drop of a base whose dependent moved to a pack that is gone by now. */
Test(chunks, a_base_without_a_place_is_reported_and_may_come_back)
{
    one_on_another();
    add_unlink(&f, 10, ROOT_INO, "a", 0);
    add_drop(&f, 1);
    apply_ok(&f);
    expect_u64(local_of(1).entry.pack, 0);
    expect_u64(local_of(1).dependents, 1);
    expect_i64(check_count(f.view), 1);
    add_pack(&f, 3, (uint32_t[]){1}, 1);
    apply_ok(&f);
    expect_i64(check_count(f.view), 0);
    expect_u64(pack_of(3).live_count, 1);
}

Test(chunks, an_entry_that_rests_on_itself_is_refused)
{
    add_pack(&f, 1, (uint32_t[]){2}, 1);
    rest_on(&f, 0, 2, 1);
    apply_bad(&f);
    add_pack(&f, 2, (uint32_t[]){2}, 1);
    rest_on(&f, 0, 1, 0); /* and is not deeper than it */
    apply_bad(&f);
}
