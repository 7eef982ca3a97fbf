// SPDX-License-Identifier: Apache-2.0
/* What a store and its remote may lose of each other: a view that is older than the newest head, a
 * prefix that was emptied or is another, a state that is older than ours. Nothing of it may cost
 * data that is still somewhere. */
#include <stdio.h>
#include <sys/stat.h>

#include "../shell.h"
#include "base/io.h"
#include "base/log.h"
#include "remote_fixture.h"
#include "view/apply.h"

/* The view as it was, as when the power fails before its log was written; the stage is gone then,
 * too. */
static void save_view(void)
{
    shell("rm -rf %1$s-view && cp -a %1$s/view %1$s-view", fixture.path);
}

static void restore_view(void)
{
    shell("rm -rf %1$s/view && mv %1$s-view %1$s/view", fixture.path);
    fixture_lose_power(&fixture);
}

static int take_local_pack(const struct view_pack *pack, void *arg)
{
    *(uint64_t *)arg = pack->pack;
    return 1;
}

TestSuite(losses, .init = remote_setup, .fini = remote_teardown);

/* --- a view that is older than the head ------------------------------------------------------- */

Test(losses, a_head_with_the_same_cut_is_not_forgotten)
{
    unsigned lines;
    open_with("remote", GRACE_NS);
    publish_file("a", 1, 3 * MIB);
    fixture_close(&fixture);
    save_view();
    open_with("remote", GRACE_NS);
    lose_a_pack();
    cr_expect_gt(scrub_remote().counts.found, 0);
    wait_published();
    fixture_close(&fixture);
    restore_view();
    open_with("remote", GRACE_NS);
    (void)usleep(400000);
    assert_i64(gc(false, &lines), 0);
    expect_u64(scrub_remote().counts.found, 0, "what the newest head names is there");
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    fixture_delete(&fixture, "packs");
    open_with("remote", GRACE_NS);
    fixture_expect(&fixture, "a", 1, 3 * MIB);
}

Test(losses, the_first_head_is_not_forgotten)
{
    fixture_open(&fixture);
    fixture_put(&fixture, "a", 1, MIB);
    fixture_wait(&fixture);
    fixture_close(&fixture);
    save_view();
    open_with("remote", GRACE_NS);
    wait_published();
    uint64_t packs = view_remote(fixture.store->local.view).packs;
    fixture_close(&fixture);
    restore_view();
    open_only_with("remote", GRACE_NS);
    cr_expect_not(view_remote(fixture.store->local.view).is_whole);
    expect_u64(view_remote(fixture.store->local.view).packs, packs);
    fixture_start(&fixture);
    fixture_expect(&fixture, "a", 1, MIB);
}

static void repair(struct store_fixture *unused)
{
    (void)unused;
    shell("cp %1$s/head %1$s/saved", fixture.path);
    lose_a_pack();
    cr_assert_gt(scrub_remote().counts.found, 0);
    wait_published();
}

Test(losses, a_head_with_the_same_cut_that_was_not_noted)
{
    open_with("remote", GRACE_NS);
    publish_file("a", 1, 3 * MIB);
    open_with("remote", GRACE_NS);
    journal_trim(store_commit(fixture.store)->journal, UINT64_MAX);
    fixture_close(&fixture);
    choose_remote("remote", GRACE_NS);
    fixture_die_after(&fixture, repair);
    fixture.options.remote.tier->ops->close(fixture.options.remote.tier); /* here, too */
    shell("mv %1$s/saved %1$s/head", fixture.path); /* as if it died before it wrote that */
    open_with("remote", GRACE_NS);
    fixture_expect(&fixture, "a", 1, 3 * MIB);
}

/* --- a prefix that is empty, or another ------------------------------------------------------- */

