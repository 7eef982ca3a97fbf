// SPDX-License-Identifier: Apache-2.0
/* For how long the kernel may cache attributes.
 *
 * Nearly all changes are its own, and with most of them it counts a version of the inode's
 * attributes: an answer that it asked for before, and takes after, is dropped. Some it only marks
 * as old, and an older answer, taken last, would be cached: a directory whose entries change, ctime
 * after a rename or a change of xattrs, blocks after fallocate, all of these after stores through a
 * map. What is written while its caller goes on (io_submit(2), io_uring) it marks when that begins,
 * and not when it has ended. And it does not look for setuid bits that a write takes away. A notice
 * counts a version, too. So
 *
 *   - after a rename, a change of xattrs, fallocate, a page of a map: the kernel is told, each time
 *     (cached_marked())
 *   - of files that are open, or have such bits, it is told with the first change after they were
 *     answered for (cached_changed()); and when they are opened to be written, since until then
 *     they may have been answered for without a place
 *   - so it is of directories, but not where only the thread that makes the change asked since it
 *     was told last: that has taken its answers, and the mark is enough, which comes with success
 *     (cached_entries_changed())
 *   - the answer to a setattr or a link is taken without a look at versions: it is not cached
 *
 * An older time of access may show in any case.
 *
 * What was answered for has a place in `cached`, taken before its attributes were read (again). A
 * thread that changes attributes gives the place up after the change and before the reply, and then
 * tells: each answer that came without the change is told of. Where no place is free, the answer is
 * not cached. */
#include "base/clock.h"
#include "fuse/internal.h"

#define SETTLED_NS (10ll * 1000000000)
#define BY_MANY 0 /* also by a process that has no number here */

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

/* One that is free, or the oldest, after a while. Not at once: the kernel may not have got yet what
 * the place was taken for, and not know the inode, so that it could not be told. */
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

/* Evicts an entry; it stays findable until the kernel was notified, and the lock is released
 * meanwhile. False: it was requested again, or has changed, or another thread found a slot. */
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

/* False: all places are taken. */
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
