// SPDX-License-Identifier: Apache-2.0
/* The thread "cairn-device": enqueues copies from devices into free pieces of the ring, polls for
 * their end (device_event_done), and passes them to the threads that write them into files. It
 * never blocks on a device. */
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "client/device.h"
#include "client/lane.h"

#define ASK_US 20             /* interval of polls while copies are in progress */
#define TIMER_SLACK_NS 1000   /* the default of 50 us would leave the bus idle between two copies */
#define FLIGHTS_CALM 1        /* per device; see may_enqueue_locked() */
#define RING_LEAST (64 * MIB) /* least size chosen */
#define RING_PART_OF_MEMORY 4 /* of the free memory: a fourth */
#define LOOK_MS 1000

/* --- copies ----------------------------------------------------------------------------------- */

static bool has_jobs_locked(const struct devices *devices)
{
    check_rank_held(LOCK_LANE);
    return !TAILQ_EMPTY(&devices->now) || !TAILQ_EMPTY(&devices->lazy);
}

/* Passes the piece on to be written; if the save has failed, the writing thread only releases
 * it. */
static void hand_on_locked(struct cairn_lane *lane, struct ring_piece *ring_piece)
{
    check_held(&lane->lock);
    const struct piece *piece = &ring_piece->piece;
    take_bytes(&piece->job->save->copying.on_device[piece->job->slot].flying, piece->length);
    job_read_locked(piece->job, piece->length);
    TAILQ_INSERT_TAIL(&lane->copiers.filled, ring_piece, link);
    (void)pthread_cond_signal(&lane->copiers.work);
}

/* A device makes its copies to the host in order, and switches to another stream only when it has
 * none left of this one. So a read by the training in the meantime (e.g. of a loss) waits for all
 * copies enqueued here. (With two at a time on an H100, it waited for the whole save.) So only one
 * copy is enqueued at a time, unless the training waits for the copies itself. */
static bool may_enqueue_locked(const struct cairn_lane *lane)
{
    check_held(&lane->lock);
    const struct devices *devices = &lane->devices;
    return devices->fences > 0 || !TAILQ_EMPTY(&devices->now) || lane->is_stopping ||
           devices->flights < FLIGHTS_CALM * (unsigned)devices->count;
}

/* Takes the next piece to be copied, if the ring has room. */
static struct ring_piece *take_copy_locked(struct cairn_lane *lane)
{
    check_held(&lane->lock);
    struct ring_piece *ring_piece = TAILQ_FIRST(&lane->devices.ring.free);
    if (!ring_piece || !may_enqueue_locked(lane) ||
        !look_next_copy_locked(lane, &ring_piece->piece))
        return NULL;
    check(ring_piece->piece.length <= lane->devices.ring.piece);
    TAILQ_REMOVE(&lane->devices.ring.free, ring_piece, link);
    return ring_piece;
}

/* Until a copy is enqueued, a fence counts its bytes as waiting. */
static void note_enqueued_locked(struct cairn_lane *lane, struct ring_piece *ring_piece, int r)
{
    check_held(&lane->lock);
    const struct piece *piece = &ring_piece->piece;
    struct cairn_save *save = piece->job->save;
    struct bytes_on_device *bytes = &save->copying.on_device[piece->job->slot];
    take_bytes(&bytes->waiting, piece->length);
    bytes->flying += piece->length;
    if (r < 0) {
        save_fail_locked(save, r, "%s", cause_text());
        hand_on_locked(lane, ring_piece);
        return;
    }
    TAILQ_INSERT_TAIL(&lane->devices.of[piece->job->slot].copies, ring_piece, link);
    lane->devices.flights++;
    if (bytes->waiting == 0)
        (void)pthread_cond_broadcast(&lane->changed);
}

