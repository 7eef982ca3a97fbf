// SPDX-License-Identifier: Apache-2.0
/* Room on NVMe: bytes are acknowledged only against room that the medium has already given us.
 *
 * A thread keeps files allocated ahead (the tier's reserve) for everything that the stage holds and
 * is not durable, plus some more; a write is admitted when what is granted covers it: what is held,
 * less what packs took of it since the thread looked. So writing back what was acknowledged cannot
 * meet ENOSPC, and a cap is kept however fast content is written back. When the medium gives no
 * more, a write waits as long as garbage collection, eviction or a deletion may free space. It
 * fails with ENOSPC when a search for space that began after the write did found none. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/process.h"
#include "commit/internal.h"

#define AHEAD_MAX (512 * MIB)
#define AHEAD_SHARE 8u /* of the cap, at most */
/* Frames, index, trailer and padding for what is staged, in chunks of 4 KiB and more. */
#define OVERHEAD_SHARE 28u
#define SLACK (2 * MIB)
/* The view may write so much before the next look: its log grows in steps. */
#define VIEW_MIN (24 * MIB)
#define JOURNAL_STEP (16 * MIB) /* a segment */
/* The share of a compaction's room for names and attributes when content has all else: they need
 * little, and wait for no content. */
#define CHANGES_SHARE (8 * MIB)
#define REFUSE_TRIES 5u /* of a cut, in about 0.3 s */
/* For descriptors: others of the process, or of the machine, mostly close some before. */
#define SHORTAGE_MAX_NS (5 * SECOND_NS)
/* Empty files held for packs that are shorter than a unit of room, so that what was acknowledged
 * needs no inode that others may have taken. */
#define FILES_AHEAD 16u
/* The part of the disk that is never promised to content: what the view and the journal grow by,
 * and the pack that a compaction makes before those go that it makes room of. With less the view
 * could not follow the cut that drops them. */
#define DISK_MARGIN (TIER_RESERVE_UNIT + JOURNAL_STEP + 2 * VIEW_MIN)

/* Fetched chunks that no batch names yet need room as staged ones do. */
static uint64_t staged_bytes(struct store *store)
{
    uint64_t dirty = stage_dirty_bytes(store->stage) + room_promoted(store);
    return dirty + dirty / OVERHEAD_SHARE;
}

static uint64_t staged_need(struct store *store)
{
    return staged_bytes(store) + SLACK;
}

uint64_t room_used(struct store *store)
{
    /* New packs are counted before the view's: a pack that moves to the view in between then counts
     * twice, never not at all. */
    mutex_lock(&store->commit->packs.lock);
    uint64_t packs = store->commit->packs.new_bytes + store->commit->packs.writing_bytes;
    mutex_unlock(&store->commit->packs.lock);
    packs += view_state(store->view).pack_bytes;
    LOCK_SCOPE(&store->commit->room.lock);
    return packs + store->commit->room.journal_bytes + store->commit->room.view_bytes +
           store->commit->room.runs_bytes;
}

/* The most that may be held for content. */
struct limits {
    uint64_t by_cap, by_disk;
    uint64_t with_changes; /* for content, and names and attributes besides */
    uint64_t held; /* now; what was held a while ago may be packs meanwhile: only the tier knows
                      what still is */
};

static uint64_t bytes_less(uint64_t bytes, uint64_t taken)
{
    return bytes > taken ? bytes - taken : 0;
}

static struct limits find_limits(struct store *store)
{
    /* One pack's worth is never given away: compaction needs room to make room. */
    uint64_t used = room_used(store) + TIER_RESERVE_UNIT;
    uint64_t cap = store->options.cap_bytes ? store->options.cap_bytes : UINT64_MAX / 2;
    struct limits limits = {.by_cap = bytes_less(cap, used),
                            .with_changes = bytes_less(cap + CHANGES_SHARE, used)};
    struct tier_space space;
    if (store->tier->ops->space(store->tier, &space) < 0) {
        LOCK_SCOPE(&store->commit->room.lock);
        limits.by_disk = limits.held = store->commit->room.granted;
        return limits;
    }
    limits.held = space.held_bytes;
    uint64_t has = space.free_bytes + space.held_bytes;
    limits.by_disk = bytes_less(has, DISK_MARGIN);
    limits.with_changes =
        min_u64(limits.with_changes, bytes_less(has + CHANGES_SHARE, DISK_MARGIN));
    return limits;
}

static uint64_t holdable_bytes(struct store *store)
{
    struct limits limits = find_limits(store);
    return min_u64(limits.by_cap, limits.by_disk);
}

uint64_t room_available_with(struct store *store, uint64_t more)
{
    return bytes_less(align_down(holdable_bytes(store) + more, MIB), staged_need(store));
}

