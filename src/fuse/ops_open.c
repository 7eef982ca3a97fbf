// SPDX-License-Identifier: Apache-2.0
/* Open files: opening, creation, flush, sync, close. */
#include <fcntl.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "fs/taken.h"
#include "fuse/internal.h"
#include "fuse/ops.h"
#include "fuse/earlier.h"

#define CHANGE_SETTLES_NS (5ll * 1000000000)

/* Finds a handle that a dead daemon opened without answering. False: the file must be opened. */
bool front_open_again(struct front *front, struct fs_opened *ret)
{
    if (!current.is_applied || !current.before.has_handle)
        return false;
    if (fs_opened_again(front->fs, current.before.handle, ret) == 0)
        return true;
    (void)fs_release(front->fs, current.before.handle, false);
    return false;
}

/* A read in progress during a change may have brought back old pages after the kernel was told to
 * drop them. */
static bool changed_lately(struct front *front)
{
    int64_t at = atomic_load(&front->changed_at);
    return at && clock_monotonic_ns() - at < CHANGE_SETTLES_NS;
}

/* Writers bypass the page cache: one copy, from the caller into the stage. Readers of a sealed
 * version use the page cache; while a writer changes the file, they read the draft itself. */
static void set_open_flags(struct front *front, const struct fs_opened *opened,
                           struct fuse_file_info *fi)
{
    int access = fi->flags & O_ACCMODE;
    bool direct_possible = access == O_WRONLY || atomic_load(&front->mmap_shared);
    fi->fh = opened->handle;
    fi->direct_io = direct_possible && (access != O_RDONLY || opened->has_draft);
    /* the dead daemon may not have notified all changes taken over from other writers */
    bool may_be_old = front->adoption.is_adopted && (fs_follows(front->fs) || opened->is_elsewhere);
    fi->keep_cache = !fi->direct_io && !opened->has_draft && !opened->atime_due &&
                     !changed_lately(front) && !may_be_old;
    /* with O_DIRECT alone the kernel waits for its reads without reacting to signals */
    fi->direct_io = fi->direct_io || (fs_is_load(fi->flags) && fi->flags & O_DIRECT);
    fi->noflush = !opened->seals;
    /* While such a write is in progress, the kernel makes a shared mapping of the file wait for it,
     * with the memory of the mapping process locked; but a write of that process may need the
     * memory to continue. O_DIRECT means that a program does not do both at once (open(2)). */
    current.parallel_writes = fi->direct_io && fi->flags & O_DIRECT && access != O_RDONLY &&
                              atomic_load(&front->parallel_writes);
}

/* Its caller may be waiting for a remote that hangs. */
static int await_copy(fuse_req_t req, uint64_t ino)
{
    int r = current.bringing ? 0 : fs_bring(front_of(req)->fs, ino, &current.bringing);
    if (r == 0)
        r = fs_bring_result(current.bringing);
    if (r == -EAGAIN && (current.is_interrupted || fuse_req_interrupted(req)))
        r = -EINTR;
    if (r != -EAGAIN && current.bringing) {
        fs_bring_leave(current.bringing);
        current.bringing = NULL;
    }
    return r;
}

int front_bring(fuse_req_t req, uint64_t ino, bool is_emptied)
{
    bool is_opened = current.header->opcode == WIRE_OPEN; /* otherwise no close will come */
    int r = FS_IS_ELSEWHERE;
    if (is_emptied && !current.bringing)
        r = fs_bring_empty(front_of(req)->fs, ino, !is_opened);
    return r == FS_IS_ELSEWHERE ? await_copy(req, ino) : r;
}

/* Handles an O_TRUNC that came with the open. */
static int empty_opened(fuse_req_t req, uint64_t ino, struct fs_opened *opened)
{
    struct front *front = front_of(req);
    struct fs_caller caller = caller_of(req);
    const struct stat empty = {0};
    struct stat st;
    int r = fs_setattr(front->fs, ino, FS_SET_SIZE, &empty, &caller, &st);
    cached_changed(front, ino);
    if (r != FS_DONE)
        (void)fs_release(front->fs, opened->handle, false);
    opened->has_draft = true;
    return r;
}

