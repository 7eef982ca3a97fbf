// SPDX-License-Identifier: Apache-2.0
/* Packs that are being made (packs.c), pins of packs (pack_pins.c), the file of a pack
 * (pack_file.c), when packs were used (pack_clocks.c): for the components that share the store. */
#pragma once

#include <stdatomic.h>
#include <sys/uio.h>

#include "codec/encode.h"
#include "commit/commit.h"
#include "format/object.h"
#include "format/pack.h"
#include "tier/tier.h"

#define PACK_DATA_MAX (24u * 1024 * 1024)                  /* stored chunks of one pack */
#define PACK_BUFFER_LEN (PACK_DATA_MAX + 3u * 1024 * 1024) /* with header, index and trailer */
#define PACK_BUFFERS 3u
#define PACK_ENTRIES_MAX 12288u

struct local;
struct packs;
struct past_views;
struct view_remote_pack;

/* Chunks that were encoded for a tier since the mount, by enum chunk_encoding. Any thread. */
struct encode_totals {
    _Atomic uint64_t raw_bytes[CHUNK_ENCODINGS], stored_bytes[CHUNK_ENCODINGS];
    _Atomic uint64_t cpu_ns;
    _Atomic uint64_t wrong; /* did not decode to the same, and are not stored so */
};

static inline struct encode_counts encode_counts(const struct encode_totals *totals)
{
    struct encode_counts ret = {.cpu_s = (double)atomic_load(&totals->cpu_ns) / 1e9,
                                .wrong = atomic_load(&totals->wrong)};
    for (unsigned i = 0; i < CHUNK_ENCODINGS; i++) {
        ret.bytes[i].raw = atomic_load(&totals->raw_bytes[i]);
        ret.bytes[i].stored = atomic_load(&totals->stored_bytes[i]);
    }
    return ret;
}

/* --- packs.c ---------------------------------------------------------------------------------- */

/* Encodes a chunk for NVMe, by itself, whatever it is elsewhere: the bytes, which lie in `raw` or
 * in `scratch` (PACKS_SCRATCH_LEN), and an entry without a place. Any thread. */
#define PACKS_SCRATCH_LEN (CHUNK_SCRATCH_LEN + CHUNK_SIZE_MAX)
const void *packs_encode(struct packs *packs, const struct chunk_name *name, const void *raw,
                         uint32_t raw_len, void *scratch, struct chunk_entry *ret_entry);
/* Totals of chunks that were encoded for NVMe. Condensing encodes by itself, and counts here. */
struct encode_totals *packs_encoded(struct packs *packs);
/* Adds a chunk as it was fetched, which stands by itself, against room_promote(). -EEXIST: it is
 * being stored already. */
CAIRN_MUST_CHECK int packs_promote(struct packs *packs, const struct chunk_entry *entry,
                                   const void *stored);
/* Adds one as it is to be stored, which did not refer to these others until now. No thread drops a
 * pack, or is about to, until the view has it. It counts for writeback_limit, without a wait. */
void packs_add_dense(struct packs *packs, const struct chunk_entry *entry, const void *stored);
/* Is all that counts for that limit paid for? */
bool packs_limit_is_paid(struct packs *packs);
/* A chunk's place in a pack that is written, and that the view does not know; 0: none. */
uint64_t packs_find_fresh(struct packs *packs, const struct chunk_name *name,
                          struct chunk_entry *ret);
/* Has it one, perhaps not yet written? */
bool packs_has_fresh(struct packs *packs, const struct chunk_name *name);
/* Recovery: a pack that the stage's log names. Is there one that is written, and that the view does
 * not know? */
void packs_readd(struct packs *packs, uint64_t id, uint64_t length,
                 const struct chunk_entry *entries, uint32_t count);
bool packs_is_written(struct packs *packs, uint64_t id);
uint64_t packs_new_id(struct packs *packs);
uint64_t packs_newest_id(struct packs *packs);
/* From now on chunks are found where one of these views has them, too, if the newest state's does
 * not. Before any thread. */
void packs_look_back(struct packs *packs, struct past_views *past);

/* --- pack_pins.c ------------------------------------------------------------------------------ */

