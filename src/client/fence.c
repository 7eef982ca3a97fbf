// SPDX-License-Identifier: Apache-2.0
/* The fence: before sources change, no copy reads them any more, or what changes them is ordered
 * behind the copies. */
#include "client/client.h"

#include <stdio.h>

#include "base/clock.h"
#include "client/device.h"

struct fence {
    uint64_t begun; /* saves up to this number */
    int64_t begun_ns;
    const struct cairn_stream *streams;
    size_t count;
    bool is_covered[DEVICES_MAX]; /* a stream of this device comes after its copies: enqueued is
                                     enough */
    bool is_used[DEVICES_MAX];    /* copies from it are under way */
};

/* Bytes of this save that the fence has to wait for. */
static uint64_t bytes_before_fence_locked(const struct cairn_save *save, const struct fence *fence)
{
    check_held(&save->lane->lock);
    uint64_t on_devices = 0, open = 0;
    for (int i = 0; i < save->lane->device.count; i++) {
        uint64_t waiting = save->on_device[i].waiting + save->on_device[i].looking,
                 flying = save->on_device[i].flying;
        on_devices += waiting + flying;
        open += fence->is_covered[i] ? waiting : waiting + flying;
    }
    uint64_t on_host = save->error ? save->reading : save->unread - on_devices;
    return on_host + open;
}

static bool is_fence_open_locked(struct cairn_lane *lane, const struct fence *fence)
{
    check_held(&lane->lock);
    for (struct cairn_save *save = lane->saves; save && save->number <= fence->begun;
         save = save->next)
        if (bytes_before_fence_locked(save, fence) > 0)
            return true;
    return false;
}

static bool holds_up_fence_locked(const struct cairn_save *save, const struct fence *fence)
{
    check_held(&save->lane->lock);
    return !save->error && bytes_before_fence_locked(save, fence) > 0;
}

/* When the fence has waited long enough for a save; -1: for none so far. */
static int64_t next_limit_locked(struct cairn_lane *lane, const struct fence *fence)
{
    check_held(&lane->lock);
    int64_t next = -1;
    for (struct cairn_save *save = lane->saves; save && save->number <= fence->begun;
         save = save->next) {
        if (save->max_block_ms < 0 || !holds_up_fence_locked(save, fence))
            continue;
        int64_t limit = fence->begun_ns + save->max_block_ms * 1000000ll;
        next = next < 0 || limit < next ? limit : next;
    }
    return next;
}

/* A save that holds up the training for longer than it may is given up. */
static void fail_slow_locked(struct cairn_lane *lane, const struct fence *fence, int64_t now)
{
    check_held(&lane->lock);
    char cause[CAUSE_MAX];
    for (struct cairn_save *save = lane->saves; save && save->number <= fence->begun;
         save = save->next) {
        if (save->max_block_ms < 0 || !holds_up_fence_locked(save, fence) ||
            now < fence->begun_ns + save->max_block_ms * 1000000ll)
            continue;
        (void)snprintf(
            cause, sizeof cause,
            "%.250s: a fence has waited for the copy for %d ms; %llu of %llu bytes were copied",
            save->draft.path, save->max_block_ms, (unsigned long long)save->copied_bytes,
            (unsigned long long)save->source_bytes);
        save_fail_locked(save, -ETIMEDOUT, cause);
    }
}

static void cover_locked(struct cairn_lane *lane, struct fence *fence)
{
    check_held(&lane->lock);
    for (size_t i = 0; i < fence->count; i++) {
        int slot = device_slot_locked(lane, fence->streams[i].device);
        if (slot >= 0)
            fence->is_covered[slot] = true;
    }
}

/* Notes which devices still copy, when the host has waited for all that it must. */
static void note_used_locked(struct cairn_lane *lane, struct fence *fence)
{
    check_held(&lane->lock);
    for (struct cairn_save *save = lane->saves; save; save = save->next)
        for (int i = 0; i < lane->device.count; i++)
            fence->is_used[i] = fence->is_used[i] || save->on_device[i].flying > 0;
}

static int wait_for_host_locked(struct cairn_lane *lane, struct fence *fence, int64_t deadline)
{
    check_held(&lane->lock);
    while (is_fence_open_locked(lane, fence)) {
        int64_t limit = next_limit_locked(lane, fence);
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
    lane->device.fences++;
    int r = wait_for_host_locked(lane, fence, deadline);
    lane->device.fences--;
    return r;
}

/* -EBUSY: a stream captures. Other errors leave the host to wait for that device. */
static int order_streams(struct cairn_lane *lane, struct fence *fence)
{
    int r = 0;
    for (size_t i = 0; i < fence->count && r != -EBUSY; i++) {
        mutex_lock(&lane->lock);
        int slot = device_slot_locked(lane, fence->streams[i].device);
        mutex_unlock(&lane->lock);
        if (slot < 0 || !fence->is_used[slot])
            continue;
        int ordered = device_order_behind(lane->device.of[slot].device, fence->streams[i].stream);
        if (ordered < 0)
            r = ordered;
        if (ordered < 0)
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
    int r = wait_for_host(lane, &fence, deadline);
    if (r == 0)
        r = order_streams(lane, &fence);
    if (r == 0 || r == -EBUSY || r == -ETIMEDOUT)
        return r;
    return wait_for_host(lane, &fence, deadline);
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
