// SPDX-License-Identifier: Apache-2.0
/* Inside the view: a cut, whose rows cut.c makes, and which chunks it needs in the remote
 * (cut_need.c). */
#pragma once

#include "base/vector.h"
#include "view/db.h"
#include "view/remote.h"

DEFINE_VECTOR(ids, uint64_t);

struct view_cut {
    struct view *view;
    struct snap snap;
    struct view_state state;
    struct remote_state_row remote;
    int64_t now;
    bool is_alone;                           /* the rows describe no remote */
    struct ids named, unreferenced, removed; /* packs: first named, no longer needed, deleted */
    bool spares;                             /* view_cut_spare() was called */
    struct ids spared;        /* packs that the head calls unreferenced but that the view keeps */
    struct names missing;     /* chunks that the rows call missing */
    struct names revived;     /* bases needed only by chunks sent for the cut */
    struct ids revived_packs; /* the packs of these bases */
};

/* Returns the chunk's row at the cut. If only other chunks refer to it, only its name may be
 * known. */
CAIRN_MUST_CHECK int cut_chunk(struct view_cut *cut, const struct chunk_name *name,
                               struct chunk_row *ret);
/* Was the chunk needed when the cut was opened, with its number of references there? 1, 0 or
 * -errno. */
CAIRN_MUST_CHECK int cut_needs(struct view_cut *cut, const struct chunk_name *name, uint64_t refs);
/* Does any chunk that the cut needs now depend on this one, although it was not needed when the cut
 * was opened? 1, 0 or -errno. */
CAIRN_MUST_CHECK int cut_rests_on(struct view_cut *cut, const struct chunk_name *name);
/* cut_needs() or cut_rests_on(): the cut's rows name the chunk. 1, 0 or -errno. */
CAIRN_MUST_CHECK int cut_reports(struct view_cut *cut, const struct chunk_name *name,
                                 uint64_t refs);
