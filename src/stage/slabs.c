// SPDX-License-Identifier: Apache-2.0
/* Slabs: taking, publishing, evicting, and allocating their memory ahead of need.
 *
 * A slab is unready (never touched, without memory), free (with memory), held (a thread receives
 * into it) or used. A used slab without dirty ranges and pins is reclaimable: at once if it
 * contains nothing clean, else when room is needed, oldest first. */
#include <fcntl.h>
#include <sys/mman.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "stage/internal.h"

/* Slabs made ready after the mount, and free slabs kept ready ahead of use: a share in a small
 * stage, since most of its memory may never be used. */
#define READY_AT_START_MAX 1024u
#define READY_AT_START_SHARE 16u
#define READY_AHEAD_MAX 512u
#define READY_AHEAD_SHARE 32u
#define IDLE_GIVE_BACK_NS (600ll * 1000000000)
#define GROW_AGAIN_NS (2ll * 1000000000) /* other programs may have freed memory by then */

static uint32_t index_of(const struct stage *stage, const struct slab *slab)
{
    return (uint32_t)(slab - stage->locked.slabs);
}

static uint32_t ready_at_start(const struct stage *stage)
{
    return (uint32_t)min_u64(stage->slab_count / READY_AT_START_SHARE, READY_AT_START_MAX);
}

static uint32_t ready_ahead(const struct stage *stage)
{
    return (uint32_t)min_u64(stage->slab_count / READY_AHEAD_SHARE, READY_AHEAD_MAX);
}

void slabs_init(struct stage *stage)
{
    TAILQ_INIT(&stage->locked.free);
    TAILQ_INIT(&stage->locked.clean);
    stage->locked.slabs = xcalloc(stage->slab_count, sizeof *stage->locked.slabs);
    for (uint32_t i = 0; i < stage->slab_count; i++) {
        struct slab *slab = &stage->locked.slabs[i];
        TAILQ_INIT(&slab->ranges);
        slab->state = SLAB_UNREADY;
    }
    stage->locked.unready_count = stage->slab_count;
    stage->locked.shared = SLAB_NONE;
}

static void make_slab_free_locked(struct stage *stage, struct slab *slab)
{
    check_held(&stage->locked.lock);
    uint32_t i = index_of(stage, slab);
    stage->locked.used_count -= slab->state == SLAB_USED;
    atomic_store_explicit(&stage->slab_table[i].use, slab_use(SLAB_SHARED_FREE, 0),
                          memory_order_release);
    slab->state = SLAB_FREE;
    slab->fill = 0;
    /* most recently used first: it may still be in the CPU's caches and TLB */
    TAILQ_INSERT_HEAD(&stage->locked.free, slab, link);
    stage->locked.free_count++;
    stage->locked.room_wanted = true;
    (void)pthread_cond_broadcast(&stage->slabs_changed);
}

/* Moves a used slab to the free or clean list, as its ranges and pins require. */
void slab_settle_locked(struct stage *stage, uint32_t i)
{
    check_held(&stage->locked.lock);
    struct slab *slab = &stage->locked.slabs[i];
    if (slab->state != SLAB_USED)
        return;
    bool reclaimable = slab->dirty_ranges == 0 && slab->pins == 0 && i != stage->locked.shared;
    if (slab->in_clean && !(reclaimable && slab->clean_ranges > 0)) {
        TAILQ_REMOVE(&stage->locked.clean, slab, link);
        stage->locked.clean_count--;
        slab->in_clean = false;
    }
    if (!reclaimable)
        return;
    if (slab->clean_ranges == 0) {
        make_slab_free_locked(stage, slab);
    } else if (!slab->in_clean) {
        TAILQ_INSERT_TAIL(&stage->locked.clean, slab, link);
        stage->locked.clean_count++;
        slab->in_clean = true;
        stage->locked.room_wanted = true;
        (void)pthread_cond_broadcast(&stage->slabs_changed);
    }
}

/* Is there room for writers? The reserve stays for receivers, so that requests are always read. */
static bool slabs_have_room_locked(const struct stage *stage, uint32_t slabs)
{
    check_held(&stage->locked.lock);
    uint32_t unready = stage->locked.grow_failed ? 0 : stage->locked.unready_count;
    return stage->locked.free_count + stage->locked.clean_count + unready >=
           stage->slab_reserve + slabs;
}

static uint32_t usable_locked(const struct stage *stage)
{
    check_held(&stage->locked.lock);
    return stage->slab_count - (stage->locked.grow_failed ? stage->locked.unready_count : 0);
}

/* Is there room for one write? If receivers and waiting writers hold so many slabs that content has
 * less than half, the reserve may be used, as waiting would not free any. A write that `brings` its
 * slab takes no other. */
