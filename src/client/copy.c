// SPDX-License-Identifier: Apache-2.0
#include "client/copy.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include "client/crc.h"
#include "client/fault.h"
#include "client/lane.h"
#include "client/report.h"
#include "client/sample.h"

#define STEP_BYTES (32 * KIB) /* the first-level cache keeps these bytes between copy and CRC */

/* A piece being copied by a thread. */
struct copy {
    struct piece piece;
    const char *data; /* its source, or a copy of it: in the ring, or in the thread's memory */
    struct ring_piece *from; /* has the bytes of a device; NULL: a host source */
    bool is_referenced;      /* the older version has these bytes */
};

static const struct draft *draft_of(const struct job *job)
{
    return &job->save->publishing.draft;
}

/* Is a CRC or a fingerprint computed of the source's bytes? */
static bool is_computed(const struct job *job)
{
    return job->crcs || job->prints;
}

static struct copy take_host_locked(struct job_queue *queue)
{
    check_rank_held(LOCK_LANE);
    struct piece piece = job_take_piece_locked(queue);
    piece.job->save->copying.reading += is_computed(piece.job);
    return (struct copy){.piece = piece, .data = piece.job->host + piece_offset(&piece)};
}

static struct copy take_filled_locked(struct ring_pieces *filled)
{
    check_rank_held(LOCK_LANE);
    struct ring_piece *from = TAILQ_FIRST(filled);
    TAILQ_REMOVE(filled, from, link);
    return (struct copy){.piece = from->piece, .data = (const char *)from->memory, .from = from};
}

/* Takes pieces for which a caller waits first, then pieces that occupy the ring. */
static bool take_copy_locked(struct cairn_lane *lane, bool only_now, struct copy *ret)
{
    check_held(&lane->lock);
    struct copiers *copiers = &lane->copiers;
    if (!TAILQ_EMPTY(&copiers->now))
        *ret = take_host_locked(&copiers->now);
    else if (!TAILQ_EMPTY(&copiers->filled))
        *ret = take_filled_locked(&copiers->filled);
    else if (!TAILQ_EMPTY(&copiers->lazy) && !only_now)
        *ret = take_host_locked(&copiers->lazy);
    else
        return false;
    return true;
}

/* --- reading a source ------------------------------------------------------------------------- */

/* False: the save has failed meanwhile. */
static bool end_reading(const struct job *job)
{
    struct cairn_save *save = job->save;
    LOCK_SCOPE(&save->lane->lock);
    check(save->copying.reading > 0);
    save->copying.reading--;
    if (save->error && save->copying.reading == 0)
        (void)pthread_cond_broadcast(&save->lane->changed);
    return save->error == 0;
}

/* False: the save has failed, and its source may no longer exist. */
static bool begin_reading(const struct job *job)
{
    struct cairn_save *save = job->save;
    LOCK_SCOPE(&save->lane->lock);
    save->copying.reading += save->error == 0;
    return save->error == 0;
}

/* The process itself reads the source of a piece, to compute one of these. */
struct reading {
    const struct copy *copy;
    char *own;
    bool with_crc;
    uint32_t crc;
    uint64_t sample;
};

static void read_copy(void *arg)
{
    struct reading *reading = arg;
    const struct copy *copy = reading->copy;
    for (uint64_t done = 0; done < copy->piece.length; done += STEP_BYTES) {
        uint64_t length = min_u64(STEP_BYTES, copy->piece.length - done);
        memcpy(reading->own + done, copy->data + done, length);
        if (reading->with_crc)
            reading->crc = crc_of(reading->crc, reading->own + done, length);
    }
}

static void read_sample(void *arg)
{
    struct reading *reading = arg;
    const struct piece *piece = &reading->copy->piece;
    reading->sample = sample_of(reading->copy->data, piece->length, piece->index);
}

static int source_is_gone(const struct job *job)
{
    cause_note("%s: the memory of a source of %llu bytes was freed or moved while it was copied",
               job->save->path, (unsigned long long)job->length);
    return -EFAULT;
}

/* Called after the copy, so that it covers the whole time since the call. */
static int check_unchanged(const struct copy *copy)
{
    const struct job *job = copy->piece.job;
    struct reading reading = {.copy = copy};
    if (!job->samples || !begin_reading(job))
        return 0;
    int r = fault_try(read_sample, &reading);
    bool is_same = reading.sample == job->samples[copy->piece.index];
    if (!end_reading(job))
        return 0;
    if (r < 0)
        return source_is_gone(job);
    if (is_same)
        return 0;
    cause_note(
        "%s: a source of %llu bytes was changed while it was copied, and no fence had waited",
        job->save->path, (unsigned long long)job->length);
    return -EBADMSG;
}

/* From then on `data` is the copy. */
static int copy_to_own(struct copy *copy, char *own)
{
    const struct job *job = copy->piece.job;
    struct reading reading = {.copy = copy, .own = own, .with_crc = job->crcs && !job->prints};
    check(copy->piece.length <= PIECE_BYTES);
    int r = fault_try(read_copy, &reading);
    copy->data = own;
    if (r == 0 && reading.with_crc)
        job->crcs[copy->piece.index] = reading.crc;
    return r;
}

