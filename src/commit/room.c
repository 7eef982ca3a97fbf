// SPDX-License-Identifier: Apache-2.0
/* Room on NVMe: bytes are acknowledged only against room that the medium has already granted.
 *
 * A thread keeps files allocated ahead (the tier's reserve) for all staged data that is not
 * durable, plus some more. A write is admitted if the granted bytes cover it: the reserve, less the
 * packs written since the thread last looked. So writing back acknowledged data cannot meet ENOSPC,
 * and a cap is kept however fast content is written back. If the medium grants no more, a write
 * waits as long as garbage collection, eviction or a deletion may free space. It fails with ENOSPC
 * if a search for space that began after the write found none. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "base/process.h"
#include "commit/commit.h"
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "commit/room_internal.h"
#include "tier/tier.h"

#define AHEAD_MAX (512 * MIB)
#define AHEAD_SHARE 8u /* of the cap, at most */
/* Frames, index, trailer and padding for staged content, in chunks of 4 KiB and more: one part in
 * 28. */
#define OVERHEAD_SHARE 28u
#define SLACK (2 * MIB)
/* The view may write so much before the next look: its log grows in steps. */
#define VIEW_MIN (24 * MIB)
#define JOURNAL_STEP (16 * MIB) /* a segment */
/* Part of a compaction's room left for names and attributes when content has used up the rest: they
 * need little, and do not wait for content. */
#define CHANGES_SHARE (8 * MIB)
#define REFUSE_TRIES 5u /* attempts to write a cut, in about 0.3 s */
/* For lack of descriptors: other users of the process or machine mostly close some earlier. */
#define SHORTAGE_MAX_NS (5 * SECOND_NS)
/* Empty files reserved for packs shorter than a unit of room, so that acknowledged data needs no
 * inode that others may have taken. */
#define FILES_AHEAD 16u
/* The part of the disk that is never granted to content: growth of the view and the journal, and
 * the pack that a compaction writes before the packs that it empties are dropped. With less, the
 * view could not follow the cut that drops them. */
#define DISK_MARGIN (TIER_RESERVE_UNIT + JOURNAL_STEP + 2 * VIEW_MIN)

struct room *room_new(struct local *local, struct horizon *horizon,
                      const struct room_sources *sources, void *arg)
{
    struct room *room = xcalloc(1, sizeof *room);
    *room =
        (struct room){.local = local, .horizon = horizon, .sources = sources, .sources_arg = arg};
    mutex_init(&room->lock, LOCK_LEAF);
    cond_init(&room->changed);
    event_init(&room->more);
    return room;
}

void room_free(struct room *room)
{
    mutex_done(&room->lock);
    (void)pthread_cond_destroy(&room->changed);
    event_done(&room->more);
    free(room);
}

void room_on_room(struct room *room, void (*fn)(void *arg), void *arg)
{
    check(!room->on_room && !room->started);
    room->on_room = fn;
    room->on_room_arg = arg;
}

/* Fetched chunks that no batch names yet need room like staged ones. */
static uint64_t staged_bytes(struct room *room)
{
    uint64_t dirty = room->sources->staged(room->sources_arg) + room_promoted(room);
    return dirty + dirty / OVERHEAD_SHARE;
}

static uint64_t staged_need(struct room *room)
{
    return staged_bytes(room) + SLACK;
}

uint64_t room_used(struct room *room)
{
    uint64_t packs = room->sources->packs(room->sources_arg);
    LOCK_SCOPE(&room->lock);
    return packs + room->journal_bytes + room->view_bytes + room->runs_bytes + room->snapshot_bytes;
}

/* Upper limits of the reserve for content. */
struct limits {
    uint64_t by_cap, by_disk;
    uint64_t with_changes; /* for content, names and attributes together */
    /* current reserve; files reserved a while ago may be packs by now: only the tier knows */
    uint64_t held;
};

static uint64_t bytes_less(uint64_t bytes, uint64_t taken)
{
    return bytes > taken ? bytes - taken : 0;
}

static struct limits find_limits(struct room *room)
{
    /* One pack's worth is never granted: compaction needs room to make room. */
    uint64_t used = room_used(room) + TIER_RESERVE_UNIT;
    uint64_t cap = room->local->options.cap_bytes ? room->local->options.cap_bytes : UINT64_MAX / 2;
    struct limits limits = {.by_cap = bytes_less(cap, used),
                            .with_changes = bytes_less(cap + CHANGES_SHARE, used)};
    struct tier_space space;
    if (room->local->tier->ops->space(room->local->tier, &space) < 0) {
        LOCK_SCOPE(&room->lock);
        limits.by_disk = limits.held = room->granted;
        return limits;
    }
    limits.held = space.held_bytes;
    uint64_t has = space.free_bytes + space.held_bytes;
    limits.by_disk = bytes_less(has, DISK_MARGIN);
    limits.with_changes =
        min_u64(limits.with_changes, bytes_less(has + CHANGES_SHARE, DISK_MARGIN));
    return limits;
}

