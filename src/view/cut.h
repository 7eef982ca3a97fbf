// SPDX-License-Identifier: Apache-2.0
/* Inside the view: a cut, whose rows cut.c makes, and its need of the remote (cut_need.c). */
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
    bool is_alone;                           /* no remote is told of */
    struct ids named, unreferenced, removed; /* packs: first named, no longer needed, gone */
    bool spares;                             /* view_cut_spare() was called */
    struct ids spared;        /* packs that the head calls unreferenced, and that are to stay */
    struct names missing;     /* chunks that the rows call missing */
    struct names revived;     /* bases that only chunks sent for the cut rest on */
    struct ids revived_packs; /* where these lie */
};

/* The chunk as it is at the cut. One that only others rest on may be known by its name alone. */
CAIRN_MUST_CHECK int cut_chunk(struct view_cut *cut, const struct chunk_name *name,
                               struct chunk_row *ret);
/* Did the cut need the chunk when it was opened, with the references that it has there? 1, 0 or
 * -errno. */
CAIRN_MUST_CHECK int cut_needs(struct view_cut *cut, const struct chunk_name *name, uint64_t refs);
/* Does something that the cut needs rest on the chunk now, though the cut did not need it? 1, 0 or
 * -errno. */
CAIRN_MUST_CHECK int cut_rests_on(struct view_cut *cut, const struct chunk_name *name);
/* Either of both: the cut's rows name the chunk. 1, 0 or -errno. */
CAIRN_MUST_CHECK int cut_reports(struct view_cut *cut, const struct chunk_name *name,
                                 uint64_t refs);
