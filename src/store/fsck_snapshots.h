// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/internal.h"

#define FSCK_BAD_MAX 65536u /* chunks whose files are named */

/* Verifies the snapshots of a store that is open as for fsck and whose newest state is verified.
 * `bad` has the unreadable chunks of the newest state; unreadable chunks of the snapshots are
 * added. Reports as a problem each file of a snapshot with such a chunk, and each snapshot that
 * cannot be read; as a note each snapshot of an earlier version of CairnFS, which that version can
 * read and which is not checked. Returns the number of snapshots that were checked. One thread;
 * blocks. */
CAIRN_MUST_CHECK int fsck_snapshots(struct store *store, struct chunk_names *bad,
                                    void (*report)(const char *line, bool is_problem, void *arg),
                                    void *arg);