static uint64_t holdable_bytes(struct room *room)
{
    struct limits limits = find_limits(room);
    return min_u64(limits.by_cap, limits.by_disk);
}

uint64_t room_available(struct room *room, uint64_t more)
{
    return bytes_less(align_down(holdable_bytes(room) + more, MIB), staged_need(room));
}

static uint64_t ahead_of(const struct room *room)
{
    uint64_t cap = room->local->options.cap_bytes;
    return cap ? min_u64(AHEAD_MAX, cap / AHEAD_SHARE) : AHEAD_MAX;
}

uint64_t room_missing(struct room *room)
{
    return bytes_less(align_up(staged_need(room) + ahead_of(room), TIER_RESERVE_UNIT),
                      holdable_bytes(room));
}

/* Reserves the needed bytes and some more: in whole packs, or all available bytes at a limit. */
static int reserve_room(struct room *room, const struct limits *limits, uint64_t need,
                        uint64_t *ret_held)
{
    uint64_t wanted = align_up(need + ahead_of(room), TIER_RESERVE_UNIT);
    if (wanted > limits->by_cap)
        wanted = align_down(limits->by_cap, MIB);
    /* the reserve also serves as the margin: if it were given back, others would use it */
    if (wanted > limits->by_disk)
        wanted = max_u64(align_down(limits->by_disk, MIB), min_u64(limits->held, wanted));
    int r = room->local->tier->ops->reserve(room->local->tier, wanted, FILES_AHEAD, ret_held);
    if (r == -EFBIG || r == -EMFILE)
        process_raise_limits();
    if (r < 0 && r != -ENOSPC)
        horizon_error(room->horizon, "nvme: allocating room failed: %s", strerror(-r));
    return r;
}

/* Stores the result of the thread's look, less the packs written since. True: more bytes may be
 * admitted than before. */
static bool note_granted_locked(struct room *room, const struct limits *limits, uint64_t held,
                                uint64_t taken, uint64_t need)
{
    check_held(&room->lock);
    uint64_t since = room->taken - taken, before = room->left;
    room->granted = bytes_less(min_u64(held, min_u64(limits->by_cap, limits->by_disk)), since);
    room->with_changes = bytes_less(limits->with_changes, since);
    room->left = bytes_less(room->granted, need);
    room->scarce = room->granted < need + ahead_of(room);
    return room->left > before;
}

/* One round of the thread. Wakes a waiting writer only if its condition may have changed: it checks
 * again, which requests another round. */
static void adjust(struct room *room)
{
    mutex_lock(&room->lock);
    uint64_t taken = room->taken;
    mutex_unlock(&room->lock);
    struct limits limits = find_limits(room);
    uint64_t need = staged_need(room), held = 0;
    (void)reserve_room(room, &limits, need, &held);
    mutex_lock(&room->lock);
    bool notifies = note_granted_locked(room, &limits, held, taken, need);
    if (notifies || !room->scarce)
        room->hopeless = false;
    mutex_unlock(&room->lock);
    event_signal(&room->more);
    if (notifies && room->on_room)
        room->on_room(room->on_room_arg);
}

static void *room_main(void *arg)
{
    struct room *room = arg;
    mutex_lock(&room->lock);
    while (!room->stopping) {
        bool wanted = room->wanted;
        uint64_t round = room->rounds_begun += wanted;
        room->wanted = false;
        mutex_unlock(&room->lock);
        if (wanted)
            adjust(room);
        mutex_lock(&room->lock);
        room->rounds_done = round;
        (void)pthread_cond_broadcast(&room->changed);
        if (!room->wanted && !room->stopping)
            (void)mutex_wait(&room->lock, &room->changed, 1000);
        /* once a second even without a request: others use the disk, too */
        room->wanted = true;
    }
    mutex_unlock(&room->lock);
    return NULL;
}

static void ask_for_room_locked(struct room *room)
{
    check_held(&room->lock);
    room->wanted = true;
    (void)pthread_cond_broadcast(&room->changed);
}

/* Waits for one whole round that begins after this call. False: the thread is ending. */
static bool adjust_now(struct room *room)
{
    LOCK_SCOPE(&room->lock);
    ask_for_room_locked(room);
    uint64_t round = room->rounds_begun + 1;
    while (room->rounds_done < round && !room->stopping)
        (void)mutex_wait(&room->lock, &room->changed, -1);
    return !room->stopping;
}

