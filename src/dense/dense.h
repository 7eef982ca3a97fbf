// SPDX-License-Identifier: Apache-2.0
/* Storing chunks by means of others (reduce=dense), and reading chunks that are stored so.
 *
 *   round.c     a round of an upload: which of a cut's chunks is sent before which
 *   lineage.c   which chunk could be stored as its difference to which; with changed.c, series.c,
 *               final_name.c, pairing.c, chains.c
 *   layout.c    which chunks of a cut belong together, dense or not
 *   encode.c    the form that a chunk gets in the remote; with images.c
 *   bases.c     what dense chunks of the remote refer to; with bases_cache.c
 *   condense.c  old chunks on NVMe become as dense as they are in the remote; with
 *               condense_chunk.c */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

struct dense;
struct encode_totals;
struct remote;
struct store;

/* The remote, which is a later component, as this one asks for it. Any thread. */
struct dense_remote {
    struct remote *remote; /* goes back with each call */
    /* Must work for it end? */
    bool (*is_stopping)(struct remote *remote);
    /* Is what the view says of the remote true of this one, and will it stay so? */
    bool (*has_ours)(struct remote *remote);
    /* Part of a pack. Blocks. */
    int (*read)(struct remote *remote, uint64_t pack, uint64_t offset, void *buf, size_t length);
    /* A chunk, verified, from NVMe or else from the remote; `stored` and `raw` hold CHUNK_SIZE_MAX
     * each. Blocks. */
    int (*read_chunk)(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                      uint8_t *raw);
    /* Is the pack known to be missing or damaged, so that nothing may rely on it? note_bad_pack():
     * it is, with this error. */
    bool (*is_bad_pack)(struct remote *remote, uint64_t pack);
    void (*note_bad_pack)(struct remote *remote, uint64_t pack, int error);
    /* Counts what is encoded for the remote. */
    struct encode_totals *encoded;
};

/* Becomes store->dense. `encodes`: uploads store chunks by means of others, and so does NVMe later;
 * else they are read alone. */
struct dense *dense_new(struct store *store, const struct dense_remote *remote, bool encodes);
void dense_free(struct dense *dense); /* NULL is fine */

/* Between two rounds of uploads: images that were not used for long are forgotten. `now`: monotonic
 * ns. */
void dense_tick(struct dense *dense, int64_t now);

/* Most memory that it takes, but for what each reader takes (bases_room()). `threads`: that encode
 * for the remote. */
uint64_t dense_memory(const struct dense *dense, unsigned threads);

/* bases.c: place of a chunk in the remote, fit to be read: by the view, else by the earlier states
 * that are open. -ENOENT, -EUCLEAN. */
CAIRN_MUST_CHECK int dense_find_place(struct store *store, const struct chunk_name *name,
                                      struct chunk_entry *ret);
