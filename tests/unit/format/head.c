// SPDX-License-Identifier: Apache-2.0
#include "format/head.h"

#include <signal.h>

#include "../expect.h"
#include "format/le.h"
#include "samples.h"

enum { FIXED = 336, RUN = 72, GIVEN_UP = 40, WRITER = 72, WRITERS_TAIL = 16, TAIL = 8 };

/* --- head ------------------------------------------------------------------------------------- */

static void expect_same_run(const struct run_info *a, const struct run_info *b)
{
    assert_u64(a->id, b->id);
    cr_assert_arr_eq(a->history, b->history, sizeof a->history);
    assert_u64(a->base_cut, b->base_cut);
    assert_u64(a->cut, b->cut);
    assert_u64(a->rows, b->rows);
    assert_u64(a->length, b->length);
    cr_assert_arr_eq(a->hash, b->hash, sizeof a->hash);
}

static void expect_same_head(const struct head *a, const struct head *b)
{
    assert_u64(a->number, b->number);
    cr_assert_arr_eq(a->history, b->history, sizeof a->history);
    cr_assert_arr_eq(a->store, b->store, sizeof a->store);
    assert_u64(a->writer, b->writer);
    assert_u64(a->incompat, b->incompat);
    assert_u64(a->epoch, b->epoch);
    cr_assert_arr_eq(a->nonce, b->nonce, sizeof a->nonce);
    assert_str(a->holder, b->holder);
    assert_i64(a->time, b->time);
    assert_i64(a->published, b->published);
    assert_u64(a->cut, b->cut);
    cr_assert_arr_eq(a->chain, b->chain, sizeof a->chain);
    assert_u64(a->max_ino, b->max_ino);
    assert_u64(a->max_id, b->max_id);
    assert_u64(a->files, b->files);
    assert_u64(a->logical_bytes, b->logical_bytes);
    assert_u64(a->chunks, b->chunks);
    assert_u64(a->stored_bytes, b->stored_bytes);
    assert_u64(a->packs, b->packs);
    assert_u64(a->pack_bytes, b->pack_bytes);
    assert_u64(a->run_count, b->run_count);
    for (uint32_t i = 0; i < a->run_count; i++)
        expect_same_run(&a->runs[i], &b->runs[i]);
    assert_u64(a->given_up_count, b->given_up_count);
    cr_assert_arr_eq(a->given_up, b->given_up, a->given_up_count * sizeof *a->given_up);
    assert_i64(a->end_time, b->end_time);
    assert_i64(memcmp(&a->keep, &b->keep, sizeof a->keep), 0);
    assert_i64(a->has_names, b->has_names);
    assert_u64(a->writer_count, b->writer_count);
    for (uint32_t i = 0; i < a->writer_count; i++) {
        assert_u64(a->writers[i].epoch, b->writers[i].epoch);
        assert_u64(a->writers[i].node, b->writers[i].node);
        assert_i64(a->writers[i].state, b->writers[i].state);
        assert_u64(a->writers[i].merged, b->writers[i].merged);
        assert_u64(a->writers[i].feed_round, b->writers[i].feed_round);
        cr_assert_arr_eq(a->writers[i].feed_hash, b->writers[i].feed_hash, 32);
    }
}

Test(head, round_trips)
{
    for (uint32_t runs = 0; runs <= HEAD_RUNS_MAX; runs++) {
        uint8_t buf[HEAD_LEN_MAX];
        struct head in = sample_head(runs), out;
        memset(buf, 0xee, sizeof buf);
        memset(&out, 0xee, sizeof out);
        size_t len = head_encode(&in, buf);
        assert_u64(len, (size_t)FIXED + RUN * runs + TAIL);
        assert_u64(len % 8, 0);
        assert_i64(head_decode(buf, len, &out), 0);
        expect_same_head(&in, &out);
    }
}

