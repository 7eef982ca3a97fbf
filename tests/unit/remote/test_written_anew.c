// SPDX-License-Identifier: Apache-2.0
/* A pack that was written anew counts only once a head says so, and one soon does. */
#include "../await.h"
#include "../expect.h"
#include "../numbered.h"
#include "remote_fixture.h"
#include "view/db.h"

static _Atomic bool may_publish;

static int deny_heads(const char *op, const char *object, void *arg)
{
    (void)arg;
    bool is_head = strcmp(op, "put_new") == 0 && strncmp(object, "heads/", 6) == 0;
    return is_head && !atomic_load(&may_publish) ? -ETIMEDOUT : 0;
}

static void open_with_denied_heads(void)
{
    choose_faulty_remote("remote", LONG_GRACE_NS, deny_heads);
    fixture_open(&fixture);
}

static void expect_pending(const char *why)
{
    struct fetch_unsafe unsafe;
    assert_i64(fetch_remote_damaged(fixture.store, fixture_lookup(&fixture, "a"), &unsafe), 0);
    expect_u64(unsafe.pending_bytes, MIB, "%s", why);
}

TestSuite(written_anew, .init = remote_setup, .fini = remote_teardown);

/* The newest head names a pack that is missing: nothing is safe before another head is there. */
Test(written_anew, is_not_safe_before_a_head_says_so, .timeout = 120)
{
    struct view_remote_pack known;
    struct remote_wait wait;
    uint64_t packs[2];
    atomic_store(&may_publish, true);
    open_with_denied_heads();
    publish_file("a", 1, MIB);
    uint64_t pack = remote_pack();
    atomic_store(&may_publish, false);
    lose_a_pack();
    remote_note_bad_pack(fixture.store->remote, pack, -ENOENT);
    do
        pause_ms(100);
    while (view_remote_pack(fixture.store->local.view, pack, &known) == 0 && known.live_count > 0);
    expect_pending("it was moved");
    fixture_close(&fixture);
    open_with_denied_heads();
    begin_wait(&wait, horizon_reached(store_commit(fixture.store)->horizon));
    pause_ms(500);
    expect_i64(atomic_load(&wait.result), 1, "after another start, too");
    atomic_store(&may_publish, true);
    expect_end_of_wait(&wait, 0);
    find_two_packs(packs);
    assert_i64(view_remote_pack(fixture.store->local.view, packs[1], &known), 0);
    cr_expect_neq(known.head, 0);
}

/* --- merges ----------------------------------------------------------------------------------- */

#define SMALL_PACKS 10u
#define SMALL_LEN 40000u

static _Atomic unsigned failing_times; /* of calls that a run begins with */

static int fail_runs(const char *op, const char *object, void *arg)
{
    int r = deny_heads(op, object, arg);
    unsigned left = atomic_load(&failing_times);
    if (r < 0 || strcmp(op, "now") != 0 || left == 0)
        return r;
    atomic_store(&failing_times, left - 1);
    return -EIO;
}

static void open_with_failing_runs(void)
{
    choose_faulty_remote("remote", LONG_GRACE_NS, fail_runs);
    fixture_open(&fixture);
    fixture.store->remote->maintenance->gc_at = INT64_MAX;
}

/* As many as are merged, published; nothing was merged yet. */
static void publish_small_packs(void)
{
    atomic_store(&may_publish, true);
    open_with_failing_runs();
    fixture.store->remote->maintenance->repair_at = INT64_MAX;
    for (unsigned i = 0; i < SMALL_PACKS; i++) {
        fixture_put(&fixture, numbered("f%u", i), i, SMALL_LEN);
        fixture_wait_head(&fixture);
    }
}

static int count_unnamed(const struct view_remote_pack *pack, void *arg)
{
    *(unsigned *)arg += pack->head == 0;
    return 0;
}

/* Packs that no head names. */
static unsigned unnamed_packs(void)
{
    unsigned count = 0;
    assert_i64(view_remote_packs(fixture.store->local.view, count_unnamed, &count), 0);
    return count;
}

/* A merge for which no operation made a round. */
static void merge_while_idle(void)
{
    struct remote *remote = fixture.store->remote;
    remote_defer_merge(remote);
    remote->maintenance->tidy_at = remote->maintenance->repair_at = 0;
}

static bool is_all_named(void)
{
    return unnamed_packs() == 0 && !remote_repair_is_due(fixture.store->remote);
}

static void expect_evicted(void)
{
    AWAIT(is_all_named(), "a head names what was merged");
    expect_u64(fixture_evict(&fixture) / SMALL_LEN, SMALL_PACKS);
}

/* The daemon dies between the two: the next one has nothing else to publish. */
Test(written_anew, by_a_merge_is_told_by_the_next_start, .timeout = 60)
{
    publish_small_packs();
    atomic_store(&may_publish, false);
    merge_while_idle();
    AWAIT(unnamed_packs() > 0, "packs are merged");
    fixture_close(&fixture);
    atomic_store(&may_publish, true);
    open_with_failing_runs();
    expect_evicted();
}

Test(written_anew, by_a_merge_is_told_by_the_next_round, .timeout = 60)
{
    publish_small_packs();
    atomic_store(&failing_times, 1);
    merge_while_idle();
    AWAIT(atomic_load(&failing_times) == 0, "packs are merged, and a run fails");
    expect_evicted();
}

static int touch(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    (void)is_needed;
    txn_touch(arg, key_chunk(NEW_KEY, &entry->name));
    return 0;
}

static bool has_marks(void)
{
    bool has;
    assert_i64(view_has_marks(fixture.store->local.view, &has), 0);
    return has;
}

/* A crash just after the newest head was noted: what it tells is marked still. */
Test(written_anew, is_told_again_after_a_crash, .timeout = 60)
{
    struct txn txn;
    struct view *view;
    open_with("remote", LONG_GRACE_NS);
    publish_file("a", 1, MIB);
    AWAIT(!has_marks(), "they are forgotten after the head is noted");
    view = fixture.store->local.view;
    txn_begin(&txn, view);
    assert_i64(view_remote_pack_chunks(view, remote_pack(), touch, &txn), 0);
    assert_i64(txn_commit(&txn), 0);
    txn_end(&txn);
    cr_assert(has_marks());
    assert_u64(fixture_evict(&fixture), 0, "what is marked stays");
    open_with("remote", LONG_GRACE_NS);
    AWAIT(!has_marks(), "the next head tells it");
    cr_expect_geq(fixture_evict(&fixture), MIB);
}
