// SPDX-License-Identifier: Apache-2.0
/* A store that writes a prefix together with others: its cuts are made at common rounds. */
#include <stdatomic.h>

#include "../expect.h"
#include "../numbered.h"
#include "base/clock.h"
#include "commit/packs.h"
#include "commit/round_cut.h"
#include "remote_fixture.h"

#define NO_PACK 12345u

static atomic_bool is_awaited;

int __real_round_cut_await(struct commit *commit, const struct round_cut_wish *wish,
                           struct view_cut **ret_cut, struct rounds_span *ret_span);
int __wrap_round_cut_await(struct commit *commit, const struct round_cut_wish *wish,
                           struct view_cut **ret_cut, struct rounds_span *ret_span);
int __wrap_round_cut_await(struct commit *commit, const struct round_cut_wish *wish,
                           struct view_cut **ret_cut, struct rounds_span *ret_span)
{
    atomic_store(&is_awaited, true);
    int r = __real_round_cut_await(commit, wish, ret_cut, ret_span);
    atomic_store(&is_awaited, false);
    return r;
}

TestSuite(remote_rounds, .init = remote_setup, .fini = remote_teardown, .timeout = 120);

/* Else a writer of a full NVMe would wait for the round, too. */
Test(remote_rounds, packs_may_leave_while_a_round_is_waited_for)
{
    unsigned looks = 0, free = 0;
    choose_remote("remote", LONG_GRACE_NS);
    fixture.options.remote.nodes = true;
    fixture.options.remote.lease_ns = 30 * SECOND_NS;
    fixture_open(&fixture);
    struct packs *packs = store_commit(fixture.store)->packs;
    for (unsigned i = 0; looks < 2000 && free < 500; i++) {
        if (i % 100 == 0)
            fixture_put(&fixture, numbered("file-%u", i), i, 1000);
        bool is_free = packs_is_free(packs, NO_PACK), waits = atomic_load(&is_awaited);
        looks += waits;
        free += waits && is_free;
        pause_ms(1);
    }
    cr_assert_geq(free, 500, "nothing could leave: %u of %u", looks - free, looks);
    fixture_close(&fixture);
}
