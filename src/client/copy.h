// SPDX-License-Identifier: Apache-2.0
/* The second owner of a save's bytes: the threads "cairn-copy" take pieces of its jobs, and write
 * them into the draft. A piece with a CRC or a fingerprint is first copied into the thread's own
 * memory, so that CRC and fingerprint match the bytes that the kernel writes even if the program
 * changes the source meanwhile. Other pieces are copied by the kernel directly from the source.
 *
 * During a write the process itself does not read the source. So a call that waits for a failed
 * save waits for reads of memory, never for a write that a filesystem holds up. */
#pragma once

#include "client/jobs.h"
#include "client/ring.h"
#include "client/threads.h"

#define COPY_THREADS_MAX 16

/* A thread that copies pieces. */
struct copier {
    struct cairn_lane *lane;
    struct lane_thread thread;
    char *own;     /* PIECE_BYTES, page-aligned; freed when the threads have ended */
    bool only_now; /* takes only pieces for which a caller waits */
};

/* Guarded by the lane's lock. The queues allocate nothing: a call brings the memory of its jobs,
 * and the ring bounds the number of filled pieces. */
struct copiers {
    pthread_cond_t work; /* the threads: a queue has a job or a piece */
    struct job_queue now, lazy;
    struct ring_pieces filled; /* bytes from a device, to be written into files */
    struct copier of[COPY_THREADS_MAX + 1];
    unsigned count;
};

/* Starts the threads, unless they run. */
CAIRN_MUST_CHECK int copiers_start_locked(struct cairn_lane *lane);
