// SPDX-License-Identifier: Apache-2.0
#include "base/waiters.h"

struct waiter {
    TAILQ_ENTRY(waiter) link;
    uint64_t seq, ticket;
    waiter_fn *fn;
    void *arg;
};

void waiters_add(struct waiters *waiters, uint64_t seq, uint64_t ticket, waiter_fn *fn, void *arg)
{
    struct waiter *waiter = xmalloc(sizeof *waiter);
    *waiter = (struct waiter){.seq = seq, .ticket = ticket, .fn = fn, .arg = arg};
    TAILQ_INSERT_TAIL(waiters, waiter, link);
}

bool waiters_remove(struct waiters *waiters, uint64_t ticket)
{
    struct waiter *waiter;
    TAILQ_FOREACH(waiter, waiters, link)
    {
        if (waiter->ticket != ticket)
            continue;
        TAILQ_REMOVE(waiters, waiter, link);
        free(waiter);
        return true;
    }
    return false;
}

bool waiters_are_beyond(const struct waiters *waiters, uint64_t seq)
{
    const struct waiter *waiter;
    TAILQ_FOREACH(waiter, waiters, link)
    if (waiter->seq > seq)
        return true;
    return false;
}

void waiters_take(struct waiters *waiters, uint64_t seq, struct waiters *ret_reached)
{
    struct waiter *waiter, *next;
    for (waiter = TAILQ_FIRST(waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (waiter->seq > seq)
            continue;
        TAILQ_REMOVE(waiters, waiter, link);
        TAILQ_INSERT_TAIL(ret_reached, waiter, link);
    }
}

void waiters_call(struct waiters *reached, int result)
{
    struct waiter *waiter;
    while ((waiter = TAILQ_FIRST(reached))) {
        TAILQ_REMOVE(reached, waiter, link);
        waiter->fn(result, waiter->arg);
        free(waiter);
    }
}
