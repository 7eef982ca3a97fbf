// SPDX-License-Identifier: Apache-2.0
/* A pack that was written anew counts only once a head says so. */
#include "../expect.h"
#include "remote_fixture.h"

static void note_result(int result, void *arg)
{
    atomic_store((_Atomic int *)arg, result);
}

/* Two packs, the older one first. */
static int take_two_packs(const struct view_remote_pack *pack, void *arg)
{
    uint64_t *packs = arg;
    packs[packs[0] ? 1 : 0] = pack->pack;
    return 0;
}

static _Atomic bool may_publish;

static int deny_heads(const char *op, const char *object, void *arg)
{
    (void)arg;
    bool is_head = strcmp(op, "put_new") == 0 && strncmp(object, "heads/", 6) == 0;
    return is_head && !atomic_load(&may_publish) ? -ETIMEDOUT : 0;
}

static void open_with_denied_heads(struct store_fixture *fixture)
{
    choose_remote(fixture, "remote", LONG_GRACE_NS);
    fixture->options.remote.tier = fault_tier_new(fixture->options.remote.tier, deny_heads, NULL);
    fixture_open(fixture);
}

static void expect_pending(struct store_fixture *fixture, const char *why)
{
    struct store_unsafe unsafe;
    assert_i64(store_remote_damaged(fixture->store, fixture_lookup(fixture, "a"), &unsafe), 0);
    expect_u64(unsafe.pending_bytes, MIB, "%s", why);
}

/* The newest head names a pack that is missing: nothing is safe before another head is there. */
Test(written_anew, is_not_safe_before_a_head_says_so, .timeout = 120)
{
    struct store_fixture fixture;
    struct view_remote_pack known;
    _Atomic int result = 1;
    uint64_t ticket, packs[2] = {0};
    fixture_make(&fixture);
    atomic_store(&may_publish, true);
    open_with_denied_heads(&fixture);
    fixture_put(&fixture, "a", 1, MIB);
    wait_published(&fixture);
    uint64_t pack = remote_pack(&fixture);
    atomic_store(&may_publish, false);
    lose_a_pack(&fixture);
    remote_note_bad_pack(fixture.store->remote, pack, -ENOENT);
    do
        pause_ms(100);
    while (view_remote_pack(fixture.store->local.view, pack, &known) == 0 && known.live_count > 0);
    expect_pending(&fixture, "it was moved");
    fixture_close(&fixture);
    open_with_denied_heads(&fixture);
    store_wait_remote(fixture.store, horizon_reached(store_commit(fixture.store)->horizon),
                      note_result, &result, &ticket);
    pause_ms(500);
    expect_i64(atomic_load(&result), 1, "after another start, too");
    atomic_store(&may_publish, true);
    for (int i = 0; i < 6000 && atomic_load(&result) == 1; i++)
        pause_ms(5);
    expect_i64(atomic_load(&result), 0);
    assert_i64(view_remote_packs(fixture.store->local.view, take_two_packs, packs), 0);
    assert_i64(view_remote_pack(fixture.store->local.view, packs[1], &known), 0);
    cr_expect_neq(known.head, 0);
    remove_with_remotes(&fixture);
}
