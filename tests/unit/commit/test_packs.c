// SPDX-License-Identifier: Apache-2.0
/* Packs by themselves: made, written, given up, named, dropped. */
#include <stdio.h>

#include "../expect.h"
#include "base/log.h"
#include "objects.h"

#define LEN 10000u

static uint8_t bytes[8][LEN];
static struct chunk_entry chunks[8];
static const char *failing;

static void setup(void)
{
    objects_setup_with_stage();
    objects_fail(&failing);
    for (unsigned i = 0; i < 8; i++)
        objects_chunk(i, bytes[i], LEN, &chunks[i]);
    assert_i64(packs_start(o.packs, o.priority), 0);
}

TestSuite(commit_packs, .init = setup, .fini = objects_teardown, .timeout = 120);

static uint64_t pack_of(unsigned chunk)
{
    struct chunk_entry entry;
    return packs_find_fresh(o.packs, &chunks[chunk].name, &entry);
}

static uint64_t put(unsigned chunk)
{
    packs_add_stored(o.packs, &chunks[chunk], bytes[chunk]);
    assert_i64(packs_finish(o.packs), 0);
    return pack_of(chunk);
}

Test(commit_packs, a_chunk_is_found_and_read_once_its_pack_is_written)
{
    packs_add_stored(o.packs, &chunks[0], bytes[0]);
    cr_expect(packs_has_fresh(o.packs, &chunks[0].name));
    expect_u64(pack_of(0), 0, "it is not written yet");
    assert_i64(packs_finish(o.packs), 0);
    cr_assert_neq(pack_of(0), 0);
    uint8_t read[CHUNK_SIZE_MAX];
    uint32_t len;
    assert_i64(packs_read_chunk(o.packs, &chunks[0].name, read, &len), 0);
    expect_u64(len, LEN);
    expect_i64(memcmp(read, bytes[0], LEN), 0);
    cr_expect(packs_is_ours(o.packs, pack_of(0)));
    cr_expect_gt(packs_new_bytes(o.packs), LEN);
}

/* Equal bytes of two nodes of a prefix are two chunks, and each node can read both. */
Test(commit_packs, names_of_chunks_carry_the_node)
{
    static uint8_t scratch[PACKS_SCRATCH_LEN], read[CHUNK_SIZE_MAX];
    struct iovec iov = {bytes[0], LEN};
    struct packs_chunk alone = {.iov = &iov, .iov_count = 1, .length = LEN}, first, second;
    second = first = alone;
    uint32_t len;
    packs_add(o.packs, &alone, scratch);
    o.local.sb.incompat |= SUPERBLOCK_INCOMPAT_NODES;
    packs_add(o.packs, &first, scratch);
    o.local.sb.node = NODE_MAX;
    packs_add(o.packs, &second, scratch);
    assert_i64(packs_finish(o.packs), 0);
    cr_expect(chunk_name_equal(&alone.name, &first.name), "node 0, which was alone at first");
    cr_expect(!chunk_name_equal(&first.name, &second.name));
    expect_i64(memcmp(first.name.bytes + 3, second.name.bytes + 3, 21), 0);
    o.local.sb.node = 5;
    assert_i64(packs_read_chunk(o.packs, &first.name, read, &len), 0);
    assert_i64(packs_read_chunk(o.packs, &second.name, read, &len), 0);
    expect_i64(memcmp(read, bytes[0], LEN), 0);
    o.local.sb.incompat = 0;
    expect_i64(packs_read_chunk(o.packs, &second.name, read, &len), -EBADMSG);
}

Test(commit_packs, a_chunk_lies_in_one_pack_however_often_it_is_added)
{
    uint64_t pack = put(0), bytes_before = packs_new_bytes(o.packs);
    expect_u64(put(0), pack);
    expect_u64(packs_new_bytes(o.packs), bytes_before);
    expect_i64(packs_promote(o.packs, &chunks[0], bytes[0]), -EEXIST);
}

Test(commit_packs, chunks_of_a_pack_that_failed_are_added_again)
{
    failing = "put";
    packs_add_stored(o.packs, &chunks[0], bytes[0]);
    expect_i64(packs_finish(o.packs), -EIO);
    cr_expect(packs_has_fresh(o.packs, &chunks[0].name));
    packs_abandon(o.packs);
    cr_expect_not(packs_has_fresh(o.packs, &chunks[0].name));
    expect_u64(packs_new_bytes(o.packs), 0);
    cr_expect_neq(put(0), 0);
}