void room_spend(struct room *room, uint64_t bytes)
{
    LOCK_SCOPE(&room->lock);
    room->taken += bytes;
    room->granted = bytes_less(room->granted, bytes);
    room->with_changes = bytes_less(room->with_changes, bytes);
    ask_for_room_locked(room);
}

/* When the request of the calling thread began to wait, monotonic ns; 0: it did not wait, or there
 * is no request. */
static _Thread_local int64_t waits_since;

void room_waits_since(int64_t ns)
{
    waits_since = ns;
}

/* -EAGAIN: not granted now. */
static int admit_locked(struct room *room, uint64_t need)
{
    check_held(&room->lock);
    if (need + ahead_of(room) / 2 > room->granted)
        ask_for_room_locked(room);
    return need <= room->granted ? 0 : -EAGAIN;
}

/* Errors that a retry in another file does not fix, unlike a bad sector. */
static bool is_refusal(int error)
{
    return error == -ENOSPC || error == -EDQUOT || error == -EFBIG || error == -EROFS ||
           error == -EMFILE || error == -ENFILE;
}

static int note_refusal(int error)
{
    cause_note("nothing can be written to NVMe: %s; what was written before stays in the stage",
               strerror(-error));
    return error == -EDQUOT ? -ENOSPC : error == -EFBIG || error == -EROFS ? error : -EIO;
}

/* May descriptors become available soon? */
static bool may_be_short(struct room *room, int error)
{
    LOCK_SCOPE(&room->lock);
    int64_t now = clock_monotonic_ns();
    if (error != -EMFILE && error != -ENFILE)
        room->short_since = 0;
    else if (room->short_since == 0)
        room->short_since = now;
    return room->short_since && now - room->short_since < SHORTAGE_MAX_NS;
}

void room_note_try(struct room *room, unsigned tries, int error)
{
    int refusal = is_refusal(error) ? error : 0;
    bool is_short = may_be_short(room, error);
    if (refusal && tries < REFUSE_TRIES)
        return;
    if (refusal == -EFBIG || refusal == -EMFILE)
        process_raise_limits(); /* the limits were lowered while the daemon ran */
    if (is_short)
        return;
    mutex_lock(&room->lock);
    bool is_new = refusal != room->refusal;
    room->refusal = refusal;
    mutex_unlock(&room->lock);
    if (is_new && refusal)
        log_error("nvme: nothing can be written (%s): writers and fsync get an error until it can; "
                  "what was written before stays in the stage",
                  strerror(-refusal));
    if (is_new && !refusal)
        log_info("nvme: it can be written again");
    if (refusal)
        horizon_refuse(room->horizon, note_refusal(refusal));
    if (refusal && room->on_room)
        room->on_room(room->on_room_arg);
}

bool room_is_full(struct room *room)
{
    LOCK_SCOPE(&room->lock);
    return room->scarce && room->hopeless;
}

bool room_refuses(struct room *room)
{
    LOCK_SCOPE(&room->lock);
    return room->refusal != 0;
}

/* Has the request waited through a whole search that found nothing? */
static int refuse_locked(const struct room *room)
{
    check_held(&room->lock);
    if (!room->hopeless || !waits_since || room->searched <= waits_since)
        return -EAGAIN;
    cause_note("NVMe is full of data that may not be dropped; remove something, or mount with a "
               "larger nvme=SIZE");
    return -ENOSPC;
}

int room_admit(struct room *room, uint64_t bytes)
{
    uint64_t need = staged_need(room) + bytes;
    LOCK_SCOPE(&room->lock);
    if (room->refusal)
        return note_refusal(room->refusal);
    int r = admit_locked(room, need);
    return r < 0 ? refuse_locked(room) : 0;
}

int room_admit_change(struct room *room, uint64_t bytes)
{
    uint64_t need = staged_bytes(room) + bytes;
    LOCK_SCOPE(&room->lock);
    if (room->refusal)
        return note_refusal(room->refusal);
    if (need <= room->with_changes)
        return 0;
    ask_for_room_locked(room);
    return refuse_locked(room);
}

int room_admit_own(struct room *room, uint64_t bytes)
{
    uint64_t need = staged_need(room) + bytes;
    LOCK_SCOPE(&room->lock);
    int r = admit_locked(room, need);
    return r < 0 && room->hopeless ? -ENOSPC : r;
}

/* --- fetched chunks: may use room that nothing else needs now --------------------------------- */

struct event *room_more(struct room *room)
{
    return &room->more;
}

uint64_t room_promoted(struct room *room)
{
    return atomic_load(&room->promoted_bytes);
}

