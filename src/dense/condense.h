// SPDX-License-Identifier: Apache-2.0
/* Condensing (reduce=dense): on NVMe, the chunks of old files take the form that the remote has
 * them in, which refers to other chunks, where those lie on NVMe, too. So what is dense on NVMe is
 * in the published remote as well.
 *
 * A file is old when its series (dense/series.h) has one that was modified a retention interval
 * later: the newest checkpoint stays as it was written, and whatever is stored from now on does not
 * rely on a dense chunk (packs_pin_stored()). It happens in rounds of the writeback thread, while
 * no thread writes, waits, reads or uploads. */
#pragma once

#include "base/base.h"

/* At once. */
#define CONDENSE_ROUND_CHUNKS 512u
#define CONDENSE_ROUND_BYTES (24 * MIB)

struct store;

/* Where the walk over all files is: the writeback thread's alone. */
struct condense;
struct condense *condense_new(void);
void condense_free(struct condense *condense); /* NULL is fine */

/* True: it did something, and there may be more. */
bool condense_round(struct store *store, bool now);