/* One that needs nothing stays as 0.2.0 reads it. What a reader does not know it must not take. */
Test(head, features)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head in = sample_head(2), out;
    size_t len = head_encode(&in, buf);
    assert_u64(get_le32(buf + 8), 1);
    sample_change(buf, len, 84, SUPERBLOCK_INCOMPAT_FX, 4);
    assert_i64(head_decode(buf, len, &out), -EUCLEAN, "version 1 has no features");
    in.incompat = SUPERBLOCK_INCOMPAT_ENCODINGS;
    len = head_encode(&in, buf);
    assert_u64(get_le32(buf + 8), 2);
    assert_i64(head_decode(buf, len, &out), 0);
    expect_same_head(&in, &out);
    sample_change(buf, len, 84, 1u << 29 | SUPERBLOCK_INCOMPAT_FX, 4);
    assert_i64(head_decode(buf, len, &out), -EPROTONOSUPPORT);
}

Test(head, what_follows_the_holder_stays_out)
{
    uint8_t buf[HEAD_LEN_MAX], again[HEAD_LEN_MAX];
    struct head in = sample_head(1);
    size_t len = head_encode(&in, buf);
    memset(in.holder + strlen(in.holder) + 1, 'x', 20);
    assert_u64(head_encode(&in, again), len);
    cr_assert_arr_eq(buf, again, len);
    memset(in.holder, 'h', HOLDER_MAX - 1);
    in.holder[HOLDER_MAX - 1] = 0;
    struct head out;
    assert_i64(head_decode(buf, head_encode(&in, buf), &out), 0);
    assert_str(out.holder, in.holder);
}

Test(head, fields_are_checked)
{
    static const struct change changes[] = {
        {8, HEAD_VERSION, 4, 0, "this version"},
        {8, HEAD_VERSION + 1, 4, -EPROTONOSUPPORT, "a later version"},
        {8, 0, 4, -EUCLEAN, "version 0"},
        {16, 0, 8, -EUCLEAN, "head 0"},
        {16, UINT64_MAX, 8, 0, ""},
        {72, 1 << 24, 8, -EUCLEAN, "epochs have 24 bits"},
        {82, 0, 2, 0, "none given up"},
        {82, 1, 2, -EUCLEAN, "one given up, and no entry"},
        {84, 1, 4, -EUCLEAN, "version 1 has no features"},
        {144, (1ull << 48) - 1, 8, 0, ""},
        {144, 1ull << 48, 8, -EUCLEAN, "with a writer slot"},
        {FIXED + 3 * RUN, 1, 4, -EUCLEAN, "reserved"},
        {208, 0, 8, -EUCLEAN, "a holder that goes on after its end"},
        {335, 'x', 1, -EUCLEAN, "after the holder's end"},
    };
    expect_changes(SAMPLE_HEAD, changes, ARRAY_LEN(changes));
}

Test(head, number_of_runs_is_checked)
{
    for (uint32_t count = 0; count <= HEAD_RUNS_MAX + 1; count++)
        assert_i64(sample_decode_changed(SAMPLE_HEAD, 12, count, 4), count == 3 ? 0 : -EUCLEAN);
    assert_i64(sample_decode_changed(SAMPLE_HEAD, 12, UINT32_MAX, 4), -EUCLEAN);
    /* Length and number agree, and there are too many. */
    uint8_t buf[HEAD_LEN_MAX] = {0};
    struct head head = sample_head(HEAD_RUNS_MAX);
    size_t len = head_encode(&head, buf) + RUN;
    sample_change(buf, len, 12, HEAD_RUNS_MAX + 1, 4);
    assert_i64(head_decode(buf, len, &head), -EUCLEAN);
    assert_i64(head_decode(buf, HEAD_LEN_MAX + 8, &head), -EUCLEAN);
}

Test(head, holder_must_end)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(0);
    size_t len = head_encode(&head, buf);
    memset(buf + 208, 'h', HOLDER_MAX);
    sample_change(buf, len, 208, 'h', 1);
    assert_i64(head_decode(buf, len, &head), -EUCLEAN);
}