uint64_t room_available(struct store *store)
{
    return room_available_with(store, 0);
}

static uint64_t ahead_of(const struct store *store)
{
    uint64_t cap = store->options.cap_bytes;
    return cap ? min_u64(AHEAD_MAX, cap / AHEAD_SHARE) : AHEAD_MAX;
}

uint64_t room_missing(struct store *store)
{
    return bytes_less(align_up(staged_need(store) + ahead_of(store), TIER_RESERVE_UNIT),
                      holdable_bytes(store));
}

/* Holds what is needed and some more: by whole packs, and at a limit all that there is. */
static int room_reserve(struct store *store, const struct limits *limits, uint64_t need,
                        uint64_t *ret_held)
{
    uint64_t wanted = align_up(need + ahead_of(store), TIER_RESERVE_UNIT);
    if (wanted > limits->by_cap)
        wanted = align_down(limits->by_cap, MIB);
    /* Held room already serves as the margin too: others would fill it if it were given back. */
    if (wanted > limits->by_disk)
        wanted = max_u64(align_down(limits->by_disk, MIB), min_u64(limits->held, wanted));
    int r = store->tier->ops->reserve(store->tier, wanted, FILES_AHEAD, ret_held);
    if (r == -EFBIG || r == -EMFILE)
        process_raise_limits();
    if (r < 0 && r != -ENOSPC)
        horizon_error(store, "nvme: allocating room failed: %s", strerror(-r));
    return r;
}

/* Stores the space that the thread found, less what packs took since it looked. True: more bytes
 * may be admitted than before. */
static bool note_granted_locked(struct store *store, const struct limits *limits, uint64_t held,
                                uint64_t taken, uint64_t need)
{
    check_held(&store->commit->room.lock);
    uint64_t since = store->commit->room.taken - taken, before = store->commit->room.left;
    store->commit->room.granted =
        bytes_less(min_u64(held, min_u64(limits->by_cap, limits->by_disk)), since);
    store->commit->room.with_changes = bytes_less(limits->with_changes, since);
    store->commit->room.left = bytes_less(store->commit->room.granted, need);
    store->commit->room.scarce = store->commit->room.granted < need + ahead_of(store);
    return store->commit->room.left > before;
}

/* One round of the thread. A writer that waits is told only of what it may be waiting for: it asks
 * again, which asks for a round. */
static void room_adjust(struct store *store)
{
    mutex_lock(&store->commit->room.lock);
    uint64_t taken = store->commit->room.taken;
    mutex_unlock(&store->commit->room.lock);
    struct limits limits = find_limits(store);
    uint64_t need = staged_need(store), held = 0;
    (void)room_reserve(store, &limits, need, &held);
    mutex_lock(&store->commit->room.lock);
    bool notifies = note_granted_locked(store, &limits, held, taken, need);
    if (notifies || !store->commit->room.scarce)
        store->commit->room.hopeless = false;
    mutex_unlock(&store->commit->room.lock);
    event_signal(&store->commit->room.more);
    if (notifies && store->commit->on_room)
        store->commit->on_room(store->commit->on_room_arg);
}

static void *room_main(void *arg)
{
    struct store *store = arg;
    mutex_lock(&store->commit->room.lock);
    while (!store->commit->room.stopping) {
        bool wanted = store->commit->room.wanted;
        uint64_t round = store->commit->room.rounds_begun += wanted;
        store->commit->room.wanted = false;
        mutex_unlock(&store->commit->room.lock);
        if (wanted)
            room_adjust(store);
        mutex_lock(&store->commit->room.lock);
        store->commit->room.rounds_done = round;
        (void)pthread_cond_broadcast(&store->commit->room.changed);
        if (!store->commit->room.wanted && !store->commit->room.stopping)
            (void)mutex_wait(&store->commit->room.lock, &store->commit->room.changed, 1000);
        /* Once a second even unasked: the disk is not only ours. */
        store->commit->room.wanted = true;
    }
    mutex_unlock(&store->commit->room.lock);
    return NULL;
}

static void ask_for_room_locked(struct store *store)
{
    check_held(&store->commit->room.lock);
    store->commit->room.wanted = true;
    (void)pthread_cond_broadcast(&store->commit->room.changed);
}

/* A whole round, from now on. False: the thread ends. */
static bool adjust_now(struct store *store)
{
    LOCK_SCOPE(&store->commit->room.lock);
    ask_for_room_locked(store);
    uint64_t round = store->commit->room.rounds_begun + 1;
    while (store->commit->room.rounds_done < round && !store->commit->room.stopping)
        (void)mutex_wait(&store->commit->room.lock, &store->commit->room.changed, -1);
    return !store->commit->room.stopping;
}