static void count_pack(struct new_pack *pack, void *count)
{
    (void)pack;
    ++*(unsigned *)count;
}

Test(commit_packs, a_pack_is_known_here_until_the_view_knows_it)
{
    uint64_t first = put(0), second = put(1);
    unsigned count = 0;
    packs_each_durable(o.packs, count_pack, &count);
    expect_u64(count, 2);
    packs_note_named(o.packs, &first, 1);
    packs_retire_named(o.packs);
    cr_expect_not(packs_is_written(o.packs, first));
    cr_expect(packs_is_written(o.packs, second));
    expect_u64(pack_of(0), 0);
    expect_u64(pack_of(1), second);
    cr_expect(packs_have_leftovers(o.packs), "no batch names the second");
}

Test(commit_packs, packs_have_chunks_of_one_depth)
{
    struct chunk_entry deeper = chunks[1];
    deeper.depth = 1;
    packs_add_stored(o.packs, &chunks[0], bytes[0]);
    packs_add_stored(o.packs, &deeper, bytes[1]);
    assert_i64(packs_finish(o.packs), 0);
    cr_expect_neq(pack_of(0), pack_of(1));
}

Test(commit_packs, a_marked_pack_is_not_pinned_and_a_pinned_one_not_marked)
{
    cr_assert(packs_pin(o.packs, 42));
    cr_expect_not(packs_begin_drop(o.packs, 42));
    cr_expect_not(packs_is_free(o.packs, 42));
    packs_unpin(o.packs, 42);
    cr_expect(packs_is_free(o.packs, 42));
    cr_assert(packs_begin_drop(o.packs, 42));
    cr_expect_not(packs_begin_drop(o.packs, 42));
    cr_expect_not(packs_pin(o.packs, 42));
    cr_expect(packs_are_dropping(o.packs));
    packs_end_drop(o.packs, 42);
    cr_expect_not(packs_are_dropping(o.packs));
}

Test(commit_packs, nothing_is_dropped_while_that_is_held_back)
{
    packs_hold_drops(o.packs, true);
    cr_expect_not(packs_begin_drop(o.packs, 42));
    packs_hold_drops(o.packs, false);
    cr_assert(packs_begin_drop(o.packs, 42));
    packs_end_drop(o.packs, 42);
}

Test(commit_packs, nothing_is_dropped_while_a_new_pack_rests_on_others)
{
    struct chunk_entry dense = chunks[0];
    dense.ref_count = 1;
    dense.depth = 1;
    dense.refs[0] = (struct chunk_ref){.name = chunks[1].name, .length = LEN};
    packs_add_dense(o.packs, &dense, bytes[0]);
    cr_expect_not(packs_begin_drop(o.packs, 42));
    assert_i64(packs_finish(o.packs), 0);
    cr_expect_not(packs_begin_drop(o.packs, 42), "the view does not know of it yet");
    uint64_t pack = pack_of(0);
    packs_note_named(o.packs, &pack, 1);
    packs_retire_named(o.packs);
    cr_assert(packs_begin_drop(o.packs, 42));
    packs_end_drop(o.packs, 42);
}

Test(commit_packs, known_damage_is_not_relied_on_until_it_is_stored_anew)
{
    cr_expect_not(damage_is_known(o.damage, &chunks[0].name));
    damage_note_local(o.damage, &chunks[0].name);
    cr_expect(damage_is_known(o.damage, &chunks[0].name));
    struct heal *heal = heal_new(o.packs, o.damage);
    cr_expect_not(heal_add(heal));
    cr_assert(heal_give(heal, &chunks[0].name, bytes[0], LEN));
    cr_assert(heal_add(heal));
    assert_i64(packs_finish(o.packs), 0);
    cr_expect_neq(pack_of(0), 0);
    heal_settle(heal);
    cr_expect_not(heal_is_pending(heal));
    cr_expect_not(damage_is_known(o.damage, &chunks[0].name));
    expect_u64(atomic_load(&o.damage->healed_total), 1);
    heal_free(heal);
}
