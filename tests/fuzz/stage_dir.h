// SPDX-License-Identifier: Apache-2.0
/* A stage in a directory of shared memory, which is gone at exit. */
#pragma once

#include "base/log.h"
#include "fuzz.h"
#include "stage/internal.h"

static char dir[128];
static struct stage_config config = {.dir = dir, .size_bytes = 16 * MIB, .epoch = 1};

static void leave(void)
{
    stage_remove_files(config.dir, config.name);
    (void)rmdir(dir);
}

/* Once. The caller closes it. */
static inline struct stage *make_stage(void)
{
    struct stage *stage;
    log_set_level(LOG_LEVEL_ERROR);
    make_directory(true, dir);
    check(stage_create(&config, &stage) == 0);
    (void)atexit(leave);
    return stage;
}

static inline uint64_t pack_of(const struct chunk_name *name, uint64_t *ret_remote, void *arg)
{
    *ret_remote = 0;
    (void)arg;
    return name->bytes[0];
}
