// SPDX-License-Identifier: Apache-2.0
/* Chunks of the remote: where they are, and their bytes, from any tier. Any thread; all functions
 * block. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

struct remote;
struct store;

/* --- get.c ------------------------------------------------------------------------------------ */

/* The tier with its packs, for reading them; not to be written or closed. */
struct tier *remote_tier(const struct remote *remote);
/* Reads part of a pack for a reader: counts the fetch, and reports the result in the status.
 * -ENOENT, -EUCLEAN: the pack is missing, or too short; -EHOSTDOWN: the remote did not deliver
 * it. */
CAIRN_MUST_CHECK int remote_get(struct remote *remote, uint64_t pack, uint64_t offset, void *buf,
                                size_t length);
/* As remote_get(), for a pack that is being rewritten; counted separately. */
CAIRN_MUST_CHECK int remote_get_to_merge(struct remote *remote, uint64_t pack, uint64_t offset,
                                         void *buf, size_t length);

/* --- again.c ---------------------------------------------------------------------------------- */

/* Returns the result of `look` for the pack. For a reader without a mount, -ENOENT is returned only
 * after a second attempt 2 s later. */
CAIRN_MUST_CHECK int remote_look_twice(struct remote *remote, uint64_t pack, int (*look)(void *arg),
                                       void *arg);
/* The same for reading part of a pack; counts the fetch. */
CAIRN_MUST_CHECK int remote_read_twice(struct remote *remote, uint64_t pack, uint64_t offset,
                                       void *buf, size_t length);

/* --- upload_read.c ---------------------------------------------------------------------------- */

/* Reads and verifies the stored bytes of a chunk, from NVMe or else from the remote, in a form that
 * can be stored in the remote: its bases are there. `stored` and `raw` hold CHUNK_SIZE_MAX each.
 * -ENOLINK: a base is in no tier. */
CAIRN_MUST_CHECK int upload_read_chunk(struct store *store, struct chunk_entry *entry,
                                       uint8_t *stored, uint8_t *raw);
/* Bytes of a pack of the remote fetched by one request: a chunk, and neighbours that may be
 * next. */
struct remote_window {
    uint64_t pack, offset, length; /* length 0: empty */
    uint8_t *bytes;                /* CHUNK_SIZE_MAX */
};
/* As upload_read_chunk(), for a chunk whose pack in the remote is being rewritten; *entry is its
 * place there. If it has bases it keeps its stored form, if it can be read. */
CAIRN_MUST_CHECK int upload_read_again(struct store *store, struct chunk_entry *entry,
                                       uint8_t *stored, uint8_t *raw, struct remote_window *window);
/* Decodes the stored bytes of a chunk into `raw` (CHUNK_SIZE_MAX) and verifies them against its
 * name. */
CAIRN_MUST_CHECK int upload_check_chunk(struct store *store, const struct chunk_entry *entry,
                                        const uint8_t *stored, uint8_t *raw);
/* Re-encodes a chunk that has bases without them: encodes `raw` into `stored`. */
void upload_make_plain(struct store *store, struct chunk_entry *entry, const uint8_t *raw,
                       uint8_t *stored);
/* rescue.c: searches for a chunk, of which name and raw length are known, outside its known places:
 * *entry gets its encoding without bases, and `raw` its bytes. Slow: only for chunks that would be
 * lost otherwise. */
CAIRN_MUST_CHECK bool rescue_chunk(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                                   uint8_t *raw);
