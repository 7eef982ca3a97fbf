// SPDX-License-Identifier: Apache-2.0
/* How long the kernel may cache attributes.
 *
 * Nearly all changes are made by the kernel itself, and for most of them it increments a version of
 * the inode's attributes: an answer to an earlier request that arrives later is dropped. After some
 * changes it only marks the attributes as old, so that an older answer arriving later would be
 * cached: a directory after a change of its entries, ctime after a rename or a change of xattrs,
 * blocks after fallocate, all of these after writes through a mapping. For asynchronous writes
 * (io_submit(2), io_uring) it marks the attributes when the write begins, and not when it has
 * ended. And it does not notice that a write clears setuid bits. A notification increments the
 * version, too. So
 *
 * - after a rename, a change of xattrs, fallocate, or a write of a mapped page the kernel is
 *   always notified (cached_marked())
 * - for files that are open, or have such bits, it is notified of the first change after their
 *   attributes were answered (cached_changed()); and when they are opened for writing, since
 *   before that they may have been answered without an entry here
 * - likewise for directories, unless only the thread that makes the change got attributes since
 *   the last notification: that thread has its answers already, and the mark, which comes with
 *   success, suffices (cached_entries_changed())
 * - the answer to a setattr or a link is accepted regardless of versions: it is not cached
 *
 * An outdated time of access may be visible in any case.
 *
 * An inode whose attributes were answered has an entry in `cached`, made before the attributes were
 * read (again). A thread that changes attributes removes the entry after the change and before the
 * reply, and then notifies: this covers every answer without the change. Without a free entry, the
 * answer is not cached. */
#include "base/clock.h"
#include "fuse/internal.h"

#define SETTLED_NS (10ll * 1000000000)
#define BY_MANY 0 /* also a process without a number in this namespace */

static struct cached_set *set_of(struct front *front, uint64_t ino)
{
    uint64_t hash = ino * 0x9e3779b97f4a7c15ull;
    return &front->cached[(hash >> 32) % CACHED_SETS];
}

void cached_init(struct front *front)
{
    for (size_t i = 0; i < CACHED_SETS; i++)
        mutex_init(&front->cached[i].lock, LOCK_LEAF);
}

void cached_done(struct front *front)
{
    for (size_t i = 0; i < CACHED_SETS; i++)
        mutex_done(&front->cached[i].lock);
}

static struct cached *find_locked(struct cached_set *set, uint64_t ino)
{
    check_held(&set->lock);
    for (unsigned i = 0; i < CACHED_WAYS; i++)
        if (set->cached[i].ino == ino)
            return &set->cached[i];
    return NULL;
}

/* Finds a free entry, or the oldest one if it is old enough. A recent entry is not evicted: the
 * kernel may not have received the answer yet, and so not know the inode, and could not be
 * notified. */
static struct cached *find_place_locked(struct cached_set *set, int64_t now)
{
    check_held(&set->lock);
    struct cached *oldest = &set->cached[0];
    for (unsigned i = 0; i < CACHED_WAYS; i++) {
        if (set->cached[i].ino == 0)
            return &set->cached[i];
        if (set->cached[i].taken < oldest->taken)
            oldest = &set->cached[i];
    }
    return now - oldest->taken >= SETTLED_NS ? oldest : NULL;
}

/* Evicts an entry; it can still be found until the kernel was notified, and the lock is released
 * meanwhile. False: the inode was requested again, or has changed, or another thread found an
 * entry. */
static bool evict_locked(struct front *front, struct cached_set *set, struct cached *place,
                         uint64_t successor)
{
    check_held(&set->lock);
    const struct cached before = {.ino = place->ino, .taken = clock_monotonic_ns()};
    place->taken = before.taken;
    mutex_unlock(&set->lock);
    front_changed(front, &before.ino, 1, false);
    mutex_lock(&set->lock);
    return place->ino == before.ino && place->taken == before.taken && !find_locked(set, successor);
}

/* False: no entry is free. */
static bool take_slot(struct front *front, uint64_t ino, pid_t asker)
{
    struct cached_set *set = set_of(front, ino);
    int64_t now = clock_monotonic_ns();
    LOCK_SCOPE(&set->lock);
    struct cached *own = find_locked(set, ino), *place = own ? own : find_place_locked(set, now);
    if (!place || (place->ino != 0 && !own && !evict_locked(front, set, place, ino)))
        return false;
    *place = (struct cached){
        .ino = ino, .asker = !own || own->asker == asker ? asker : BY_MANY, .taken = now};
    return true;
}

/* Returns true if attributes were answered to threads other than `sparing`. */
static void cached_notify(struct front *front, uint64_t ino, pid_t sparing)
{
    struct cached_set *set = set_of(front, ino);
    mutex_lock(&set->lock);
    struct cached *place = find_locked(set, ino);
    bool must_notify = place && (sparing == BY_MANY || place->asker != sparing);
    if (must_notify)
        *place = (struct cached){0};
    mutex_unlock(&set->lock);
    if (adopt_must_notify(front, ino) || must_notify)
        front_changed(front, &ino, 1, false);
}

void cached_changed(struct front *front, uint64_t ino)
{
    cached_notify(front, ino, BY_MANY);
}

void cached_entries_changed(struct front *front, uint64_t dir, int r)
{
    cached_notify(front, dir, r == 0 ? (pid_t)current.header->pid : BY_MANY);
}

void cached_marked(struct front *front, uint64_t ino)
{
    front_changed(front, &ino, 1, false);
}

static bool must_be_notified(struct front *front, const struct stat *st)
{
    return S_ISDIR(st->st_mode) || st->st_mode & (S_ISUID | S_ISGID) ||
           (S_ISREG(st->st_mode) && fs_is_open(front->fs, st->st_ino));
}

double cached_for(struct front *front, struct stat *st)
{
    double most = front->options.attr_timeout;
    if (most <= 0 || fs_follows(front->fs) || !must_be_notified(front, st))
        return most;
    struct stat again;
    if (!take_slot(front, st->st_ino, (pid_t)current.header->pid) ||
        fs_getattr(front->fs, st->st_ino, &again) < 0)
        return 0;
    *st = again;
    return most;
}