Test(losses, the_journal_keeps_its_beginning)
{
    open_with("remote", GRACE_NS);
    publish_file("a", 1, MIB);
    open_with("remote", GRACE_NS);
    /* As the writeback thread does, now and then. */
    journal_trim(store_commit(fixture.store)->journal, UINT64_MAX);
    fixture_close(&fixture);
    /* Another remote, and the end before anything was published there. */
    open_only_with("other", GRACE_NS);
    fixture_start(&fixture);
    fixture.store->remote->shared.stopping = true;
    open_with("other", GRACE_NS);
    fixture_expect(&fixture, "a", 1, MIB);
    wait_published();
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    open_with("other", GRACE_NS);
    fixture_expect(&fixture, "a", 1, MIB);
}

Test(losses, an_older_state_does_not_replace_ours)
{
    open_with("remote", GRACE_NS);
    publish_file("a", 1, MIB);
    open_with("other", GRACE_NS);
    publish_file("b", 2, MIB);
    open_with("other", GRACE_NS);
    journal_trim(store_commit(fixture.store)->journal, UINT64_MAX);
    fixture_close(&fixture);
    /* The first one is back; its head is older than what we have, and numbers there are larger. */
    choose_remote("remote", GRACE_NS);
    if (fixture_open_only(&fixture) == 0) {
        fixture_start(&fixture);
        fixture_expect(&fixture, "b", 2, MIB);
        fixture_close(&fixture);
    }
    open_with("other", GRACE_NS);
    fixture_expect(&fixture, "b", 2, MIB);
    fixture_expect(&fixture, "a", 1, MIB);
}

/* The newest segment cannot be removed, so the journal is left with a gap: what was begun must be
 * brought to its end. */
Test(losses, a_takeover_of_our_own_newer_state_that_stops_half_way)
{
    open_with("remote", GRACE_NS);
    publish_file("0", 0, MIB);
    fixture_close(&fixture);
    fixture.options.remote = (struct remote_options){0};
    static const char *const names[] = {"0", "1", "2", "3", "4"};
    for (unsigned i = 1; i < 4; i++) { /* each mount begins a segment */
        fixture_open(&fixture);
        fixture_put(&fixture, names[i], i, MIB);
        fixture_close(&fixture);
    }
    shell("cp -a %1$s %1$s-old", fixture.path);
    open_with("remote", GRACE_NS);
    publish_file(names[4], 4, MIB);
    fixture_close(&fixture);
    shell("rm -rf %1$s && mv %1$s-old %1$s", fixture.path);
    fixture_lose_power(&fixture);
    shell("chattr +i $(ls %s/journal/* | tail -1)", fixture.path);
    choose_remote("remote", GRACE_NS);
    log_set_level(LOG_LEVEL_ERROR);
    cr_expect_lt(fixture_open_only(&fixture), 0);
    shell("chattr -i $(ls %s/journal/* | tail -1)", fixture.path);
    open_with("remote", GRACE_NS);
    for (unsigned i = 0; i < ARRAY_LEN(names); i++)
        fixture_expect(&fixture, names[i], i, MIB);
}

Test(losses, what_lies_only_there_is_not_forgotten)
{
    open_with("remote", GRACE_NS);
    publish_file("a", 1, MIB);
    cr_assert_gt(fixture_evict(&fixture), 0);
    fixture_close(&fixture);
    choose_remote("other", GRACE_NS); /* or the same, where what should be mounted is not */
    assert_i64(fixture_open_only(&fixture), -ESTALE);
    cr_expect_not_null(strstr(fixture.text, "takeover"), "%s", fixture.text);
    open_with("remote", GRACE_NS);
    fixture_expect(&fixture, "a", 1, MIB);
    fixture_close(&fixture);
    choose_remote("other", GRACE_NS);
    fixture.options.remote.takeover = true;
    assert_i64(fixture_open_only(&fixture), 0, "%s", fixture.text);
    fixture_start(&fixture);
}

/* --- a new view, which knows of no suspicion ---------------------------------------------------
 */

static _Atomic bool may_list;

