// SPDX-License-Identifier: Apache-2.0
/* The copying of a save: its sources (jobs), which threads copy piece by piece, and how far they
 * are.
 *
 * A job does not change once it is in a queue, but for the results of its pieces: each belongs to
 * the thread that has the piece, and all to the publisher once no piece is left. All else is
 * guarded by the lane's lock. */
#pragma once

#include <sys/queue.h>

#include "base/base.h"

struct cairn_lane;
struct cairn_save;

/* The piece of a host source: one request of FUSE takes as much, from the border of a page on. */
#define PIECE_BYTES MIB
#define PAGE_BYTES 4096u
#define DEVICES_MAX 16 /* of one lane */
#define ON_HOST (-1)

/* Bytes of the file that are in memory of ours, and written at the end. */
struct segment {
    uint64_t at, length;
    void *data; /* freed with the save */
};

/* One source that is copied piece by piece. */
struct job {
    TAILQ_ENTRY(job) link; /* in a queue of the lane */
    struct cairn_save *save;
    uint64_t at, length; /* in the file */
    const char *host;
    int slot; /* of its device in the lane; ON_HOST */
    uint64_t address;
    bool is_now;
    size_t piece_bytes;
    uint64_t given;    /* bytes that threads were given so far */
    size_t next_piece; /* its index */
    size_t entry;      /* of the zip, if the save has one */
    uint32_t *crcs;    /* one a piece; NULL: the format has none */
    /* of each piece of a host source, by the call that named it; NULL: the caller waits */
    uint64_t *samples;
    char *key;                  /* of a source that may be referred to; NULL: none, and no prints */
    struct refer_piece *prints; /* one a piece */
    const struct refer_entry *older; /* the same source in the older version of the file */
};

TAILQ_HEAD(job_queue, job);

/* A part of a job, which one thread has. */
struct piece {
    struct job *job;
    size_t index;
    uint64_t at, length; /* in the file */
};

/* Sources of one call; freed with the save. */
struct batch {
    struct batch *next;
    size_t job_count, segment_count;
    struct job *jobs;
    struct segment *segments;
    bool has_producer; /* of the newest job on a device, whose copies come after its work */
    int ordinal, slot;
    uint64_t producer;
};

/* Unread bytes of a save on one device. */
struct bytes_on_device {
    uint64_t waiting; /* not enqueued yet */
    uint64_t flying;  /* enqueued, and did not come yet */
    uint64_t looking; /* the device reads them for a fingerprint, and may have to again */
};

struct copying {
    struct batch *batches;   /* newest first */
    uint64_t snapshot_bytes; /* of segments */
    uint64_t unread;         /* bytes of sources that were not copied yet */
    uint64_t now_unread;     /* of these: the call that named them waits */
    unsigned in_flight;      /* pieces that threads have */
    unsigned reading;        /* of these: whose source is read by the process itself */
    struct bytes_on_device on_device[DEVICES_MAX];
    uint64_t source_bytes, copied_bytes, referenced_bytes;
};

#define EACH_BATCH(of, save) for (struct batch *of = (save)->copying.batches; of; of = of->next)
/* The body may return, and not break. */
#define EACH_JOB(of, save)                                                                         \
    EACH_BATCH(batch_of_job, save)                                                                 \
    for (struct job *of = batch_of_job->jobs; of < batch_of_job->jobs + batch_of_job->job_count;   \
         of++)

/* A host source is split at the borders of pages: a piece that begins elsewhere is one request of
 * FUSE more. A source on a device is split as the ring is. */
size_t job_pieces(const struct job *job);
/* The length of the piece that begins `given` bytes from the start. */
uint64_t job_piece_length(const struct job *job, uint64_t given);

/* Bytes of the source before the piece. */
static inline uint64_t piece_offset(const struct piece *piece)
{
    return piece->at - piece->job->at;
}

/* Subtracts bytes, which have to be there. */
void take_bytes(uint64_t *from, uint64_t bytes);

void job_enqueue_locked(struct job_queue *queue, struct job *job);
/* The next piece of the first job. */
struct piece job_take_piece_locked(struct job_queue *queue);
/* So many bytes of the source are not read any more: waiters look again if they may go on. */
void job_read_locked(const struct job *job, uint64_t bytes);
/* Drops the jobs of a save from a queue. Pieces that threads have are not touched. */
void jobs_drop_locked(struct job_queue *queue, const struct cairn_save *save);

void batch_free(struct batch *batch);
