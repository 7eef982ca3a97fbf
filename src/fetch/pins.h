// SPDX-License-Identifier: Apache-2.0
/* Chunks of files with the xattr user.cairn.pin, or in a directory with it: they stay on NVMe. */
#pragma once

#include "base/vector.h"
#include "fetch/internal.h"

/* Chunks that stay, by the beginning of their names: a wrong match stays too, which does no
 * harm. */
struct pinned {
    struct store *store;
    VECTOR(uint64_t) list, dirs;
    bool any; /* at least one pin exists */
    int error;
    bool looks_up; /* the packs on NVMe that hold them are requested, too */
    VECTOR(uint64_t) packs;
    uint64_t pack_bytes; /* of these packs */
};

/* Finds all pinned chunks, or returns an error: then nothing may be evicted. Only for the writeback
 * thread, as it reads pending operations. */
CAIRN_MUST_CHECK int pinned_find(struct store *store, bool looks_up, struct pinned *ret);
bool pinned_has(const struct pinned *pinned, const struct chunk_name *name);
void pinned_done(struct pinned *pinned);
