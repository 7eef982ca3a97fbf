/* For how long the kernel may keep attributes.
 *
 * Nearly all changes are its own, and with most of them it counts a version of the inode's attributes: an answer that it asked for
 * before, and takes after, is dropped. Some it only marks as old, and an older answer, taken last, would be kept: the times of a
 * directory whose entries change, ctime after a rename or a change of xattrs, blocks after fallocate, all of these after stores
 * through a map. And it does not look for setuid bits that a write takes away. A notice counts a version, too. So
 *
 *   - after a rename, a change of xattrs, fallocate, a page of a map: the kernel is told, each time (kept_marked())
 *   - of directories, and of files with such bits, it is told with the first change after they were answered for long
 *     (kept_changed()). Those that changed a moment ago, and may do so all the time, as one in which files are made does, and
 *     those for which there is no place, are answered for TICK_S only: a notice each time, or an answer that is not kept at all,
 *     would make the kernel ask for permissions before each operation there. Until then an older answer may show.
 *
 * An older time of access may show in any case.
 *
 * An inode is answered for long if it has a place in `kept`, taken before its attributes were read (again). Who changes attributes
 * gives the place up after the change and before the reply, and then tells: each answer that came without the change is told of. */
#include "base/clock.h"
#include "fuse/internal.h"

#define MOMENT_NS 1000000000ll
#define TICK_S 0.001 /* the kernel counts in ticks of 1 to 10 ms: it keeps them until the next one or the one after */
#define SETTLED_NS (10 * MOMENT_NS)

static struct kept_set *set_of(struct front *front, uint64_t ino)
{
    uint64_t hash = ino * 0x9e3779b97f4a7c15ull;
    return &front->kept[(hash >> 32) % KEPT_SETS];
}

/* False: all places are taken. After a while one is taken from another inode, and the kernel told of that. Not at once: it may not have
 * got yet what the place was taken for. */
static bool take_place(struct front *front, uint64_t ino)
{
    struct kept_set *set = set_of(front, ino);
    int64_t now = clock_monotonic_ns();
    for (unsigned i = 0; i < 2 * KEPT_WAYS; i++) { /* its own place first, then a free one */
        uint64_t there = i < KEPT_WAYS ? ino : 0;
        if (!atomic_compare_exchange_strong(&set->inos[i % KEPT_WAYS], &there, ino) && there != ino)
            continue;
        atomic_store(&set->taken_at, now);
        return true;
    }
    int64_t taken_at = atomic_load(&set->taken_at);
    if (now - taken_at < SETTLED_NS || !atomic_compare_exchange_strong(&set->taken_at, &taken_at, now))
        return false;
    uint64_t other = atomic_exchange(&set->inos[(uint64_t)now % KEPT_WAYS], ino);
    if (other)
        front_changed(front, &other, 1, false);
    return true;
}

void kept_changed(struct front *front, uint64_t ino)
{
    struct kept_set *set = set_of(front, ino);
    bool found = false;
    atomic_thread_fence(memory_order_seq_cst); /* the change is seen by whoever takes a place from here on */
    for (unsigned i = 0; i < KEPT_WAYS; i++) {
        uint64_t there = atomic_load_explicit(&set->inos[i], memory_order_relaxed);
        found |= there == ino && atomic_compare_exchange_strong(&set->inos[i], &there, 0);
    }
    if (found)
        front_changed(front, &ino, 1, false);
}

void kept_marked(struct front *front, uint64_t ino)
{
    front_changed(front, &ino, 1, false);
}

static int64_t changed_at(const struct stat *st)
{
    return st->st_ctim.tv_sec * 1000000000ll + st->st_ctim.tv_nsec;
}

static bool may_be_kept(struct front *front, const struct stat *st)
{
    int64_t age = clock_realtime_ns() - changed_at(st);
    struct stat again;
    return age >= MOMENT_NS && take_place(front, st->st_ino) && fs_getattr(front->fs, st->st_ino, &again) == 0 &&
           changed_at(&again) == changed_at(st) && again.st_mode == st->st_mode;
}

double kept_for(struct front *front, const struct stat *st)
{
    double most = front->options.attr_timeout;
    bool must_be_told = S_ISDIR(st->st_mode) || st->st_mode & (S_ISUID | S_ISGID);
    return !must_be_told || most <= TICK_S || fs_follows(front->fs) || may_be_kept(front, st) ? most : TICK_S;
}
