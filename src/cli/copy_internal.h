// SPDX-License-Identifier: Apache-2.0
/* The state that copies to files (copy.c) and to standard output (copy_stream.c) share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/event.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/vector.h"
#include "cli/copy.h"

struct directory {
    char *path;
    struct attrs attrs;
};

struct copy {
    const char *command;
    bool is_partial, to_output, may_not_replace, keeps_owners;
    struct store *store;
    const char *past, *past_of; /* as of struct copy_how */
    struct pool *pool;
    pthread_t watcher;
    bool is_tty;
    int64_t began;
    struct copy_counts total;
    _Atomic uint64_t files, partial_files, bytes;
    _Atomic bool failed, ended;
    struct event end;
    VECTOR(struct directory) directories;
    struct {
        struct cairn_mutex lock; /* LOCK_LEAF */
        cJSON *problems;         /* NULL: messages are enough */
    } locked;
};
