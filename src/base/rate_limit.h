// SPDX-License-Identifier: Apache-2.0
/* So many bytes a second, for as many threads as ask. Any thread. */
#pragma once

#include "base/lock.h"

struct rate_limit {
    uint64_t bytes_per_s; /* 0: there is none. Set once. */
    pthread_cond_t changed;
    struct {
        struct cairn_mutex lock;
        int64_t allowance_at; /* monotonic ns: when what has gone so far is paid for */
        bool lifted;
    } locked;
};

void rate_limit_init(struct rate_limit *limit, uint64_t bytes_per_s);
void rate_limit_done(struct rate_limit *limit);

/* Waits until what went before is paid for, or the limit is lifted; `bytes` go then. Returns at
 * once where there is none. */
void rate_limit_wait(struct rate_limit *limit, uint64_t bytes);

/* For work that can as well be done later: is all that went before paid for? And `bytes` go,
 * without a wait. */
bool rate_limit_is_paid(struct rate_limit *limit);
void rate_limit_charge(struct rate_limit *limit, uint64_t bytes);

/* While the limit is lifted, no call waits and no bytes are counted. */
void rate_limit_lift(struct rate_limit *limit, bool lifted);