static bool enqueue_piece(struct cairn_lane *lane)
{
    mutex_lock(&lane->lock);
    struct ring_piece *ring_piece = take_copy_locked(lane);
    bool has_failed = ring_piece && ring_piece->piece.job->save->error;
    mutex_unlock(&lane->lock);
    if (!ring_piece)
        return false;
    const struct piece *piece = &ring_piece->piece;
    cause_clear();
    int r = has_failed ? -ECANCELED
                       : device_copy(lane->devices.of[piece->job->slot].device, ring_piece->memory,
                                     piece->job->address + piece_offset(piece), piece->length,
                                     &ring_piece->event);
    LOCK_SCOPE(&lane->lock);
    note_enqueued_locked(lane, ring_piece, r);
    return true;
}

/* Copies of a device finish in order. */
static bool reap_piece(struct cairn_lane *lane, struct lane_device *device)
{
    struct ring_piece *ring_piece = TAILQ_FIRST(&device->copies);
    cause_clear();
    int r = ring_piece ? device_event_done(ring_piece->event) : 0;
    if (r == 0)
        return false;
    device_event_free(ring_piece->event);
    LOCK_SCOPE(&lane->lock);
    TAILQ_REMOVE(&device->copies, ring_piece, link);
    check(lane->devices.flights > 0);
    lane->devices.flights--;
    if (r < 0)
        save_fail_locked(ring_piece->piece.job->save, r, "%s", cause_text());
    hand_on_locked(lane, ring_piece);
    return true;
}

/* --- the ring --------------------------------------------------------------------------------- */

/* Bytes of saves on devices: only those waiting, or all in progress. */
static uint64_t device_bytes_locked(const struct cairn_lane *lane, bool only_waiting)
{
    check_held(&lane->lock);
    uint64_t sum = 0;
    const struct cairn_save *save;
    TAILQ_FOREACH(save, &lane->saves, link)
    {
        for (int i = 0; i < lane->devices.count; i++) {
            const struct bytes_on_device *bytes = &save->copying.on_device[i];
            sum += bytes->waiting + (only_waiting ? 0 : bytes->flying + bytes->looking);
        }
    }
    return sum;
}

/* Only one thread at a time may grow the ring. */
static int grow_ring(struct cairn_lane *lane, uint64_t bytes, bool only_idle)
{
    struct devices *devices = &lane->devices;
    mutex_lock(&lane->lock);
    bool may = !devices->ring_grows && !(only_idle && device_bytes_locked(lane, false) > 0);
    devices->ring_grows = devices->ring_grows || may;
    mutex_unlock(&lane->lock);
    if (!may) {
        cause_note("a copy from a device, or another call that makes the ring, is under way");
        return -EBUSY;
    }
    int r = ring_grow(lane, bytes);
    LOCK_SCOPE(&lane->lock);
    devices->ring_grows = false;
    (void)pthread_cond_broadcast(&devices->work);
    return r;
}

int devices_prepare(struct cairn_lane *lane, uint64_t bytes)
{
    return grow_ring(lane, bytes, true);
}

/* As large as the first sources, so that no copy has to wait for files; limited to a part of the
 * free memory. */
static uint64_t chosen_bytes(uint64_t waiting)
{
    uint64_t available =
        (uint64_t)sysconf(_SC_AVPHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / RING_PART_OF_MEMORY;
    return max_u64(RING_LEAST, min_u64(waiting, available));
}

/* Creates the ring for the first source on a device. Without memory for it, that source's saves
 * fail. */
static void make_ring(struct cairn_lane *lane)
{
    struct devices *devices = &lane->devices;
    mutex_lock(&lane->lock);
    uint64_t waiting = device_bytes_locked(lane, true);
    mutex_unlock(&lane->lock);
    cause_clear();
    uint64_t bytes = lane->options.ring_bytes;
    int r = grow_ring(lane, bytes ? bytes : chosen_bytes(waiting), false);
    LOCK_SCOPE(&lane->lock);
    /* -EBUSY: another thread is creating it */
    while (r < 0 && r != -EBUSY && has_jobs_locked(devices)) {
        struct job *job = TAILQ_FIRST(&devices->now);
        save_fail_locked((job ? job : TAILQ_FIRST(&devices->lazy))->save, r, "%s", cause_text());
    }
}

/* --- the thread ------------------------------------------------------------------------------- */

/* Are copies in progress? Then the thread must poll. */
static bool any_flies(const struct devices *devices, int count)
{
    for (int i = 0; i < count; i++)
        if (!TAILQ_EMPTY(&devices->of[i].copies) || devices->of[i].looks.count > 0)
            return true;
    return false;
}

static int device_count(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lane->lock);
    return lane->devices.count;
}

