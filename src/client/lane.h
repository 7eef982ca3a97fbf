// SPDX-License-Identifier: Apache-2.0
/* A lane: its threads, its queues and the devices that it copies from. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "client/ring.h"
#include "client/save.h"

#define COPY_THREADS_MAX 16
#define OPENERS_MAX 8
/* Pieces whose fingerprints are under way, or which are to be copied because of them. */
#define LOOKS_MAX 64
#define UNREPORTED_MAX 64 /* failed saves that are kept for cairn_lane_take_error() */

struct queue {
    struct job *first, **last;
};

/* A piece whose fingerprint is under way on a device, or which is to be copied because of it. */
struct look {
    struct job *job;
    size_t index;
    uint64_t at, length;
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
    bool has_no_prints;      /* changed by the device thread with the lock held */
    struct look_queue looks; /* fingerprints under way; of the device thread alone */
    /* copies that are enqueued, in that order; of the device thread alone */
    struct ring_piece *first, **last;
};

/* Drafts that are to be opened, and the threads for that. Guarded by the lane's lock. */
struct opening_queue {
    pthread_cond_t work; /* openers: the queue has one */
    pthread_cond_t done; /* those that wait for one */
    struct opening *first, **last;
    unsigned queued, idle; /* openings; threads */
    pthread_t threads[OPENERS_MAX];
    unsigned thread_count; /* stays once the lane is stopping */
};

/* The copies from devices, which one thread makes. Guarded by the lane's lock. */
struct device_side {
    pthread_t thread; /* set before there are others */
    bool has_thread;
    pthread_cond_t work; /* the device thread: a source, or a free piece of the ring */
    struct queue now, lazy;
    struct lane_device of[DEVICES_MAX]; /* the first `count` stay as they are */
    int count;
    unsigned fences;  /* that wait for copies */
    unsigned flights; /* copies that are enqueued; of the device thread alone */
    struct look_queue to_copy;
    size_t looks_under_way; /* of the device thread alone */
    /* their bytes came from a device, and go into files */
    struct ring_piece *filled, **filled_last;
};

/* Failed saves that no call asked for yet. Guarded by the lane's lock. */
struct unreported {
    struct cairn_save *of[UNREPORTED_MAX]; /* counted, oldest first */
    size_t count;
    uint64_t lost; /* that found no place there */
};

/* A thread that copies pieces. */
struct copier {
    struct cairn_lane *lane;
    pthread_t thread;
    char *own; /* PIECE_BYTES, from a page on; freed when the threads have ended */
};

struct cairn_lane {
    struct cairn_lane *next; /* of the process; guarded by the list's lock */
    struct cairn_lane_options options;
    int log_level;
    unsigned generation;   /* of the process: another after fork */
    _Atomic uint64_t busy; /* bytes of sources and pieces under way that a fence may have to wait
                              for; changed with the lock held */
    _Atomic uint64_t blocked_ns;
    struct copier copiers[COPY_THREADS_MAX + 1];
    unsigned copier_count;
    pthread_t publisher; /* set before there are others */
    bool has_publisher, has_syncer;
    pthread_t syncer;

    struct cairn_mutex lock;
    pthread_cond_t work;      /* copiers: a queue has a job */
    pthread_cond_t publish;   /* the publisher: a save may have become ready */
    pthread_cond_t changed;   /* those that wait for saves */
    pthread_cond_t sync_work; /* the syncer: to_sync has one */

    /* Guarded by lock. */
    unsigned refs; /* the handle, and one each save */
    bool stopping;
    struct opening_queue opening;
    struct queue now, lazy;
    struct device_side device;
    struct refer refer;
    struct ring ring;
    bool ring_grows; /* one thread is at it */
    struct cairn_save *saves, **saves_last;
    struct cairn_save *to_sync; /* counted; the next one first */
    struct unreported unreported;
    uint64_t begun;
    struct cairn_lane_stats stats;
};

/* --- lane.c ----------------------------------------------------------------------------------- */

/* Starts the threads, unless they run. */
CAIRN_MUST_CHECK int lane_start(struct cairn_lane *lane);

/* -ECHILD, with cause: the process is a child of the lane's. */
CAIRN_MUST_CHECK int lane_check(const struct cairn_lane *lane);

/* Unlocks it, and frees it where that was the last reference. */
void lane_unlock_last(struct cairn_lane *lane);

/* A call of the API ends: notes a cause if there is none, and how long it took. */
int lane_return(struct cairn_lane *lane, int64_t begun_ns, int r);

/* The sums of all lanes that this process has and had. */
struct lanes_stats {
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
    char error[256]; /* of the last save that failed */
};
/* Takes the locks of all lanes, one after the other. */
void lanes_stats(struct lanes_stats *ret);
void lanes_note_error(const char *cause);

void lane_log(struct cairn_lane *lane, int level, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* --- threads of a lane: their argument is the lane, or a copier of it ------------------------- */

void *opener_main(void *lane);       /* "cairn-open": started by calls, as they are needed */
void *copier_main(void *copier);     /* "cairn-copy" */
void *copier_now_main(void *copier); /* "cairn-copy", of saves that a caller waits for */
void *publisher_main(void *lane);    /* "cairn-publish" */
void *syncer_main(void *lane); /* "cairn-sync": starts with the first wait for NVMe or the remote,
                                 looks as long as there are waits */
void *device_main(void *lane); /* "cairn-device" */
