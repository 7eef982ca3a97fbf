// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/internal.h"

#define FSCK_BAD_MAX 65536u /* chunks whose files are named */

/* Of a store that is open as for fsck, whose newest state is verified: `bad` are the chunks of that
 * state which cannot be read. Those of its snapshots are added. Reports, as a problem, each file of
 * a snapshot that they hurt, and each snapshot that cannot be read; as a note, each snapshot of an
 * earlier version of CairnFS, which is whole for that version and is not checked. Returns how many
 * were checked. One thread; blocks. */
CAIRN_MUST_CHECK int fsck_snapshots(struct store *store, struct chunk_names *bad,
                                    void (*report)(const char *line, bool is_problem, void *arg),
                                    void *arg);
