// SPDX-License-Identifier: Apache-2.0
/* The second owner of a save's bytes: the threads "cairn-copy" take pieces of its jobs, and write
 * them into the draft. A piece with a CRC or a fingerprint is copied into memory of the thread
 * first: CRC and fingerprint are of the bytes that the kernel writes, even if the program changes
 * the source meanwhile. Of other pieces the kernel copies the source itself.
 *
 * During a write no thread reads the source. So a call that waits for a failed save waits for reads
 * of memory, never for a write that a filesystem holds up. */
#pragma once

#include "client/jobs.h"
#include "client/ring.h"
#include "client/threads.h"

#define COPY_THREADS_MAX 16

/* A thread that copies pieces. */
struct copier {
    struct cairn_lane *lane;
    struct lane_thread thread;
    char *own;     /* PIECE_BYTES, from a page on; freed when the threads have ended */
    bool only_now; /* only pieces that a caller waits for */
};

/* Guarded by the lane's lock. The queues have no memory of their own: a call brings that of its
 * jobs, and the ring bounds the filled pieces. */
struct copiers {
    pthread_cond_t work; /* the threads: a queue has a job or a piece */
    struct job_queue now, lazy;
    struct ring_pieces filled; /* their bytes came from a device, and go into files */
    struct copier of[COPY_THREADS_MAX + 1];
    unsigned count;
};

/* Starts the threads, unless they run. */
CAIRN_MUST_CHECK int copiers_start_locked(struct cairn_lane *lane);
