// SPDX-License-Identifier: Apache-2.0
#include "client/ring.h"

#include <sys/mman.h>

#include "client/lane.h"
#include "client/device.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define PIECES_AT_LEAST 16 /* even in a small ring */

void ring_init(struct ring *ring, uint64_t ring_bytes)
{
    TAILQ_INIT(&ring->free);
    ring->piece = RING_PIECE_MAX;
    while (ring_bytes > 0 && ring->piece > RING_PIECE_MIN &&
           ring_bytes / ring->piece < PIECES_AT_LEAST)
        ring->piece /= 2;
}

/* Called before registration: during that call the driver blocks other threads of the process for
 * as long as it takes to fault pages in. */
static void fault_in(uint8_t *memory, size_t bytes)
{
    if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
        return;
    for (size_t at = 0; at < bytes; at += PAGE_BYTES)
        *(volatile uint8_t *)(memory + at) = 0;
}

static int map_region(struct ring_region *region, size_t bytes, size_t piece)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        cause_note("no memory for a ring of %zu bytes", bytes);
        return -ENOMEM;
    }
    region->pieces = calloc(bytes / piece, sizeof *region->pieces);
    if (!region->pieces) {
        (void)munmap(memory, bytes);
        return -ENOMEM;
    }
    region->memory = memory;
    region->bytes = bytes;
    (void)madvise(memory, bytes, MADV_DONTFORK);
    (void)madvise(memory, bytes, MADV_HUGEPAGE);
    fault_in(memory, bytes);
    return 0;
}

/* Without a driver, or if it refuses, copies into the ring are still correct, but do not run
 * concurrently with the training. */
static void register_region(struct cairn_lane *lane, struct ring_region *region)
{
    struct device_driver *driver;
    if (device_driver_get(&driver) < 0)
        return;
    int r = device_register(driver, region->memory, region->bytes, lane->devices.ring.piece,
                            &region->registered);
    if (r < 0 || region->registered < region->bytes)
        lane_log(lane, CAIRN_LOG_WARNING, "the driver registers %zu of %zu bytes of the ring: %s",
                 region->registered, region->bytes,
                 r < 0 ? cause_text() : "copies into the rest block");
}

static void add_region_locked(struct cairn_lane *lane, const struct ring_region *region)
{
    check_held(&lane->lock);
    struct ring *ring = &lane->devices.ring;
    check(ring->region_count < RING_REGIONS_MAX && lane->devices.ring_grows);
    ring->regions[ring->region_count++] = *region;
    ring->bytes += region->bytes;
    ring->registered += region->registered;
    for (size_t i = region->bytes / ring->piece; i-- > 0;) {
        region->pieces[i].memory = region->memory + i * ring->piece;
        TAILQ_INSERT_HEAD(&ring->free, &region->pieces[i], link);
    }
    lane->stats.ring_bytes = ring->bytes;
    lane->stats.ring_registered_bytes = ring->registered;
}

int ring_grow(struct cairn_lane *lane, uint64_t bytes)
{
    struct ring_region region = {0};
    struct ring *ring = &lane->devices.ring;
    if (bytes > SIZE_MAX / 4)
        return -ENOMEM;
    bytes = align_up(max_u64(bytes, 1), ring->piece);
    if (bytes <= ring->bytes)
        return 0;
    if (ring->region_count == RING_REGIONS_MAX) {
        cause_note("a ring grows %u times at most", RING_REGIONS_MAX - 1);
        return -ENOMEM;
    }
    TRY(map_region(&region, bytes - ring->bytes, ring->piece));
    register_region(lane, &region);
    LOCK_SCOPE(&lane->lock);
    add_region_locked(lane, &region);
    return 0;
}

void ring_free(struct ring *ring, bool is_child)
{
    struct device_driver *driver;
    for (size_t i = 0; i < ring->region_count; i++) {
        struct ring_region *region = &ring->regions[i];
        int r = 0;
        if (!is_child && region->registered > 0)
            r = device_driver_get(&driver) == 0
                    ? device_unregister(driver, region->memory, region->bytes)
                    : -ENODEV;
        if (r == 0 && !is_child) /* otherwise it stays with the driver for good */
            (void)munmap(region->memory, region->bytes);
        free(region->pieces);
    }
    ring->region_count = 0;
}