/* --- pieces ----------------------------------------------------------------------------------- */

/* If the older version has a piece with this fingerprint, its CRC is used; otherwise the CRC is
 * computed. */
static void look_for_older(struct copy *copy)
{
    struct piece *piece = &copy->piece;
    struct job *job = piece->job;
    const struct fingerprint_key *key = job->save->lane->refer.key;
    struct fingerprint print;
    if (fingerprint_of(key, copy->data, piece->length, &print) == 0)
        copy->is_referenced = refer_known(job, piece->index, &print);
    if (job->crcs && !copy->is_referenced)
        job->crcs[piece->index] = crc_of(0, copy->data, piece->length);
}

static int copy_host(struct copy *copy, char *own)
{
    struct job *job = copy->piece.job;
    int r = is_computed(job) ? copy_to_own(copy, own) : 0;
    if (is_computed(job) && !end_reading(job))
        return 0;
    if (r == 0 && job->prints)
        look_for_older(copy);
    if (r == 0 && !copy->is_referenced) {
        report_progress(draft_of(job));
        r = draft_write(draft_of(job), copy->data, copy->piece.length, copy->piece.at);
    }
    if (r == -EFAULT)
        return source_is_gone(job);
    return r < 0 ? r : check_unchanged(copy);
}

/* A piece of the ring is larger than the cache. */
static int copy_filled(const struct copy *copy)
{
    const struct piece *piece = &copy->piece;
    const struct job *job = piece->job;
    uint32_t crc = 0;
    for (uint64_t done = 0; done < piece->length; done += PIECE_BYTES) {
        uint64_t length = min_u64(PIECE_BYTES, piece->length - done);
        if (job->crcs)
            crc = crc_of(crc, copy->data + done, length);
        TRY(draft_write(draft_of(job), copy->data + done, length, piece->at + done));
    }
    if (job->crcs)
        job->crcs[piece->index] = crc;
    return 0;
}

/* A ring piece of a failed save is returned without being written. */
static int copy_piece(struct copy *copy, char *own, bool has_failed)
{
    cause_clear();
    if (!copy->from)
        return copy_host(copy, own);
    return has_failed ? 0 : copy_filled(copy);
}

/* A device's bytes were already counted as read when they arrived in the ring. */
static void end_copy_locked(struct cairn_lane *lane, struct copy *copy, int r)
{
    check_held(&lane->lock);
    struct cairn_save *save = copy->piece.job->save;
    uint64_t length = copy->piece.length;
    if (copy->from) {
        TAILQ_INSERT_HEAD(&lane->devices.ring.free, copy->from, link);
        (void)pthread_cond_signal(&lane->devices.work);
    } else {
        job_read_locked(copy->piece.job, length);
    }
    if (r < 0)
        save_fail_locked(save, r, "%s", cause_text());
    if (!save->error && copy->is_referenced) {
        save->copying.referenced_bytes += length;
        lane->stats.bytes_referenced += length;
    } else if (!save->error) {
        save->copying.copied_bytes += length;
        lane->stats.bytes_copied += length;
        lane->stats.bytes_device += copy->from ? length : 0;
    }
    save_piece_ended_locked(save);
}

/* --- the threads ------------------------------------------------------------------------------ */

static void copier_loop(struct copier *copier)
{
    struct cairn_lane *lane = copier->lane;
    struct copy copy;
    fault_admit();
    mutex_lock(&lane->lock);
    for (;;) {
        bool found = take_copy_locked(lane, copier->only_now, &copy);
        if (!found && lane->is_stopping)
            break;
        if (!found) {
            (void)mutex_wait(&lane->lock, &lane->copiers.work, -1);
            continue;
        }
        bool has_failed = copy.piece.job->save->error != 0;
        mutex_unlock(&lane->lock);
        int r = copy_piece(&copy, copier->own, has_failed);
        mutex_lock(&lane->lock);
        end_copy_locked(lane, &copy, r);
    }
    mutex_unlock(&lane->lock);
}

/* Runs with the caller's nice value, as it competes with the training for cores, unless a caller
 * waits for it. */
static void *copier_main(void *arg)
{
    struct copier *copier = arg;
    if (!copier->only_now)
        (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), copier->lane->options.nice);
    copier_loop(copier);
    return NULL;
}

/* The first thread is the one for saves that a caller waits for. */
int copiers_start_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct copiers *copiers = &lane->copiers;
    while (copiers->count < lane->options.copy_threads + 1) {
        struct copier *copier = &copiers->of[copiers->count];
        copier->lane = lane;
        copier->only_now = copiers->count == 0;
        if (!copier->own)
            copier->own = aligned_alloc(PAGE_BYTES, PIECE_BYTES);
        if (!copier->own)
            return -ENOMEM;
        TRY(lane_thread_start(&copier->thread, "cairn-copy", copier_main, copier));
        copiers->count++;
    }
    return 0;
}