bool slabs_bear_write_locked(const struct stage *stage, bool brings)
{
    check_held(&stage->locked.lock);
    if (slabs_have_room_locked(stage, 1))
        return true;
    bool any = stage->locked.free_count + stage->locked.clean_count > 0;
    return (brings || any) &&
           stage->locked.used_count - stage->locked.clean_count < usable_locked(stage) / 2;
}

uint32_t stage_slabs_for_waiting(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    return usable_locked(stage) / 4;
}

/* Evicts the durable content of the slab that has been clean for longest. False: no clean slab. */
bool slab_evict_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    struct slab *slab = TAILQ_FIRST(&stage->locked.clean);
    if (!slab)
        return false;
    slab->pins++;
    struct range *range;
    while ((range = TAILQ_FIRST(&slab->ranges))) {
        struct layer *layer = range->layer;
        struct stage_file *file = layer->file;
        layer_erase_locked(stage, layer, range->offset, range->length, false);
        file_settle_locked(stage, file);
    }
    slab->pins--;
    slab_settle_locked(stage, index_of(stage, slab));
    return true;
}

/* Adds a slab to the page tables. If the kernel needs a page fault to copy a request or an answer,
 * and this process is killed meanwhile, the copy fails and the caller gets EIO; without a fault,
 * the copy finishes, or the next daemon repeats it. MADV_POPULATE_WRITE needs Linux 5.14. */
static int map_slab(struct stage *stage, uint32_t i)
{
    int r = madvise(slab_at(stage, i), SLAB_STRIDE, MADV_POPULATE_WRITE);
    return r < 0 && (errno == EFAULT || errno == EHWPOISON) ? -EIO : 0;
}

static void give_back_slab(struct stage *stage, uint32_t i)
{
    (void)fallocate(stage->slabs_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                    (off_t)i * SLAB_STRIDE, SLAB_STRIDE);
}

/* Allocates memory for a slab, so that touching it neither faults slowly nor raises SIGBUS. Tries
 * madvise() on the mapping first, which uses huge pages also on a tmpfs mounted with huge=advise;
 * if that fails, fallocate() shows the error. */
static int populate_slab(struct stage *stage, uint32_t i)
{
    if (madvise(slab_at(stage, i), SLAB_STRIDE, MADV_POPULATE_WRITE) == 0)
        return 0;
    if (fallocate(stage->slabs_fd, 0, (off_t)i * SLAB_STRIDE, SLAB_STRIDE) < 0) {
        int r = -errno;
        give_back_slab(stage, i); /* frees the pages from fallocate() */
        return r;
    }
    return map_slab(stage, i);
}

/* Takes slabs in order of address, since neighbours share huge pages. A slab that could not be made
 * ready is tried again after all others. */
static uint32_t take_unready_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    uint32_t i = stage->locked.unready_next;
    if (stage->locked.unready_count == 0)
        return SLAB_NONE;
    while (stage->locked.slabs[i].state != SLAB_UNREADY)
        i = (i + 1) % stage->slab_count;
    stage->locked.unready_next = (i + 1) % stage->slab_count;
    stage->locked.unready_count--;
    stage->locked.slabs[i].state = SLAB_HELD;
    return i;
}

/* Takes an unready slab and allocates its memory with the lock dropped. SLAB_NONE: no memory. */
static uint32_t ready_one_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    bool again = stage->locked.grow_failed;
    if (again && clock_monotonic_ns() < stage->locked.grow_again_at)
        return SLAB_NONE;
    uint32_t i = take_unready_locked(stage);
    if (i == SLAB_NONE)
        return SLAB_NONE;
    if (again)
        stage->locked.grow_again_at = INT64_MAX; /* one attempt at a time */
    stage->locked.readying_count++;
    mutex_unlock(&stage->locked.lock);
    int r = populate_slab(stage, i);
    mutex_lock(&stage->locked.lock);
    stage->locked.readying_count--;
    if (r == 0 && again) {
        log_info("stage: memory is available again");
        stage->locked.grow_failed = false;
    }
    if (r == 0)
        return i;
    stage->locked.slabs[i].state = SLAB_UNREADY;
    stage->locked.unready_count++;
    if (!stage->locked.grow_failed)
        log_warn("stage: no memory for more than %u MiB (%s); going on with that",
                 stage->slab_count - stage->locked.unready_count, strerror(-r));
    stage->locked.grow_failed = true;
    stage->locked.grow_again_at = clock_monotonic_ns() + GROW_AGAIN_NS;
    return SLAB_NONE;
}

