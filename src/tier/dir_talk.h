/* Inside of the client of a directory (dir_client.c, dir_talk.c): its state, and one call over one channel. */
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
        bool is_open, has_place; /* the helper has opened it; `place` is where it was the first time */
        struct dir_place place;
        struct tier_place lies;
        struct channel *idle;
        int stuck[STUCK_MAX];
        unsigned stuck_count;
        int64_t silent_since; /* monotonic, ns; 0: it answers */
    } locked;
};

/* Makes the call; blocks until it is answered or given up. Returns 0 where the helper answered, whatever it answered (ret->result), else -ETIMEDOUT, -ECANCELED,
 * -ECONNRESET or another error of the channel. *ret_is_reusable: nothing is left in the channel. Takes the client's lock. */
CAIRN_MUST_CHECK int dir_talk(struct dir_client *client, const struct dir_call *call, struct channel *channel, struct dir_answer *ret,
                              bool *ret_is_reusable);
