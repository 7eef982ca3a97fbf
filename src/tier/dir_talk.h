// SPDX-License-Identifier: Apache-2.0
/* Internals of the client of a directory (dir_client.c, dir_talk.c): its state, and one call over
 * one channel. */
#pragma once

#include <pthread.h>

#include "base/lock.h"
#include "tier/dir_client.h"
#include "tier/dir_helper.h"

#define STUCK_MAX 16u

struct channel {
    int socket;
    int out, in; /* our ends of pipes, nonblocking; -1: not needed so far */
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
        /* the helper has opened the directory; `place` is its place when it was first opened */
        bool is_open, has_place;
        struct dir_place place;
        struct tier_place lies;
        struct channel *idle;
        int stuck[STUCK_MAX];
        unsigned stuck_count;
        int64_t silent_since; /* monotonic, ns; 0: the directory answers */
        /* how long a call with an fsync may take; when that was measured (monotonic, ns) */
        int64_t slow_ns, slow_at;
    } locked;
};

/* The outcome of a call. */
struct dir_end {
    struct dir_answer answer;
    bool is_reusable;        /* no message or content is left in the channel */
    int64_t began, limit_ns; /* monotonic; how long the call could go without an answer */
    bool is_late;            /* the call includes an fsync, and used up its whole limit */
};

/* Makes the call; blocks until it is answered or given up. Returns 0 if the helper answered, with
 * any result (ret->answer.result), else -ETIMEDOUT, -ECANCELED, -ECONNRESET or another error of the
 * channel. Takes the client's lock. */
CAIRN_MUST_CHECK int dir_talk(struct dir_client *client, const struct dir_call *call,
                              struct channel *channel, struct dir_end *ret);

/* Call after -ETIMEDOUT. `is_slow`: the call was late, but the directory answers other calls, so
 * later calls with an fsync get more time. Otherwise the directory counts as silent. Takes the
 * client's lock. */
void dir_talk_timed_out(struct dir_client *client, const struct dir_end *end, bool is_slow);
