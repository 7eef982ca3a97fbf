// SPDX-License-Identifier: Apache-2.0
/* The journal by itself: where it ends, what a crash tore, and what is damage. */
#include <stdio.h>
#include <unistd.h>

#include "../spoil.h"
#include "base/log.h"
#include "objects.h"

#define BATCH_LEN 200u /* of records */

static uint64_t ends[8]; /* of the batches */
static unsigned count;

static void setup(void)
{
    objects_setup();
    count = 0;
}

TestSuite(commit_journal, .init = setup, .fini = objects_teardown, .timeout = 120);

static int append(uint64_t cut)
{
    uint8_t records[BATCH_LEN];
    memset(records, (int)cut, sizeof records);
    int r = journal_append(o.journal, cut, (int64_t)cut * 10, records, sizeof records, 1);
    if (r == 0)
        ends[count++] = o.journal->offset;
    return r;
}

static void append_three(void)
{
    assert_i64(journal_begin(o.journal), 0);
    for (uint64_t cut = 10; cut <= 30; cut += 10)
        assert_i64(append(cut), 0);
}

static struct {
    uint64_t cuts[8];
    unsigned count;
} seen;

static int see(const struct journal_batch *batch, void *arg)
{
    (void)arg;
    const uint8_t *records = batch->records;
    expect_u64(batch->header.payload_len, BATCH_LEN);
    expect_u64(records[0], batch->header.cut_seq);
    seen.cuts[seen.count++] = batch->header.cut_seq;
    return 0;
}

/* As the next session reads it: an object that knows nothing. */
static int read_anew(uint64_t from)
{
    free(o.journal);
    o.journal = journal_new(&o.local);
    seen.count = 0;
    return journal_read(o.journal, from, see, NULL);
}

static void damage(unsigned segment, uint64_t offset)
{
    _cleanup_free_ char *path = xasprintf("%s/journal/%016x", o.path, segment);
    spoil_file(path, offset, 1, 1);
}

Test(commit_journal, what_was_appended_is_read_in_order)
{
    append_three();
    uint8_t chain[CHAIN_LEN];
    memcpy(chain, o.journal->chain, sizeof chain);
    assert_i64(read_anew(0), 0);
    expect_u64(seen.count, 3);
    struct journal_found found = journal_found(o.journal);
    expect_u64(found.cut_seq, 30);
    expect_i64(found.time, 300);
    expect_i64(memcmp(found.chain, chain, sizeof chain), 0);
    cr_expect_not(found.damage.found);
}

Test(commit_journal, a_last_batch_that_is_torn_does_not_count)
{
    append_three();
    damage(1, ends[1] + BATCH_HEADER_LEN + BATCH_LEN - 1);
    assert_i64(read_anew(0), 0);
    expect_u64(seen.count, 2);
    expect_u64(journal_found(o.journal).cut_seq, 20);
    cr_expect_not(journal_found(o.journal).damage.found);
    damage(1, ends[1]); /* its header, too */
    assert_i64(read_anew(0), 0);
    expect_u64(seen.count, 2);
}

Test(commit_journal, a_session_begins_behind_what_was_torn_with_a_segment_of_its_own)
{
    append_three();
    damage(1, ends[1]);
    assert_i64(read_anew(0), 0);
    o.local.epoch++;
    assert_i64(journal_begin(o.journal), 0);
    expect_u64(o.journal->segment, 2);
    expect_u64(journal_found(o.journal).epoch, 2);
    assert_i64(append(25), 0);
    assert_i64(read_anew(0), 0);
    expect_u64(seen.count, 3);
    expect_u64(seen.cuts[2], 25);
    expect_u64(journal_found(o.journal).epoch, 2);
}

Test(commit_journal, a_whole_batch_behind_one_that_is_none_says_damage)
{
    append_three();
    damage(1, ends[0] + 8);
    assert_i64(read_anew(0), -EUCLEAN);
    struct journal_damage found = journal_found(o.journal).damage;
    cr_assert(found.found);
    expect_u64(found.segment, 1);
    expect_u64(found.offset, ends[0]);
    expect_u64(found.behind, 1);
    _cleanup_free_ char *text = journal_explain_damage(o.journal);
    cr_assert_not_null(strstr(text, "and 1 whole batches behind it"));
}

Test(commit_journal, damage_before_what_the_view_has_is_passed_over)
{
    append_three();
    damage(1, ends[0] + 8);
    assert_i64(read_anew(20), 0);
    expect_u64(seen.cuts[seen.count - 1], 30);
    cr_expect(journal_found(o.journal).was_skipped);
    expect_u64(journal_found(o.journal).cut_seq, 30);
}

Test(commit_journal, a_segment_that_is_too_short_says_damage)
{
    append_three();
    _cleanup_free_ char *path = xasprintf("%s/journal/%016x", o.path, 1);
    assert_i64(truncate(path, (off_t)ends[2]), 0);
    assert_i64(read_anew(0), -EUCLEAN);
    expect_str(journal_found(o.journal).damage.what, "the file is truncated");
}

Test(commit_journal, a_batch_that_failed_is_written_anew_in_the_next_segment)
{
    static const char *failing;
    objects_fail(&failing);
    append_three();
    failing = "log_append";
    assert_i64(append(40), -EIO);
    expect_u64(o.journal->cut_seq, 30);
    assert_i64(append(40), 0);
    expect_u64(o.journal->segment, 2);
    assert_i64(read_anew(0), 0);
    expect_u64(seen.count, 4);
    expect_u64(seen.cuts[3], 40);
}

Test(commit_journal, segments_go_that_a_snapshot_makes_needless)
{
    append_three();
    o.local.epoch++;
    assert_i64(journal_begin(o.journal), 0);
    assert_i64(append(40), 0);
    journal_trim(o.journal, 29);
    _cleanup_free_ char *path = xasprintf("%s/journal/%016x", o.path, 1);
    expect_i64(access(path, F_OK), 0, "a batch of it is needed");
    journal_trim(o.journal, 30);
    expect_i64(access(path, F_OK), -1);
    struct head head = {.number = 1, .epoch = 1, .cut = 30, .nonce = {1}};
    free(o.journal);
    o.journal = journal_new(&o.local);
    journal_set_anchor(o.journal, &head);
    seen.count = 0;
    assert_i64(journal_read(o.journal, 0, see, NULL), 0);
    expect_u64(seen.count, 1);
}
