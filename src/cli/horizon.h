// SPDX-License-Identifier: Apache-2.0
/* Waiting, with progress, until the horizons of stores, of NVMe or of the remote, include the
 * goals. One thread. */
#pragma once

#include "base/base.h"

struct horizon_goal {
    char *store;    /* owned by the caller */
    bool is_remote; /* the remote's horizon, else that of NVMe */
    uint64_t seq;   /* the operation that the horizon must include */
    /* of the operation: it is set aside when all nodes go back to an earlier state */
    uint64_t generation;
    uint64_t bytes; /* that were missing when asked; 0: not known */
    bool may_end;   /* the daemon may end meanwhile */
};

/* Nanoseconds on the monotonic clock for "in `timeout_ns`"; INT64_MAX for none (negative). */
int64_t horizon_deadline(int64_t timeout_ns);

/* No exit code: a daemon that may end has ended, and nothing is said. */
#define HORIZON_ENDED (-1)

/* Polls the daemons until every goal is reached; lifts their limits meanwhile. Returns CLI_OK,
 * CLI_FAILED (said why), CLI_NOT_MET at the deadline (*ret_left: bytes still missing),
 * CLI_INTERRUPTED or HORIZON_ENDED. Progress goes to standard error if that is a terminal. */
int horizon_wait(const char *command, const struct horizon_goal *goals, size_t count,
                 int64_t deadline, uint64_t *ret_left);
