// SPDX-License-Identifier: Apache-2.0
#include "client/jobs.h"

#include "client/lane.h"

static uint64_t first_piece(const struct job *job)
{
    return job->host ? PIECE_BYTES - (uintptr_t)job->host % PAGE_BYTES : job->piece_bytes;
}

uint64_t job_piece_length(const struct job *job, uint64_t given)
{
    return min_u64(given ? job->piece_bytes : first_piece(job), job->length - given);
}

size_t job_pieces(const struct job *job)
{
    uint64_t first = first_piece(job);
    return job->length <= first
               ? 1
               : 1 + (size_t)((job->length - first + job->piece_bytes - 1) / job->piece_bytes);
}

void take_bytes(uint64_t *from, uint64_t bytes)
{
    check(*from >= bytes);
    *from -= bytes;
}

void job_enqueue_locked(struct job_queue *queue, struct job *job)
{
    check_rank_held(LOCK_LANE);
    check(job->length > 0 && job->given == 0 && (job->slot == ON_HOST) == (job->host != NULL));
    struct copying *copying = &job->save->copying;
    TAILQ_INSERT_TAIL(queue, job, link);
    if (!job->host)
        copying->on_device[job->slot].waiting += job->length;
    copying->unread += job->length;
    copying->now_unread += job->is_now ? job->length : 0;
    atomic_fetch_add(&job->save->lane->busy, job->length);
}

struct piece job_take_piece_locked(struct job_queue *queue)
{
    check_rank_held(LOCK_LANE);
    struct job *job = TAILQ_FIRST(queue);
    check(job->save->state == SAVE_OPEN && job->given < job->length);
    struct piece piece = {.job = job,
                          .index = job->next_piece++,
                          .at = job->at + job->given,
                          .length = job_piece_length(job, job->given)};
    job->given += piece.length;
    job->save->copying.in_flight++;
    if (job->given == job->length)
        TAILQ_REMOVE(queue, job, link);
    return piece;
}

void job_read_locked(const struct job *job, uint64_t bytes)
{
    check_rank_held(LOCK_LANE);
    struct cairn_save *save = job->save;
    take_bytes(&save->copying.unread, bytes);
    if (job->is_now)
        take_bytes(&save->copying.now_unread, bytes);
    uint64_t busy = atomic_fetch_sub(&save->lane->busy, bytes);
    check(busy >= bytes);
    if (save->error || save->copying.unread == 0 || (job->is_now && save->copying.now_unread == 0))
        (void)pthread_cond_broadcast(&save->lane->changed);
}

void jobs_drop_locked(struct job_queue *queue, const struct cairn_save *save)
{
    check_rank_held(LOCK_LANE);
    for (struct job *job = TAILQ_FIRST(queue), *next; job; job = next) {
        next = TAILQ_NEXT(job, link);
        if (job->save != save)
            continue;
        uint64_t left = job->length - job->given;
        if (!job->host)
            take_bytes(&job->save->copying.on_device[job->slot].waiting, left);
        job_read_locked(job, left);
        TAILQ_REMOVE(queue, job, link);
    }
}

void batch_free(struct batch *batch)
{
    if (!batch)
        return;
    for (struct job *job = batch->jobs; job < batch->jobs + batch->job_count; job++) {
        free(job->crcs);
        free(job->samples);
        free(job->prints);
        free(job->key);
    }
    for (size_t i = 0; i < batch->segment_count; i++)
        free(batch->segments[i].data);
    free(batch->jobs);
    free(batch->segments);
    free(batch);
}
