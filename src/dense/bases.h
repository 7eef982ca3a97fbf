// SPDX-License-Identifier: Apache-2.0
/* Bases: the chunks to which dense chunks refer.
 *
 * A chunk that is twin or dx in the remote, the dependent, can be decoded only with the help of
 * other chunks, its bases. These are gathered first: from memory, from NVMe, else from the remote,
 * in few requests; they may have bases themselves. So a thread that decodes chunks of the remote
 * does
 *
 *     for (size_t i = 0, n; i < count; i += n) {
 *         struct bases bases;
 *         n = bases_gather(&bases, store, entries + i, count - i);
 *         ... bases_decode() for n of them ...
 *         bases_release(&bases);
 *     }
 *
 * The calling thread itself reads all bases, so a thread of any pool may gather. It waits for
 * another thread only if that one is fetching the same base, and only while it fetches none itself:
 * so there is no circular wait. A base has a lower depth than the chunks that refer to it, so each
 * chain ends, whatever an index says. */
#pragma once

#include "format/chunk.h"

#define BASES_CACHE_BYTES (32 * MIB)
/* Most that is gathered at once, unless one chunk needs more. */
#define BASES_BYTES (8u * 1024 * 1024)

struct store;

/* A cache of recently decoded bases: consecutive chunks share some. */
struct bases_cache;
struct bases_cache *bases_cache_new(void);
void bases_cache_free(struct bases_cache *cache);

struct base_need;

/* The bases of some chunks. One thread at a time. */
struct bases {
    struct store *store;
    struct base_need *needs; /* sorted by name */
    uint64_t bytes;          /* decoded bytes */
    uint64_t *allowance;     /* bytes that may still be fetched for the whole chain */
    uint64_t own_allowance;
};

/* A base that is not available. */
struct base_loss {
    struct chunk_name name;
    int error;
};

/* Gathers the bases of the first of `entries`; returns for how many of these: at least 1, and all
 * if none has a base. If a base is not available, bases_decode() fails. Blocks. */
size_t bases_gather(struct bases *ret, struct store *store, const struct chunk_entry *entries,
                    size_t count);
void bases_release(struct bases *bases);
/* Most memory that gathering for these chunks takes, besides BASES_CACHE_BYTES; 0: they have no
 * bases. */
uint64_t bases_room(const struct chunk_entry *entries, size_t count);

/* Decodes the stored bytes of one of these chunks into `raw` (raw_len bytes), and verifies it.
 * -EBADMSG, -EUCLEAN, -EPROTONOSUPPORT: it is damaged. -ENOLINK: a base is not available in any
 * tier, *ret_loss (may be NULL) says which. Otherwise the temporary error with which a base could
 * not be read. */
CAIRN_MUST_CHECK int bases_decode(const struct bases *bases, const struct chunk_entry *entry,
                                  const void *stored, void *raw, struct base_loss *ret_loss);
/* Would the decoding fail with -ENOLINK? Reads no data. */
CAIRN_MUST_CHECK bool bases_find_loss(const struct bases *bases, const struct chunk_entry *entry,
                                      struct base_loss *ret_loss);
/* Does this error of reading a chunk mean that an immediate retry would fail, too? */
CAIRN_MUST_CHECK bool bases_is_final(int error);
/* Notes the cause of an -ENOLINK, for the calling thread's error. */
void bases_note_loss(const struct base_loss *loss);

/* Do all packs in the remote that the chunk at this place depends on count as good? */
bool bases_are_sound(struct store *store, const struct chunk_entry *place);
