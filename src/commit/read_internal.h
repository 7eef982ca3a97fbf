// SPDX-License-Identifier: Apache-2.0
/* Reading for writeback, the lists of damaged chunks, and how these are stored anew. */
#pragma once

#include "base/lock.h"
#include "commit/read.h"

#define DAMAGE_MAX 64u
#define DAMAGE_LOCAL_MAX 64u

/* --- read.c ----------------------------------------------------------------------------------- */

/* Content as it is now, from the stage and NVMe alone: exactly `length` bytes, zeros past the end.
 * -ENOENT: a chunk is not on NVMe. */
CAIRN_MUST_CHECK int commit_read_file(struct store *store, uint64_t ino, uint64_t offset, void *buf,
                                      size_t length);

/* --- damage.c --------------------------------------------------------------------------------- */

struct damage {
    char *path;
    char *what;
    struct chunk_name chunk;
};

struct damages {
    struct cairn_mutex lock;
    struct damage known[DAMAGE_MAX]; /* no tier had it good */
    unsigned known_count;
    struct chunk_name local[DAMAGE_LOCAL_MAX]; /* damaged on NVMe, and good in the remote */
    unsigned local_count;
};

void damage_init(struct store *store);
void damage_done(struct store *store);

/* --- heal.c ----------------------------------------------------------------------------------- */

/* Chunks that are damaged on NVMe, read from elsewhere, and on their way to another place there.
 * Bounded. */
struct heal *heal_new(void);
void heal_free(struct heal *heal);
/* The writeback thread: adds them to a pack; false: there are none. Its next batch names it; then
 * they are forgotten. */
bool heal_add(struct store *store);
void heal_settle(struct store *store);