bool room_promote(struct room *room, uint64_t bytes, bool asks)
{
    /* writers have precedence: half of the room reserved ahead for them stays theirs */
    uint64_t need = staged_need(room) + bytes + min_u64(ahead_of(room) / 2, TIER_RESERVE_UNIT);
    LOCK_SCOPE(&room->lock);
    if (asks && need + ahead_of(room) / 2 > room->granted)
        ask_for_room_locked(room);
    if (need > room->granted)
        return false;
    atomic_fetch_add(&room->promoted_bytes, bytes);
    return true;
}

void room_promote_done(struct room *room, uint64_t bytes)
{
    if (bytes == 0)
        return;
    uint64_t before = atomic_fetch_sub(&room->promoted_bytes, bytes);
    check(before >= bytes);
    event_signal(&room->more);
    if (before == bytes)
        event_signal(&room->horizon->progress);
}

/* Total bytes of the files in a directory of the store. */
static uint64_t bytes_of_directory(struct room *room, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", room->local->path, name);
    DIR *directory = opendir(path);
    uint64_t bytes = 0;
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        struct stat st;
        if (fstatat(dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    }
    if (directory)
        (void)closedir(directory);
    return bytes;
}

void room_account_runs(struct room *room)
{
    if (!room)
        return;
    uint64_t runs = bytes_of_directory(room, "runs") + bytes_of_directory(room, "feeds");
    LOCK_SCOPE(&room->lock);
    room->runs_bytes = runs;
    ask_for_room_locked(room);
}

void room_account(struct room *room)
{
    uint64_t journal = room->sources->journal(room->sources_arg);
    uint64_t view = bytes_of_directory(room, "view");
    LOCK_SCOPE(&room->lock);
    room->journal_bytes = journal;
    room->view_bytes = view;
    ask_for_room_locked(room);
}

void room_note_snapshots(struct room *room, uint64_t bytes)
{
    LOCK_SCOPE(&room->lock);
    room->snapshot_bytes = bytes;
}

bool room_is_short(struct room *room)
{
    if (!horizon_has_writers(room->horizon))
        return false;
    LOCK_SCOPE(&room->lock);
    return room->scarce;
}

bool room_for_moving(struct room *room)
{
    struct tier_space space;
    return room->local->tier->ops->space(room->local->tier, &space) == 0 &&
           space.free_bytes + space.held_bytes >= staged_need(room) + TIER_RESERVE_UNIT + VIEW_MIN;
}

int room_for_view(struct room *room)
{
    struct tier *tier = room->local->tier;
    struct tier_space space;
    TRY(tier->ops->space(tier, &space));
    if (space.free_bytes >= VIEW_MIN)
        return 0;
    /* others have filled the disk: releases the reserve, since the bytes for which it was reserved
     * are being written now */
    uint64_t held = 0;
    int r =
        tier->ops->reserve(tier, bytes_less(space.held_bytes, 2 * VIEW_MIN), FILES_AHEAD, &held);
    mutex_lock(&room->lock);
    room->granted = min_u64(held, room->granted);
    mutex_unlock(&room->lock);
    TRY(r);
    TRY(tier->ops->space(tier, &space));
    return space.free_bytes >= VIEW_MIN ? 0 : -ENOSPC;
}

void room_give_files(struct room *room)
{
    struct tier *tier = room->local->tier;
    struct tier_space space;
    uint64_t held = 0;
    if (tier->ops->space(tier, &space) < 0 ||
        tier->ops->reserve(tier, space.held_bytes, 0, &held) < 0)
        return; /* then the view finds none, either */
    log_info("nvme: inodes that were held for packs are given to the view's database");
}

void room_settle(struct room *room, int64_t began, bool found)
{
    if (found || !horizon_has_writers(room->horizon) ||
        !room->sources->is_carried(room->sources_arg, began))
        return;
    if (!adjust_now(room) || !room_is_short(room) || room->sources->may_free(room->sources_arg))
        return;
    mutex_lock(&room->lock);
    bool hopeless = room->scarce, is_new = hopeless && !room->hopeless;
    room->hopeless = hopeless;
    room->searched = began;
    mutex_unlock(&room->lock);
    if (is_new)
        log_warn("nvme: the store is full of data that may not be dropped; writers get ENOSPC "
                 "until something is removed");
    if (hopeless && room->on_room)
        room->on_room(room->on_room_arg);
}

int room_start(struct room *room)
{
    mutex_lock(&room->lock); /* the writeback thread runs and calls in, too */
    ask_for_room_locked(room);
    mutex_unlock(&room->lock);
    adjust(room);
    int r = thread_start(&room->thread, "cairn-room", room_main, room);
    room->started = r == 0;
    return r;
}

void room_stop(struct room *room)
{
    mutex_lock(&room->lock);
    room->stopping = true;
    (void)pthread_cond_broadcast(&room->changed);
    mutex_unlock(&room->lock);
    if (room->started)
        (void)pthread_join(room->thread, NULL);
    room->started = false;
}
