// SPDX-License-Identifier: Apache-2.0
#include "../expect.h"
#include "cli/horizon.h"

/* It used to double up to 250 ms: after 0.4 s of waiting, that was what a wait ended late by. */
Test(horizon, a_wait_ends_late_by_a_small_part_of_its_time)
{
    expect_u64(horizon_poll_ms(0), 5);
    for (int64_t ms = 200; ms < 60000; ms += 100) {
        unsigned pause = horizon_poll_ms(ms * MS_NS);
        cr_expect_leq(pause * 20, ms, "%u ms after %lld", pause, (long long)ms);
        cr_expect_leq(pause, 250);
    }
    expect_u64(horizon_poll_ms(3600 * SECOND_NS), 250);
}