/* False: the lane is ending. */
static bool rest(struct cairn_lane *lane, int count)
{
    struct devices *devices = &lane->devices;
    if (any_flies(devices, count)) {
        (void)usleep(ASK_US);
        return true;
    }
    LOCK_SCOPE(&lane->lock);
    bool has_work = has_jobs_locked(devices) || devices->to_copy.count > 0;
    if (lane->is_stopping && !has_work)
        return false;
    if (!has_work || TAILQ_EMPTY(&devices->ring.free))
        (void)mutex_wait(&lane->lock, &devices->work, LOOK_MS);
    return true;
}

static bool needs_ring(struct cairn_lane *lane)
{
    LOCK_SCOPE(&lane->lock);
    return has_jobs_locked(&lane->devices) && lane->devices.ring.region_count == 0;
}

static void *device_main(void *arg)
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
            moved = look_end(lane, &lane->devices.of[i]) || moved;
            moved = reap_piece(lane, &lane->devices.of[i]) || moved;
        }
        if (!moved)
            goes_on = rest(lane, count);
    }
    return NULL;
}

/* --- devices of a lane ------------------------------------------------------------------------ */

int devices_find_locked(const struct cairn_lane *lane, int ordinal)
{
    check_held(&lane->lock);
    for (int i = 0; i < lane->devices.count; i++)
        if (lane->devices.of[i].ordinal == ordinal)
            return i;
    return -1;
}

/* If another thread has opened the device meanwhile, this one is closed again. */
static int enter_device(struct cairn_lane *lane, int ordinal, struct device **device)
{
    LOCK_SCOPE(&lane->lock);
    struct devices *devices = &lane->devices;
    int slot = devices_find_locked(lane, ordinal);
    if (slot >= 0)
        return slot;
    TRY(lane_thread_start(&devices->thread, "cairn-device", device_main, lane));
    if (devices->count == DEVICES_MAX) {
        cause_note("a lane copies from %d devices at most", DEVICES_MAX);
        return -EINVAL;
    }
    struct lane_device *entry = &devices->of[devices->count];
    *entry = (struct lane_device){.ordinal = ordinal, .device = *device};
    TAILQ_INIT(&entry->copies);
    *device = NULL;
    return devices->count++;
}

static int open_device(struct cairn_lane *lane, int ordinal)
{
    struct device_driver *driver;
    struct device *device = NULL;
    TRY(device_driver_get(&driver));
    TRY(device_open(driver, ordinal, &device));
    int slot = enter_device(lane, ordinal, &device);
    device_close(device);
    return slot;
}

int devices_slot(struct cairn_lane *lane, int ordinal, uint64_t producer)
{
    mutex_lock(&lane->lock);
    int slot = devices_find_locked(lane, ordinal);
    mutex_unlock(&lane->lock);
    if (slot < 0)
        slot = open_device(lane, ordinal);
    if (slot < 0)
        return slot;
    int r = device_after_producer(lane->devices.of[slot].device, producer);
    return r < 0 ? r : slot;
}

void devices_close(struct cairn_lane *lane, bool is_child)
{
    for (int i = 0; i < lane->devices.count && !is_child; i++)
        device_close(lane->devices.of[i].device);
    ring_free(&lane->devices.ring, is_child);
}
