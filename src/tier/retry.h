// SPDX-License-Identifier: Apache-2.0
/* Retries: full-jitter exponential backoff under a budget shared by all calls of a tier, so that
 * retries do not overload a remote in trouble: RETRY_TOKENS at once, then one a second and one for
 * every RETRY_SHARE successful calls. First attempts cost nothing. Any thread. */
#pragma once

#include "base/lock.h"

#define RETRY_TOKENS 64
#define RETRY_SHARE 5

struct retry_gate {
    pthread_cond_t interrupted_cond;
    struct {
        struct cairn_mutex lock;
        double tokens;
        int64_t filled_ns;
        bool interrupted;
    } locked;
};

void retry_gate_init(struct retry_gate *gate);
void retry_gate_done(struct retry_gate *gate);

/* Waiting and later retries return -ECANCELED. */
void retry_gate_interrupt(struct retry_gate *gate);
bool retry_gate_is_interrupted(struct retry_gate *gate);

/* Call after each successful call. */
void retry_gate_success(struct retry_gate *gate);

/* The state of one call. */
struct retry {
    struct retry_gate *gate;
    int64_t deadline_ns; /* monotonic */
    unsigned attempt;
};

void retry_begin(struct retry *retry, struct retry_gate *gate, int64_t patience_ns);

/* Waits before the next attempt, at least `at_least_ns`. 0: try again; -ETIMEDOUT: the wait would
 * exceed the patience; -ECANCELED. */
CAIRN_MUST_CHECK int retry_wait(struct retry *retry, int64_t at_least_ns);
