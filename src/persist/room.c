/* Room on NVMe: bytes are acknowledged only against room that the medium has already given us.
 *
 * A thread keeps files allocated ahead (the tier's reserve) for everything that the stage holds and is not durable, plus
 * some more; a write is admitted when what is held covers it. So writing back what was acknowledged cannot meet ENOSPC.
 * When no more is to be had, writers wait as long as something may still come free, and get ENOSPC when nothing can. */
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/cause.h"
#include "base/log.h"
#include "persist/pull.h"

#define AHEAD_MAX (512 * MIB)
#define AHEAD_SHARE 8u              /* of the cap, at most */
#define OVERHEAD_SHARE 28u          /* frames, index, trailer and padding for what is staged, in chunks of 4 KiB and more */
#define SLACK (2 * MIB)
#define NO_EVICT_NS (2ll * 1000000000)
#define VIEW_MIN (24 * MIB)         /* what the view may write before the next look: its log grows in steps */
#define JOURNAL_STEP (16 * MIB)     /* a segment */
/* Of the disk, never promised to content: what the view and the journal grow by, and the pack that a compaction makes before those go
 * that it makes room of. With less the view could not follow the cut that drops them. */
#define DISK_MARGIN (TIER_RESERVE_UNIT + JOURNAL_STEP + 2 * VIEW_MIN)

/* What was fetched, and no batch names yet, needs room as what is staged does. */
static uint64_t staged_need(struct store *store)
{
    uint64_t dirty = stage_usage(store->stage).dirty_bytes + room_kept(store);
    return dirty + dirty / OVERHEAD_SHARE + SLACK;
}

uint64_t room_used(struct store *store)
{
    struct view_state view = view_state(store->view);
    mutex_lock(&store->packs.lock);
    uint64_t packs = view.pack_bytes + store->packs.new_bytes;
    mutex_unlock(&store->packs.lock);
    LOCK_SCOPE(&store->room.lock);
    return packs + store->room.journal_bytes + store->room.view_bytes + store->room.runs_bytes;
}

/* How much may be held for content at most. */
struct limits {
    uint64_t by_cap, by_disk;
    uint64_t held; /* now; what was held a while ago may be packs meanwhile: only the tier knows what still is */
};

static struct limits find_limits(struct store *store)
{
    /* One pack's worth is never given away: compaction needs room to make room. */
    uint64_t used = room_used(store) + TIER_RESERVE_UNIT, cap = store->options.cap_bytes;
    struct limits limits = {.by_cap = cap == 0 ? UINT64_MAX : cap > used ? cap - used : 0};
    struct tier_space space;
    if (store->tier->ops->space(store->tier, &space) < 0) {
        LOCK_SCOPE(&store->room.lock);
        limits.by_disk = limits.held = store->room.held;
        return limits;
    }
    limits.held = space.held_bytes;
    uint64_t has = space.free_bytes + space.held_bytes;
    limits.by_disk = has > DISK_MARGIN ? has - DISK_MARGIN : 0;
    return limits;
}

static uint64_t holdable(struct store *store)
{
    struct limits limits = find_limits(store);
    return min_u64(limits.by_cap, limits.by_disk);
}

static uint64_t available_with(struct store *store, uint64_t more)
{
    uint64_t limit = align_down(holdable(store) + more, TIER_RESERVE_UNIT), need = staged_need(store);
    return limit > need ? limit - need : 0;
}

uint64_t room_available(struct store *store)
{
    return available_with(store, 0);
}

uint64_t room_with_eviction(struct store *store)
{
    return available_with(store, evict_possible(store));
}

static uint64_t ahead_of(const struct store *store)
{
    uint64_t cap = store->options.cap_bytes;
    return cap ? min_u64(AHEAD_MAX, cap / AHEAD_SHARE) : AHEAD_MAX;
}

uint64_t room_missing(struct store *store)
{
    uint64_t limit = holdable(store), goal = align_up(staged_need(store) + ahead_of(store), TIER_RESERVE_UNIT);
    return goal > limit ? goal - limit : 0;
}

/* One round of the thread: hold what is needed and some more. */
static void adjust(struct store *store)
{
    struct limits limits = find_limits(store);
    uint64_t need = staged_need(store), limit = min_u64(limits.by_cap, limits.by_disk), held = 0;
    uint64_t wanted = align_up(need + ahead_of(store), TIER_RESERVE_UNIT);
    if (wanted > limits.by_cap)
        wanted = align_down(limits.by_cap, TIER_RESERVE_UNIT);
    /* What is held already serves as the margin too: given back, it would be others who fill the disk with it. */
    if (wanted > limits.by_disk)
        wanted = max_u64(align_down(limits.by_disk, TIER_RESERVE_UNIT), min_u64(limits.held, wanted));
    int r = store->tier->ops->reserve(store->tier, wanted, &held);
    if (r < 0 && r != -ENOSPC)
        horizon_error(store, "nvme: allocating room failed: %s", strerror(-r));
    bool scarce = r < 0 || limit < need + ahead_of(store);
    mutex_lock(&store->room.lock);
    store->room.held = min_u64(held, limit);
    store->room.scarce = scarce;
    mutex_unlock(&store->room.lock);
    if (store->on_room)
        store->on_room(store->on_room_arg);
}

