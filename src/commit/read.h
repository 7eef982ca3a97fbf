// SPDX-License-Identifier: Apache-2.0
/* Reading chunks from NVMe (read.c), those that do not verify (damage.c), and their way to another
 * place (heal.c): for the components that share the store. */
#pragma once

#include "format/pack.h"

struct damage;
struct heal;
struct packs;

/* --- read.c ----------------------------------------------------------------------------------- */

/* Most memory that reading one takes for the chunks that it refers to. */
#define LOCAL_BASES_BYTES ((CHUNK_REFS_MAX + 3u) * (uint64_t)CHUNK_SIZE_MAX)
#define CHUNK_TRIES 3 /* a pack may be compacted away between looking up a chunk and reading it */

/* Its place on NVMe. -ENOENT. */
CAIRN_MUST_CHECK int packs_find(struct packs *packs, const struct chunk_name *name,
                                struct chunk_entry *ret);
/* A chunk that lies there, decoded into `buf` (raw_len bytes) and verified. -ENOENT: the pack is
 * gone, or a chunk that it refers to has no place: it is elsewhere by now; -EBADMSG, -EUCLEAN: it
 * is damaged; -ENOLINK: a chunk that it refers to is, which the cause says. */
CAIRN_MUST_CHECK int packs_read_at(struct packs *packs, const struct chunk_entry *place, void *buf);
/* Both, and again where it has moved meanwhile; `buf` of CHUNK_SIZE_MAX. -ENOENT: it has no place
 * there; -ENODATA: its pack is missing. */
CAIRN_MUST_CHECK int packs_read_chunk(struct packs *packs, const struct chunk_name *name, void *buf,
                                      uint32_t *ret_len);

/* Content of a file as it is now, from the stage and NVMe alone: exactly `length` bytes, zeros past
 * the end. -ENOENT: a chunk is not on NVMe. */
CAIRN_MUST_CHECK int packs_read_file(struct packs *packs, uint64_t ino, uint64_t offset, void *buf,
                                     size_t length);

/* Content is being read now; for how long has none been? Any thread. */
void packs_note_reading(struct packs *packs);
int64_t packs_quiet_ns(const struct packs *packs);

/* --- damage.c --------------------------------------------------------------------------------- */

/* No tier gave it: it is named to people, by the file that was read. -ENOLINK: the cause says what
 * it refers to and cannot be read. */
void damage_note(struct damage *damage, uint64_t ino, const struct chunk_name *name, int error);
/* NVMe did not: a thread that has it stores it anew, and it is not relied on until then. */
void damage_note_local(struct damage *damage, const struct chunk_name *name);
/* Notes that a damaged chunk was stored anew. */
void damage_cured(struct damage *damage, const struct chunk_name *name);
/* Forgets the damage of a chunk that could be read again. */
void damage_forget(struct damage *damage, const struct chunk_name *name);
/* Nothing may rely on it, so equal content is stored anew, which heals it. */
bool damage_is_known(struct damage *damage, const struct chunk_name *name);
/* Static. */
const char *damage_describe(int error);

/* --- heal.c ----------------------------------------------------------------------------------- */

/* Takes a copy of a chunk that is damaged on NVMe, read from elsewhere and verified: it gets
 * another place there. False: there is no room now. Any thread. */
bool heal_give(struct heal *heal, const struct chunk_name *name, const void *raw, size_t raw_len);
bool heal_is_pending(struct heal *heal);
#define HEAL_MAX 16u /* chunks that are held at once: a bound of the memory */
/* The names of those that are held; how many. */
size_t heal_names(struct heal *heal, struct chunk_name ret[HEAL_MAX]);
