// SPDX-License-Identifier: Apache-2.0
/* The threads that copy host sources into drafts, in pieces. A piece with a CRC or a fingerprint is
 * copied into memory of the thread first, which stays in its cache. What is computed, and what the
 * kernel writes into the file, are the bytes there. So no file contradicts its CRCs, whatever
 * a program does to a source meanwhile. Of others the kernel copies the source itself.
 *
 * During a write no thread reads the source. So what waits for a failed save waits for reads of
 * memory, never for a write that a filesystem holds up. Memory that goes away under either
 * (fault.h) fails the save with -EFAULT. */
#include "client/client.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include "client/crc.h"
#include "client/fault.h"
#include "client/report.h"
#include "client/sample.h"

#define PAGE 4096u
#define STEP_BYTES (32 * KIB) /* which the first cache keeps between their copy and their CRC */

struct piece {
    struct job *job;
    size_t index;
    const char *data; /* its source, or a copy of that: in the ring, or in memory of the thread */
    uint64_t at, length;
    struct ring_piece *from; /* where the bytes of a device are; NULL: of a host source */
    bool is_referenced;      /* the older version has them */
};

static uint64_t first_piece(const struct job *job)
{
    return job->slot == ON_HOST ? PIECE_BYTES - (uintptr_t)job->host % PAGE
                                : job->save->lane->ring.piece;
}

static uint64_t next_pieces(const struct job *job)
{
    return job->slot == ON_HOST ? PIECE_BYTES : job->save->lane->ring.piece;
}

uint64_t piece_length(const struct job *job, uint64_t given)
{
    return min_u64(given ? next_pieces(job) : first_piece(job), job->length - given);
}

size_t pieces_of(const struct job *job)
{
    uint64_t first = first_piece(job);
    return job->length <= first
               ? 1
               : 1 + (size_t)((job->length - first + next_pieces(job) - 1) / next_pieces(job));
}

static void take_host_locked(struct queue *queue, struct piece *ret)
{
    check_rank_held(LOCK_LANE);
    struct job *job = queue->first;
    struct cairn_save *save = job->save;
    *ret = (struct piece){.job = job,
                          .index = job->piece++,
                          .data = job->host + job->given,
                          .at = job->at + job->given,
                          .length = piece_length(job, job->given)};
    job->given += ret->length;
    save->in_flight++;
    save->reading += job->crcs || job->prints;
    if (job->given < job->length)
        return;
    queue->first = job->next;
    if (!queue->first)
        queue->last = &queue->first;
}

static void take_filled_piece_locked(struct cairn_lane *lane, struct piece *ret)
{
    check_held(&lane->lock);
    struct ring_piece *from = lane->device.filled;
    *ret = (struct piece){.job = from->job,
                          .index = from->index,
                          .data = (const char *)from->memory,
                          .at = from->at,
                          .length = from->length,
                          .from = from};
    lane->device.filled = from->next;
    if (!lane->device.filled)
        lane->device.filled_last = &lane->device.filled;
}

/* Pieces that a caller waits for come first, then pieces that occupy the ring. */
static bool take_piece_locked(struct cairn_lane *lane, bool only_now, struct piece *ret)
{
    check_held(&lane->lock);
    if (lane->now.first)
        take_host_locked(&lane->now, ret);
    else if (lane->device.filled)
        take_filled_piece_locked(lane, ret);
    else if (lane->lazy.first && !only_now)
        take_host_locked(&lane->lazy, ret);
    else
        return false;
    return true;
}

/* False: the save has failed meanwhile. */
static bool end_reading_piece(struct piece *piece)
{
    struct cairn_save *save = piece->job->save;
    LOCK_SCOPE(&save->lane->lock);
    save->reading--;
    if (save->error && save->reading == 0)
        (void)pthread_cond_broadcast(&save->lane->changed);
    return save->error == 0;
}

/* False: the save has failed, and its source may be gone. */
static bool begin_reading_piece(struct piece *piece)
{
    struct cairn_save *save = piece->job->save;
    LOCK_SCOPE(&save->lane->lock);
    save->reading += save->error == 0;
    return save->error == 0;
}

/* The thread itself reads the source of a piece, for one of these results. */
struct reading {
    const struct piece *piece;
    char *copy;
    bool with_crc;
    uint32_t crc;
    uint64_t sample;
};

static void read_copy(void *arg)
{
    struct reading *reading = arg;
    const struct piece *piece = reading->piece;
    for (uint64_t done = 0; done < piece->length; done += STEP_BYTES) {
        uint64_t length = min_u64(STEP_BYTES, piece->length - done);
        memcpy(reading->copy + done, piece->data + done, length);
        if (reading->with_crc)
            reading->crc = crc_of(reading->crc, reading->copy + done, length);
    }
}

static void read_sample(void *arg)
{
    struct reading *reading = arg;
    const struct piece *piece = reading->piece;
    reading->sample = sample_of(piece->data, piece->length, piece->index);
}

static int source_is_gone(const struct piece *piece)
{
    const struct job *job = piece->job;
    cause_note("%s: the memory of a source of %llu bytes was freed or moved while it was copied",
               job->save->draft.path, (unsigned long long)job->length);
    return -EFAULT;
}

/* Behind the copy, so that it covers all of the time since the call. */
static int check_unchanged(struct piece *piece)
{
    struct job *job = piece->job;
    struct reading reading = {.piece = piece};
    if (!job->samples || !begin_reading_piece(piece))
        return 0;
    int r = fault_try(read_sample, &reading);
    bool is_same = reading.sample == job->samples[piece->index];
    if (!end_reading_piece(piece))
        return 0;
    if (r < 0)
        return source_is_gone(piece);
    if (is_same)
        return 0;
    cause_note(
        "%s: a source of %llu bytes was changed while it was copied, and no fence had waited",
        job->save->draft.path, (unsigned long long)job->length);
    return -EBADMSG;
}

