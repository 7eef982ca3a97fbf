// SPDX-License-Identifier: Apache-2.0
/* Reading content from the stage and NVMe (read.c), chunks that do not verify (damage.c), and their way to another place (heal.c). */
#pragma once

#include "base/lock.h"
#include "format/pack.h"

#define DAMAGE_MAX 64u
#define DAMAGE_LOCAL_MAX 64u

struct store;

/* --- read.c -------------------------------------------------------------------------------------------------------- */

/* From NVMe, `buf` of CHUNK_SIZE_MAX. -ENOENT: it has no place there; -ENODATA: its pack is missing; -EBADMSG, -EUCLEAN: it is damaged. */
CAIRN_MUST_CHECK int local_read_chunk(struct store *store, const struct chunk_name *name, void *buf, uint32_t *ret_len);
/* Its place on NVMe. -ENOENT. */
CAIRN_MUST_CHECK int local_find_chunk(struct store *store, const struct chunk_name *name, struct chunk_entry *ret);

/* Reads part of a chunk. -ENOENT: it has no place where it was looked for. */
typedef int chunk_read_fn(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset, void *buf, size_t length, void *arg);
/* Reads what is durable of a file: exactly `length` bytes; *ret_good of them are good, if the result is an error. */
typedef int below_read_fn(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, void *arg, size_t *ret_good);

/* Durable content of the newest version, its chunks by `chunk`: zeros past the end or in holes. -ENOENT: a chunk has no place, also when it was
 * looked up again. */
CAIRN_MUST_CHECK int content_read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, chunk_read_fn *chunk, void *arg,
                                        size_t *ret_good);
/* Content as it is now, staged or durable: what does not lie in memory by these. */
struct content_reader {
    chunk_read_fn *chunk; /* of chunks to which the stage refers */
    below_read_fn *below;
    void *arg;
};
CAIRN_MUST_CHECK int content_read(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, const struct content_reader *reader,
                                  size_t *ret_good);
/* The same, from the stage and NVMe alone. */
CAIRN_MUST_CHECK int local_read(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length);

/* --- damage.c ------------------------------------------------------------------------------------------------------ */

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
/* No tier gave it: it is named to people, by the file that was read. */
void damage_note(struct store *store, uint64_t ino, const struct chunk_name *name, int error);
/* NVMe did not: whoever has it stores it anew, and it is not relied on until then. */
void damage_note_local(struct store *store, const struct chunk_name *name);
/* It was stored anew. */
void damage_cured(struct store *store, const struct chunk_name *name);
void damage_forget(struct store *store, const struct chunk_name *name);
/* Nothing may rely on it, so equal content is stored anew, which heals it. */
bool damage_is_known(struct store *store, const struct chunk_name *name);
/* Static. */
const char *damage_describe(int error);

/* --- heal.c -------------------------------------------------------------------------------------------------------- */

/* Chunks that are damaged on NVMe, read from elsewhere, and on their way to another place there. Bounded. */
struct heal *heal_new(void);
void heal_free(struct heal *heal);
/* Takes a copy of what is stored of a chunk, verified. False: there is no room now. Any thread. */
bool heal_give(struct store *store, const struct chunk_entry *entry, const void *stored);
bool heal_is_pending(struct store *store);
/* The writeback thread: adds them to a pack; false: there are none. Its next batch names it; then they are forgotten. */
bool heal_add(struct store *store);
void heal_settle(struct store *store);
