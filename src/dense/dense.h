// SPDX-License-Identifier: Apache-2.0
/* Storing chunks with references to others, their bases (reduce=dense), and reading such chunks.
 *
 * round.c     a round of an upload: in which order a cut's chunks are sent
 * lineage.c   which chunk could be stored as its difference to which; with changed.c, series.c,
 *             final_name.c, pairing.c, chains.c
 * layout.c    which chunks of a cut belong together, dense or not
 * encode.c    the form of a chunk in the remote; with images.c
 * bases.c     the bases of dense chunks of the remote; with bases_cache.c
 * condense.c  old chunks on NVMe take their dense form from the remote; with condense_chunk.c */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

struct dense;
struct encode_totals;
struct remote;
struct store;

/* The functions of the remote, a later component, that this one calls. Any thread. */
struct dense_remote {
    struct remote *remote; /* passed with each call */
    /* Must work for it stop? */
    bool (*is_stopping)(struct remote *remote);
    /* Does the view's state of the remote describe this remote, and will it continue to? */
    bool (*has_ours)(struct remote *remote);
    /* Reads part of a pack. Blocks. */
    int (*read)(struct remote *remote, uint64_t pack, uint64_t offset, void *buf, size_t length);
    /* Reads a chunk, verified, from NVMe or else from the remote; `stored` and `raw` hold
     * CHUNK_SIZE_MAX each. Blocks. */
    int (*read_chunk)(struct store *store, struct chunk_entry *entry, uint8_t *stored,
                      uint8_t *raw);
    /* Is the pack known to be missing or damaged, so that nothing may rely on it? note_bad_pack()
     * records that, with the error. */
    bool (*is_bad_pack)(struct remote *remote, uint64_t pack);
    void (*note_bad_pack)(struct remote *remote, uint64_t pack, int error);
    /* counts chunks encoded for the remote */
    struct encode_totals *encoded;
};

/* Creates store->dense. `encodes`: uploads may store chunks with bases, and NVMe later; otherwise
 * such chunks are only read. */
struct dense *dense_new(struct store *store, const struct dense_remote *remote, bool encodes);
void dense_free(struct dense *dense); /* NULL is fine */

/* Call between two rounds of uploads: drops images not used for long. `now`: monotonic ns. */
void dense_tick(struct dense *dense, int64_t now);

/* Most memory that it takes, besides that of each reader (bases_room()). `threads`: those that
 * encode for the remote. */
uint64_t dense_memory(const struct dense *dense, unsigned threads);

/* bases.c: finds a readable place of a chunk in the remote: from the view, else from the open
 * earlier states. -ENOENT, -EUCLEAN. */
CAIRN_MUST_CHECK int dense_find_place(struct store *store, const struct chunk_name *name,
                                      struct chunk_entry *ret);
