// SPDX-License-Identifier: Apache-2.0
/* The thread "cairn-device": enqueues copies from devices into free pieces of the ring, asks for
 * those that are done, and hands these to the threads that write them into files. It alone waits
 * for no device: it asks (device_event_done). */
#include "client/client.h"

#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/pool.h"
#include "client/device.h"

#define ASK_US 20             /* between two questions while copies are under way */
#define TIMER_SLACK_NS 1000   /* the usual 50 us would leave the bus idle between two copies */
#define FLIGHTS_CALM 1        /* of a device; see may_enqueue_locked() */
#define RING_LEAST (64 * MIB) /* that is chosen */
#define RING_PART_OF_MEMORY 4 /* of what is free: a fourth */
#define LOOK_MS 1000

/* --- devices of a lane ------------------------------------------------------------------------ */

int device_slot_locked(const struct cairn_lane *lane, int ordinal)
{
    check_held(&lane->lock);
    for (int i = 0; i < lane->device.count; i++)
        if (lane->device.of[i].ordinal == ordinal)
            return i;
    return -1;
}

static int start_thread_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    if (lane->device.has_thread)
        return 0;
    int r = thread_start(&lane->device.thread, "cairn-device", device_main, lane);
    if (r < 0)
        cause_note("no thread can be started: %s", strerror(-r));
    lane->device.has_thread = r == 0;
    return r;
}

/* Another thread may have opened it meanwhile: then this one is closed again. */
static int enter_device(struct cairn_lane *lane, int ordinal, struct device **device)
{
    LOCK_SCOPE(&lane->lock);
    int slot = device_slot_locked(lane, ordinal);
    int r = slot < 0 ? start_thread_locked(lane) : 0;
    if (slot >= 0 || r < 0)
        return r < 0 ? r : slot;
    if (lane->device.count == DEVICES_MAX) {
        cause_note("a lane copies from %d devices at most", DEVICES_MAX);
        return -EINVAL;
    }
    struct lane_device *entry = &lane->device.of[lane->device.count];
    *entry = (struct lane_device){.ordinal = ordinal, .device = *device, .last = &entry->first};
    *device = NULL;
    return lane->device.count++;
}

static int open_device(struct cairn_lane *lane, int ordinal)
{
    struct device_driver *driver;
    struct device *device = NULL;
    int r = device_driver_get(&driver);
    if (r == 0)
        r = device_open(driver, ordinal, &device);
    if (r == 0)
        r = enter_device(lane, ordinal, &device);
    device_close(device);
    return r;
}

int lane_device(struct cairn_lane *lane, int ordinal, uint64_t producer, int *ret_slot)
{
    mutex_lock(&lane->lock);
    int slot = device_slot_locked(lane, ordinal);
    mutex_unlock(&lane->lock);
    if (slot < 0)
        slot = open_device(lane, ordinal);
    if (slot < 0)
        return slot;
    *ret_slot = slot;
    return device_after_producer(lane->device.of[slot].device, producer);
}

void lane_close_devices(struct cairn_lane *lane, bool is_child)
{
    for (int i = 0; i < lane->device.count && !is_child; i++)
        device_close(lane->device.of[i].device);
    ring_free(&lane->ring, is_child);
}

/* --- the ring --------------------------------------------------------------------------------- */

static bool begin_growth(struct cairn_lane *lane, bool only_idle)
{
    LOCK_SCOPE(&lane->lock);
    for (struct cairn_save *save = lane->saves; save && only_idle; save = save->next)
        for (int i = 0; i < lane->device.count; i++)
            if (save->on_device[i].waiting + save->on_device[i].flying +
                    save->on_device[i].looking >
                0)
                return false;
    if (lane->ring_grows)
        return false;
    lane->ring_grows = true;
    return true;
}

static void end_growth(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lane->lock);
    lane->ring_grows = false;
    (void)pthread_cond_broadcast(&lane->device.work);
}

