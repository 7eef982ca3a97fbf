// SPDX-License-Identifier: Apache-2.0
/* Host memory that bytes of devices pass through: pieces of one size, taken in faulted pages once
 * and registered with the driver, in regions that are added and never go before the lane does.
 * Guarded by the lane's lock, but for what says so. */
#pragma once

#include "base/base.h"

struct cairn_lane;
struct job;

#define RING_PIECE_MAX (4 * MIB)
#define RING_PIECE_MIN (4 * KIB)
#define RING_REGIONS_MAX 16

/* One piece: free, written by a device, or full and on its way into the file. */
struct ring_piece {
    struct ring_piece *next;
    uint8_t *memory;
    struct job *job;
    size_t index;               /* in the job */
    uint64_t at, length;        /* in the file */
    struct device_event *event; /* until the bytes are there */
};

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
    struct ring_piece *free;
};

/* For a ring of so many bytes, 0: not known. */
size_t ring_piece_for(uint64_t ring_bytes);

/* Makes the ring `bytes` large, at least one piece. Not with the lock held, by one thread at a
 * time: blocks for some 0.1 s a GB. -ENOMEM. */
CAIRN_MUST_CHECK int ring_grow(struct cairn_lane *lane, uint64_t bytes);

/* When no thread uses it any more. In a child after fork: only memory, for the pages are
 * not there. */
void ring_free(struct ring *ring, bool is_child);
