// SPDX-License-Identifier: Apache-2.0
#include "fs/taken.h"

#include "base/clock.h"
#include "fs/internal.h"

void fs_show_others(struct fs *fs, struct store *others)
{
    struct store *before = atomic_load(&fs->others);
    if (others) {
        brings_begin(fs->brings);
        atomic_store(&fs->others, others);
    } else if (before) {
        store_interrupt(before);
        brings_end(fs->brings);
        atomic_store(&fs->others, NULL);
    }
    fs_expect_no_others(fs);
}

void fs_end_reads(struct fs *fs)
{
    struct store *others = atomic_load(&fs->others);
    fs_expect_no_others(fs);
    fetch_end_reads(fs->store);
    if (others) {
        store_interrupt(others);
        fetch_end_reads(others);
    }
}

/* --- taking ----------------------------------------------------------------------------------- */

void fs_taken_begin(struct fs *fs)
{
    check(pthread_rwlock_wrlock(&fs->gate) == 0);
}

void fs_taken_end(struct fs *fs)
{
    check(pthread_rwlock_unlock(&fs->gate) == 0);
}

/* --- names that the kernel may still use ------------------------------------------------------ */

#define KEPT_NS (2 * SECOND_NS) /* longer than the kernel caches names on such a mount */
#define DEPTH_MAX 4096u

static void note_moved(struct fs *fs, uint64_t ino)
{
    fs->moved[fs->moved_count % FS_MOVED_MAX].ino = ino;
    fs->moved[fs->moved_count++ % FS_MOVED_MAX].at = clock_monotonic_ns();
}

static void note_moved_by(struct fs *fs, const struct record *rec)
{
    if (rec->type == REC_RENAME || rec->type == REC_LINK || rec->type == REC_UNLINK)
        note_moved(fs, rec->ino);
    if (rec->type == REC_RENAME && rec->flags & RECORD_EXCHANGE)
        note_moved(fs, rec->ino2);
}

static bool was_moved_since(const struct fs *fs, uint64_t ino, int64_t since)
{
    for (size_t i = 0; i < FS_MOVED_MAX; i++)
        if (fs->moved[i].ino == ino && fs->moved[i].at > since)
            return true;
    return false;
}

bool taken_moved_lately(struct fs *fs, uint64_t ino)
{
    struct ns_inode inode;
    int64_t since = clock_monotonic_ns() - KEPT_NS;
    if (fs->moved_count > FS_MOVED_MAX && fs->moved[fs->moved_count % FS_MOVED_MAX].at > since)
        return true; /* older ones are not known any more */
    for (unsigned depth = 0; ino && depth < DEPTH_MAX; depth++, ino = inode.parent) {
        if (was_moved_since(fs, ino, since))
            return true;
        if (ino == ROOT_INO || ns_inode(fs->ns, ino, &inode) < 0)
            return false;
    }
    return false;
}

/* --- the inodes of a record --- */

#define NAMED_MAX 4u

struct named {
    struct fs *fs;
    struct ns_inode inodes[NAMED_MAX];
    size_t count;
};

static int hold_named(struct named *named, uint64_t ino)
{
    if (ino == 0)
        return 0;
    check(named->count < NAMED_MAX);
    int r = ns_hold(named->fs->ns, ino, &named->inodes[named->count]);
    named->count += r == 0;
    return r;
}

static void drop_named(struct named *named)
{
    for (size_t i = 0; i < named->count; i++)
        ns_drop(named->fs->ns, named->inodes[i].ino);
}

/* Returns the inode that loses its last name by the record. */
static uint64_t loses_last(const struct named *named, const struct record *rec)
{
    uint64_t ino = rec->type == REC_UNLINK ? rec->ino : rec->type == REC_RENAME ? rec->ino2 : 0;
    for (size_t i = 0; i < named->count; i++)
        if (named->inodes[i].ino == ino)
            return named->inodes[i].nlink == 1 || S_ISDIR(named->inodes[i].attrs.mode) ? ino : 0;
    return 0;
}

static int commit_named(struct fs *fs, struct named *named, struct record *rec,
                        uint64_t *ret_nameless)
{
    TRY(record_makes_inode(rec) ? 0 : hold_named(named, rec->ino));
    TRY(hold_named(named, rec->ino2));
    TRY(hold_named(named, rec->parent));
    TRY(hold_named(named, rec->parent2));
    TRY(room_admit_change(fs->commit->room, 4096));
    LOCK_SCOPE(&fs->locked.lock);
    uint64_t lost = loses_last(named, rec);
    if (lost)
        rec->flags |= RECORD_ORPHAN;
    TRY(history_commit(fs->commit->history, rec));
    note_moved_by(fs, rec);
    if (lost) {
        live_note_nameless_locked(fs, lost);
        *ret_nameless = lost;
    }
    return 0;
}

int fs_taken_commit(struct fs *fs, struct record *rec, uint64_t *ret_nameless)
{
    struct named named = {.fs = fs};
    *ret_nameless = 0;
    int r = commit_named(fs, &named, rec, ret_nameless);
    drop_named(&named);
    return r;
}
