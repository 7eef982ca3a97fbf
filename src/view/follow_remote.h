// SPDX-License-Identifier: Apache-2.0
/* Rows of a newer head about chunks and remote packs (view_follow_*()): collected as they arrive,
 * and applied at the end, because rows of chunks precede those of their packs, and are in order of
 * name. */
#pragma once

#include "view/bases.h"

/* A pack's row, or its removal. */
struct pack_report {
    struct remote_pack_row row;
    bool removed;
};

struct remote_report {
    /* rows that differ; refs 0 and pack 0: the head has no such row */
    VECTOR(struct chunk_row) chunks;
    /* in the head, but without references from files here; by name */
    VECTOR(struct chunk_name) unused;
    VECTOR(struct pack_report) packs; /* by number */
};

/* Collects a row of a chunk. *ret_differs: it differs from the rows of the view. */
CAIRN_MUST_CHECK int report_chunk(struct remote_report *report, struct txn *txn,
                                  const struct run_row *row, bool *ret_differs);
CAIRN_MUST_CHECK int report_pack(struct remote_report *report, const struct run_row *row);
/* Applies the rows. `is_whole`: they are all rows of the head. `snap` was taken before. */
CAIRN_MUST_CHECK int report_apply(struct remote_report *report, struct txn *txn,
                                  const struct snap *snap, bool is_whole);
void report_done(struct remote_report *report);