void packs_unpin(struct packs *packs, uint64_t pack);
bool packs_pin(struct packs *packs, uint64_t pack); /* false: it is about to go */
/* While held, no pack begins to be dropped. */
void packs_hold_drops(struct packs *packs, bool hold);
bool packs_are_dropping(struct packs *packs); /* some, marked before */
/* Could it be dropped now: it is not pinned, and nothing staged lies in it? */
bool packs_is_free(struct packs *packs, uint64_t pack);
/* Marks it as dropping. False: it stays. */
bool packs_begin_drop(struct packs *packs, uint64_t pack);
void packs_end_drop(struct packs *packs, uint64_t pack);

/* --- remote_pins.c ---------------------------------------------------------------------------- */

/* Marks a pack in the remote, which a head is about to leave unreferenced: nothing is made to refer
 * to its chunks until packs_end_doom(). False: it is pinned. */
bool packs_begin_doom(struct packs *packs, uint64_t pack);
void packs_end_doom(struct packs *packs, uint64_t pack);
/* The number of calls of packs_begin_doom() and packs_end_doom() so far. */
uint64_t packs_dooms(struct packs *packs);
/* `dooms`: an earlier packs_dooms(). Waits for 250 ms at most while a pack is marked. False: no
 * mark changed since. */
bool packs_await_dooms(struct packs *packs, uint64_t dooms);

/* --- pack_file.c ------------------------------------------------------------------------------ */

void pack_object_name(uint64_t pack, char buf[32]);
/* Reads a part of a pack of the tier. Errors of get_range(). Any thread. */
CAIRN_MUST_CHECK int pack_read_part(struct tier *tier, uint64_t pack, uint64_t offset, void *buf,
                                    size_t length);
/* Memory of PACK_BUFFER_LEN bytes in which a pack is made. */
struct pack_buffer {
    uint8_t *bytes;
    uint64_t data_len; /* where its chunks end */
};
/* The pack's header. */
void pack_begin(const uint8_t owner[16], uint64_t id, struct pack_buffer *buffer);
/* Where the data would end with one chunk more: at most PACK_DATA_MAX. */
uint64_t pack_end_with(uint64_t data_len, const struct chunk_entry *entry);
/* Puts a chunk, which is stored in so many parts, behind its frame; *entry gets its place. */
void pack_place(const struct local *local, uint64_t id, struct pack_buffer *buffer,
                struct chunk_entry *entry, const struct iovec *stored, size_t parts);
/* Index and trailer behind the chunks; the length of the whole. */
uint64_t pack_finish(const uint8_t owner[16], uint64_t id, const struct pack_buffer *buffer,
                     const struct chunk_entry *entries, uint32_t count);
/* Reads the index of any tier's pack whose trailer names `owner`; returns the length of its file.
 * What looks damaged is read again; `fn` is called once all of it was read. -EUCLEAN, -EBADMSG,
 * -EIO: it cannot be read. */
CAIRN_MUST_CHECK int pack_read_index(struct tier *tier, const uint8_t owner[16], uint64_t pack,
                                     int (*fn)(const struct chunk_entry *entry, void *arg),
                                     void *arg, uint64_t *ret_length);
/* Reads it: is it that of a pack as the view knows it? Errors as above; else -EUCLEAN. */
CAIRN_MUST_CHECK int pack_check_index(struct tier *tier, const uint8_t owner[16],
                                      const struct view_remote_pack *pack);
/* The same of a pack on NVMe. */
CAIRN_MUST_CHECK int packs_read_index(struct packs *packs, uint64_t pack,
                                      int (*fn)(const struct chunk_entry *entry, void *arg),
                                      void *arg);
/* The same. *ret_was_made: it cannot be read, and was made again from the chunks, which reads all
 * of the pack. */
CAIRN_MUST_CHECK int packs_recover_index(struct packs *packs, uint64_t pack,
                                         int (*fn)(const struct chunk_entry *entry, void *arg),
                                         void *arg, bool *ret_was_made);
/* Does its header or its trailer say that this store wrote it under this name? */
bool packs_is_ours(struct packs *packs, uint64_t pack);

/* --- pack_clocks.c ---------------------------------------------------------------------------- */

/* When it was used, by a clock of this session; 0: not in it. */
uint32_t packs_used_at(struct packs *packs, uint64_t pack);