/* Maps a slab that the caller owns or has pinned. May drop the lock for a moment. */
static void map_locked(struct stage *stage, uint32_t i)
{
    check_held(&stage->locked.lock);
    if (!stage->locked.slabs[i].is_unmapped)
        return;
    mutex_unlock(&stage->locked.lock);
    /* if its memory is lost, the thread that touches the page gets the fault */
    (void)map_slab(stage, i);
    mutex_lock(&stage->locked.lock);
    stage->locked.slabs[i].is_unmapped = false;
}

void stage_map_parts(struct stage *stage, const struct stage_part *parts, size_t count)
{
    LOCK_SCOPE(&stage->locked.lock);
    for (size_t i = 0; i < count; i++)
        if (parts[i].kind == PART_MEMORY)
            map_locked(stage, parts[i].slab);
}

/* May drop the lock for a moment. */
static uint32_t take_free_slab_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    struct slab *slab = TAILQ_FIRST(&stage->locked.free);
    if (!slab)
        return SLAB_NONE;
    TAILQ_REMOVE(&stage->locked.free, slab, link);
    stage->locked.free_count--;
    slab->state = SLAB_HELD;
    map_locked(stage, index_of(stage, slab));
    return index_of(stage, slab);
}

/* Takes a slab for the caller, or returns SLAB_NONE. The last ready slabs are used only if no other
 * can be made ready: the reserve must exist even if the system has no more memory. */
uint32_t slab_take_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    uint64_t last = min_u64(stage->slab_reserve, ready_ahead(stage) / 2);
    do {
        uint32_t slab = stage->locked.free_count > last ? take_free_slab_locked(stage)
                                                        : ready_one_locked(stage);
        if (slab == SLAB_NONE)
            slab = take_free_slab_locked(stage);
        if (slab != SLAB_NONE)
            return slab;
    } while (slab_evict_locked(stage));
    return SLAB_NONE;
}

uint32_t stage_slab_take(struct stage *stage, const _Atomic bool *ended)
{
    LOCK_SCOPE(&stage->locked.lock);
    for (;;) {
        if (stage->locked.stopping || (ended && atomic_load(ended)))
            return SLAB_NONE;
        uint32_t slab = slab_take_locked(stage);
        if (slab != SLAB_NONE)
            return slab;
        (void)mutex_wait(&stage->locked.lock, &stage->slabs_changed, -1);
    }
}

void stage_wake_takers(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    (void)pthread_cond_broadcast(&stage->slabs_changed);
}

uint32_t stage_slab_try_take(struct stage *stage)
{
    LOCK_SCOPE(&stage->locked.lock);
    /* two, since the write that follows requires one more */
    uint32_t slab = slabs_have_room_locked(stage, 2) ? slab_take_locked(stage) : SLAB_NONE;
    if (slab == SLAB_NONE)
        stage->locked.refused = true;
    return slab;
}

void stage_slab_give(struct stage *stage, uint32_t slab)
{
    mutex_lock(&stage->locked.lock);
    check(stage->locked.slabs[slab].state == SLAB_HELD);
    make_slab_free_locked(stage, &stage->locked.slabs[slab]);
    mutex_unlock(&stage->locked.lock);
    room_changed(stage);
}

void *stage_slab_memory(struct stage *stage, uint32_t slab)
{
    return slab_at(stage, slab);
}

/* From now on a recovery reads the slab. It has a new generation, so that records of its last use
 * do not count. */
void slab_publish_locked(struct stage *stage, uint32_t i, enum slab_shared_state state)
{
    check_held(&stage->locked.lock);
    struct slab *slab = &stage->locked.slabs[i];
    check(slab->state == SLAB_HELD);
    slab->state = SLAB_USED;
    stage->locked.used_count++;
    atomic_store_explicit(&stage->slab_table[i].use, slab_use(state, 0), memory_order_release);
    if (stage->locked.free_count < ready_ahead(stage) && stage->locked.unready_count > 0)
        (void)pthread_cond_broadcast(&stage->slabs_changed);
}

/* The shared slab has one more record, valid from now on. */
void slab_fill_locked(struct stage *stage, uint32_t i, uint32_t fill)
{
    check_held(&stage->locked.lock);
    stage->locked.slabs[i].fill = fill;
    atomic_store_explicit(&stage->slab_table[i].use, slab_use(SLAB_SHARED_USED, fill),
                          memory_order_release);
}

/* Marks a slab that a recovery found in use. No thread adds to it. */
void slab_claim_recovered_locked(struct stage *stage, uint32_t i)
{
    check_held(&stage->locked.lock);
    struct slab *slab = &stage->locked.slabs[i];
    check(slab->state == SLAB_UNREADY);
    stage->locked.unready_count--;
    slab->state = SLAB_USED;
    slab->is_unmapped = true;
    stage->locked.used_count++;
}