Test(head, runs_follow_each_other)
{
    const size_t second = FIXED + RUN;
    struct head head = sample_head(3);
    const struct change changes[] = {
        {FIXED, 0, 8, -EUCLEAN, "run 0"},
        {second, head.runs[0].id, 8, -EUCLEAN, "the same run twice"},
        {FIXED + 8, 1, 8, -EUCLEAN, "the first begins at 0"},
        {second + 8, head.runs[1].base_cut + 1, 8, -EUCLEAN, "a gap"},
        {second + 8, head.runs[1].base_cut - 1, 8, -EUCLEAN, "twice"},
        {second + 16, head.runs[1].base_cut - 1, 8, -EUCLEAN, "backwards"},
        {104, head.cut + 1, 8, -EUCLEAN, "the last ends at the cut"},
        {second + 32, RUN_HEADER_LEN + RUN_TRAILER_LEN, 8, 0, "as short as a run can be"},
        {second + 32, RUN_HEADER_LEN + RUN_TRAILER_LEN - 1, 8, -EUCLEAN, "shorter"},
        {second + 32, 1ull << 63, 8, -EUCLEAN, ""},
    };
    expect_changes(SAMPLE_HEAD, changes, ARRAY_LEN(changes));
}

/* Two runs that join up, but where they join is before the first of them begins. */
Test(head, no_run_goes_back)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(3);
    size_t len = head_encode(&head, buf);
    put_le64(buf + FIXED + RUN + 16, head.runs[1].base_cut - 1);
    sample_change(buf, len, FIXED + 2 * RUN + 8, head.runs[1].base_cut - 1, 8);
    assert_i64(head_decode(buf, len, &head), -EUCLEAN);
}

Test(head, without_runs_nothing_is_there)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(0);
    assert_u64(head.cut, 0);
    size_t len = head_encode(&head, buf);
    sample_change(buf, len, 104, 5, 8);
    assert_i64(head_decode(buf, len, &head), -EUCLEAN);
}

Test(head, encoder_takes_no_gap, .signal = SIGABRT)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(2);
    head.runs[1].base_cut++;
    (void)head_encode(&head, buf);
}

Test(head, encoder_takes_no_run_of_another_history, .signal = SIGABRT)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(2);
    head.runs[1].history[0] ^= 1;
    (void)head_encode(&head, buf);
}

Test(head, encoder_takes_no_holder_without_end, .signal = SIGABRT)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(2);
    memset(head.holder, 'h', sizeof head.holder);
    (void)head_encode(&head, buf);
}

/* --- heads that were given up ----------------------------------------------------------------- */

#define CUT(epoch, counter) (((uint64_t)(epoch) << SEQ_EPOCH_SHIFT) + (counter))

Test(head, given_up_round_trips)
{
    for (uint32_t count = 1; count <= HEAD_GIVEN_UP_MAX; count++) {
        uint8_t buf[HEAD_LEN_MAX];
        struct head in = sample_given_up_head(HEAD_RUNS_MAX, count), out;
        size_t len = head_encode(&in, buf);
        assert_u64(len, (size_t)FIXED + RUN * HEAD_RUNS_MAX + GIVEN_UP * count + TAIL);
        assert_u64(get_le32(buf + 8), 2, "earlier versions refuse it");
        assert_u64(get_le32(buf + 84), 1u << 31);
        assert_i64(head_decode(buf, len, &out), 0);
        expect_same_head(&in, &out);
    }
}

