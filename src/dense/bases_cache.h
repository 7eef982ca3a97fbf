// SPDX-License-Identifier: Apache-2.0
/* Bases in memory: decoded lately, pinned by a thread that decodes beside them, or on their way
 * with the one thread that fetches each. */
#pragma once

#include <sys/queue.h>
#include <uthash.h>

#include "format/chunk.h"

struct bases_cache;

struct base {
    UT_hash_handle hh;
    TAILQ_ENTRY(base) link; /* by last use */
    struct chunk_name name;
    unsigned pins;
    bool is_known;  /* in the table */
    bool is_coming; /* a thread fetches it: it is in the table, and not by last use */
    int error;      /* why it did not come */
    uint32_t len;
    uint8_t bytes[];
};

/* One that is in no table, with a pin. */
struct base *base_new(const struct chunk_name *name, uint32_t len);

/* Pinned; NULL: it is not there, or not yet. */
struct base *bases_cache_find(struct bases_cache *cache, const struct chunk_name *name);
/* One that was verified; another thread may have been faster. Returns the one that stays. */
struct base *bases_cache_add(struct bases_cache *cache, struct base *base);

/* Pinned: one that is there, or that another thread fetches; else a new one, which the caller
 * fetches now (*ret_is_own). Until it says how that went, in bases_cache_came(), it waits for no
 * other thread: so nothing waits in a circle. */
struct base *bases_cache_claim(struct bases_cache *cache, const struct chunk_name *name,
                               uint32_t len, bool *ret_is_own);
void bases_cache_came(struct bases_cache *cache, struct base *base, int error);
/* Returns when no thread fetches it any more: 0, or why it did not come. Blocks. */
CAIRN_MUST_CHECK int bases_cache_await(struct bases_cache *cache, const struct base *base);

void bases_cache_unpin(struct bases_cache *cache, struct base *base);
