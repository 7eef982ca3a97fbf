// SPDX-License-Identifier: Apache-2.0
/* Condensing (reduce=dense): on NVMe, chunks of old files take the form that they have in the
 * remote, with references to other chunks, if these are on NVMe, too. So every dense chunk on NVMe
 * is also in the published remote.
 *
 * A file is old if a file of its series (dense/series.h) was modified a retention interval later:
 * the newest checkpoint stays as written, and data stored from now on does not rely on a dense
 * chunk (packs_pin_stored()). It happens in rounds of the writeback thread, while no thread writes,
 * waits, reads or uploads. */
#pragma once

#include "base/base.h"

/* Limit per round. */
#define CONDENSE_ROUND_CHUNKS 512u
#define CONDENSE_ROUND_BYTES (24 * MIB)

struct store;

/* The position of the walk over all files: writeback thread only. */
struct condense;
struct condense *condense_new(void);
void condense_free(struct condense *condense); /* NULL is fine */

/* True: it made progress, and there may be more to do. */
bool condense_round(struct store *store, bool now);