Test(head, given_up_is_checked)
{
    const size_t second = FIXED + 3 * RUN + GIVEN_UP;
    const struct change changes[] = {
        {82, 2, 2, 0, ""},
        {82, 1, 2, -EUCLEAN, ""},
        {82, UINT16_MAX, 2, -EUCLEAN, ""},
        {82, 0, 2, -EUCLEAN, "the feature, and no entry"},
        {84, 0, 4, -EUCLEAN, "entries without the feature"},
        {84, 1u << 31 | 1u << 29, 4, -EPROTONOSUPPORT, ""},
        {second, CUT(16, 0), 8, -EUCLEAN, "of a later epoch"},
        {second + 8, 1 << 24, 8, -EUCLEAN, ""},
        {second + 16, 0, 8, -EUCLEAN, "head 0"},
        {second + 24, 27, 8, 0, "none that is known"},
        {second + 24, 26, 8, -EUCLEAN, "backwards"},
        {second + 24, 1001, 8, -EUCLEAN, "later than the head"},
        {second + 32, UINT64_MAX, 8, -EUCLEAN, ""},
    };
    expect_changes(SAMPLE_GIVEN_UP_HEAD, changes, ARRAY_LEN(changes));
}

/* --- states that stay ------------------------------------------------------------------------- */

enum { HISTORY = 24 };

Test(head, history_round_trips)
{
    for (uint32_t runs = 0; runs <= HEAD_RUNS_MAX; runs++) {
        uint8_t buf[HEAD_LEN_MAX];
        struct head in = sample_history_head(runs), out;
        in.has_names = runs % 2;
        size_t len = head_encode(&in, buf);
        assert_u64(len, (size_t)FIXED + RUN * runs + GIVEN_UP + HISTORY + TAIL);
        assert_u64(get_le32(buf + 84), 1u << 31 | 1u << 30, "earlier versions refuse it");
        assert_i64(head_decode(buf, len, &out), 0);
        expect_same_head(&in, &out);
    }
}

Test(head, history_is_checked)
{
    const size_t at = FIXED + 3 * RUN + GIVEN_UP;
    const struct change changes[] = {
        {at, 1000, 4, 0, ""},
        {at, 1001, 4, -EUCLEAN, "more than any policy"},
        {at + 4, UINT32_MAX, 4, -EUCLEAN, ""},
        {at + 8, 1001, 4, -EUCLEAN, ""},
        {at + 12, 1001, 4, -EUCLEAN, ""},
        {at + 16, 0, 4, 0, "no names"},
        {at + 16, 2, 4, -EUCLEAN, ""},
        {at + 20, 1, 4, -EUCLEAN, ""},
        {84, 1u << 31, 4, -EUCLEAN, "without the feature it is too long"},
        {84, 1u << 31 | 1u << 30 | 1u << 29, 4, -EPROTONOSUPPORT, ""},
    };
    expect_changes(SAMPLE_HISTORY_HEAD, changes, ARRAY_LEN(changes));
}

Test(head, the_feature_without_a_history)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_history_head(3);
    size_t len = head_encode(&head, buf);
    memset(buf + len - TAIL - HISTORY, 0, HISTORY);
    sample_change(buf, len, 104, get_le64(buf + 104), 8);
    assert_i64(head_decode(buf, len, &head), -EUCLEAN);
}

/* --- snapshots with names --------------------------------------------------------------------- */

Test(head, snapshot_round_trips)
{
    uint8_t buf[SNAPSHOT_LEN_MAX];
    struct named_snapshot in = sample_snapshot(HEAD_RUNS_MAX), out;
    memset(in.name, 'n', SNAPSHOT_NAME_MAX - 1);
    size_t len = snapshot_encode(&in, buf);
    assert_i64(snapshot_decode(buf, len, &out), 0);
    assert_str(out.name, in.name);
    assert_i64(out.created, in.created);
    expect_same_head(&in.head, &out.head);
}

