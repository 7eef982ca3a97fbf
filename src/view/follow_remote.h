// SPDX-License-Identifier: Apache-2.0
/* A newer head's word on chunks and remote packs (view_follow_*()): collected as its rows come, and
 * made true at the end, for rows of chunks come before those of the packs that they lie in, and in
 * an order of names. */
#pragma once

#include "view/bases.h"

/* A pack's row, or its removal. */
struct pack_report {
    struct remote_pack_row row;
    bool removed;
};

struct remote_report {
    VECTOR(struct chunk_row) chunks; /* that differ; refs 0 and pack 0: the head has no row of it */
    VECTOR(struct chunk_name) unused; /* that the head has, and no file refers to here; by name */
    VECTOR(struct pack_report) packs; /* by number */
};

/* A row of a chunk. *ret_differs: from the rows of the view. */
CAIRN_MUST_CHECK int report_chunk(struct remote_report *report, struct txn *txn,
                                  const struct run_row *row, bool *ret_differs);
CAIRN_MUST_CHECK int report_pack(struct remote_report *report, const struct run_row *row);
/* All rows came, and `is_whole`: they are all that the head has. `snap` is of before. */
CAIRN_MUST_CHECK int report_apply(struct remote_report *report, struct txn *txn,
                                  const struct snap *snap, bool is_whole);
void report_done(struct remote_report *report);