void room_spend(struct store *store, uint64_t bytes)
{
    LOCK_SCOPE(&store->commit->room.lock);
    store->commit->room.taken += bytes;
    store->commit->room.granted = bytes_less(store->commit->room.granted, bytes);
    store->commit->room.with_changes = bytes_less(store->commit->room.with_changes, bytes);
    ask_for_room_locked(store);
}

/* For the request that the thread works for: when it began to wait, monotonic ns; 0: it did not, or
 * there is none. */
static _Thread_local int64_t waits_since;

void room_waits_since(int64_t ns)
{
    waits_since = ns;
}

/* -EAGAIN: it is not granted now. */
static int admit_locked(struct store *store, uint64_t need)
{
    check_held(&store->commit->room.lock);
    if (need + ahead_of(store) / 2 > store->commit->room.granted)
        ask_for_room_locked(store);
    return need <= store->commit->room.granted ? 0 : -EAGAIN;
}

/* Errors that another try in another file does not mend, unlike those of a bad sector. */
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

/* Are there descriptors again before long? */
static bool may_be_short(struct store *store, int error)
{
    LOCK_SCOPE(&store->commit->room.lock);
    int64_t now = clock_monotonic_ns();
    if (error != -EMFILE && error != -ENFILE)
        store->commit->room.short_since = 0;
    else if (store->commit->room.short_since == 0)
        store->commit->room.short_since = now;
    return store->commit->room.short_since &&
           now - store->commit->room.short_since < SHORTAGE_MAX_NS;
}

void room_note_try(struct store *store, unsigned tries, int error)
{
    int refusal = is_refusal(error) ? error : 0;
    bool is_short = may_be_short(store, error);
    if (refusal && tries < REFUSE_TRIES)
        return;
    if (refusal == -EFBIG || refusal == -EMFILE)
        process_raise_limits(); /* they were lowered under the daemon */
    if (is_short)
        return;
    mutex_lock(&store->commit->room.lock);
    bool is_new = refusal != store->commit->room.refusal;
    store->commit->room.refusal = refusal;
    mutex_unlock(&store->commit->room.lock);
    if (is_new && refusal)
        log_error("nvme: nothing can be written (%s): writers and fsync get an error until it can; "
                  "what was written before stays in the stage",
                  strerror(-refusal));
    if (is_new && !refusal)
        log_info("nvme: it can be written again");
    if (refusal)
        horizon_refuse(store, note_refusal(refusal));
    if (refusal && store->commit->on_room)
        store->commit->on_room(store->commit->on_room_arg);
}

bool room_refuses(struct store *store)
{
    LOCK_SCOPE(&store->commit->room.lock);
    return store->commit->room.refusal != 0;
}

/* Has the request waited, and was a whole search since then in vain? */
static int refuse_locked(const struct store *store)
{
    check_held(&store->commit->room.lock);
    if (!store->commit->room.hopeless || !waits_since ||
        store->commit->room.searched <= waits_since)
        return -EAGAIN;
    cause_note("NVMe is full of data that may not be dropped; remove something, or mount with a "
               "larger nvme=SIZE");
    return -ENOSPC;
}

int room_admit(struct store *store, uint64_t bytes)
{
    uint64_t need = staged_need(store) + bytes;
    LOCK_SCOPE(&store->commit->room.lock);
    if (store->commit->room.refusal)
        return note_refusal(store->commit->room.refusal);
    int r = admit_locked(store, need);
    return r < 0 ? refuse_locked(store) : 0;
}

int room_admit_change(struct store *store, uint64_t bytes)
{
    uint64_t need = staged_bytes(store) + bytes;
    LOCK_SCOPE(&store->commit->room.lock);
    if (store->commit->room.refusal)
        return note_refusal(store->commit->room.refusal);
    if (need <= store->commit->room.with_changes)
        return 0;
    ask_for_room_locked(store);
    return refuse_locked(store);
}

int room_admit_own(struct store *store, uint64_t bytes)
{
    uint64_t need = staged_need(store) + bytes;
    LOCK_SCOPE(&store->commit->room.lock);
    int r = admit_locked(store, need);
    return r < 0 && store->commit->room.hopeless ? -ENOSPC : r;
}

/* --- what is fetched: it may have room that nothing else needs now ---------------------------- */

uint64_t room_promoted(struct store *store)
{
    return atomic_load(&store->commit->promoted_bytes);
}

bool room_promote(struct store *store, uint64_t bytes, bool asks)
{
    /* Writers come first: half of what is held ahead for them stays theirs. */
    uint64_t need = staged_need(store) + bytes + min_u64(ahead_of(store) / 2, TIER_RESERVE_UNIT);
    LOCK_SCOPE(&store->commit->room.lock);
    if (asks && need + ahead_of(store) / 2 > store->commit->room.granted)
        ask_for_room_locked(store);
    if (need > store->commit->room.granted)
        return false;
    atomic_fetch_add(&store->commit->promoted_bytes, bytes);
    return true;
}

