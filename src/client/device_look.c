// SPDX-License-Identifier: Apache-2.0
/* Before copying, the thread "cairn-device" takes fingerprints: a piece of a source with a key is
 * copied only if its fingerprint, computed by the device, differs from that of the older
 * version. */
#include "client/device.h"
#include "client/lane.h"

static void push_look(struct look_queue *queue, struct look look)
{
    check(queue->count < LOOKS_MAX);
    queue->of[(queue->first + queue->count++) % LOOKS_MAX] = look;
}

static struct look pop_look(struct look_queue *queue)
{
    check(queue->count > 0);
    struct look look = queue->of[queue->first];
    queue->first = (queue->first + 1) % LOOKS_MAX;
    queue->count--;
    return look;
}

/* The job of the next piece; NULL: none. */
static struct job *first_job_locked(struct devices *devices, struct job_queue **ret_queue)
{
    check_rank_held(LOCK_LANE);
    *ret_queue = TAILQ_EMPTY(&devices->now) ? &devices->lazy : &devices->now;
    return TAILQ_FIRST(*ret_queue);
}

static bool must_look(const struct devices *devices, const struct job *job)
{
    return job->prints && !devices->of[job->slot].has_no_prints;
}

static struct bytes_on_device *bytes_of(const struct piece *piece)
{
    return &piece->job->save->copying.on_device[piece->job->slot];
}

bool look_next_copy_locked(struct cairn_lane *lane, struct piece *ret)
{
    check_held(&lane->lock);
    struct devices *devices = &lane->devices;
    struct job_queue *queue;
    struct job *job = first_job_locked(devices, &queue);
    if (devices->to_copy.count > 0)
        *ret = pop_look(&devices->to_copy).piece;
    else if (job && !must_look(devices, job))
        *ret = job_take_piece_locked(queue);
    else
        return false;
    return true;
}

/* Called when no work is in progress for this piece any more, and nothing is to be copied. */
static void end_piece_locked(struct cairn_lane *lane, const struct piece *piece)
{
    check_held(&lane->lock);
    struct cairn_save *save = piece->job->save;
    job_read_locked(piece->job, piece->length);
    if (!save->error) {
        save->copying.referenced_bytes += piece->length;
        lane->stats.bytes_referenced += piece->length;
    }
    (void)pthread_cond_broadcast(&lane->changed);
    save_piece_ended_locked(save);
}

/* The piece is done if the older version has it, or its save has failed; otherwise it is copied. */
static void end_look_locked(struct cairn_lane *lane, const struct look *look, bool is_there)
{
    check_held(&lane->lock);
    const struct piece *piece = &look->piece;
    take_bytes(&bytes_of(piece)->looking, piece->length);
    if (is_there || piece->job->save->error) {
        end_piece_locked(lane, piece);
        return;
    }
    bytes_of(piece)->waiting += piece->length;
    push_look(&lane->devices.to_copy, *look);
}

void look_drop_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct look_queue *queue = &save->lane->devices.to_copy;
    for (size_t left = queue->count; left > 0; left--) {
        struct look look = pop_look(queue);
        if (look.piece.job->save != save) {
            push_look(queue, look);
            continue;
        }
        take_bytes(&bytes_of(&look.piece)->waiting, look.piece.length);
        end_piece_locked(save->lane, &look.piece);
    }
}

static bool take_look(struct cairn_lane *lane, struct look *ret)
{
    LOCK_SCOPE(&lane->lock);
    struct devices *devices = &lane->devices;
    struct job_queue *queue;
    struct job *job = first_job_locked(devices, &queue);
    bool has_room = devices->looks_under_way + devices->to_copy.count < LOOKS_MAX &&
                    devices->ring.region_count > 0;
    if (!has_room || !job || !must_look(devices, job))
        return false;
    ret->piece = job_take_piece_locked(queue);
    take_bytes(&bytes_of(&ret->piece)->waiting, ret->piece.length);
    bytes_of(&ret->piece)->looking += ret->piece.length;
    return true;
}

/* A piece without a fingerprint is copied. */
bool look_begin(struct cairn_lane *lane)
{
    struct look look;
    if (!take_look(lane, &look))
        return false;
    const struct piece *piece = &look.piece;
    struct lane_device *device = &lane->devices.of[piece->job->slot];
    int r = device_fingerprint(device->device, piece->job->address + piece_offset(piece),
                               piece->length, lane->refer.key, &look.event);
    if (r == 0) {
        push_look(&device->looks, look);
        lane->devices.looks_under_way++;
        return true;
    }
    LOCK_SCOPE(&lane->lock);
    device->has_no_prints = device->has_no_prints || r == -ENOTSUP;
    end_look_locked(lane, &look, false);
    return true;
}

bool look_end(struct cairn_lane *lane, struct lane_device *device)
{
    if (device->looks.count == 0)
        return false;
    cause_clear();
    int r = device_event_done(device->looks.of[device->looks.first].event);
    if (r == 0)
        return false;
    struct look look = pop_look(&device->looks);
    check(lane->devices.looks_under_way > 0);
    lane->devices.looks_under_way--;
    struct fingerprint print = device_event_fingerprint(look.event);
    device_event_free(look.event);
    struct job *job = look.piece.job;
    bool is_there = r > 0 && refer_known(job, look.piece.index, &print);
    LOCK_SCOPE(&lane->lock);
    if (r < 0)
        save_fail_locked(job->save, r, "%s", cause_text());
    end_look_locked(lane, &look, is_there);
    return true;
}