/* Listings of packs wait. */
static int hold_listing(const char *op, const char *object, void *arg)
{
    (void)arg;
    while (strcmp(op, "list") == 0 && strcmp(object, "packs") == 0 && !atomic_load(&may_list))
        pause_ms(5);
    return 0;
}

/* The only copy of "a" is missing, the view is lost, and gc is far away. */
Test(losses, nothing_counts_as_published_before_a_new_view_was_compared, .timeout = 120)
{
    struct fetch_unsafe unsafe;
    struct remote_wait wait;
    open_with("remote", LONG_GRACE_NS);
    publish_file("a", 1, MIB);
    cr_assert_gt(fixture_evict(&fixture), 0);
    uint64_t pack = remote_pack();
    lose_a_pack();
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    choose_faulty_remote("remote", LONG_GRACE_NS, hold_listing);
    atomic_store(&may_list, false);
    fixture_open(&fixture);
    struct remote *remote = fixture.store->remote;
    begin_wait(&wait, horizon_reached(store_commit(fixture.store)->horizon));
    pause_ms(500);
    expect_i64(atomic_load(&wait.result), 1, "nobody knows yet");
    cr_expect_not(remote_is_bad_pack(remote, pack));
    atomic_store(&may_list, true);
    expect_end_of_wait(&wait, 0);
    cr_expect(remote_is_bad_pack(remote, pack));
    assert_i64(fetch_remote_damaged(fixture.store, fixture_lookup(&fixture, "a"), &unsafe), 0);
    expect_u64(unsafe.lost_bytes, MIB);
}

/* What a round found out is in the view's files, and not only in its log. */
Test(losses, the_power_fails_and_a_pack_stays_suspect, .timeout = 120)
{
    open_with("remote", LONG_GRACE_NS);
    publish_file("a", 1, MIB);
    cr_assert_gt(fixture_evict(&fixture), 0);
    fixture_close(&fixture);
    fixture_lose_power(&fixture); /* nor has memory any of it */
    open_with("remote", LONG_GRACE_NS);
    uint64_t pack = remote_pack();
    lose_a_pack();
    remote_note_bad_pack(fixture.store->remote, pack, -ENOENT);
    for (int i = 0; i < 6000 && view_remote(fixture.store->local.view).suspect_packs == 0; i++)
        pause_ms(5);
    wait_published(); /* the round is over */
    save_view();
    fixture_close(&fixture);
    restore_view();
    shell("truncate -s 0 %s/view/*.log", fixture.path);
    open_only_with("remote", LONG_GRACE_NS);
    cr_expect(remote_is_bad_pack(fixture.store->remote, pack));
    expect_u64(view_remote(fixture.store->local.view).suspect_packs, 1);
    fixture_start(&fixture);
}

/* --- one object that cannot be looked at ------------------------------------------------------ */

static _Atomic uint64_t locked_pack;

static int deny(const char *op, const char *object, void *arg)
{
    char locked[32];
    (void)op;
    (void)arg;
    pack_object_name(atomic_load(&locked_pack), locked);
    return strcmp(object, locked) == 0 ? -EACCES : 0;
}

static bool await_looked_at(struct remote *remote, uint64_t pack)
{
    for (int i = 0; i < 6000 && remote_is_noted_pack(remote, pack); i++)
        pause_ms(5);
    return !remote_is_noted_pack(remote, pack);
}

