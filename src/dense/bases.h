// SPDX-License-Identifier: Apache-2.0
/* Bases: the chunks that dense ones refer to.
 *
 * A chunk that is twin or dx in the remote, the dependent, can be decoded only beside other chunks,
 * its bases. They are gathered first: from memory, from NVMe, else from the remote, in few
 * requests, where they may have bases themselves. So a thread that decodes chunks of the remote
 * does
 *
 *     for (size_t i = 0, n; i < count; i += n) {
 *         struct bases bases;
 *         n = bases_gather(&bases, store, entries + i, count - i);
 *         ... bases_decode() for n of them ...
 *         bases_release(&bases);
 *     }
 *
 * What they find is read by the calling thread itself, so a thread of any pool may gather. It waits
 * for another one only where that is fetching the same base, and while it fetches none itself: so
 * nothing waits in a circle. A base lies less deep than what refers to it, so each chain ends,
 * whatever an index says. */
#pragma once

#include "format/chunk.h"

#define BASES_CACHE_BYTES (32 * MIB)
/* Most that is gathered at once, unless one chunk needs more. */
#define BASES_BYTES (8u * 1024 * 1024)

struct store;

/* Bases that were decoded lately: consecutive chunks have some in common. */
struct bases_cache;
struct bases_cache *bases_cache_new(void);
void bases_cache_free(struct bases_cache *cache);

struct base_need;

/* Bases of some chunks. One thread at a time. */
struct bases {
    struct store *store;
    struct base_need *needs; /* by name */
    uint64_t bytes;          /* they decode to */
    uint64_t *allowance;     /* bytes that may still be fetched for all of the chain */
    uint64_t own_allowance;
};

/* A base that could not be had. */
struct base_loss {
    struct chunk_name name;
    int error;
};

/* Gathers what the first of `entries` refer to; returns how many these are: at least 1, and all
 * where none refers to anything. What cannot be had fails in bases_decode(). Blocks. */
size_t bases_gather(struct bases *ret, struct store *store, const struct chunk_entry *entries,
                    size_t count);
void bases_release(struct bases *bases);
/* Most memory that gathering for these takes, beside BASES_CACHE_BYTES; 0: they refer to nothing.
 */
uint64_t bases_room(const struct chunk_entry *entries, size_t count);

/* Decodes what is stored of one of these chunks into `raw` (raw_len bytes), and verifies it.
 * -EBADMSG, -EUCLEAN, -EPROTONOSUPPORT: it is damaged. -ENOLINK: a base of it is nowhere to be had,
 * *ret_loss (may be NULL) says which. Else the error with which a base was not read now. */
CAIRN_MUST_CHECK int bases_decode(const struct bases *bases, const struct chunk_entry *entry,
                                  const void *stored, void *raw, struct base_loss *ret_loss);
/* Would the decoding fail with -ENOLINK? Reads nothing. */
CAIRN_MUST_CHECK bool bases_find_loss(const struct bases *bases, const struct chunk_entry *entry,
                                      struct base_loss *ret_loss);
/* Is it certain, by the error of reading a chunk, that another try at once would not read it? */
CAIRN_MUST_CHECK bool bases_is_final(int error);
/* -ENOLINK, in words, as the cause of the calling thread's error. */
void bases_note_loss(const struct base_loss *loss);

/* Is no pack of the remote that the chunk at this place depends on known to be bad? */
bool bases_are_sound(struct store *store, const struct chunk_entry *place);
