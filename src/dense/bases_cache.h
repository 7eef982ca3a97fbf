// SPDX-License-Identifier: Apache-2.0
/* Bases in memory: recently decoded ones, those pinned by a thread that decodes dependents, and
 * those being fetched, each by one thread. */
#pragma once

#include <sys/queue.h>
#include <uthash.h>

#include "format/chunk.h"

struct bases_cache;

struct base {
    UT_hash_handle hh;
    TAILQ_ENTRY(base) link; /* in the list by last use */
    struct chunk_name name;
    unsigned pins;
    bool is_known;  /* in the hash table */
    bool is_coming; /* a thread is fetching it: it is in the table, but not in the list */
    int error;      /* why it could not be fetched */
    uint32_t len;
    uint8_t bytes[];
};

/* Allocates a base with a pin, not in the table. */
struct base *base_new(const struct chunk_name *name, uint32_t len);

/* Returns the base, pinned; NULL: missing, or still being fetched. */
struct base *bases_cache_find(struct bases_cache *cache, const struct chunk_name *name);
/* Adds a verified base. If another thread has added it already, frees this one; returns the one in
 * the table. */
struct base *bases_cache_add(struct bases_cache *cache, struct base *base);

/* Returns the base, pinned: one in the table, perhaps being fetched by another thread; else a new
 * one, which the caller must fetch now (*ret_is_own). Until it reports the result by
 * bases_cache_came(), the caller must not wait for another thread: so there is no circular wait. */
struct base *bases_cache_claim(struct bases_cache *cache, const struct chunk_name *name,
                               uint32_t len, bool *ret_is_own);
void bases_cache_came(struct bases_cache *cache, struct base *base, int error);
/* Returns once no thread is fetching it any more: 0, or why it could not be fetched. Blocks. */
CAIRN_MUST_CHECK int bases_cache_await(struct bases_cache *cache, const struct base *base);

void bases_cache_unpin(struct bases_cache *cache, struct base *base);
