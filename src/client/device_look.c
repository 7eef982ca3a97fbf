// SPDX-License-Identifier: Apache-2.0
/* The thread "cairn-device" looks before it copies: a piece of a source that may be referred to is
 * copied only if its fingerprint, taken by the device, is not that of the older version. Pieces
 * whose fingerprints are under way, or that are to be copied now, are so few that they
 * have room. */
#include "client/client.h"

#include "client/device.h"

static struct look *queue_push(struct look_queue *queue)
{
    return &queue->of[(queue->first + queue->count++) % LOOKS_MAX];
}

static struct look queue_pop(struct look_queue *queue)
{
    struct look look = queue->of[queue->first];
    queue->first = (queue->first + 1) % LOOKS_MAX;
    queue->count--;
    return look;
}

static bool must_look(const struct cairn_lane *lane, const struct job *job)
{
    return job->prints && !lane->device.of[job->slot].has_no_prints;
}

static struct queue *queue_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    return lane->device.now.first ? &lane->device.now : &lane->device.lazy;
}

/* The next piece of the first job. */
static struct look take_piece_locked(struct queue *queue)
{
    check_rank_held(LOCK_LANE);
    struct job *job = queue->first;
    struct look look = {.job = job,
                        .index = job->piece++,
                        .at = job->at + job->given,
                        .length = piece_length(job, job->given)};
    job->given += look.length;
    job->save->in_flight++;
    if (job->given == job->length) {
        queue->first = job->next;
        if (!queue->first)
            queue->last = &queue->first;
    }
    return look;
}

bool look_next_copy_locked(struct cairn_lane *lane, struct look *ret)
{
    check_held(&lane->lock);
    struct queue *queue = queue_locked(lane);
    if (lane->device.to_copy.count > 0)
        *ret = queue_pop(&lane->device.to_copy);
    else if (queue->first && !must_look(lane, queue->first))
        *ret = take_piece_locked(queue);
    else
        return false;
    return true;
}

/* Nothing of this piece is under way any more, and nothing is to be copied. */
static void end_piece_locked(struct cairn_lane *lane, const struct look *look)
{
    check_held(&lane->lock);
    struct cairn_save *save = look->job->save;
    save->unread -= look->length;
    save->now_unread -= look->job->is_now ? look->length : 0;
    atomic_fetch_sub(&lane->busy, look->length);
    save->in_flight--;
    if (!save->error) {
        save->referenced_bytes += look->length;
        lane->stats.bytes_referenced += look->length;
    }
    (void)pthread_cond_broadcast(&lane->changed);
    if (save->in_flight == 0 && (save->error || save->unread == 0))
        (void)pthread_cond_signal(&lane->publish);
}

/* A piece that the older version has, or whose save has failed, is done; another is to
 * be copied. */
static void end_look_locked(struct cairn_lane *lane, const struct look *look, bool is_there)
{
    check_held(&lane->lock);
    struct cairn_save *save = look->job->save;
    save->on_device[look->job->slot].looking -= look->length;
    if (is_there || save->error) {
        end_piece_locked(lane, look);
        return;
    }
    save->on_device[look->job->slot].waiting += look->length;
    *queue_push(&lane->device.to_copy) = *look;
}

void look_drop_locked(struct cairn_save *save)
{
    check_held(&save->lane->lock);
    struct look_queue *queue = &save->lane->device.to_copy;
    for (size_t left = queue->count; left > 0; left--) {
        struct look look = queue_pop(queue);
        if (look.job->save != save) {
            *queue_push(queue) = look;
            continue;
        }
        save->on_device[look.job->slot].waiting -= look.length;
        end_piece_locked(save->lane, &look);
    }
}

static bool take_look(struct cairn_lane *lane, struct look *ret)
{
    LOCK_SCOPE(&lane->lock);
    struct queue *queue = queue_locked(lane);
    bool has_room = lane->device.looks_under_way + lane->device.to_copy.count < LOOKS_MAX &&
                    lane->ring.region_count > 0;
    if (!has_room || !queue->first || !must_look(lane, queue->first))
        return false;
    *ret = take_piece_locked(queue);
    struct cairn_save *save = ret->job->save;
    save->on_device[ret->job->slot].waiting -= ret->length;
    save->on_device[ret->job->slot].looking += ret->length;
    return true;
}

/* Without a fingerprint the piece is copied. */
bool look_begin(struct cairn_lane *lane)
{
    struct look look;
    if (!take_look(lane, &look))
        return false;
    struct lane_device *device = &lane->device.of[look.job->slot];
    uint64_t from = look.job->address + (look.at - look.job->at);
    int r = device_fingerprint(device->device, from, look.length, lane->refer.key, &look.event);
    if (r == 0) {
        *queue_push(&device->looks) = look;
        lane->device.looks_under_way++;
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
    struct look look = queue_pop(&device->looks);
    lane->device.looks_under_way--;
    struct fingerprint print = device_event_fingerprint(look.event);
    device_event_free(look.event);
    bool is_there = r > 0 && refer_known(look.job, look.index, &print);
    LOCK_SCOPE(&lane->lock);
    if (r < 0)
        save_fail_locked(look.job->save, r, cause_text());
    end_look_locked(lane, &look, is_there);
    return true;
}