Test(head, snapshot_is_checked)
{
    const struct change changes[] = {
        {8, 2, 4, -EPROTONOSUPPORT, ""},
        {12, 1, 4, -EPROTONOSUPPORT, ""},
        {24, 1, 4, -EUCLEAN, "the length of the head"},
        {28, 1, 4, -EUCLEAN, ""},
        {32, 0, 1, -EUCLEAN, "no name"},
        {32, '/', 1, -EUCLEAN, ""},
        {32, '.', 1, -EUCLEAN, ""},
        {32 + 63, 'x', 1, -EUCLEAN, "no end, or not only zeros behind it"},
        {96, 0, 1, -EUCLEAN, "no head"},
        {96 + 336, 1, 1, -EBADMSG, "its own checksum"},
    };
    expect_changes(SAMPLE_SNAPSHOT, changes, ARRAY_LEN(changes));
}

/* A field of the file of a store's snapshot. */
Test(head, local_snapshot_is_checked)
{
    static const struct change changes[] = {
        {8, 2, 4, -EPROTONOSUPPORT, "a newer version"},
        {12, 1, 4, -EPROTONOSUPPORT, "an unknown feature"},
        {56, 2, 8, -EUCLEAN, "fewer packs than it is long"},
        {56, UINT64_MAX / 8, 8, -EUCLEAN, "more packs than there can be"},
        {64, '/', 1, -EUCLEAN, "a name that is none"},
        {64, 0, 1, -EUCLEAN, "bytes behind the end of the name"},
        {128, 0, 8, -EUCLEAN, "pack 0"},
        {136, 0x1000001, 8, -EUCLEAN, "a pack twice"},
        {152, 1, 4, -EUCLEAN, "no zeros before the checksum"},
    };
    expect_changes(SAMPLE_LOCAL_SNAPSHOT, changes, ARRAY_LEN(changes));
}

