/* For how long the kernel may keep attributes.
 *
 * Nearly all changes are its own, and with most of them it counts a version of the inode's attributes: an answer that it asked for
 * before, and takes after, is dropped. Some it only marks as old, and an older answer, taken last, would be kept: a directory whose
 * entries change, ctime after a rename or a change of xattrs, blocks after fallocate, all of these after stores through a map. And it
 * does not look for setuid bits that a write takes away. A notice counts a version, too. So
 *
 *   - after a rename, a change of xattrs, fallocate, a page of a map: the kernel is told, each time (kept_marked())
 *   - of files with such bits, it is told with the first change after they were answered for (kept_changed()); so it is of
 *     directories, but not where only the thread that makes the change asked since it was told last: that has taken its answers, and the
 *     mark is enough (kept_entries_changed())
 *
 * An older time of access may show in any case.
 *
 * What was answered for has a place in `kept`, taken before its attributes were read (again). Who changes attributes gives the place
 * up after the change and before the reply, and then tells: each answer that came without the change is told of. Where no place is
 * free, the answer is not kept. */
#include "base/clock.h"
#include "fuse/internal.h"

#define SETTLED_NS (10ll * 1000000000)
#define BY_MANY 0 /* also by a process that has no number here */

static struct kept_set *set_of(struct front *front, uint64_t ino)
{
    uint64_t hash = ino * 0x9e3779b97f4a7c15ull;
    return &front->kept[(hash >> 32) % KEPT_SETS];
}

void kept_init(struct front *front)
{
    for (size_t i = 0; i < KEPT_SETS; i++)
        mutex_init(&front->kept[i].lock, LOCK_LEAF);
}

void kept_done(struct front *front)
{
    for (size_t i = 0; i < KEPT_SETS; i++)
        mutex_done(&front->kept[i].lock);
}

static struct kept *find_locked(struct kept_set *set, uint64_t ino)
{
    for (unsigned i = 0; i < KEPT_WAYS; i++)
        if (set->kept[i].ino == ino)
            return &set->kept[i];
    return NULL;
}

/* One that is free, or the oldest, after a while. Not at once: the kernel may not have got yet what the place was taken for, and not
 * know the inode, so that it could not be told. */
static struct kept *free_locked(struct kept_set *set, int64_t now)
{
    struct kept *oldest = &set->kept[0];
    for (unsigned i = 0; i < KEPT_WAYS; i++) {
        if (set->kept[i].ino == 0)
            return &set->kept[i];
        if (set->kept[i].taken < oldest->taken)
            oldest = &set->kept[i];
    }
    return now - oldest->taken >= SETTLED_NS ? oldest : NULL;
}

/* False: all places are taken. */
static bool take_place(struct front *front, uint64_t ino, pid_t asker)
{
    struct kept_set *set = set_of(front, ino);
    int64_t now = clock_monotonic_ns();
    mutex_lock(&set->lock);
    struct kept *own = find_locked(set, ino), *place = own ? own : free_locked(set, now);
    uint64_t other = place && !own ? place->ino : 0;
    if (place)
        *place = (struct kept){.ino = ino, .asker = !own || own->asker == asker ? asker : BY_MANY, .taken = now};
    mutex_unlock(&set->lock);
    if (other)
        front_changed(front, &other, 1, false);
    return place != NULL;
}

/* Of what was answered for to others than `sparing`. */
static void tell(struct front *front, uint64_t ino, pid_t sparing)
{
    struct kept_set *set = set_of(front, ino);
    mutex_lock(&set->lock);
    struct kept *place = find_locked(set, ino);
    bool must_tell = place && (sparing == BY_MANY || place->asker != sparing);
    if (must_tell)
        *place = (struct kept){0};
    mutex_unlock(&set->lock);
    if (must_tell)
        front_changed(front, &ino, 1, false);
}

void kept_changed(struct front *front, uint64_t ino)
{
    tell(front, ino, BY_MANY);
}

void kept_entries_changed(struct front *front, uint64_t dir)
{
    tell(front, dir, (pid_t)current.header->pid);
}

void kept_marked(struct front *front, uint64_t ino)
{
    front_changed(front, &ino, 1, false);
}

double kept_for(struct front *front, struct stat *st)
{
    double most = front->options.attr_timeout;
    bool must_be_told = S_ISDIR(st->st_mode) || st->st_mode & (S_ISUID | S_ISGID);
    if (!must_be_told || most <= 0 || fs_follows(front->fs))
        return most;
    struct stat again;
    if (!take_place(front, st->st_ino, (pid_t)current.header->pid) || fs_getattr(front->fs, st->st_ino, &again) < 0)
        return 0;
    *st = again;
    return most;
}
