// SPDX-License-Identifier: Apache-2.0
/* Host memory that bytes of devices pass through: pieces of one size, taken in faulted pages once
 * and registered with the driver, in regions that are added and never go before the lane does.
 * Guarded by the lane's lock. */
#pragma once

#include "client/jobs.h"

#define RING_PIECE_MAX (4 * MIB)
#define RING_PIECE_MIN (4 * KIB)
#define RING_REGIONS_MAX 16

/* Memory for a piece of a job: free, written by a device, or full and on its way into the file. */
struct ring_piece {
    TAILQ_ENTRY(ring_piece) link; /* with the others that are in this state */
    uint8_t *memory;
    struct piece piece;
    struct device_event *event; /* until the bytes are there */
};

TAILQ_HEAD(ring_pieces, ring_piece);

struct ring_region {
    uint8_t *memory;
    size_t bytes, registered;
    struct ring_piece *pieces;
};

struct ring {
    size_t piece; /* bytes of each; set at open */
    struct ring_region regions[RING_REGIONS_MAX];
    size_t region_count;
    uint64_t bytes, registered;
    struct ring_pieces free;
};

/* For a ring of so many bytes, 0: not known. */
void ring_init(struct ring *ring, uint64_t ring_bytes);

/* Makes the ring `bytes` large, at least one piece. Not with the lock held, by one thread at a
 * time: blocks for some 0.1 s a GB. -ENOMEM. */
CAIRN_MUST_CHECK int ring_grow(struct cairn_lane *lane, uint64_t bytes);

/* When no thread uses it any more. In a child after fork: only memory, for the pages are
 * not there. */
void ring_free(struct ring *ring, bool is_child);
