// SPDX-License-Identifier: Apache-2.0
/* A pack that was written anew counts only once a head says so. */
#include "../expect.h"
#include "remote_fixture.h"

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
    struct store_unsafe unsafe;
    assert_i64(store_remote_damaged(fixture.store, fixture_lookup(&fixture, "a"), &unsafe), 0);
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