static void *room_run(void *arg)
{
    struct store *store = arg;
    mutex_lock(&store->room.lock);
    while (!store->room.stopping) {
        bool wanted = store->room.wanted;
        store->room.wanted = false;
        mutex_unlock(&store->room.lock);
        if (wanted)
            adjust(store);
        mutex_lock(&store->room.lock);
        if (!store->room.wanted && !store->room.stopping)
            (void)mutex_wait(&store->room.lock, &store->room.changed, 1000);
        /* Once a second even unasked: the disk is not only ours. */
        store->room.wanted = true;
    }
    mutex_unlock(&store->room.lock);
    return NULL;
}

static void ask_locked(struct store *store)
{
    store->room.wanted = true;
    (void)pthread_cond_signal(&store->room.changed);
}

int store_admit(struct store *store, uint64_t bytes)
{
    uint64_t need = staged_need(store) + bytes;
    LOCK_SCOPE(&store->room.lock);
    if (need + ahead_of(store) / 2 > store->room.held)
        ask_locked(store);
    if (need <= store->room.held)
        return 0;
    if (!store->room.scarce || !store->room.hopeless)
        return -EAGAIN;
    cause_note("NVMe is full of data that may not be dropped; remove something, or mount with a larger nvme=SIZE");
    return -ENOSPC;
}

/* --- what is fetched: it may have room that nobody else needs now --------------------------------------------------------- */

uint64_t room_kept(struct store *store)
{
    return atomic_load(&store->kept_bytes);
}

bool room_keep(struct store *store, uint64_t bytes)
{
    uint64_t need = staged_need(store) + bytes;
    LOCK_SCOPE(&store->room.lock);
    if (need + ahead_of(store) / 2 > store->room.held)
        ask_locked(store);
    /* Writers come first: half of what is held ahead for them stays theirs. */
    if (need + min_u64(ahead_of(store) / 2, TIER_RESERVE_UNIT) > store->room.held)
        return false;
    atomic_fetch_add(&store->kept_bytes, bytes);
    return true;
}

void room_keep_done(struct store *store, uint64_t bytes)
{
    check(atomic_fetch_sub(&store->kept_bytes, bytes) >= bytes);
}

bool room_is_hopeless(struct store *store)
{
    return clock_monotonic_ns() < atomic_load(&store->no_evict_until);
}

/* Bytes of the files in a folder of the store. */
static uint64_t folder_bytes(struct store *store, const char *name)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", store->path, name);
    DIR *folder = opendir(path);
    uint64_t bytes = 0;
    struct dirent *entry;
    while (folder && (entry = readdir(folder))) {
        struct stat st;
        if (fstatat(dirfd(folder), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
    }
    if (folder)
        (void)closedir(folder);
    return bytes;
}

void room_account_runs(struct store *store)
{
    uint64_t runs = folder_bytes(store, "runs");
    LOCK_SCOPE(&store->room.lock);
    store->room.runs_bytes = runs;
    ask_locked(store);
}

/* What is used changed: sizes that are not kept current elsewhere are read again. */
void room_account(struct store *store)
{
    uint64_t journal = store->journal.bytes;
    uint64_t view = folder_bytes(store, "view");
    LOCK_SCOPE(&store->room.lock);
    store->room.journal_bytes = journal;
    store->room.view_bytes = view;
    store->room.hopeless = false;
    ask_locked(store);
}

bool room_is_short(struct store *store)
{
    mutex_lock(&store->horizon.lock);
    bool waiting = store->horizon.waiting_writers > 0;
    mutex_unlock(&store->horizon.lock);
    LOCK_SCOPE(&store->room.lock);
    return waiting && store->room.scarce;
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
    /* Others filled the disk: what we hold gives way, for what it is held for is being written now. */
    uint64_t held = 0;
    r = store->tier->ops->reserve(store->tier, space.held_bytes > 2 * VIEW_MIN ? space.held_bytes - 2 * VIEW_MIN : 0, &held);
    mutex_lock(&store->room.lock);
    store->room.held = min_u64(held, store->room.held);
    mutex_unlock(&store->room.lock);
    if (r == 0)
        r = store->tier->ops->space(store->tier, &space);
    return r < 0 ? r : space.free_bytes >= VIEW_MIN ? 0 : -ENOSPC;
}

/* Has eviction not yet failed for long enough? */
static bool may_evict(struct store *store)
{
    int64_t since = atomic_load(&store->no_evict_since);
    return store->remote && (!since || clock_monotonic_ns() - since < NO_EVICT_NS);
}

/* After a round of the writeback thread: if it could do nothing more and room is still short, waiting has no sense. */
void room_settle(struct store *store, bool progress)
{
    uint64_t seq;
    int64_t happened;
    bool idle = !progress && !history_oldest(store, &seq, &happened);
    if (!idle || !room_is_short(store) || remote_will_relieve(store->remote) || may_evict(store))
        return;
    adjust(store);
    mutex_lock(&store->room.lock);
    bool was = store->room.hopeless;
    store->room.hopeless = store->room.scarce;
    bool tell = store->room.hopeless;
    mutex_unlock(&store->room.lock);
    if (tell && !was)
        log_warn("nvme: the store is full of data that may not be dropped; writers get ENOSPC until something is removed");
    if (tell && store->on_room)
        store->on_room(store->on_room_arg);
}

int room_start(struct store *store)
{
    store->room.wanted = true;
    adjust(store);
    int r = thread_start(&store->room.thread, "cairn-room", room_run, store);
    store->room.started = r == 0;
    return r;
}

void room_stop(struct store *store)
{
    mutex_lock(&store->room.lock);
    store->room.stopping = true;
    (void)pthread_cond_signal(&store->room.changed);
    mutex_unlock(&store->room.lock);
    if (store->room.started)
        (void)pthread_join(store->room.thread, NULL);
    store->room.started = false;
}
