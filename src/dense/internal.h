// SPDX-License-Identifier: Apache-2.0
/* Inside dense/. */
#pragma once

#include "base/vector.h"
#include "commit/shared.h"
#include "dense/round.h"
#include "view/remote.h"

struct dense {
    struct store *store;
    struct dense_remote remote;
    struct bases_cache *bases; /* bases_cache.h */
    /* false: dense chunks are only read, and all fields below are NULL */
    bool encodes;
    struct images *images;      /* images.h */
    struct condense *condense;  /* condense.h */
    struct view_cut *published; /* of the newest head; NULL: not known. Uploader's thread only */
};

/* A round of an upload. */
struct dense_round {
    struct dense *dense;
    struct view_cut *cut;
    struct lineage *lineage;
    /* of each chunk pending at the cut, in order of name; later chunks are in the first phase */
    VECTOR(uint8_t) phases;
    bool has_phase[DENSE_PHASES];
};

static inline bool dense_is_stopping(const struct dense *dense)
{
    return dense->remote.is_stopping(dense->remote.remote);
}

static inline bool dense_is_bad_pack(const struct dense *dense, uint64_t pack)
{
    return dense->remote.is_bad_pack(dense->remote.remote, pack);
}