void front_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    struct fs_opened opened;
    if (ino == SELF_TEST_INO) {
        self_test_open(req, fi);
        return;
    }
    if (fs_is_past(ino)) {
        earlier_open(req, ino, fi);
        return;
    }
    int r = front_open_again(front, &opened) ? 0 : fs_open(front->fs, ino, fi->flags, &opened);
    if (r == 0 && fi->flags & O_TRUNC)
        r = empty_opened(req, ino, &opened);
    if (r == FS_IS_ELSEWHERE)
        r = front_bring(req, ino, fi->flags & O_TRUNC);
    if (r == -ENOENT) {
        (void)fuse_reply_err(req, ESTALE); /* the same */
        return;
    }
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    set_open_flags(front, &opened, fi);
    if ((fi->flags & O_ACCMODE) != O_RDONLY)
        cached_marked(front, ino);
    /* the caller was interrupted: no release will come */
    if (fuse_reply_open(req, fi) == -ENOENT)
        (void)fs_release(front->fs, opened.handle, false);
}

void front_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    struct fs_caller caller = caller_of(req);
    struct fs_opened opened;
    struct stat st;
    bool is_nameless = strcmp(name, WIRE_NO_NAME) == 0;
    const struct fs_new_inode new = {
        .parent = parent, .name = is_nameless ? NULL : name, .mode = mode, .caller = &caller};
    int r = front_open_again(front, &opened) ? fs_getattr(front->fs, current.before.ino, &st)
                                             : fs_create(front->fs, &new, fi->flags, &st, &opened);
    cached_entries_changed(front, parent, r);
    if (r == -EEXIST && !(fi->flags & O_EXCL))
        r = -ESTALE; /* another node created it: the kernel looks the name up again, and opens it */
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    set_open_flags(front, &opened, fi);
    struct fuse_entry_param entry = front_entry(front, &st);
    if (fuse_reply_create(req, &entry, fi) != -ENOENT)
        return;
    /* The caller was interrupted: the kernel does not know the file, so no request will end its
     * life. */
    if (is_nameless && fs_forget(front->fs, st.st_ino) < 0)
        log_debug("unlinked inode %llu is kept until the next mount",
                  (unsigned long long)st.st_ino);
    (void)fs_release(front->fs, opened.handle, false);
}

void front_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    bool is_over = ino == SELF_TEST_INO || fs_is_past(ino);
    reply_result(req, is_over ? 0 : fs_flush(front_of(req)->fs, ino, fi->fh));
}

void front_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    bool is_over = ino == SELF_TEST_INO || current.is_applied;
    if (fs_is_past(ino)) {
        earlier_release(req, ino, fi);
        return;
    }
    reply_result(req, is_over ? 0 : fs_release(front_of(req)->fs, fi->fh, true));
}

static void reply_synced(fuse_req_t req, size_t written)
{
    if (written > 0)
        (void)fuse_reply_write(req, written);
    else
        (void)fuse_reply_err(req, 0);
}

static void sync_done(int result, void *arg)
{
    struct syncing *syncing = arg;
    struct front *front = syncing->front;
    mutex_lock(&front->locked.lock);
    TAILQ_REMOVE(&front->locked.syncing, syncing, link);
    front->locked.synced++;
    mutex_unlock(&front->locked.lock);
    bool is_refused = result == -ENOSPC || result == -EFBIG || result == -EROFS;
    if (result < 0 && !is_refused && result != -EIO)
        cause_note(
            "the wait cannot succeed: the mount ends, or another writer has taken over its remote");
    if (result == 0)
        result = fs_after_barrier(front->fs, syncing->ino, syncing->level);
    if (result < 0) {
        int r = is_refused ? result : -EIO;
        (void)fuse_reply_err(syncing->req, front_failed(front, syncing->ino, "fsync", r));
    } else {
        reply_synced(syncing->req, syncing->written);
    }
    free(syncing);
    LOCK_SCOPE(&front->locked.lock); /* the front stays until all of these are answered */
    check(front->locked.synced > 0);
    front->locked.synced--;
    event_signal(&front->progress);
}

void front_sync(fuse_req_t req, fuse_ino_t ino, size_t written)
{
    struct front *front = front_of(req);
    struct fs_barrier barrier;
    int r = fs_fsync(front->fs, ino, &barrier);
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    if (barrier.seq == 0) {
        reply_synced(req, written);
        return;
    }
    struct syncing *syncing = xcalloc(1, sizeof *syncing);
    *syncing = (struct syncing){.front = front,
                                .req = req,
                                .ino = ino,
                                .pid = fuse_req_ctx(req)->pid,
                                .level = barrier.level,
                                .written = written};
    mutex_lock(&front->locked.lock);
    TAILQ_INSERT_TAIL(&front->locked.syncing, syncing, link);
    mutex_unlock(&front->locked.lock);
    fs_await(front->fs, &barrier, sync_done, syncing, &syncing->ticket);
}

void front_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)datasync;
    (void)fi;
    if (ino == SELF_TEST_INO || fs_is_past(ino))
        reply_synced(req, 0);
    else
        front_sync(req, ino, 0);
}
