// SPDX-License-Identifier: Apache-2.0
/* Inside of the client of a directory (dir_client.c, dir_talk.c): its state, and one call over one
 * channel. */
#pragma once

#include <pthread.h>

#include "base/lock.h"
#include "tier/dir_client.h"
#include "tier/dir_helper.h"

#define STUCK_MAX 16u

struct channel {
    int socket;
    int out, in; /* our ends of pipes, not blocking; -1: none was needed yet */
    struct channel *next;
};

struct dir_client {
    char *path;
    bool read_only, may_make;
    int stop_fd; /* eventfd; readable: interrupted */
    pthread_cond_t started;
    struct {
        struct cairn_mutex lock;
        struct dir_process process; /* pid -1: none */
        bool starting, interrupted;
        /* the helper has opened it; `place` is where it was the first time */
        bool is_open, has_place;
        struct dir_place place;
        struct tier_place lies;
        struct channel *idle;
        int stuck[STUCK_MAX];
        unsigned stuck_count;
        int64_t silent_since;     /* monotonic, ns; 0: it answers */
        int64_t slow_ns, slow_at; /* what waits for an fsync may take so long; when that was found
                                     (monotonic, ns) */
    } locked;
};

/* The outcome of a call. */
struct dir_end {
    struct dir_answer answer;
    bool is_reusable;        /* nothing is left in the channel */
    int64_t began, limit_ns; /* monotonic; how long it could go without an answer */
    bool is_late;            /* it waits until something is durable, and had all of this time */
};

/* Makes the call; blocks until it is answered or given up. Returns 0 where the helper answered,
 * whatever it answered (ret->answer.result), else -ETIMEDOUT, -ECANCELED, -ECONNRESET or another
 * error of the channel. Takes the client's lock. */
CAIRN_MUST_CHECK int dir_talk(struct dir_client *client, const struct dir_call *call,
                              struct channel *channel, struct dir_end *ret);

/* After -ETIMEDOUT. `is_slow`: the call is late, but the directory answers others, so one like it
 * gets more time from now on. Else the directory is silent. Takes the client's lock. */
void dir_talk_timed_out(struct dir_client *client, const struct dir_end *end, bool is_slow);