void room_promote_done(struct store *store, uint64_t bytes)
{
    if (bytes == 0)
        return;
    uint64_t before = atomic_fetch_sub(&store->commit->promoted_bytes, bytes);
    check(before >= bytes);
    event_signal(&store->commit->room.more);
    if (before == bytes)
        event_signal(&store->commit->progress);
}

/* Bytes of the files in a directory of the store. */
static uint64_t room_used_by_directory(struct store *store, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", store->path, name);
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

void room_account_runs(struct store *store)
{
    uint64_t runs = room_used_by_directory(store, "runs");
    LOCK_SCOPE(&store->commit->room.lock);
    store->commit->room.runs_bytes = runs;
    ask_for_room_locked(store);
}

/* The room in use changed: sizes that are not kept current elsewhere are read again. */
void room_account(struct store *store)
{
    uint64_t journal = store->commit->journal.bytes;
    uint64_t view = room_used_by_directory(store, "view");
    LOCK_SCOPE(&store->commit->room.lock);
    store->commit->room.journal_bytes = journal;
    store->commit->room.view_bytes = view;
    ask_for_room_locked(store);
}

static bool is_room_waited_for(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return store->commit->horizon.waiting_writers > 0;
}

bool room_is_short(struct store *store)
{
    if (!is_room_waited_for(store))
        return false;
    LOCK_SCOPE(&store->commit->room.lock);
    return store->commit->room.scarce;
}

bool room_for_moving(struct store *store)
{
    struct tier_space space;
    return store->tier->ops->space(store->tier, &space) == 0 &&
           space.free_bytes + space.held_bytes >= staged_need(store) + TIER_RESERVE_UNIT + VIEW_MIN;
}

int room_for_view(struct store *store)
{
    struct tier_space space;
    int r = store->tier->ops->space(store->tier, &space);
    if (r < 0 || space.free_bytes >= VIEW_MIN)
        return r;
    /* Others filled the disk: what we hold gives way, for what it is held for is being
     * written now. */
    uint64_t held = 0;
    r = store->tier->ops->reserve(store->tier, bytes_less(space.held_bytes, 2 * VIEW_MIN),
                                  FILES_AHEAD, &held);
    mutex_lock(&store->commit->room.lock);
    store->commit->room.granted = min_u64(held, store->commit->room.granted);
    mutex_unlock(&store->commit->room.lock);
    if (r == 0)
        r = store->tier->ops->space(store->tier, &space);
    return r < 0 ? r : space.free_bytes >= VIEW_MIN ? 0 : -ENOSPC;
}

void room_give_files(struct store *store)
{
    struct tier_space space;
    uint64_t held = 0;
    if (store->tier->ops->space(store->tier, &space) < 0 ||
        store->tier->ops->reserve(store->tier, space.held_bytes, 0, &held) < 0)
        return; /* then the view finds none, either */
    log_info("nvme: inodes that were held for packs are given to the view's database");
}

/* Is all that happened before durable, and known to the view? */
static bool is_carried(struct store *store, int64_t before)
{
    uint64_t seq;
    int64_t happened;
    return !history_oldest(store, &seq, &happened) || happened > before;
}

void room_settle(struct store *store, int64_t began, bool found)
{
    if (found || !is_room_waited_for(store) || !is_carried(store, began))
        return;
    if (!adjust_now(store) || !room_is_short(store) || store->commit->upkeep->may_free(store))
        return;
    mutex_lock(&store->commit->room.lock);
    bool hopeless = store->commit->room.scarce, is_new = hopeless && !store->commit->room.hopeless;
    store->commit->room.hopeless = hopeless;
    store->commit->room.searched = began;
    mutex_unlock(&store->commit->room.lock);
    if (is_new)
        log_warn("nvme: the store is full of data that may not be dropped; writers get ENOSPC "
                 "until something is removed");
    if (hopeless && store->commit->on_room)
        store->commit->on_room(store->commit->on_room_arg);
}

int room_start(struct store *store)
{
    mutex_lock(&store->commit->room.lock); /* the writeback thread runs, and asks, too */
    ask_for_room_locked(store);
    mutex_unlock(&store->commit->room.lock);
    room_adjust(store);
    int r = thread_start(&store->commit->room.thread, "cairn-room", room_main, store);
    store->commit->room.started = r == 0;
    return r;
}

void room_stop(struct store *store)
{
    mutex_lock(&store->commit->room.lock);
    store->commit->room.stopping = true;
    (void)pthread_cond_broadcast(&store->commit->room.changed);
    mutex_unlock(&store->commit->room.lock);
    if (store->commit->room.started)
        (void)pthread_join(store->commit->room.thread, NULL);
    store->commit->room.started = false;
}