int lane_prepare(struct cairn_lane *lane, uint64_t bytes)
{
    if (!begin_growth(lane, true)) {
        cause_note("a copy from a device, or another call that makes the ring, is under way");
        return -EBUSY;
    }
    int r = ring_grow(lane, bytes);
    end_growth(lane);
    return r;
}

static uint64_t device_waiting_bytes_locked(const struct cairn_lane *lane)
{
    check_held(&lane->lock);
    uint64_t bytes = 0;
    for (const struct cairn_save *save = lane->saves; save; save = save->next)
        for (int i = 0; i < lane->device.count; i++)
            bytes += save->on_device[i].waiting;
    return bytes;
}

/* As large as what comes first, so that nothing has to wait for the files; but no more than a part
 * of the memory that is free. */
static uint64_t chosen_bytes(uint64_t waiting)
{
    uint64_t available =
        (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / RING_PART_OF_MEMORY;
    return max_u64(RING_LEAST, min_u64(waiting, available));
}

/* The first source on a device has no ring yet. Without memory for one its saves fail. */
static void make_ring(struct cairn_lane *lane)
{
    mutex_lock(&lane->lock);
    uint64_t waiting = device_waiting_bytes_locked(lane);
    mutex_unlock(&lane->lock);
    if (!begin_growth(lane, false))
        return; /* another thread makes it */
    cause_clear();
    int r = ring_grow(lane,
                      lane->options.ring_bytes ? lane->options.ring_bytes : chosen_bytes(waiting));
    end_growth(lane);
    LOCK_SCOPE(&lane->lock);
    while (r < 0 && (lane->device.now.first || lane->device.lazy.first))
        save_fail_locked(
            (lane->device.now.first ? lane->device.now.first : lane->device.lazy.first)->save, r,
            cause_text());
}

/* --- copies ----------------------------------------------------------------------------------- */

static void end_flight_locked(struct ring_piece *piece)
{
    check_rank_held(LOCK_LANE);
    struct job *job = piece->job;
    struct cairn_save *save = job->save;
    save->on_device[job->slot].flying -= piece->length;
    save->unread -= piece->length;
    save->now_unread -= job->is_now ? piece->length : 0;
    atomic_fetch_sub(&save->lane->busy, piece->length);
    if (save->error || save->unread == 0 || (job->is_now && save->now_unread == 0))
        (void)pthread_cond_broadcast(&save->lane->changed);
}

/* Into the file; if the save has failed, the thread that would write it only gives it back. */
static void hand_on_locked(struct cairn_lane *lane, struct ring_piece *piece)
{
    check_held(&lane->lock);
    piece->next = NULL;
    *lane->device.filled_last = piece;
    lane->device.filled_last = &piece->next;
    (void)pthread_cond_signal(&lane->work);
}

/* A device makes its copies to the host one after the other, and goes to those of another stream
 * when it has none left of this one: what the training reads in the meantime (a loss) waits for
 * that. (Two enqueued at a time on an H100: it waited for the whole save.) So only one is, but
 * where the training waits for the copies itself. */
static bool may_enqueue_locked(const struct cairn_lane *lane)
{
    check_held(&lane->lock);
    return lane->device.fences > 0 || lane->device.now.first || lane->stopping ||
           lane->device.flights < FLIGHTS_CALM * (unsigned)lane->device.count;
}

/* Takes the next piece that is to be copied, if the ring has room. */
static struct ring_piece *device_copy_take_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct ring_piece *piece = lane->ring.free;
    struct look look;
    if (!piece || !may_enqueue_locked(lane) || !look_next_copy_locked(lane, &look))
        return NULL;
    lane->ring.free = piece->next;
    *piece = (struct ring_piece){.memory = piece->memory,
                                 .job = look.job,
                                 .index = look.index,
                                 .at = look.at,
                                 .length = look.length};
    return piece;
}