/* Notifies writers that wait for room, without the lock. */
void room_changed(struct stage *stage)
{
    mutex_lock(&stage->locked.lock);
    bool wanted = stage->locked.room_wanted;
    stage->locked.room_wanted = false;
    mutex_unlock(&stage->locked.lock);
    if (wanted && stage->on_room)
        stage->on_room(stage->on_room_arg);
}

static bool wants_more_ready_locked(const struct stage *stage)
{
    check_held(&stage->locked.lock);
    if (stage->locked.unready_count == 0 || stage->read_only)
        return false;
    if (stage->locked.grow_failed)
        return clock_monotonic_ns() >= stage->locked.grow_again_at;
    uint32_t ready = stage->slab_count - stage->locked.unready_count;
    return ready < ready_at_start(stage) || stage->locked.free_count < ready_ahead(stage);
}

/* Makes one slab ready at a time: no writer can use it meanwhile, so writers never miss more than
 * one. */
static void add_free_slab_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    uint32_t i = ready_one_locked(stage);
    if (i != SLAB_NONE) {
        /* at the tail: recently used slabs are warmer */
        struct slab *slab = &stage->locked.slabs[i];
        slab->state = SLAB_FREE;
        TAILQ_INSERT_TAIL(&stage->locked.free, slab, link);
        stage->locked.free_count++;
        stage->locked.room_wanted = stage->locked.room_wanted || stage->locked.refused;
        stage->locked.refused = false;
    }
    (void)pthread_cond_broadcast(&stage->slabs_changed);
}

/* After a long time without writes, returns the memory of free slabs, highest address first. */
static void give_back_locked(struct stage *stage)
{
    check_held(&stage->locked.lock);
    for (uint32_t i = stage->slab_count;
         i > 0 && stage->locked.free_count > 0 &&
         stage->slab_count - stage->locked.unready_count > ready_at_start(stage);) {
        struct slab *slab = &stage->locked.slabs[--i];
        if (slab->state != SLAB_FREE)
            continue;
        TAILQ_REMOVE(&stage->locked.free, slab, link);
        stage->locked.free_count--;
        slab->state = SLAB_HELD;
        mutex_unlock(&stage->locked.lock);
        give_back_slab(stage, i);
        mutex_lock(&stage->locked.lock);
        slab->state = SLAB_UNREADY;
        stage->locked.unready_count++;
        stage->locked.unready_next = (uint32_t)min_u64(stage->locked.unready_next, i);
        stage->locked.grow_failed = false; /* the memory just returned is available */
    }
}

static void *filler_main(void *arg)
{
    struct stage *stage = arg;
    mutex_lock(&stage->locked.lock);
    while (!stage->locked.stopping) {
        int64_t idle = clock_monotonic_ns() - stage->locked.last_write;
        if (idle > IDLE_GIVE_BACK_NS)
            give_back_locked(stage);
        else if (wants_more_ready_locked(stage))
            add_free_slab_locked(stage);
        if (stage->locked.stopping)
            break;
        if (stage->locked.room_wanted) {
            mutex_unlock(&stage->locked.lock);
            room_changed(stage);
            mutex_lock(&stage->locked.lock);
            continue;
        }
        if (idle > IDLE_GIVE_BACK_NS || !wants_more_ready_locked(stage))
            (void)mutex_wait(&stage->locked.lock, &stage->slabs_changed, 1000);
    }
    mutex_unlock(&stage->locked.lock);
    return NULL;
}

static bool holds_no_content(struct stage *stage, uint32_t i)
{
    LOCK_SCOPE(&stage->locked.lock);
    return stage->locked.slabs[i].state != SLAB_USED;
}

/* Reads by file, not by mapping, which would allocate memory for unready slabs. */
bool stage_received_next(struct stage *stage, uint32_t *cursor, size_t offset, void *buf,
                         size_t len)
{
    check(offset + len <= SLAB_STRIDE);
    while (*cursor < stage->slab_count) {
        uint32_t i = (*cursor)++;
        if (holds_no_content(stage, i) &&
            pread(stage->slabs_fd, buf, len, (off_t)((uint64_t)i * SLAB_STRIDE + offset)) ==
                (ssize_t)len)
            return true;
    }
    return false;
}

int slabs_start(struct stage *stage)
{
    stage->locked.last_write = clock_monotonic_ns();
    int r = thread_start(&stage->filler, "cairn-fill", filler_main, stage);
    stage->filler_started = r == 0;
    return r;
}

void stage_stop(struct stage *stage)
{
    mutex_lock(&stage->locked.lock);
    stage->locked.stopping = true;
    (void)pthread_cond_broadcast(&stage->slabs_changed);
    mutex_unlock(&stage->locked.lock);
    if (stage->filler_started)
        (void)pthread_join(stage->filler, NULL);
    stage->filler_started = false;
}
