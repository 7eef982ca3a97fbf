// SPDX-License-Identifier: Apache-2.0
/* Packs being written (packs.c), pins of packs (pack_pins.c), the file of a pack (pack_file.c),
 * when packs were used (pack_clocks.c): for the components that share the store. */
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

/* Counts of chunks encoded for a tier since the mount, by enum chunk_encoding. Any thread. */
struct encode_totals {
    _Atomic uint64_t raw_bytes[CHUNK_ENCODINGS], stored_bytes[CHUNK_ENCODINGS];
    _Atomic uint64_t cpu_ns;
    _Atomic uint64_t wrong; /* did not decode to the same bytes, and are stored otherwise */
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

/* Encodes a chunk for NVMe, without bases, whatever its encoding elsewhere: returns the bytes,
 * which are in `raw` or in `scratch` (PACKS_SCRATCH_LEN), and an entry without a place. Any
 * thread. */
#define PACKS_SCRATCH_LEN (CHUNK_SCRATCH_LEN + CHUNK_SIZE_MAX)
const void *packs_encode(struct packs *packs, const struct chunk_name *name, const void *raw,
                         uint32_t raw_len, void *scratch, struct chunk_entry *ret_entry);
/* Counts of chunks encoded for NVMe. Condensing has its own encoder, and counts here. */
struct encode_totals *packs_encoded(struct packs *packs);
/* Adds a fetched chunk without bases, within room_promote(). -EEXIST: it is being stored
 * already. */
CAIRN_MUST_CHECK int packs_promote(struct packs *packs, const struct chunk_entry *entry,
                                   const void *stored);
/* Adds a chunk in its stored form, with bases that it did not refer to before. Call while no pack
 * is marked as dropping; then none is dropped until the view has the chunk. Counts for
 * writeback_limit without blocking. */
void packs_add_dense(struct packs *packs, const struct chunk_entry *entry, const void *stored);
/* Are all bytes charged to that limit within the rate? */
bool packs_limit_is_paid(struct packs *packs);
/* A chunk's place in a written pack that the view does not have yet; 0: none. */
uint64_t packs_find_fresh(struct packs *packs, const struct chunk_name *name,
                          struct chunk_entry *ret);
/* Does the chunk have such a place, perhaps in a pack that is not written yet? */
bool packs_has_fresh(struct packs *packs, const struct chunk_name *name);
/* Recovery: adds a pack named in the stage's log. packs_is_written(): is there a written pack with
 * this id that the view does not have? */
void packs_readd(struct packs *packs, uint64_t id, uint64_t length,
                 const struct chunk_entry *entries, uint32_t count);
bool packs_is_written(struct packs *packs, uint64_t id);
uint64_t packs_new_id(struct packs *packs);
uint64_t packs_newest_id(struct packs *packs);
/* From now on chunks are also found in one of these views, if they are missing in that of the
 * newest state. Call before any thread starts. */
void packs_look_back(struct packs *packs, struct past_views *past);

/* --- pack_pins.c ------------------------------------------------------------------------------ */

void packs_unpin(struct packs *packs, uint64_t pack);
bool packs_pin(struct packs *packs, uint64_t pack); /* false: it is about to be dropped */
/* While held, no pack begins to be dropped. */
void packs_hold_drops(struct packs *packs, bool hold);
bool packs_are_dropping(struct packs *packs); /* some packs marked before */
/* Could it be dropped now: it is not pinned, and no staged range refers to it? */
bool packs_is_free(struct packs *packs, uint64_t pack);
/* Marks the pack as dropping. False: it stays. */
bool packs_begin_drop(struct packs *packs, uint64_t pack);
void packs_end_drop(struct packs *packs, uint64_t pack);

/* --- remote_pins.c ---------------------------------------------------------------------------- */

/* Marks a pack in the remote, which a head is about to leave unreferenced: until packs_end_doom()
 * nothing can start to refer to its chunks. False: it is pinned. */
bool packs_begin_doom(struct packs *packs, uint64_t pack);
void packs_end_doom(struct packs *packs, uint64_t pack);
/* The number of calls of packs_begin_doom() and packs_end_doom() so far. */
uint64_t packs_dooms(struct packs *packs);
/* `dooms`: an earlier result of packs_dooms(). Waits for 250 ms at most while a pack is marked.
 * False: no mark has changed since. */
bool packs_await_dooms(struct packs *packs, uint64_t dooms);

/* --- pack_file.c ------------------------------------------------------------------------------ */

void pack_object_name(uint64_t pack, char buf[32]);
/* Reads a part of a pack of the tier. Errors of get_range(). Any thread. */
CAIRN_MUST_CHECK int pack_read_part(struct tier *tier, uint64_t pack, uint64_t offset, void *buf,
                                    size_t length);
/* A buffer of PACK_BUFFER_LEN bytes in which a pack is assembled. */
struct pack_buffer {
    uint8_t *bytes;
    uint64_t data_len; /* end of its chunks */
};
/* Writes the pack's header. */
void pack_begin(const uint8_t owner[16], uint64_t id, struct pack_buffer *buffer);
/* Where the data would end with one more chunk: at most PACK_DATA_MAX. */
uint64_t pack_end_with(uint64_t data_len, const struct chunk_entry *entry);
/* Appends a chunk, given in `parts` parts, after its frame; *entry gets its place. */
void pack_place(const struct local *local, uint64_t id, struct pack_buffer *buffer,
                struct chunk_entry *entry, const struct iovec *stored, size_t parts);
/* Appends index and trailer; returns the length of the whole pack. */
uint64_t pack_finish(const uint8_t owner[16], uint64_t id, const struct pack_buffer *buffer,
                     const struct chunk_entry *entries, uint32_t count);
/* Reads the index of a pack in any tier whose trailer names `owner`; returns the length of its
 * file. Data that looks damaged is read again; `fn` is called once everything was read. -EUCLEAN,
 * -EBADMSG, -EIO: it cannot be read. */
CAIRN_MUST_CHECK int pack_read_index(struct tier *tier, const uint8_t owner[16], uint64_t pack,
                                     int (*fn)(const struct chunk_entry *entry, void *arg),
                                     void *arg, uint64_t *ret_length);
/* Reads the index and compares it with the pack in the view. Errors as pack_read_index(); -EUCLEAN:
 * it differs. */
CAIRN_MUST_CHECK int pack_check_index(struct tier *tier, const uint8_t owner[16],
                                      const struct view_remote_pack *pack);
/* As pack_read_index(), for a pack on NVMe. */
CAIRN_MUST_CHECK int packs_read_index(struct packs *packs, uint64_t pack,
                                      int (*fn)(const struct chunk_entry *entry, void *arg),
                                      void *arg);
/* As packs_read_index(). *ret_was_made: the index cannot be read, and was rebuilt from the chunks,
 * by reading the whole pack. */
CAIRN_MUST_CHECK int packs_recover_index(struct packs *packs, uint64_t pack,
                                         int (*fn)(const struct chunk_entry *entry, void *arg),
                                         void *arg, bool *ret_was_made);
/* Does its header or its trailer prove that this store wrote it under this name? */
bool packs_is_ours(struct packs *packs, uint64_t pack);

/* --- pack_clocks.c ---------------------------------------------------------------------------- */

/* When the pack was used, by a clock of this session; 0: not in this session. */
uint32_t packs_used_at(struct packs *packs, uint64_t pack);
