// SPDX-License-Identifier: Apache-2.0
/* Trying again: full-jitter exponential backoff under a budget that all calls of a tier share, so
 * that a remote in trouble is not drowned in repetitions: RETRY_TOKENS at once, then one a second
 * and one for every RETRY_SHARE calls that succeed. Calls that are made for the first time cost
 * nothing. Any thread. */
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

/* All that wait, and all that come: -ECANCELED. */
void retry_gate_interrupt(struct retry_gate *gate);
bool retry_gate_is_interrupted(struct retry_gate *gate);

/* A call succeeded. */
void retry_gate_success(struct retry_gate *gate);

/* One call. */
struct retry {
    struct retry_gate *gate;
    int64_t deadline_ns; /* monotonic */
    unsigned attempt;
};

void retry_begin(struct retry *retry, struct retry_gate *gate, int64_t patience_ns);

/* Waits as long as is right before the next attempt, at least `at_least_ns`. 0: try again;
 * -ETIMEDOUT: patience would be over before; -ECANCELED. */
CAIRN_MUST_CHECK int retry_wait(struct retry *retry, int64_t at_least_ns);
