// SPDX-License-Identifier: Apache-2.0
/* Host memory through which bytes from devices pass: pieces of one size, whose pages are faulted in
 * once and registered with the driver, in regions that are added and stay until the lane is freed.
 * Guarded by the lane's lock. */
#pragma once

#include "client/jobs.h"

#define RING_PIECE_MAX (4 * MIB)
#define RING_PIECE_MIN (4 * KIB)
#define RING_REGIONS_MAX 16

/* Memory for a piece of a job: free, being written by a device, or full and waiting to be written
 * into the file. */
struct ring_piece {
    TAILQ_ENTRY(ring_piece) link; /* in the list of its state */
    uint8_t *memory;
    struct piece piece;
    struct device_event *event; /* until the bytes have arrived */
};

TAILQ_HEAD(ring_pieces, ring_piece);

struct ring_region {
    uint8_t *memory;
    size_t bytes, registered;
    struct ring_piece *pieces;
};

struct ring {
    size_t piece; /* size of each piece; set at open */
    struct ring_region regions[RING_REGIONS_MAX];
    size_t region_count;
    uint64_t bytes, registered;
    struct ring_pieces free;
};

/* For a ring of so many bytes; 0: not known yet. */
void ring_init(struct ring *ring, uint64_t ring_bytes);

/* Grows the ring to `bytes`, at least one piece. Without the lock, by one thread at a time: blocks
 * for about 0.1 s per GB. -ENOMEM. */
CAIRN_MUST_CHECK int ring_grow(struct cairn_lane *lane, uint64_t bytes);

/* Call when no thread uses it any more. In a child after fork: frees only the heap, as the pages
 * are not mapped there. */
void ring_free(struct ring *ring, bool is_child);
