// SPDX-License-Identifier: Apache-2.0
/* Sources on devices: the thread "cairn-device" looks for pieces that the older version of the file
 * has already (device_look.c), copies the others into the ring, and hands these to the threads that
 * write them into files (device_copy.c). */
#pragma once

#include "client/jobs.h"
#include "client/ring.h"
#include "client/threads.h"

/* Pieces whose fingerprints are under way, or which are to be copied because of them. */
#define LOOKS_MAX 64

/* A piece whose fingerprint is under way on a device, or which is to be copied because of it. */
struct look {
    struct piece piece;
    struct device_event *event;
};

struct look_queue {
    struct look of[LOOKS_MAX];
    size_t first, count;
};

/* A device that the lane copied from; opened once. */
struct lane_device {
    int ordinal;
    struct device *device;
    bool has_no_prints;        /* changed by the device thread with the lock held */
    struct look_queue looks;   /* fingerprints under way; of the device thread alone */
    struct ring_pieces copies; /* enqueued, in that order; of the device thread alone */
};

/* Guarded by the lane's lock, but for fields that say so. */
struct devices {
    struct lane_thread thread;
    pthread_cond_t work; /* the device thread: a source, or a free piece of the ring */
    struct job_queue now, lazy;
    struct lane_device of[DEVICES_MAX]; /* the first `count` stay as they are */
    int count;
    unsigned fences;  /* that wait for copies */
    unsigned flights; /* copies that are enqueued; of the device thread alone */
    struct look_queue to_copy;
    size_t looks_under_way; /* of the device thread alone */
    struct ring ring;
    bool ring_grows; /* one thread is at it */
};

/* --- device_copy.c ---------------------------------------------------------------------------- */

/* The slot of a device, which is opened if it is new, and the thread started; its copies from now
 * on come after the work so far of `producer`. -ENODEV, -EBUSY, ... */
CAIRN_MUST_CHECK int devices_slot(struct cairn_lane *lane, int ordinal, uint64_t producer);
/* The slot that has it already; else -1. */
int devices_find_locked(const struct cairn_lane *lane, int ordinal);

/* The ring gets this size, unless it has it. -EBUSY: a source on a device is under way. */
CAIRN_MUST_CHECK int devices_prepare(struct cairn_lane *lane, uint64_t bytes);

/* When all threads have ended. */
void devices_close(struct cairn_lane *lane, bool is_child);

/* --- device_look.c: of the thread "cairn-device", but for the drop ---------------------------- */

/* The next piece that is to be copied, if there is one. */
bool look_next_copy_locked(struct cairn_lane *lane, struct piece *ret);
/* Enqueues the next fingerprint; ends one of that device that is done. False: there is none, or no
 * room. */
bool look_begin(struct cairn_lane *lane);
bool look_end(struct cairn_lane *lane, struct lane_device *device);
/* The save has failed: its pieces that were to be copied are not. */
void look_drop_locked(struct cairn_save *save);
