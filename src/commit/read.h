// SPDX-License-Identifier: Apache-2.0
/* Reading content from the stage and NVMe (read.c), chunks that do not verify (damage.c), and their
 * way to another place (heal.c). */
#pragma once

#include "base/lock.h"
#include "format/pack.h"

#define DAMAGE_MAX 64u
#define DAMAGE_LOCAL_MAX 64u

struct store;

/* --- read.c ----------------------------------------------------------------------------------- */

/* Most memory that reading one takes for what it refers to. */
#define LOCAL_BASES_BYTES ((CHUNK_REFS_MAX + 3u) * (uint64_t)CHUNK_SIZE_MAX)
#define CHUNK_TRIES 3 /* a pack may be compacted away between looking up a chunk and reading it */

/* Its place on NVMe. -ENOENT. */
CAIRN_MUST_CHECK int local_find_chunk(struct store *store, const struct chunk_name *name,
                                      struct chunk_entry *ret);
/* A chunk that lies there, decoded into `buf` (raw_len bytes) and verified. -ENOENT: the pack is
 * gone, or a chunk that it refers to has no place: it is elsewhere by now; -EBADMSG, -EUCLEAN: it
 * is damaged; -ENOLINK: a chunk that it refers to is, which the cause says. */
CAIRN_MUST_CHECK int local_read_at(struct store *store, const struct chunk_entry *place, void *buf);
/* Both, and again where it has moved meanwhile; `buf` of CHUNK_SIZE_MAX. -ENOENT: it has no place
 * there; -ENODATA: its pack is missing. */
CAIRN_MUST_CHECK int local_read_chunk(struct store *store, const struct chunk_name *name, void *buf,
                                      uint32_t *ret_len);
/* Content as it is now, from the stage and NVMe alone: exactly `length` bytes, zeros past the end.
 * -ENOENT: a chunk is not on NVMe. */
CAIRN_MUST_CHECK int local_read(struct store *store, uint64_t ino, uint64_t offset, void *buf,
                                size_t length);

/* Content is being read. */
void reading_note(struct store *store);
int64_t reading_quiet_ns(const struct store *store); /* since then */

/* --- damage.c --------------------------------------------------------------------------------- */

struct damage {
    char *path;
    char *what;
    struct chunk_name chunk;
};

struct damages {
    struct cairn_mutex lock;
    struct damage known[DAMAGE_MAX]; /* no tier had it good */
    unsigned known_count;
    struct chunk_name local[DAMAGE_LOCAL_MAX]; /* damaged on NVMe, and good in the remote */
    unsigned local_count;
};

void damage_init(struct store *store);
void damage_done(struct store *store);
/* No tier gave it: it is named to people, by the file that was read. -ENOLINK: the cause says what
 * it refers to and cannot be read. */
void damage_note(struct store *store, uint64_t ino, const struct chunk_name *name, int error);
/* NVMe did not: a thread that has it stores it anew, and it is not relied on until then. */
void damage_note_local(struct store *store, const struct chunk_name *name);
/* It was stored anew. */
void damage_cured(struct store *store, const struct chunk_name *name);
void damage_forget(struct store *store, const struct chunk_name *name);
/* Nothing may rely on it, so equal content is stored anew, which heals it. */
bool damage_is_known(struct store *store, const struct chunk_name *name);
/* Static. */
const char *damage_describe(int error);

/* --- heal.c ----------------------------------------------------------------------------------- */

/* Chunks that are damaged on NVMe, read from elsewhere, and on their way to another place there.
 * Bounded. */
struct heal *heal_new(void);
void heal_free(struct heal *heal);
/* Takes a copy of a chunk, verified. False: there is no room now. Any thread. */
bool heal_give(struct store *store, const struct chunk_name *name, const void *raw, size_t raw_len);
bool heal_is_pending(struct store *store);
/* The writeback thread: adds them to a pack; false: there are none. Its next batch names it; then
 * they are forgotten. */
bool heal_add(struct store *store);
void heal_settle(struct store *store);
