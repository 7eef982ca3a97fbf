// SPDX-License-Identifier: Apache-2.0
#include "tier/retry.h"

#include <sys/random.h>

#include "base/clock.h"

#define BASE_NS (100ll * 1000000)
#define CAP_NS (20ll * 1000000000)

void retry_gate_init(struct retry_gate *gate)
{
    mutex_init(&gate->locked.lock, LOCK_LEAF);
    cond_init(&gate->interrupted_cond);
    gate->locked.tokens = RETRY_TOKENS;
    gate->locked.filled_ns = clock_monotonic_ns();
}

void retry_gate_done(struct retry_gate *gate)
{
    mutex_done(&gate->locked.lock);
    (void)pthread_cond_destroy(&gate->interrupted_cond);
}

void retry_gate_interrupt(struct retry_gate *gate)
{
    LOCK_SCOPE(&gate->locked.lock);
    gate->locked.interrupted = true;
    (void)pthread_cond_broadcast(&gate->interrupted_cond);
}

bool retry_gate_is_interrupted(struct retry_gate *gate)
{
    LOCK_SCOPE(&gate->locked.lock);
    return gate->locked.interrupted;
}

static void fill_retry_gate_locked(struct retry_gate *gate, double tokens)
{
    check_held(&gate->locked.lock);
    gate->locked.tokens += tokens;
    if (gate->locked.tokens > RETRY_TOKENS)
        gate->locked.tokens = RETRY_TOKENS;
}

static void fill_by_time_locked(struct retry_gate *gate)
{
    check_held(&gate->locked.lock);
    int64_t now = clock_monotonic_ns();
    fill_retry_gate_locked(gate, (double)(now - gate->locked.filled_ns) / (double)SECOND_NS);
    gate->locked.filled_ns = now;
}

void retry_gate_success(struct retry_gate *gate)
{
    LOCK_SCOPE(&gate->locked.lock);
    fill_retry_gate_locked(gate, 1.0 / RETRY_SHARE);
}

void retry_begin(struct retry *retry, struct retry_gate *gate, int64_t patience_ns)
{
    *retry = (struct retry){.gate = gate, .deadline_ns = clock_monotonic_ns() + patience_ns};
}

static int64_t random_below(int64_t limit)
{
    uint64_t r;
    if (getrandom(&r, sizeof r, GRND_NONBLOCK) != (ssize_t)sizeof r)
        r = (uint64_t)clock_monotonic_ns(); /* right after boot */
    return (int64_t)(r % (uint64_t)limit);
}

/* Full jitter: calls that fail together are not retried together. */
static int64_t next_delay(struct retry *retry)
{
    int64_t limit = retry->attempt < 8 ? BASE_NS << retry->attempt : CAP_NS;
    retry->attempt++;
    return random_below(limit < CAP_NS ? limit : CAP_NS);
}

/* Sleeps until `until_ns`. */
static int sleep_locked(struct retry_gate *gate, int64_t until_ns)
{
    check_held(&gate->locked.lock);
    for (;;) {
        if (gate->locked.interrupted)
            return -ECANCELED;
        int64_t left_ns = until_ns - clock_monotonic_ns();
        if (left_ns <= 0)
            return 0;
        (void)mutex_wait(&gate->locked.lock, &gate->interrupted_cond, left_ns / 1000000 + 1);
    }
}

/* When the budget has a token again if no call succeeds until then. */
static int64_t token_at_locked(struct retry_gate *gate)
{
    check_held(&gate->locked.lock);
    return gate->locked.filled_ns + (int64_t)((1.0 - gate->locked.tokens) * (double)SECOND_NS) + 1;
}

static int take_token_locked(struct retry *retry)
{
    check_held(&retry->gate->locked.lock);
    struct retry_gate *gate = retry->gate;
    for (;;) {
        fill_by_time_locked(gate);
        if (gate->locked.tokens >= 1.0)
            break;
        int64_t at = token_at_locked(gate);
        if (at > retry->deadline_ns)
            return -ETIMEDOUT;
        TRY(sleep_locked(gate, at));
    }
    gate->locked.tokens -= 1.0;
    return 0;
}

int retry_wait(struct retry *retry, int64_t at_least_ns)
{
    int64_t delay = next_delay(retry);
    int64_t until = clock_monotonic_ns() + (delay > at_least_ns ? delay : at_least_ns);
    if (until > retry->deadline_ns)
        return -ETIMEDOUT;
    LOCK_SCOPE(&retry->gate->locked.lock);
    int r = sleep_locked(retry->gate, until);
    return r < 0 ? r : take_token_locked(retry);
}
