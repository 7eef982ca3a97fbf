// SPDX-License-Identifier: Apache-2.0
/* Times of access, as relatime defines them: a read moves atime if it is not newer than mtime and
 * ctime, or is a day old.
 *
 * They stay in memory, up to a limit, and are committed to history when the limit is reached or at
 * the end of the mount. So reading creates no record, does not change the level of the file that
 * was read, and leaves the uploader nothing to publish. */
#include "base/clock.h"
#include "fs/internal.h"

#define ACCESSED_MAX 8192u
#define DAY_NS (24ll * 3600 * 1000000000)

void fs_update_atime(struct fs *fs, bool updates)
{
    atomic_store(&fs->updates_atime, updates);
}

static struct accessed *find_locked(struct fs *fs, uint64_t ino)
{
    check_held(&fs->access.lock);
    struct accessed *found = NULL;
    HASH_FIND(hh, fs->access.accessed, &ino, sizeof ino, found);
    return found;
}

int64_t access_time(struct fs *fs, const struct ns_inode *inode)
{
    LOCK_SCOPE(&fs->access.lock);
    struct accessed *found = fs->access.accessed ? find_locked(fs, inode->ino) : NULL;
    return found ? found->atime : inode->attrs.atime;
}

void access_forget(struct fs *fs, uint64_t ino)
{
    LOCK_SCOPE(&fs->access.lock);
    struct accessed *found = find_locked(fs, ino);
    if (!found)
        return;
    HASH_DEL(fs->access.accessed, found);
    free(found);
}

/* Removes the oldest entry from the table. */
static bool take_oldest(struct fs *fs, size_t spared, struct accessed *ret)
{
    LOCK_SCOPE(&fs->access.lock);
    struct accessed *oldest = fs->access.accessed;
    if (HASH_COUNT(fs->access.accessed) <= spared)
        return false;
    *ret = *oldest;
    HASH_DEL(fs->access.accessed, oldest);
    free(oldest);
    return true;
}

/* Without ctime: nothing was changed. An inode that is gone, or a lack of room, loses only a time
 * of access. */
static void commit_access(struct fs *fs, const struct accessed *accessed)
{
    struct ns_inode inode;
    if (ns_hold(fs->ns, accessed->ino, &inode) < 0)
        return;
    struct record rec = {.type = REC_SETATTR,
                         .ino = accessed->ino,
                         .mask = ATTR_ATIME,
                         .attrs = {.atime = accessed->atime}};
    if (inode.nlink > 0 && history_commit(fs->commit->history, &rec) < 0)
        (void)0; /* only a time of access */
    ns_drop(fs->ns, accessed->ino);
}

void fs_settle(struct fs *fs)
{
    struct accessed accessed;
    while (take_oldest(fs, 0, &accessed))
        commit_access(fs, &accessed);
    fs_end_replaced(fs);
    live_end_all(fs);
}

static void set_access(struct fs *fs, uint64_t ino, int64_t atime)
{
    LOCK_SCOPE(&fs->access.lock);
    struct accessed *found = find_locked(fs, ino);
    if (!found) {
        found = xcalloc(1, sizeof *found);
        found->ino = ino;
        HASH_ADD(hh, fs->access.accessed, ino, sizeof found->ino, found);
    }
    found->atime = atime;
}

/* Returns whether a read at `time` would move the time of access. */
static bool is_due(struct fs *fs, const struct commit_now *now, int64_t time)
{
    if (!atomic_load(&fs->updates_atime))
        return false;
    int64_t atime = access_time(fs, &now->inode);
    return atime <= now->mtime || atime <= now->inode.attrs.ctime || time - atime >= DAY_NS;
}

bool access_due(struct fs *fs, uint64_t ino, int64_t time)
{
    struct commit_now now;
    return atomic_load(&fs->updates_atime) && commit_look(fs->commit, ino, &now) == 0 &&
           is_due(fs, &now, time);
}

void access_note(struct fs *fs, const struct commit_now *now)
{
    int64_t time = clock_realtime_ns();
    if (!is_due(fs, now, time))
        return;
    set_access(fs, now->inode.ino, time);
    struct accessed crowded_out;
    if (take_oldest(fs, ACCESSED_MAX, &crowded_out))
        commit_access(fs, &crowded_out);
}

void fs_accessed(struct fs *fs, uint64_t ino)
{
    struct commit_now now;
    if (atomic_load(&fs->updates_atime) && commit_look(fs->commit, ino, &now) == 0)
        access_note(fs, &now);
}
