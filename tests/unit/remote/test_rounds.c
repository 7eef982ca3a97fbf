// SPDX-License-Identifier: Apache-2.0
/* A store that writes a prefix together with others: its cuts are made at common rounds. */
#include "../expect.h"
#include "../numbered.h"
#include "base/clock.h"
#include "commit/packs.h"
#include "remote_fixture.h"

#define NO_PACK 12345u

TestSuite(remote_rounds, .init = remote_setup, .fini = remote_teardown, .timeout = 120);

/* Else a writer of a full NVMe would wait for the round, too. */
Test(remote_rounds, packs_may_leave_while_a_round_is_waited_for)
{
    int64_t held_since = 0, longest = 0, end = clock_monotonic_ns() + 6 * SECOND_NS;
    choose_remote("remote", LONG_GRACE_NS);
    fixture.options.remote.nodes = true;
    fixture.options.remote.lease_ns = 30 * SECOND_NS;
    fixture_open(&fixture);
    struct packs *packs = store_commit(fixture.store)->packs;
    for (unsigned i = 0; clock_monotonic_ns() < end; i++) {
        if (i % 100 == 0)
            fixture_put(&fixture, numbered("file-%u", i), i, 1000);
        int64_t now = clock_monotonic_ns();
        held_since = packs_is_free(packs, NO_PACK) ? 0 : held_since ? held_since : now;
        longest = max_u64(longest, held_since ? now - held_since : 0);
        pause_ms(1);
    }
    cr_assert_lt(longest, 700 * MS_NS, "for %.1f s nothing could leave", (double)longest / 1e9);
    fixture_close(&fixture);
}