/* Until the copy is enqueued its bytes are waiting, as a fence sees it. */
static void note_enqueued_locked(struct cairn_lane *lane, struct ring_piece *piece, int r)
{
    check_held(&lane->lock);
    struct cairn_save *save = piece->job->save;
    struct lane_device *device = &lane->device.of[piece->job->slot];
    save->on_device[piece->job->slot].waiting -= piece->length;
    save->on_device[piece->job->slot].flying += piece->length;
    if (r < 0) {
        save_fail_locked(save, r, cause_text());
        end_flight_locked(piece);
        hand_on_locked(lane, piece);
        return;
    }
    *device->last = piece;
    device->last = &piece->next;
    lane->device.flights++;
    if (save->on_device[piece->job->slot].waiting == 0)
        (void)pthread_cond_broadcast(&lane->changed);
}

static bool enqueue_piece(struct cairn_lane *lane)
{
    mutex_lock(&lane->lock);
    struct ring_piece *piece = device_copy_take_locked(lane);
    struct device *device = piece ? lane->device.of[piece->job->slot].device : NULL;
    bool has_failed = piece && piece->job->save->error;
    mutex_unlock(&lane->lock);
    if (!piece)
        return false;
    uint64_t from = piece->job->address + (piece->at - piece->job->at);
    cause_clear();
    int r = has_failed ? -ECANCELED
                       : device_copy(device, piece->memory, from, piece->length, &piece->event);
    LOCK_SCOPE(&lane->lock);
    note_enqueued_locked(lane, piece, r);
    return true;
}

/* The copies of a device are done in their order. */
static bool reap_piece(struct cairn_lane *lane, struct lane_device *device)
{
    struct ring_piece *piece = device->first;
    cause_clear();
    int r = piece ? device_event_done(piece->event) : 0;
    if (r == 0)
        return false;
    device_event_free(piece->event);
    LOCK_SCOPE(&lane->lock);
    device->first = piece->next;
    if (!device->first)
        device->last = &device->first;
    lane->device.flights--;
    if (r < 0)
        save_fail_locked(piece->job->save, r, cause_text());
    end_flight_locked(piece);
    hand_on_locked(lane, piece);
    return true;
}

/* Are copies under way? Then the thread has to ask again. */
static bool any_flies(const struct cairn_lane *lane, int count)
{
    bool any = false;
    for (int i = 0; i < count; i++)
        any = any || lane->device.of[i].first || lane->device.of[i].looks.count > 0;
    return any;
}

static int device_count(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lane->lock);
    return lane->device.count;
}

/* False: the lane ends. */
static bool rest_device(struct cairn_lane *lane, int count)
{
    if (any_flies(lane, count)) {
        (void)usleep(ASK_US);
        return true;
    }
    LOCK_SCOPE(&lane->lock);
    bool has_work =
        lane->device.now.first || lane->device.lazy.first || lane->device.to_copy.count > 0;
    if (lane->stopping && !has_work)
        return false;
    if (!has_work || !lane->ring.free)
        (void)mutex_wait(&lane->lock, &lane->device.work, LOOK_MS);
    return true;
}

static bool needs_ring(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lane->lock);
    return (lane->device.now.first || lane->device.lazy.first) && lane->ring.region_count == 0;
}

void *device_main(void *arg)
{
    struct cairn_lane *lane = arg;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), lane->options.nice);
    (void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS, 0, 0, 0);
    for (bool goes_on = true; goes_on;) {
        int count = device_count(lane);
        if (needs_ring(lane))
            make_ring(lane);
        bool moved = enqueue_piece(lane);
        moved = look_begin(lane) || moved;
        for (int i = 0; i < count; i++) {
            moved = look_end(lane, &lane->device.of[i]) || moved;
            moved = reap_piece(lane, &lane->device.of[i]) || moved;
        }
        if (!moved)
            goes_on = rest_device(lane, count);
    }
    return NULL;
}
