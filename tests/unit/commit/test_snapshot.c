// SPDX-License-Identifier: Apache-2.0
/* Snapshots of a journal that has become long, by themselves. */
#include <unistd.h>

#include "../expect.h"
#include "base/clock.h"
#include "commit/run_lists.h"
#include "commit/writeback_internal.h"
#include "objects.h"

static struct snapshot *snapshot;

static void setup(void)
{
    objects_setup_with_stage();
    snapshot = snapshot_new(&o.local, o.journal, o.horizon, o.packs, o.room);
    assert_i64(journal_begin(o.journal), 0);
}

static void teardown(void)
{
    snapshot_stop(snapshot);
    free(snapshot);
    objects_teardown();
}

TestSuite(commit_snapshot, .init = setup, .fini = teardown, .timeout = 120);

/* As the writeback thread does it, until the snapshot's own thread has ended. */
static void tick_to_the_end(bool at_ease)
{
    snapshot_tick(snapshot, at_ease);
    while (snapshot->started) {
        (void)usleep(1000); /* that thread's end has no event: a later tick sees it */
        snapshot_tick(snapshot, at_ease);
    }
}

static int read_head(struct head *ret)
{
    return local_head_read(&o.local, ret);
}

Test(commit_snapshot, a_journal_that_is_long_gets_one_and_its_run_is_whole)
{
    static struct head head;
    tick_to_the_end(true);
    expect_i64(read_head(&head), -ENOENT, "it is short");
    o.journal->bytes = 49 * MIB;
    tick_to_the_end(false);
    expect_i64(read_head(&head), -ENOENT, "right after a mount only where it is longer by far");
    tick_to_the_end(true);
    expect_i64(snapshot->result, 0);
    assert_i64(read_head(&head), 0);
    expect_u64(head.run_count, 1);
    cr_expect(local_head_is_lost(&head), "it is no head of a remote");
    expect_i64(runs_verify(&o.local, &head), 0);
    expect_u64(snapshot->left, o.journal->bytes);
    uint64_t count = snapshot->count;
    tick_to_the_end(true);
    expect_u64(snapshot->count, count, "it has not grown since");
}

Test(commit_snapshot, a_store_with_a_remote_has_none)
{
    static struct head head;
    o.local.options.remote.name = "s3://bucket";
    o.journal->bytes = 490 * MIB;
    tick_to_the_end(true);
    expect_i64(read_head(&head), -ENOENT);
}

Test(commit_snapshot, a_head_that_a_remote_published_is_left_alone)
{
    static struct head head = {.number = 7, .nonce = {1}};
    assert_i64(local_head_write(&o.local, &head), 0);
    o.journal->bytes = 490 * MIB;
    tick_to_the_end(true);
    assert_i64(read_head(&head), 0);
    expect_u64(head.number, 7);
    expect_u64(snapshot->count, 0);
}
