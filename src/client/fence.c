// SPDX-License-Identifier: Apache-2.0
/* The fence: before sources change, ensures that no copy reads them any more, or orders the work
 * that changes them after the copies. */
#include "base/clock.h"
#include "client/device.h"
#include "client/lane.h"

struct fence {
    uint64_t begun; /* covers saves up to this number */
    int64_t begun_ns;
    const struct cairn_stream *streams;
    size_t count;
    /* a stream is ordered after its copies: it suffices that they are enqueued */
    bool is_covered[DEVICES_MAX];
    bool is_used[DEVICES_MAX]; /* copies from it are in progress */
};

/* Must the fence wait for bytes of this save? */
static bool holds_up_locked(const struct cairn_save *save, const struct fence *fence)
{
    check_held(&save->lane->lock);
    const struct copying *copying = &save->copying;
    uint64_t on_devices = 0, open = 0;
    for (int i = 0; i < save->lane->devices.count; i++) {
        const struct bytes_on_device *bytes = &copying->on_device[i];
        uint64_t waiting = bytes->waiting + bytes->looking;
        on_devices += waiting + bytes->flying;
        open += fence->is_covered[i] ? waiting : waiting + bytes->flying;
    }
    check(copying->unread >= on_devices);
    return open > 0 || (save->error ? copying->reading > 0 : copying->unread > on_devices);
}

/* Does any save hold up the fence? *ret_limit: the earliest time limit of these; -1: none. */
static bool is_open_locked(struct cairn_lane *lane, const struct fence *fence, int64_t *ret_limit)
{
    check_held(&lane->lock);
    bool is_open = false;
    const struct cairn_save *save;
    *ret_limit = -1;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        if (save->number > fence->begun || !holds_up_locked(save, fence))
            continue;
        is_open = true;
        if (save->error || save->max_block_ms < 0)
            continue;
        int64_t limit = fence->begun_ns + save->max_block_ms * MS_NS;
        if (*ret_limit < 0 || limit < *ret_limit)
            *ret_limit = limit;
    }
    return is_open;
}

/* Fails a save that has held up the training longer than it may. */
static void fail_slow_locked(struct cairn_lane *lane, const struct fence *fence, int64_t now)
{
    check_held(&lane->lock);
    struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        if (save->number > fence->begun || save->error || save->max_block_ms < 0 ||
            now < fence->begun_ns + save->max_block_ms * MS_NS || !holds_up_locked(save, fence))
            continue;
        save_fail_locked(
            save, -ETIMEDOUT,
            "%.250s: a fence has waited for the copy for %d ms; %llu of %llu bytes were copied",
            save->path, save->max_block_ms, (unsigned long long)save->copying.copied_bytes,
            (unsigned long long)save->copying.source_bytes);
    }
}

static void cover_locked(struct cairn_lane *lane, struct fence *fence)
{
    check_held(&lane->lock);
    for (size_t i = 0; i < fence->count; i++) {
        int slot = devices_find_locked(lane, fence->streams[i].device);
        if (slot >= 0)
            fence->is_covered[slot] = true;
    }
}

/* Called after the host has waited for its part: notes which devices still copy. */
static void note_used_locked(struct cairn_lane *lane, struct fence *fence)
{
    check_held(&lane->lock);
    const struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        for (int i = 0; i < lane->devices.count; i++)
            fence->is_used[i] = fence->is_used[i] || save->copying.on_device[i].flying > 0;
    }
}

static int wait_for_host_locked(struct cairn_lane *lane, struct fence *fence, int64_t deadline)
{
    check_held(&lane->lock);
    for (int64_t limit; is_open_locked(lane, fence, &limit);) {
        bool asks = deadline >= 0 && (limit < 0 || deadline < limit);
        if (wait_changed_locked(lane, asks ? deadline : limit))
            continue;
        if (asks) {
            cause_note("sources are still read");
            return -ETIMEDOUT;
        }
        fail_slow_locked(lane, fence, limit);
    }
    note_used_locked(lane, fence);
    return 0;
}

static int wait_for_host(struct cairn_lane *lane, struct fence *fence, int64_t deadline)
{
    LOCK_SCOPE(&lane->lock);
    fence->begun = lane->begun;
    fence->begun_ns = clock_monotonic_ns();
    lane->devices.fences++;
    int r = wait_for_host_locked(lane, fence, deadline);
    check(lane->devices.fences > 0);
    lane->devices.fences--;
    return r;
}

/* -EBUSY: a stream captures a graph. After other errors the host waits for that device instead. */
static int order_streams(struct cairn_lane *lane, struct fence *fence)
{
    int r = 0;
    for (size_t i = 0; i < fence->count && r != -EBUSY; i++) {
        mutex_lock(&lane->lock);
        int slot = devices_find_locked(lane, fence->streams[i].device);
        mutex_unlock(&lane->lock);
        if (slot < 0 || !fence->is_used[slot])
            continue;
        int ordered = device_order_behind(lane->devices.of[slot].device, fence->streams[i].stream);
        if (ordered >= 0)
            continue;
        r = ordered;
        fence->is_covered[slot] = false;
    }
    return r;
}

static int fence_lane(struct cairn_lane *lane, const struct cairn_stream *streams, size_t count,
                      int timeout_ms)
{
    struct fence fence = {.streams = streams, .count = count};
    int64_t deadline = deadline_of(timeout_ms);
    mutex_lock(&lane->lock);
    cover_locked(lane, &fence);
    mutex_unlock(&lane->lock);
    TRY(wait_for_host(lane, &fence, deadline));
    int r = order_streams(lane, &fence);
    return r == 0 || r == -EBUSY ? r : wait_for_host(lane, &fence, deadline);
}

int cairn_lane_fence(cairn_lane *lane, const struct cairn_stream *streams, size_t count,
                     int timeout_ms)
{
    int r = lane_check(lane);
    if (r == 0 && atomic_load(&lane->busy) == 0)
        return 0;
    int64_t begun = clock_monotonic_ns();
    cause_clear();
    return lane_return(lane, begun, r < 0 ? r : fence_lane(lane, streams, count, timeout_ms));
}
