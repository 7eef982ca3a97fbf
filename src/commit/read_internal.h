// SPDX-License-Identifier: Apache-2.0
/* Chunks known to be damaged, and how they are stored again. */
#pragma once

#include <stdatomic.h>

#include "base/lock.h"
#include "commit/read.h"

#define DAMAGE_MAX 64u
#define DAMAGE_LOCAL_MAX 64u

/* --- damage.c --------------------------------------------------------------------------------- */

struct damage {
    const struct local *local; /* its namespace provides paths */
    struct cairn_mutex lock;
    struct {
        char *path;
        char *what;
        struct chunk_name chunk;
    } known[DAMAGE_MAX]; /* no tier had a good copy */
    unsigned known_count;
    struct chunk_name on_nvme[DAMAGE_LOCAL_MAX]; /* damaged on NVMe, and good in the remote */
    unsigned on_nvme_count;
    _Atomic uint64_t healed_total;
};

struct damage *damage_new(const struct local *local);
void damage_free(struct damage *damage);

/* --- heal.c ----------------------------------------------------------------------------------- */

/* Chunks that are damaged on NVMe, read from elsewhere, and waiting to be stored again there.
 * Bounded. */
struct heal *heal_new(struct packs *packs, struct damage *damage);
void heal_free(struct heal *heal);
/* Writeback thread only: adds them to a pack, which its next batch names; then they are removed.
 * False: none. */
bool heal_add(struct heal *heal);
void heal_settle(struct heal *heal);
