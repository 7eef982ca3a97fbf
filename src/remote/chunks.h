// SPDX-License-Identifier: Apache-2.0
/* Chunks of the remote: where one lies, and its bytes, from wherever they are. Any thread; all of
 * it blocks. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

struct remote;
struct store;

/* --- get.c ------------------------------------------------------------------------------------ */

/* Where its packs lie, to be read there; not to be written or closed. */
struct tier *remote_tier(const struct remote *remote);
/* Part of a pack, for a reader: that it was fetched is counted, and how it went is told by the
 * status. -ENOENT, -EUCLEAN: the pack is missing, or too short; -EHOSTDOWN: the remote did not give
 * it. */
CAIRN_MUST_CHECK int remote_get(struct remote *remote, uint64_t pack, uint64_t offset, void *buf,
                                size_t length);
/* The same for a pack that is written anew; counted apart. */
CAIRN_MUST_CHECK int remote_get_to_merge(struct remote *remote, uint64_t pack, uint64_t offset,
                                         void *buf, size_t length);

/* --- again.c ---------------------------------------------------------------------------------- */

/* What `look` says of the pack; where it says -ENOENT to a reader without a mount, it is asked
 * again after 2 s, before that is told. */
CAIRN_MUST_CHECK int remote_look_twice(struct remote *remote, uint64_t pack, int (*look)(void *arg),
                                       void *arg);
/* The same of part of a pack; that it was fetched is counted. */
CAIRN_MUST_CHECK int remote_read_twice(struct remote *remote, uint64_t pack, uint64_t offset,
                                       void *buf, size_t length);

/* --- upload_read.c ---------------------------------------------------------------------------- */

/* Reads and verifies what is stored of a chunk, from NVMe or else from the remote, fit to be stored
 * in the remote: what it refers to has its place there. `stored` and `raw` hold CHUNK_SIZE_MAX
 * each. -ENOLINK: something that it refers to is nowhere. */
CAIRN_MUST_CHECK int upload_read_chunk(struct store *store, struct chunk_entry *entry,
                                       uint8_t *stored, uint8_t *raw);
/* Bytes of a pack of the remote that one request brought: a chunk, and neighbours that may be next.
 */
struct remote_window {
    uint64_t pack, offset, length; /* length 0: nothing */
    uint8_t *bytes;                /* CHUNK_SIZE_MAX */
};
/* The same of one whose pack in the remote is written anew, of which *entry is the place: where it
 * refers to others, it stays as it is stored there, if it can be read so. */
CAIRN_MUST_CHECK int upload_read_again(struct store *store, struct chunk_entry *entry,
                                       uint8_t *stored, uint8_t *raw, struct remote_window *window);
/* Decodes what is stored of a chunk into `raw` (CHUNK_SIZE_MAX) and compares it with its name. */
CAIRN_MUST_CHECK int upload_check_chunk(struct store *store, const struct chunk_entry *entry,
                                        const uint8_t *stored, uint8_t *raw);
/* Makes a chunk that refers to others stand by itself: encodes `raw` into `stored`. */
void upload_make_plain(struct store *store, struct chunk_entry *entry, const uint8_t *raw,
                       uint8_t *stored);
/* rescue.c: finds a chunk, of which name and raw length are known, where it is not kept for being
 * found: *entry gets how it is stored, by itself, and `raw` what it is. Takes long: for what would
 * be lost else. */
CAIRN_MUST_CHECK bool rescue_chunk(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                                   uint8_t *raw);