Test(head, names_of_snapshots)
{
    static const char *const good[] = {"a", "7", "before-lr_0.1", "Step.1000"};
    static const char *const bad[] = {
        "",    ".",
        "-a",  "_a",
        "a/b", "a b",
        "a:b", "\xc3\xa4",
        "a\n", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        cr_expect(snapshot_name_is_sane(good[i]), "%s", good[i]);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        cr_expect_not(snapshot_name_is_sane(bad[i]), "%s", bad[i]);
}

static bool gives_up(const struct head *head, uint64_t epoch, uint64_t cut)
{
    struct head other = {.epoch = epoch, .cut = cut};
    return head_gave_up(head, &other) != NULL;
}

Test(head, what_is_given_up)
{
    struct head head = sample_given_up_head(3, 2);
    cr_assert(!gives_up(&head, 5, CUT(0, 5)), "the one it went back to");
    cr_assert(gives_up(&head, 5, CUT(0, 6)));
    cr_assert(gives_up(&head, 3, CUT(3, 1)));
    cr_assert(!gives_up(&head, 6, CUT(6, 1)), "after the first, before the second");
    cr_assert(gives_up(&head, 15, CUT(10, 6)));
    cr_assert(!gives_up(&head, 16, CUT(16, 1)), "of the one that went back, or later");
    assert_u64(head_after_given_up(&head, 7), 7);
    assert_u64(head_after_given_up(&head, 8), 11);
    assert_u64(head_after_given_up(&head, 30), 31);
}

/* What the store has that goes on, and no more: another one may have gone on from there. */
Test(head, what_is_taken_back)
{
    struct head head = sample_given_up_head(3, 2), known = {.number = 9, .epoch = 5};
    head_take_back(&head, &known, CUT(5, 9));
    assert_u64(head.given_up_count, 1);
    cr_assert(!gives_up(&head, 5, CUT(5, 9)) && gives_up(&head, 15, CUT(10, 6)));
    head = sample_given_up_head(3, 2);
    known.epoch = 3;
    head_take_back(&head, &known, CUT(3, 9));
    cr_assert(!gives_up(&head, 3, CUT(3, 9)) && gives_up(&head, 4, CUT(4, 1)), "of another store");
    head = sample_given_up_head(3, 2);
    head_take_back(&head, NULL, CUT(3, 9));
    cr_assert(!gives_up(&head, 3, CUT(3, 9)) && gives_up(&head, 4, CUT(4, 1)));
    head = sample_given_up_head(3, 0);
    known.given_up[known.given_up_count++] =
        (struct head_given_up){.cut = CUT(1, 1), .epoch = 2, .first = 5, .last = 5000};
    head_take_back(&head, &known, CUT(5, 9));
    cr_assert(gives_up(&head, 2, CUT(2, 1)), "what the store itself had given up");
    uint8_t buf[HEAD_LEN_MAX];
    assert_i64(head_decode(buf, head_encode(&head, buf), &head), 0);
}

/* Where there is no room for all, no less is given up. */
Test(head, given_up_beyond_the_maximum)
{
    struct head head = sample_given_up_head(3, HEAD_GIVEN_UP_MAX + 3);
    uint8_t buf[HEAD_LEN_MAX];
    assert_u64(head.given_up_count, HEAD_GIVEN_UP_MAX);
    for (uint32_t i = 0; i < HEAD_GIVEN_UP_MAX + 3; i++)
        cr_assert(gives_up(&head, 10 * i + 5, CUT(10 * i, 6)), "%u", i);
    assert_i64(head_decode(buf, head_encode(&head, buf), &head), 0);
}

/* --- several nodes ---------------------------------------------------------------------------- */

Test(head, writers_round_trip)
{
    for (uint32_t count = 0; count <= HEAD_WRITERS_MAX; count += 16) {
        uint8_t buf[HEAD_LEN_MAX];
        struct head in = sample_union_head(HEAD_RUNS_MAX, count), out;
        if (count % 32)
            head_give_up(&in, &(struct head_given_up){.epoch = 1, .first = 1, .last = 1});
        size_t len = head_encode(&in, buf);
        assert_u64(len, (size_t)FIXED + RUN * HEAD_RUNS_MAX + GIVEN_UP * in.given_up_count +
                            WRITER * count + WRITERS_TAIL + TAIL);
        assert_u64(get_le32(buf + 8), 2, "earlier versions refuse it");
        assert_i64(head_decode(buf, len, &out), 0);
        expect_same_head(&in, &out);
    }
}

Test(head, writers_are_checked)
{
    const size_t second = FIXED + 3 * RUN + WRITER, tail = second + WRITER;
    const struct change changes[] = {
        {84, 0, 4, -EUCLEAN, "writers without the feature"},
        {104, 1ull << 40, 8, -EUCLEAN, "a cut before its last run's"},
        {second, 2, 8, 0, ""},
        {second, 1, 8, -EUCLEAN, "the same epoch twice"},
        {second, 2 * HEAD_WRITERS_MAX, 8, 0, ""},
        {second, 2 * HEAD_WRITERS_MAX + 1, 8, -EUCLEAN, "a later epoch than the head's"},
        {second + 8, 4, 4, -EUCLEAN, "a first epoch above this one"},
        {second + 12, 0, 4, -EUCLEAN, ""},
        {second + 12, HEAD_WRITER_ENDED + 1, 4, -EUCLEAN, ""},
        {second + 24, ROUND_MAX, 8, 0, "it has left"},
        {second + 24, ROUND_MAX + 1, 8, -EUCLEAN, ""},
        {second + 64, 1, 1, -EUCLEAN, ""},
        {tail, 1, 4, -EUCLEAN, "fewer than there are"},
        {tail, UINT32_MAX, 4, -EUCLEAN, ""},
        {tail + 4, 1, 4, -EUCLEAN, ""},
        {tail + 8, UINT64_MAX, 8, -EUCLEAN, ""},
    };
    expect_changes(SAMPLE_UNION_HEAD, changes, ARRAY_LEN(changes));
    assert_i64(sample_decode_changed(SAMPLE_HEAD, 84, SUPERBLOCK_INCOMPAT_NODES, 4), -EUCLEAN,
               "the feature without its rows");
}
