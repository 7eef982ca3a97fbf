// SPDX-License-Identifier: Apache-2.0
/* Sources on devices: the thread "cairn-device" finds pieces that the older version of the file
 * already contains (device_look.c), copies the others into the ring, and passes these to the
 * threads that write them into files (device_copy.c). */
#pragma once

#include "client/jobs.h"
#include "client/ring.h"
#include "client/threads.h"

/* Limit of pieces whose fingerprints are in progress, or which are to be copied after a
 * mismatch. */
#define LOOKS_MAX 64

/* A piece whose fingerprint is in progress on a device, or which is to be copied after a
 * mismatch. */
struct look {
    struct piece piece;
    struct device_event *event;
};

struct look_queue {
    struct look of[LOOKS_MAX];
    size_t first, count;
};

/* A device from which the lane copied; opened once. */
struct lane_device {
    int ordinal;
    struct device *device;
    bool has_no_prints;        /* written by the device thread, with the lock held */
    struct look_queue looks;   /* fingerprints in progress; device thread only */
    struct ring_pieces copies; /* enqueued copies, in order; device thread only */
};

/* Guarded by the lane's lock, except for fields that say otherwise. */
struct devices {
    struct lane_thread thread;
    pthread_cond_t work; /* wakes the device thread: a new source, or a free piece of the ring */
    struct job_queue now, lazy;
    struct lane_device of[DEVICES_MAX]; /* the first `count` are constant */
    int count;
    unsigned fences;  /* waiting for copies */
    unsigned flights; /* enqueued copies; device thread only */
    struct look_queue to_copy;
    size_t looks_under_way; /* device thread only */
    struct ring ring;
    bool ring_grows; /* a thread is growing it */
};

/* --- device_copy.c ---------------------------------------------------------------------------- */

/* Returns the slot of a device. If it is new, opens it and starts the thread. Future copies from it
 * come after the work so far of `producer`. -ENODEV, -EBUSY, ... */
CAIRN_MUST_CHECK int devices_slot(struct cairn_lane *lane, int ordinal, uint64_t producer);
/* Returns the slot of an opened device; else -1. */
int devices_find_locked(const struct cairn_lane *lane, int ordinal);

/* Gives the ring this size, unless it has it already. -EBUSY: a source on a device is in
 * progress. */
CAIRN_MUST_CHECK int devices_prepare(struct cairn_lane *lane, uint64_t bytes);

/* Call when all threads have ended. */
void devices_close(struct cairn_lane *lane, bool is_child);

/* --- device_look.c: only for the thread "cairn-device", except look_drop_locked() ------------- */

/* Returns the next piece that must be copied, if any. */
bool look_next_copy_locked(struct cairn_lane *lane, struct piece *ret);
/* Enqueues the next fingerprint; finishes one of the same device that is done. False: none left, or
 * no room. */
bool look_begin(struct cairn_lane *lane);
bool look_end(struct cairn_lane *lane, struct lane_device *device);
/* The save has failed: drops its pieces that were to be copied. */
void look_drop_locked(struct cairn_save *save);
