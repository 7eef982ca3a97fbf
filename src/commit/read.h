// SPDX-License-Identifier: Apache-2.0
/* Reading chunks from NVMe (read.c), chunks that do not verify (damage.c), and their replacement
 * (heal.c): for the components that share the store. */
#pragma once

#include "format/pack.h"

struct damage;
struct heal;
struct packs;

/* --- read.c ----------------------------------------------------------------------------------- */

/* Largest memory for the bases of one chunk while it is read. */
#define LOCAL_BASES_BYTES ((CHUNK_REFS_MAX + 3u) * (uint64_t)CHUNK_SIZE_MAX)
#define CHUNK_TRIES 3 /* a pack may be compacted away between look-up and read */

/* Finds a chunk's place on NVMe. -ENOENT. */
CAIRN_MUST_CHECK int packs_find(struct packs *packs, const struct chunk_name *name,
                                struct chunk_entry *ret);
/* Reads a chunk at this place, decodes it into `buf` (raw_len bytes) and verifies it. -ENOENT: the
 * pack is gone, or a base has no place: the chunk has moved; -EBADMSG, -EUCLEAN: it is damaged;
 * -ENOLINK: a base is damaged, which the cause names. */
CAIRN_MUST_CHECK int packs_read_at(struct packs *packs, const struct chunk_entry *place, void *buf);
/* packs_find() and packs_read_at(), with retries if the chunk moves meanwhile; `buf` of
 * CHUNK_SIZE_MAX. -ENOENT: it is not on NVMe; -ENODATA: its pack is missing. */
CAIRN_MUST_CHECK int packs_read_chunk(struct packs *packs, const struct chunk_name *name, void *buf,
                                      uint32_t *ret_len);

/* Reads the current content of a file, only from the stage and NVMe: exactly `length` bytes, zeros
 * past the end. -ENOENT: a chunk is not on NVMe. */
CAIRN_MUST_CHECK int packs_read_file(struct packs *packs, uint64_t ino, uint64_t offset, void *buf,
                                     size_t length);

/* packs_note_reading(): content is being read now; the other returns for how long none has been
 * read. Any thread. */
void packs_note_reading(struct packs *packs);
int64_t packs_quiet_ns(const struct packs *packs);

/* --- damage.c --------------------------------------------------------------------------------- */

/* No tier could supply the chunk: records it for people, with the file that was read. -ENOLINK: the
 * cause names the base that cannot be read. */
void damage_note(struct damage *damage, uint64_t ino, const struct chunk_name *name, int error);
/* The copy on NVMe is damaged: a thread that has the content stores it again, and until then
 * nothing relies on the copy. */
void damage_note_local(struct damage *damage, const struct chunk_name *name);
/* Notes that a damaged chunk was stored again. */
void damage_cured(struct damage *damage, const struct chunk_name *name);
/* Removes the record of a chunk that could be read again. */
void damage_forget(struct damage *damage, const struct chunk_name *name);
/* Is the chunk recorded as damaged? Then nothing may rely on it; equal content is stored again,
 * which heals it. */
bool damage_is_known(struct damage *damage, const struct chunk_name *name);
/* Static. */
const char *damage_describe(int error);

/* --- heal.c ----------------------------------------------------------------------------------- */

/* Takes a copy of a chunk that is damaged on NVMe, read from elsewhere and verified, to store it
 * again there. False: no room now. Any thread. */
bool heal_give(struct heal *heal, const struct chunk_name *name, const void *raw, size_t raw_len);
bool heal_is_pending(struct heal *heal);
#define HEAL_MAX 16u /* chunks held at once: bounds the memory */
/* Returns the number of held chunks, and their names. */
size_t heal_names(struct heal *heal, struct chunk_name ret[HEAL_MAX]);