/* An object whose permissions were lost, say: the others are written anew all the same. */
Test(losses, an_object_that_is_denied_keeps_no_other_from_being_repaired, .timeout = 120)
{
    uint64_t packs[2];
    char object[32];
    choose_faulty_remote("remote", LONG_GRACE_NS, deny);
    fixture_open(&fixture);
    publish_file("a", 1, MIB);
    publish_file("b", 2, MIB);
    struct remote *remote = fixture.store->remote;
    find_two_packs(packs);
    atomic_store(&locked_pack, packs[0]);
    pack_object_name(packs[1], object);
    assert_i64(remote->prefix.tier->ops->remove(remote->prefix.tier, object), 0);
    remote->maintenance->repair_at = INT64_MAX; /* one round finds both, in this order */
    remote_note_bad_pack(remote, packs[0], -EBADMSG);
    remote_note_bad_pack(remote, packs[1], -ENOENT);
    remote->maintenance->repair_at = 0;
    cr_expect(await_looked_at(remote, packs[1]));
    cr_expect(remote_is_noted_pack(remote, packs[0]), "nobody could look at it");
    atomic_store(&locked_pack, 0);
    remote->maintenance->repair_at = 0;
    cr_expect(await_looked_at(remote, packs[0]));
    wait_published();
    expect_u64(scrub_remote().counts.found, 0);
}

/* --- what leaves NVMe ------------------------------------------------------------------------- */

Test(losses, the_last_copy_stays)
{
    open_with("remote", GRACE_NS);
    publish_file("a", 1, MIB);
    struct remote *remote = fixture.store->remote;
    uint64_t pack = remote_pack();
    remote->maintenance->repair_at = INT64_MAX;
    remote_note_bad_pack(remote, pack, -EBADMSG);
    expect_u64(fixture_evict(&fixture), 0, "the remote's copy is known to be bad");
    remote->maintenance->repair_at = 0;
    wait_published();
    remote_give_up(remote);
    expect_u64(fixture_evict(&fixture), 0, "another writer may delete it there");
}

Test(losses, a_pack_that_is_being_emptied_is_waited_for)
{
    uint64_t pack = 0;
    fixture_open(&fixture);
    fixture_put(&fixture, "a", 1, MIB);
    fixture_wait(&fixture);
    open_only_with("remote", GRACE_NS);
    assert_i64(view_packs(fixture.store->local.view, take_local_pack, &pack), 0);
    cr_assert(packs_begin_drop(store_commit(fixture.store)->packs, pack));
    fixture_start(&fixture);
    (void)usleep(1500000);
    expect_u64(horizon_published(store_commit(fixture.store)->horizon), 0);
    packs_end_drop(store_commit(fixture.store)->packs, pack);
    wait_published();
}

Test(losses, who_waits_for_a_pack_that_is_being_emptied_ends_with_the_store, .timeout = 60)
{
    open_with("remote", GRACE_NS);
    assert_i64((int)packs_begin_drop(store_commit(fixture.store)->packs, 42), 1);
    fixture_put(&fixture, "a", 1, MIB);
    fixture_wait(&fixture);
    while (packs_begin_drop(store_commit(fixture.store)->packs, 43)) { /* false: drops are held */
        packs_end_drop(store_commit(fixture.store)->packs, 43);
        (void)usleep(1000);
    }
}

/* --- what 0.2.0 gave up -------------------------------------------------------------------------
 */

/* Its view: the pack was missing for a moment, and its chunks have no place any more. */
static void give_up_pack(uint64_t pack)
{
    struct txn txn;
    txn_begin(&txn, fixture.store->local.view);
    assert_i64(remote_pack_forget_placed(&txn, pack), 0);
    remote_pack_leave_count(&txn);
    txn.remote_pack.pub.gone = txn.remote_pack_dirty = true;
    remote_pack_store(&txn);
    assert_i64(txn_commit(&txn), 0);
    txn_end(&txn);
}

