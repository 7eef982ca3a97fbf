// SPDX-License-Identifier: Apache-2.0
/* Inside storing by means of others. */
#pragma once

#include "base/vector.h"
#include "commit/shared.h"
#include "dense/round.h"
#include "view/remote.h"

struct dense {
    struct store *store;
    struct dense_remote remote;
    struct bases_cache *bases;  /* bases_cache.h */
    bool encodes;               /* false: chunks are read alone, and all below is NULL */
    struct images *images;      /* images.h */
    struct condense *condense;  /* condense.h */
    struct view_cut *published; /* of the newest head; NULL: not known. The uploader's alone. */
};

/* A round of an upload. */
struct dense_round {
    struct dense *dense;
    struct view_cut *cut;
    struct lineage *lineage;
    /* Of each chunk that is pending at the cut, in order of name; those beyond are of the first
     * phase. */
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
