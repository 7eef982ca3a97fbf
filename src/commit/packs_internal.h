// SPDX-License-Identifier: Apache-2.0
/* Packs that the view does not have yet, and pins: their state, and how writeback makes packs. */
#pragma once

#include <sys/queue.h>

#include "base/lock.h"
#include "base/tables.h"
#include "base/vector.h"
#include "commit/packs.h"

#define PACK_CLOCKS 65536u

/* A chunk that is, or will be, in a pack that the view does not have yet. */
struct fresh {
    UT_hash_handle hh;
    struct chunk_entry entry;
    bool durable; /* its pack is written: the chunk can be read there */
};

enum pack_state { PACK_FILLING, PACK_WRITING, PACK_DURABLE, PACK_FAILED };

/* A pack that the view does not have yet. */
struct new_pack {
    TAILQ_ENTRY(new_pack) link;
    uint64_t id;
    uint64_t length; /* of the file */
    uint32_t count;
    enum pack_state state;
    bool logged;   /* the stage's log names it */
    bool is_named; /* by a batch of the journal that the view has not applied yet */
    uint8_t depth; /* of all of its chunks */
    /* chunks have bases that the view may consider dead: nothing is dropped meanwhile */
    bool rests;
    uint64_t promoted; /* fetched bytes in it */
    int error;
    struct pack_buffer buffer;   /* while filling and writing */
    struct chunk_entry *entries; /* PACK_ENTRIES_MAX while filling, then `count` */
    struct packs *packs;
};
TAILQ_HEAD(new_pack_list, new_pack);

struct pack_pin {
    UT_hash_handle hh;
    uint64_t pack;
    unsigned pins;
    bool dropping; /* its file is about to be removed: its chunks must not be used */
};

struct packs {
    struct local *local;
    struct past_views *past; /* NULL except between store_new() and the end */
    struct room *room;
    struct horizon *horizon;
    struct damage *damage;
    struct pool *writers; /* one put each */
    struct cairn_mutex lock;
    pthread_cond_t changed;
    struct fresh *fresh;
    struct new_pack *filling;
    struct new_pack_list written; /* durable or being written, not yet in a batch */
    struct pack_pin *pins;
    uint8_t *buffers[PACK_BUFFERS];
    unsigned buffers_free;
    uint64_t new_bytes;     /* total length of packs that the view does not have */
    uint64_t writing_bytes; /* total length of packs being written */
    unsigned drops;         /* packs marked as dropping */
    unsigned drop_holds;    /* while above 0, no drop begins */
    size_t dooms_open;      /* packs in the remote that are marked */
    _Atomic uint64_t dooms; /* number of such marks set or removed so far */
    _Atomic uint64_t next_id;
    _Atomic uint64_t written_total, dedup_total;
    struct encode_totals encoded;
    _Atomic int64_t read_at; /* when content was last read; monotonic ns */
    /* when packs were last used, by a hash of their ids: seconds since the start */
    _Atomic uint32_t used_at[PACK_CLOCKS];
    int64_t started_at;
};

/* --- packs.c ---------------------------------------------------------------------------------- */

struct packs *packs_new(struct local *local, struct room *room, struct horizon *horizon,
                        struct damage *damage);
void packs_free(struct packs *packs);
/* Starts the threads that write packs. */
CAIRN_MUST_CHECK int packs_start(struct packs *packs, struct priority *priority);
void packs_stop(struct packs *packs);
/* Total length of packs that the view does not have, including those being written. */
uint64_t packs_new_bytes(struct packs *packs);
/* Calls `fn` for each written pack that the view does not have, with the lock held. */
void packs_each_durable(struct packs *packs, void (*fn)(struct new_pack *pack, void *arg),
                        void *arg);
/* Content that becomes a chunk; packs_add() fills in the other fields. */
struct packs_chunk {
    struct iovec *iov;
    size_t iov_count;
    uint64_t length;
    struct chunk_name name;
    uint64_t pinned; /* the pack of a chunk that was known, pinned for the caller; 0: none */
};
/* Computes the chunk's name and ensures that it is in some pack: it is known, or is added to the
 * pack being filled. `scratch` has PACKS_SCRATCH_LEN bytes. */
void packs_add(struct packs *packs, struct packs_chunk *chunk, void *scratch);
/* Adds a chunk in its form on NVMe (compaction). */
void packs_add_stored(struct packs *packs, const struct chunk_entry *entry, const void *stored);
/* On return every chunk added before is durable, and so are the names of packs. */
CAIRN_MUST_CHECK int packs_finish(struct packs *packs);
/* Drops packs that failed and those written since; their chunks must be added again. */
void packs_abandon(struct packs *packs);
/* Is the chunk stored without bases, and undamaged? Then its pack is pinned. (New content must not
 * depend on others; and while a pack is pinned, the bases of its chunks stay, too.) */
bool packs_pin_stored(struct packs *packs, const struct chunk_name *name, uint64_t *ret_pinned);
/* Marks a pack as dropping, or as doomed. False: it is pinned, or marked already. */
bool packs_mark_locked(struct packs *packs, uint64_t pack);
void packs_unmark_locked(struct packs *packs, uint64_t pack);
/* Finds the pack in the remote with the chunk, and pins it with the packs of its bases: no head
 * leaves them unreferenced until packs_unpin_remote(). 0: none, or it cannot be relied on. */
DEFINE_VECTOR(remote_pins, uint64_t);
uint64_t packs_pin_remote(struct packs *packs, const struct chunk_name *name,
                          struct remote_pins *ret);
void packs_unpin_remote(struct packs *packs, struct remote_pins *pins);
bool packs_pin_locked(struct packs *packs, uint64_t pack);
/* A durable batch names these packs. */
void packs_note_named(struct packs *packs, const uint64_t *ids, size_t count);
void packs_retire_named(struct packs *packs); /* the view has them now */
/* Is there a pack that no batch names, and to which no staged range refers? */
bool packs_have_leftovers(struct packs *packs);
/* Finds a written pack that the view does not have: for the writeback thread and recovery; NULL:
 * none. */
const struct new_pack *packs_find_written(struct packs *packs, uint64_t id);

/* --- pack_clocks.c ---------------------------------------------------------------------------- */

/* Call when a pack is used. */
void packs_touch(struct packs *packs, uint64_t pack);