/* The object may be the only copy: no gc deletes it, and its chunks have their places again. */
Test(losses, a_pack_that_was_given_up_comes_back, .timeout = 120)
{
    unsigned lines;
    uint64_t len;
    char object[32];
    open_with("remote", GRACE_NS);
    publish_file("a", 1, 3 * MIB);
    uint64_t pack = remote_pack();
    fixture_close(&fixture);
    fixture_lose_power(&fixture);
    open_with("remote", GRACE_NS);
    cr_assert_gt(fixture_evict(&fixture), 0);
    give_up_pack(pack);
    for (int i = 0; i < 2; i++) {
        fixture_put(&fixture, i ? "c" : "b", 9, 100);
        fixture_wait_head(&fixture);
    }
    struct remote *remote = fixture.store->remote;
    cr_assert_gt(remote_damaged_chunks(remote), 0);
    (void)usleep(300000);
    assert_i64(gc(true, &lines), 0);
    assert_i64(gc(false, &lines), 0);
    pack_object_name(pack, object);
    assert_i64(remote->prefix.tier->ops->stat(remote->prefix.tier, object, &len), 0);
    wait_published();
    fixture_expect(&fixture, "a", 1, 3 * MIB);
    expect_u64(scrub_remote().counts.found, 0);
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    fixture_delete(&fixture, "packs");
    open_with("remote", GRACE_NS);
    fixture_expect(&fixture, "a", 1, 3 * MIB);
}

/* --- a writer that was away for longer than the grace ----------------------------------------- */

Test(losses, heads_that_were_deleted_are_not_made_again, .timeout = 600)
{
    char object[32];
    struct remote_wait wait;
    open_with("remote", GRACE_NS);
    publish_file("a", 1, 40000);
    struct remote *remote = fixture.store->remote;
    /* Its successor published, and deleted the heads that were old. */
    _cleanup_free_ struct head *theirs = make_their_head(5);
    uint64_t ours = theirs->number - 5;
    _cleanup_free_ uint8_t *bytes = aligned_alloc(4096, 4 * 4096);
    memset(bytes, 0, 4 * 4096);
    size_t len = head_encode(theirs, bytes);
    (void)snprintf(object, sizeof object, "heads/%016llx", (unsigned long long)theirs->number);
    assert_i64(remote->prefix.tier->ops->put_new(remote->prefix.tier, object, bytes, len), 0);
    for (uint64_t i = 1; i <= ours; i++) {
        (void)snprintf(object, sizeof object, "heads/%016llx", (unsigned long long)i);
        assert_i64(remote->prefix.tier->ops->remove(remote->prefix.tier, object), 0);
    }
    fixture_put(&fixture, "b", 2, 40000);
    begin_wait(&wait, history_newest(store_commit(fixture.store)->history));
    expect_end_of_wait(&wait, -ESHUTDOWN);
    expect_u64(fixture_remote_state(&fixture), REMOTE_FENCED);
}

/* --- a remote that turns out to be another's -------------------------------------------------- */

static _Atomic int reach;

static int answer(const char *op, const char *object, void *arg)
{
    (void)op;
    (void)object;
    (void)arg;
    return atomic_load(&reach);
}

Test(losses, nobody_waits_for_a_remote_that_is_refused, .timeout = 600)
{
    struct remote_wait wait;
    open_with("remote", GRACE_NS);
    publish_file("a", 1, 40000);
    fixture_close(&fixture);
    shell("rm -rf %1$s-remote/* %1$s-remote/.[a-z]*", fixture.path);
    choose_faulty_remote("remote", GRACE_NS, answer);
    atomic_store(&reach, -EHOSTUNREACH);
    fixture_open(&fixture);
    fixture_put(&fixture, "b", 2, 40000);
    begin_wait(&wait, history_newest(store_commit(fixture.store)->history));
    /* Another store's prefix is there, once it can be reached. */
    struct prefix_info info = {.version = PREFIX_INFO_VERSION, .history = "another"};
    uint8_t bytes[PREFIX_INFO_LEN];
    prefix_info_encode(&info, bytes);
    char file[128];
    (void)snprintf(file, sizeof file, "%s-remote/cairn", fixture.path);
    assert_i64(io_write_file_durable(file, bytes, sizeof bytes), 0);
    atomic_store(&reach, 0);
    expect_end_of_wait(&wait, -ESHUTDOWN);
    fixture_expect(&fixture, "b", 2, 40000);
}
