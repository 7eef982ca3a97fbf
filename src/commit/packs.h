// SPDX-License-Identifier: Apache-2.0
/* Packs that are being made, pins of packs (pack_pins.c), the file of a pack (pack_file.c), when
 * packs were used (pack_clocks.c). */
#pragma once

#include <sys/queue.h>
#include <sys/uio.h>
#include <uthash.h>

#include "base/lock.h"
#include "codec/encode.h"
#include "format/object.h"
#include "format/pack.h"
#include "tier/tier.h"

#define PACK_DATA_MAX (24u * 1024 * 1024)                  /* stored chunks of one pack */
#define PACK_BUFFER_LEN (PACK_DATA_MAX + 3u * 1024 * 1024) /* with header, index and trailer */
#define PACK_BUFFERS 3u
#define PACK_ENTRIES_MAX 12288u
#define PACK_CLOCKS 65536u

struct store;

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
    uint64_t data_len;
    uint32_t count;
    enum pack_state state;
    bool logged;       /* the stage's log names it */
    bool is_named;     /* by a batch of the journal that the view does not have yet */
    uint8_t depth;     /* of all of its chunks */
    bool rests;        /* on chunks that the view may take for dead: nothing is dropped meanwhile */
    uint64_t promoted; /* bytes in it that were fetched */
    int error;
    uint8_t *buffer;             /* while filling and writing */
    struct chunk_entry *entries; /* PACK_ENTRIES_MAX while filling, then count */
    struct store *store;
};
TAILQ_HEAD(new_pack_list, new_pack);

struct pack_pin {
    UT_hash_handle hh;
    uint64_t pack;
    unsigned pins;
    bool dropping; /* its file is about to go: no chunk of it may be used */
};

struct packs {
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
};

/* --- packs.c ---------------------------------------------------------------------------------- */

void packs_init(struct store *store);
void packs_done(struct store *store);
/* Names the chunk and makes sure that it lies in some pack: known, or added to one that is being
 * filled. *ret_pinned: the pack of a chunk that was known, pinned for the caller (0: none).
 * `scratch` has PACKS_SCRATCH_LEN bytes. */
#define PACKS_SCRATCH_LEN (CHUNK_SCRATCH_LEN + CHUNK_SIZE_MAX)
CAIRN_MUST_CHECK int packs_add(struct store *store, const struct iovec *iov, size_t iov_count,
                               size_t raw_len, void *scratch, struct chunk_name *ret_name,
                               uint64_t *ret_pinned);
/* How a chunk is stored on NVMe, by itself, whatever it is elsewhere: the bytes, which lie in `raw`
 * or in `scratch` (PACKS_SCRATCH_LEN), and an entry without a place. Any thread. */
const void *packs_encode(struct store *store, const struct chunk_name *name, const void *raw,
                         uint32_t raw_len, void *scratch, struct chunk_entry *ret_entry);
/* Totals of chunks that were encoded for NVMe. Condensing encodes by itself, and counts here. */
struct encode_totals *packs_encoded(struct store *store);
/* Adds a chunk as it is stored on NVMe (compaction). */
CAIRN_MUST_CHECK int packs_add_stored(struct store *store, const struct chunk_entry *entry,
                                      const void *stored);
/* The same for one that did not refer to these others until now. No thread drops a pack, or is
 * about to, until the view has it. It counts for writeback_limit, without a wait. */
void packs_add_dense(struct store *store, const struct chunk_entry *entry, const void *stored);
/* Is all that counts for that limit paid for? */
bool packs_limit_is_paid(struct store *store);
/* The same for one that was fetched and stands by itself, against room_promote(). -EEXIST: it is
 * being stored already. */
CAIRN_MUST_CHECK int packs_promote(struct store *store, const struct chunk_entry *entry,
                                   const void *stored);
/* Every chunk added before is durable on return, names of packs too. */
CAIRN_MUST_CHECK int packs_finish(struct store *store);
/* Forgets packs that failed and those written since they did; their chunks must be added again. */
void packs_abandon(struct store *store);
/* Is the chunk stored by itself, and can be relied on? Then its pack is pinned. (What is new is not
 * to depend on others; and while a pack is pinned, what its chunks refer to stays, too.) */
