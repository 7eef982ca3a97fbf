// SPDX-License-Identifier: Apache-2.0
#include "dense/bases.h"
#include "dense/condense.h"
#include "dense/images.h"
#include "dense/internal.h"

/* Most memory: of one encoding thread, and of all shared data, including a round's lineage. */
#define WORK_BYTES (9 * MIB)
#define ROUND_BYTES (33 * MIB + 16 * MIB + 16 * MIB)

struct dense *dense_new(struct store *store, const struct dense_remote *remote, bool encodes)
{
    struct dense *dense = xcalloc(1, sizeof *dense);
    dense->store = store;
    dense->remote = *remote;
    dense->bases = bases_cache_new();
    dense->encodes = encodes;
    if (encodes) {
        dense->images = images_new();
        dense->condense = condense_new();
    }
    return dense;
}

void dense_free(struct dense *dense)
{
    if (!dense)
        return;
    bases_cache_free(dense->bases);
    images_free(dense->images);
    condense_free(dense->condense);
    free(dense);
}

void dense_tick(struct dense *dense, int64_t now)
{
    if (dense->images)
        images_tick(dense->images, now);
}

uint64_t dense_memory(const struct dense *dense, unsigned threads)
{
    const struct store *store = dense->store;
    uint64_t condensing =
                 store->local.options.writeback_threads * (CHUNK_REFS_MAX + 5ull) * CHUNK_SIZE_MAX +
                 CONDENSE_ROUND_BYTES,
             encoding = threads * WORK_BYTES + ROUND_BYTES, ret = 0;
    if (store->local.sb.incompat & SUPERBLOCK_INCOMPAT_DENSE)
        ret = BASES_CACHE_BYTES + (dense->encodes ? condensing : 0);
    return ret + (dense->encodes ? encoding : 0);
}
