// SPDX-License-Identifier: Apache-2.0
/* A limit of bytes per second, shared by all threads that use it. */
#pragma once

#include "base/lock.h"

struct rate_limit {
    uint64_t bytes_per_s; /* 0: no limit. Set once. */
    pthread_cond_t changed;
    struct {
        struct cairn_mutex lock;
        int64_t allowance_at; /* monotonic ns: when all bytes charged so far are within the rate */
        bool lifted;
    } locked;
};

void rate_limit_init(struct rate_limit *limit, uint64_t bytes_per_s);
void rate_limit_done(struct rate_limit *limit);

/* Blocks until all bytes charged before are within the rate, or the limit is lifted; then charges
 * `bytes`. Returns at once if there is no limit. */
void rate_limit_wait(struct rate_limit *limit, uint64_t bytes);

/* For work that can be postponed: are all bytes charged before within the rate? rate_limit_charge()
 * charges `bytes` without blocking. */
bool rate_limit_is_paid(struct rate_limit *limit);
void rate_limit_charge(struct rate_limit *limit, uint64_t bytes);

/* While the limit is lifted, no call blocks and no bytes are charged. */
void rate_limit_lift(struct rate_limit *limit, bool lifted);
