// SPDX-License-Identifier: Apache-2.0
/* Chunks of files with the xattr user.cairn.pin, or in a directory with it: they stay on NVMe. */
#pragma once

#include "base/vector.h"
#include "fetch/internal.h"

/* Chunks that stay, by the beginning of their names: a false one stays too, which does no harm. */
struct pinned {
    struct store *store;
    VECTOR(uint64_t) list, dirs;
    bool any; /* something is pinned */
    int error;
    bool looks_up; /* packs that hold it on NVMe are wanted, too */
    VECTOR(uint64_t) packs;
    uint64_t pack_bytes; /* of these */
};

/* All of it, or an error: then nothing may be evicted. The writeback thread's alone, as pending
 * operations are. */
CAIRN_MUST_CHECK int pinned_find(struct store *store, bool looks_up, struct pinned *ret);
bool pinned_has(const struct pinned *pinned, const struct chunk_name *name);
void pinned_done(struct pinned *pinned);
