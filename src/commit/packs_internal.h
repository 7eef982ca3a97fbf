// SPDX-License-Identifier: Apache-2.0
/* Packs that the view does not know yet, and pins: their state, and how writeback makes them. */
#pragma once

#include <sys/queue.h>

#include "base/lock.h"
#include "base/tables.h"
#include "base/vector.h"
#include "commit/packs.h"

#define PACK_CLOCKS 65536u

/* A chunk that lies in a pack (or will) that the view does not know yet. */
struct fresh {
    UT_hash_handle hh;
    struct chunk_entry entry;
    bool durable; /* its pack is written: it can be read there */
};

enum pack_state { PACK_FILLING, PACK_WRITING, PACK_DURABLE, PACK_FAILED };

/* A pack that the view does not know yet. */
struct new_pack {
    TAILQ_ENTRY(new_pack) link;
    uint64_t id;
    uint64_t length; /* of the file */
    uint32_t count;
    enum pack_state state;
    bool logged;       /* the stage's log names it */
    bool is_named;     /* by a batch of the journal that the view does not have yet */
    uint8_t depth;     /* of all of its chunks */
    bool rests;        /* on chunks that the view may take for dead: nothing is dropped meanwhile */
    uint64_t promoted; /* bytes in it that were fetched */
    int error;
    struct pack_buffer buffer;   /* while filling and writing */
    struct chunk_entry *entries; /* PACK_ENTRIES_MAX while filling, then count */
    struct packs *packs;
};
TAILQ_HEAD(new_pack_list, new_pack);

struct pack_pin {
    UT_hash_handle hh;
    uint64_t pack;
    unsigned pins;
    bool dropping; /* its file is about to go: no chunk of it may be used */
};

struct packs {
    struct local *local;
    struct past_views *past; /* NULL, but between store_new() and the end */
    struct room *room;
    struct horizon *horizon;
    struct damage *damage;
    struct pool *writers; /* one put each */
    struct cairn_mutex lock;
    pthread_cond_t changed;
    struct fresh *fresh;
    struct new_pack *filling;
    struct new_pack_list written; /* durable and writing, not yet in a batch */
    struct pack_pin *pins;
    uint8_t *buffers[PACK_BUFFERS];
    unsigned buffers_free;
    uint64_t new_bytes;     /* lengths of packs that are not in the view */
    uint64_t writing_bytes; /* of packs that are being written */
    unsigned drops;         /* packs that are marked as dropping */
    unsigned drop_holds;    /* no drop begins now */
    size_t dooms_open;      /* marks of packs in the remote that are set */
    _Atomic uint64_t dooms; /* marks of packs in the remote that were set or taken away */
    _Atomic uint64_t next_id;
    _Atomic uint64_t written_total, dedup_total;
    struct encode_totals encoded;
    _Atomic int64_t read_at; /* when content was read last; monotonic ns */
    /* when packs were used, by a hash of their ids: seconds since the start */
    _Atomic uint32_t used_at[PACK_CLOCKS];
    int64_t started_at;
};

/* --- packs.c ---------------------------------------------------------------------------------- */

struct packs *packs_new(struct local *local, struct room *room, struct horizon *horizon,
                        struct damage *damage);
void packs_free(struct packs *packs);
/* The threads that write packs. */
CAIRN_MUST_CHECK int packs_start(struct packs *packs, struct priority *priority);
void packs_stop(struct packs *packs);
/* Bytes of packs that the view does not know, those that are being written included. */
uint64_t packs_new_bytes(struct packs *packs);
/* Calls `fn` for each pack that is written, and that the view does not know, with the lock. */
void packs_each_durable(struct packs *packs, void (*fn)(struct new_pack *pack, void *arg),
                        void *arg);
/* Content that becomes a chunk; packs_add() fills in the rest. */
struct packs_chunk {
    struct iovec *iov;
    size_t iov_count;
    uint64_t length;
    struct chunk_name name;
    uint64_t pinned; /* the pack of a chunk that was known, pinned for the caller; 0: none */
};
/* Names the chunk and makes sure that it lies in some pack: known, or added to one that is being
 * filled. `scratch` has PACKS_SCRATCH_LEN bytes. */
void packs_add(struct packs *packs, struct packs_chunk *chunk, void *scratch);
/* Adds a chunk as it is stored on NVMe (compaction). */
void packs_add_stored(struct packs *packs, const struct chunk_entry *entry, const void *stored);
/* Every chunk added before is durable on return, names of packs too. */
CAIRN_MUST_CHECK int packs_finish(struct packs *packs);
/* Forgets packs that failed and those written since they did; their chunks must be added again. */
void packs_abandon(struct packs *packs);
/* Is the chunk stored by itself, and can be relied on? Then its pack is pinned. (What is new is not
 * to depend on others; and while a pack is pinned, what its chunks refer to stays, too.) */
bool packs_pin_stored(struct packs *packs, const struct chunk_name *name, uint64_t *ret_pinned);
/* Marks a pack as dropping, or as doomed. False: it is pinned, or marked. */
bool packs_mark_locked(struct packs *packs, uint64_t pack);
void packs_unmark_locked(struct packs *packs, uint64_t pack);
/* The pack in the remote that has the chunk, pinned with those that it rests on: no head leaves
 * them unreferenced until packs_unpin_remote(). 0: there is none, or it cannot be relied on. */
DEFINE_VECTOR(remote_pins, uint64_t);
uint64_t packs_pin_remote(struct packs *packs, const struct chunk_name *name,
                          struct remote_pins *ret);
void packs_unpin_remote(struct packs *packs, struct remote_pins *pins);
bool packs_pin_locked(struct packs *packs, uint64_t pack);
/* A batch that is durable names them. */
void packs_note_named(struct packs *packs, const uint64_t *ids, size_t count);
void packs_retire_named(struct packs *packs); /* the view knows them now */
/* Is there a pack that no batch names, and of which nothing is staged? */
bool packs_have_leftovers(struct packs *packs);
/* A pack that is written, and that the view does not know: for the writeback thread and recovery;
 * NULL: there is none. */
const struct new_pack *packs_find_written(struct packs *packs, uint64_t id);

/* --- pack_clocks.c ---------------------------------------------------------------------------- */

/* A pack was used. */
void packs_touch(struct packs *packs, uint64_t pack);
