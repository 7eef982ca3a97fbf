// SPDX-License-Identifier: Apache-2.0
#include "base/waiters.h"
#include "../expect.h"

#include <stdio.h>

static char called[64];

static char a[] = "a", b[] = "b", c[] = "c";

static void note(int result, void *arg)
{
    size_t len = strlen(called);
    (void)snprintf(called + len, sizeof called - len, "%s%d ", (const char *)arg, result);
}

Test(waiters, each_is_called_once_when_its_number_is_reached)
{
    struct waiters waiters = WAITERS_EMPTY(waiters), reached = WAITERS_EMPTY(reached);
    waiters_add(&waiters, 20, 1, note, a);
    waiters_add(&waiters, 10, 2, note, b);
    waiters_add(&waiters, 10, 3, note, c);
    waiters_take(&waiters, 9, &reached);
    waiters_call(&reached, 0);
    expect_str(called, "");
    waiters_take(&waiters, 10, &reached);
    waiters_call(&reached, 0);
    expect_str(called, "b0 c0 ");
    waiters_take(&waiters, UINT64_MAX, &reached);
    waiters_call(&reached, -5);
    expect_str(called, "b0 c0 a-5 ");
    cr_expect(TAILQ_EMPTY(&waiters) && TAILQ_EMPTY(&reached));
}

Test(waiters, one_that_is_removed_is_not_called)
{
    struct waiters waiters = WAITERS_EMPTY(waiters), reached = WAITERS_EMPTY(reached);
    waiters_add(&waiters, 10, 1, note, a);
    waiters_add(&waiters, 10, 2, note, b);
    cr_expect(waiters_remove(&waiters, 1));
    cr_expect(!waiters_remove(&waiters, 1));
    waiters_take(&waiters, 10, &reached);
    cr_expect(!waiters_remove(&waiters, 2));
    waiters_call(&reached, 0);
    expect_str(called, "b0 ");
}

Test(waiters, whether_one_waits_for_more)
{
    struct waiters waiters = WAITERS_EMPTY(waiters);
    cr_expect(!waiters_are_beyond(&waiters, 0));
    waiters_add(&waiters, 20, 1, note, a);
    waiters_add(&waiters, 10, 2, note, b);
    cr_expect(waiters_are_beyond(&waiters, 19) && !waiters_are_beyond(&waiters, 20));
    waiters_call(&waiters, 0);
}
