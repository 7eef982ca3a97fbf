// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/internal.h"

#define FSCK_BAD_MAX 65536u /* chunks whose files are named */

/* Of a store that is open as for fsck, whose newest state is verified: `bad` are the chunks of that
 * state which cannot be read. Those of its snapshots are added. Calls `problem` with a line for
 * each file of a snapshot that they hurt, and for each snapshot that cannot be read. Returns how
 * many snapshots there are. One thread; blocks. */
CAIRN_MUST_CHECK int fsck_snapshots(struct store *store, struct chunk_names *bad,
                                    void (*problem)(const char *line, void *arg), void *arg);
