/* The threads that copy host sources into drafts, in pieces. The CRC of a piece is computed while its bytes are on their way into the
 * cache anyway; then the kernel copies them into the file from where they are.
 *
 * Once the CRC is there, the piece is read by the kernel alone: memory that goes away under it is an error (-EFAULT) of a save that has failed
 * anyway. So what waits for a failed save waits for CRCs, never for a write that a filesystem holds up. */
#include "client/client.h"

#include <sys/resource.h>
#include <sys/syscall.h>

#include "client/crc.h"
#include "client/report.h"

#define PAGE 4096u

struct piece {
    struct job *job;
    size_t index;
    const char *data;
    uint64_t at, length;
};

static uint64_t first_piece(const void *host)
{
    return PIECE_BYTES - (uintptr_t)host % PAGE;
}

uint64_t piece_length(const void *host, uint64_t length, uint64_t given)
{
    return min_u64(given ? PIECE_BYTES : first_piece(host), length - given);
}

size_t pieces_of(const void *host, uint64_t length)
{
    uint64_t first = first_piece(host);
    return length <= first ? 1 : 1 + (size_t)((length - first + PIECE_BYTES - 1) / PIECE_BYTES);
}

static struct queue *queue_locked(struct cairn_lane *lane, bool only_now)
{
    if (lane->now.first)
        return &lane->now;
    return lane->lazy.first && !only_now ? &lane->lazy : NULL;
}

static void take_piece_locked(struct queue *queue, struct piece *ret)
{
    struct job *job = queue->first;
    struct cairn_save *save = job->save;
    *ret = (struct piece){.job = job, .index = job->piece++, .data = job->host + job->given, .at = job->at + job->given,
                          .length = piece_length(job->host, job->length, job->given)};
    job->given += ret->length;
    save->in_flight++;
    save->reading += job->crcs != NULL;
    if (job->given < job->length)
        return;
    queue->first = job->next;
    if (!queue->first)
        queue->last = &queue->first;
}

/* False: the save has failed meanwhile. */
static bool end_of_reading(struct piece *piece)
{
    struct cairn_save *save = piece->job->save;
    LOCK_SCOPE(&save->lane->lock);
    save->reading--;
    if (save->error && save->reading == 0)
        (void)pthread_cond_broadcast(&save->lane->changed);
    return save->error == 0;
}

static int copy_piece(struct piece *piece)
{
    struct job *job = piece->job;
    if (job->crcs) {
        job->crcs[piece->index] = crc_of(0, piece->data, piece->length);
        if (!end_of_reading(piece))
            return 0;
    }
    report_progress(&job->save->draft);
    return draft_write(&job->save->draft, piece->data, piece->length, piece->at);
}

static void finish_piece_locked(struct piece *piece, int r)
{
    struct cairn_save *save = piece->job->save;
    struct cairn_lane *lane = save->lane;
    save->in_flight--;
    save->unread -= piece->length;
    save->now_unread -= piece->job->is_now ? piece->length : 0;
    atomic_fetch_sub(&lane->busy, piece->length);
    if (r < 0)
        save_fail_locked(save, r, cause_text());
    if (!save->error) {
        save->copied_bytes += piece->length;
        lane->stats.bytes_copied += piece->length;
    }
    if (save->error || save->unread == 0 || (piece->job->is_now && save->now_unread == 0))
        (void)pthread_cond_broadcast(&lane->changed);
    if (save->in_flight == 0 && (save->error || save->unread == 0))
        (void)pthread_cond_signal(&lane->publish);
}

static void copier_loop(struct cairn_lane *lane, bool only_now)
{
    struct piece piece;
    mutex_lock(&lane->lock);
    for (;;) {
        struct queue *queue = queue_locked(lane, only_now);
        if (!queue && lane->stopping)
            break;
        if (!queue) {
            (void)mutex_wait(&lane->lock, &lane->work, -1);
            continue;
        }
        take_piece_locked(queue, &piece);
        mutex_unlock(&lane->lock);
        cause_clear();
        int r = copy_piece(&piece);
        mutex_lock(&lane->lock);
        finish_piece_locked(&piece, r);
    }
    mutex_unlock(&lane->lock);
}

/* Competes with the training for cores as far as the caller allows. */
void *copier_run(void *arg)
{
    struct cairn_lane *lane = arg;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), lane->options.nice);
    copier_loop(lane, false);
    return NULL;
}

/* In the place of the caller that waits for its sources to be copied now. */
void *copier_now_run(void *lane)
{
    copier_loop(lane, true);
    return NULL;
}
