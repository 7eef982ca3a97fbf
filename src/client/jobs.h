// SPDX-License-Identifier: Apache-2.0
/* The copying of a save: its sources (jobs), which threads copy piece by piece, and their progress.
 *
 * A job in a queue is constant, except for the results of its pieces: each result belongs to the
 * thread that has the piece, and all of them to the publisher once no piece is left. Everything
 * else is guarded by the lane's lock. */
#pragma once

#include <sys/queue.h>

#include "base/base.h"

struct cairn_lane;
struct cairn_save;

/* The piece of a host source: the size of one FUSE request that begins at a page. */
#define PIECE_BYTES MIB
#define PAGE_BYTES 4096u
#define DEVICES_MAX 16 /* per lane */
#define ON_HOST (-1)

/* Bytes of the file that are in our own memory, and written at the end. */
struct segment {
    uint64_t at, length;
    void *data; /* freed with the save */
};

/* A source that is copied piece by piece. */
struct job {
    TAILQ_ENTRY(job) link; /* in a queue of the lane */
    struct cairn_save *save;
    uint64_t at, length; /* in the file */
    const char *host;
    int slot; /* of its device in the lane; ON_HOST: none */
    uint64_t address;
    bool is_now;
    size_t piece_bytes;
    uint64_t given;    /* bytes passed to threads so far */
    size_t next_piece; /* its index */
    size_t entry;      /* of the zip, if the save is one */
    uint32_t *crcs;    /* one per piece; NULL: the format has none */
    /* one per piece of a host source, taken by the call that named it; NULL: the caller waits */
    uint64_t *samples;
    /* of a source that may be referenced; NULL: none, then there are no prints */
    char *key;
    struct refer_piece *prints;      /* one per piece */
    const struct refer_entry *older; /* the same source in the older version of the file */
};

TAILQ_HEAD(job_queue, job);

/* A part of a job, assigned to one thread. */
struct piece {
    struct job *job;
    size_t index;
    uint64_t at, length; /* in the file */
};

/* The sources of one call; freed with the save. */
struct batch {
    struct batch *next;
    size_t job_count, segment_count;
    struct job *jobs;
    struct segment *segments;
    /* of the newest job on a device, whose copies come after the producer's work */
    bool has_producer;
    int ordinal, slot;
    uint64_t producer;
};

/* Unread bytes of a save on one device. */
struct bytes_on_device {
    uint64_t waiting; /* not enqueued yet */
    uint64_t flying;  /* enqueued, and not arrived yet */
    uint64_t looking; /* being read for a fingerprint; the device may have to read them again */
};

struct copying {
    struct batch *batches;   /* newest first */
    uint64_t snapshot_bytes; /* in segments */
    uint64_t unread;         /* bytes of sources that are not copied yet */
    uint64_t now_unread;     /* of these: a caller waits for their copy */
    unsigned in_flight;      /* pieces assigned to threads */
    unsigned reading;        /* of these: the process itself is reading their source */
    struct bytes_on_device on_device[DEVICES_MAX];
    uint64_t source_bytes, copied_bytes, referenced_bytes;
};

#define EACH_BATCH(of, save) for (struct batch *of = (save)->copying.batches; of; of = of->next)
/* The body may return, but must not break. */
#define EACH_JOB(of, save)                                                                         \
    EACH_BATCH(batch_of_job, save)                                                                 \
    for (struct job *of = batch_of_job->jobs; of < batch_of_job->jobs + batch_of_job->job_count;   \
         of++)

/* A host source is split at page borders: a piece that begins elsewhere costs an extra FUSE
 * request. A source on a device is split in pieces of the ring's size. */
size_t job_pieces(const struct job *job);
/* The length of the piece that begins `given` bytes from the start. */
uint64_t job_piece_length(const struct job *job, uint64_t given);

/* Offset of the piece in its source. */
static inline uint64_t piece_offset(const struct piece *piece)
{
    return piece->at - piece->job->at;
}

/* Subtracts bytes, which must be available. */
void take_bytes(uint64_t *from, uint64_t bytes);

void job_enqueue_locked(struct job_queue *queue, struct job *job);
/* Takes the next piece of the first job. */
struct piece job_take_piece_locked(struct job_queue *queue);
/* So many bytes of the source will not be read any more: wakes waiters, which check again. */
void job_read_locked(const struct job *job, uint64_t bytes);
/* Removes the jobs of a save from a queue. Pieces already assigned to threads are not affected. */
void jobs_drop_locked(struct job_queue *queue, const struct cairn_save *save);

void batch_free(struct batch *batch);
