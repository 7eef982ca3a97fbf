// SPDX-License-Identifier: Apache-2.0
/* Waits, with progress, until the horizons of stores, of NVMe or of the remote, include the goals.
 * One thread. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct horizon_goal {
    char *store;    /* owned by the caller */
    bool is_remote; /* the remote's horizon, else that of NVMe */
    uint64_t seq;   /* the operation that the horizon must include */
    /* of the operation: when all nodes go back to an earlier state, the operation is set aside */
    uint64_t generation;
    uint64_t bytes; /* that were missing at the time of the request; 0: not known */
    bool may_end;   /* the daemon may end meanwhile */
};

/* Returns the time on the monotonic clock that is `timeout_ns` from now; INT64_MAX for none
 * (negative). */
int64_t horizon_deadline(int64_t timeout_ns);

#define HORIZON_POLL_MIN_MS 5u
#define HORIZON_POLL_MAX_MS 250u
#define HORIZON_POLL_SHARE 32u

/* How long to pause between two polls, after so much waiting: a wait ends late by a small part of
 * its time, and a long one costs the daemon few requests. */
static inline unsigned horizon_poll_ms(int64_t waited_ns)
{
    uint64_t ms = (uint64_t)(waited_ns / MS_NS) / HORIZON_POLL_SHARE;
    return (unsigned)min_u64(max_u64(ms, HORIZON_POLL_MIN_MS), HORIZON_POLL_MAX_MS);
}

/* No exit code: a daemon that may end has ended; no message is printed. */
#define HORIZON_ENDED (-1)

/* Polls the daemons until every goal is reached; lifts their limits meanwhile. Returns CLI_OK,
 * CLI_FAILED (after a message), CLI_NOT_MET at the deadline (*ret_left: bytes still missing),
 * CLI_INTERRUPTED or HORIZON_ENDED. Progress is shown on standard error if that is a terminal. */
int horizon_wait(const char *command, const struct horizon_goal *goals, size_t count,
                 int64_t deadline, uint64_t *ret_left);