/* The older version has a piece of this fingerprint, and its CRC; else the CRC is computed. */
static void look_for_older(struct piece *piece)
{
    struct job *job = piece->job;
    const struct fingerprint_key *key = job->save->lane->refer.key;
    struct fingerprint_sum sums[PIECE_BYTES / FINGERPRINT_BLOCK];
    fingerprint_blocks(key, piece->data, piece->length, sums);
    struct fingerprint print = fingerprint_combine(key, sums, piece->length);
    piece->is_referenced = refer_known(job, piece->index, &print);
    if (job->crcs && !piece->is_referenced)
        job->crcs[piece->index] = crc_of(0, piece->data, piece->length);
}

/* Its data is the copy from now on. */
static int copy_to_own(struct piece *piece, char *own)
{
    struct job *job = piece->job;
    struct reading reading = {.piece = piece, .copy = own, .with_crc = job->crcs && !job->prints};
    int r = fault_try(read_copy, &reading);
    piece->data = own;
    if (r == 0 && reading.with_crc)
        job->crcs[piece->index] = reading.crc;
    return r;
}

static int copy_host(struct piece *piece, char *own)
{
    struct job *job = piece->job;
    bool is_computed = job->crcs || job->prints;
    int r = is_computed ? copy_to_own(piece, own) : 0;
    if (is_computed && !end_reading_piece(piece))
        return 0;
    if (r == 0 && job->prints)
        look_for_older(piece);
    if (r == 0 && !piece->is_referenced) {
        report_progress(&job->save->draft);
        r = draft_write(&job->save->draft, piece->data, piece->length, piece->at);
    }
    if (r == -EFAULT)
        return source_is_gone(piece);
    return r < 0 ? r : check_unchanged(piece);
}

/* A piece of the ring is larger than what stays in a cache. */
static int copy_filled(struct piece *piece)
{
    struct job *job = piece->job;
    uint32_t crc = 0;
    int r = 0;
    for (uint64_t done = 0; done < piece->length && r == 0; done += PIECE_BYTES) {
        uint64_t length = min_u64(PIECE_BYTES, piece->length - done);
        if (job->crcs)
            crc = crc_of(crc, piece->data + done, length);
        r = draft_write(&job->save->draft, piece->data + done, length, piece->at + done);
    }
    if (job->crcs)
        job->crcs[piece->index] = crc;
    return r;
}

/* The bytes of a source are read: those of a device were when they came into the ring. */
static void note_piece_read_locked(struct piece *piece)
{
    check_rank_held(LOCK_LANE);
    struct cairn_save *save = piece->job->save;
    save->unread -= piece->length;
    save->now_unread -= piece->job->is_now ? piece->length : 0;
    atomic_fetch_sub(&save->lane->busy, piece->length);
}

static void give_back_locked(struct cairn_lane *lane, struct ring_piece *piece)
{
    check_held(&lane->lock);
    piece->next = lane->ring.free;
    lane->ring.free = piece;
    (void)pthread_cond_signal(&lane->device.work);
}

static void finish_piece_locked(struct piece *piece, int r)
{
    check_rank_held(LOCK_LANE);
    struct cairn_save *save = piece->job->save;
    struct cairn_lane *lane = save->lane;
    save->in_flight--;
    if (piece->from)
        give_back_locked(lane, piece->from);
    else
        note_piece_read_locked(piece);
    if (r < 0)
        save_fail_locked(save, r, cause_text());
    if (!save->error && piece->is_referenced) {
        save->referenced_bytes += piece->length;
        lane->stats.bytes_referenced += piece->length;
    } else if (!save->error) {
        save->copied_bytes += piece->length;
        lane->stats.bytes_copied += piece->length;
        lane->stats.bytes_device += piece->from ? piece->length : 0;
    }
    if (save->error || save->unread == 0 || (piece->job->is_now && save->now_unread == 0))
        (void)pthread_cond_broadcast(&lane->changed);
    if (save->in_flight == 0 && (save->error || save->unread == 0))
        (void)pthread_cond_signal(&lane->publish);
}

/* A piece in the ring of a save that has failed is given back as it is. */
static int copy_piece(struct piece *piece, char *own, bool has_failed)
{
    cause_clear();
    if (!piece->from)
        return copy_host(piece, own);
    return has_failed ? 0 : copy_filled(piece);
}

static void copier_loop(struct copier *copier, bool only_now)
{
    struct cairn_lane *lane = copier->lane;
    struct piece piece;
    fault_admit();
    mutex_lock(&lane->lock);
    for (;;) {
        bool found = take_piece_locked(lane, only_now, &piece);
        if (!found && lane->stopping)
            break;
        if (!found) {
            (void)mutex_wait(&lane->lock, &lane->work, -1);
            continue;
        }
        bool has_failed = piece.job->save->error != 0;
        mutex_unlock(&lane->lock);
        int r = copy_piece(&piece, copier->own, has_failed);
        mutex_lock(&lane->lock);
        finish_piece_locked(&piece, r);
    }
    mutex_unlock(&lane->lock);
}

/* Competes with the training for cores as far as the caller allows. */
void *copier_main(void *arg)
{
    struct copier *copier = arg;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), copier->lane->options.nice);
    copier_loop(copier, false);
    return NULL;
}

/* In the place of the caller that waits for its sources to be copied now, or for an urgent save. */
void *copier_now_main(void *copier)
{
    copier_loop(copier, true);
    return NULL;
}