bool packs_pin_stored(struct store *store, const struct chunk_name *name, uint64_t *ret_pinned);
void packs_unpin(struct store *store, uint64_t pack);
bool packs_pin(struct store *store, uint64_t pack); /* false: it is about to go */
bool packs_pin_locked(struct store *store, uint64_t pack);
/* While held, no pack begins to be dropped. */
void packs_hold_drops(struct store *store, bool hold);
bool packs_are_dropping(struct store *store); /* some, marked before */
/* Could it be dropped now: it is not pinned, and nothing staged lies in it? */
bool packs_is_free(struct store *store, uint64_t pack);
uint64_t store_new_pack_id(struct store *store);
uint64_t store_newest_pack_id(struct store *store);
void packs_note_named(struct store *store, const uint64_t *ids,
                      size_t count);          /* a batch that is durable names them */
void packs_retire_named(struct store *store); /* the view knows them now */
/* Its place in a pack that is written, and that the view does not know; 0: none. */
uint64_t packs_find_fresh(struct store *store, const struct chunk_name *name,
                          struct chunk_entry *ret);
/* Of those that no batch names, is there one of which nothing is staged? */
bool packs_have_leftovers(struct store *store);
bool packs_has_fresh(struct store *store,
                     const struct chunk_name *name); /* perhaps not yet written */
bool packs_begin_drop(struct store *store, uint64_t pack);
void packs_end_drop(struct store *store, uint64_t pack);
void packs_readd(struct store *store, uint64_t id, uint64_t length,
                 const struct chunk_entry *entries, uint32_t count);
/* A pack that is written, and that the view does not know: for the writeback thread and recovery;
 * NULL: there is none. */
const struct new_pack *packs_find_written(struct store *store, uint64_t id);
bool packs_is_written(struct store *store, uint64_t id); /* is there one? */

/* --- pack_file.c ------------------------------------------------------------------------------ */

void pack_object_name(uint64_t pack, char buf[32]);
/* Header of a pack in a buffer of PACK_BUFFER_LEN; where its data ends. */
uint64_t pack_begin(const uint8_t owner[16], uint64_t id, uint8_t *buffer);
/* Where the data would end with one chunk more: at most PACK_DATA_MAX. */
uint64_t pack_end_with(uint64_t data_len, const struct chunk_entry *entry);
/* Puts a chunk, which is stored in so many parts, behind its frame; *entry gets its place. Returns
 * pack_end_with(). */
uint64_t pack_place(const struct store *store, uint64_t id, uint8_t *buffer, uint64_t data_len,
                    struct chunk_entry *entry, const struct iovec *stored, size_t parts);
/* Index and trailer behind the chunks; the length of the whole. */
uint64_t pack_finish(const uint8_t owner[16], uint64_t id, uint8_t *buffer, uint64_t data_len,
                     const struct chunk_entry *entries, uint32_t count);
/* Of any tier's pack, whose trailer names `owner`; the length of its file. What looks damaged is
 * read again; `fn` is called once all of it was read. -EUCLEAN, -EBADMSG, -EIO: it
 * cannot be read. */
CAIRN_MUST_CHECK int pack_read_index(struct tier *tier, const uint8_t owner[16], uint64_t pack,
                                     int (*fn)(const struct chunk_entry *entry, void *arg),
                                     void *arg, uint64_t *ret_length);
/* The same of a pack on NVMe. */
CAIRN_MUST_CHECK int packs_read_index(struct store *store, uint64_t pack,
                                      int (*fn)(const struct chunk_entry *entry, void *arg),
                                      void *arg);
/* The same; 1: it cannot be read, and was made again from the chunks. Reads all of the
 * pack then. */
CAIRN_MUST_CHECK int packs_recover_index(struct store *store, uint64_t pack,
                                         int (*fn)(const struct chunk_entry *entry, void *arg),
                                         void *arg);
/* Does its header or its trailer say that this store wrote it under this name? */
bool packs_is_ours(struct store *store, uint64_t pack);

/* --- pack_clocks.c ---------------------------------------------------------------------------- */

/* A pack was used. */
void pack_touch(struct store *store, uint64_t pack);
/* When it was, by a clock of this session; 0: not in it. */
uint32_t pack_used_at(struct store *store, uint64_t pack);
