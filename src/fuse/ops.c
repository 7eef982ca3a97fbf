/* One request, one call of fs/, one reply. -EAGAIN from fs/ means: park it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "fuse/internal.h"

#define MAX_WRITE SLAB_PAYLOAD

static struct front *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

static struct fs_caller caller_of(fuse_req_t req)
{
    const struct fuse_ctx *ctx = fuse_req_ctx(req);
    return (struct fs_caller){.uid = ctx->uid, .gid = ctx->gid};
}

/* Answers with an error or success without content, or parks. */
static void reply_result(fuse_req_t req, int r)
{
    if (r == -EAGAIN)
        front_park(front_of(req), req);
    else
        (void)fuse_reply_err(req, r < 0 ? -r : 0);
}

static struct fuse_entry_param entry_of(const struct front *front, const struct stat *st)
{
    return (struct fuse_entry_param){.ino = st->st_ino,
                                     .generation = 1, /* inode numbers are never reused */
                                     .attr = *st,
                                     .attr_timeout = front->options.attr_timeout,
                                     .entry_timeout = front->options.entry_timeout};
}

static void reply_entry(fuse_req_t req, int r, const struct stat *st)
{
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    struct fuse_entry_param entry = entry_of(front_of(req), st);
    (void)fuse_reply_entry(req, &entry);
}

static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    (void)userdata;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE);
    conn->want |= conn->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_ATOMIC_O_TRUNC | FUSE_CAP_EXPORT_SUPPORT |
                                   FUSE_CAP_PARALLEL_DIROPS | FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS |
                                   FUSE_CAP_READDIRPLUS_AUTO);
    conn->max_write = MAX_WRITE;
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    conn->time_gran = 1;
}

/* --- names ------------------------------------------------------------------------------------------------------------------ */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct stat st;
    reply_entry(req, fs_lookup(front_of(req)->fs, parent, name, &st), &st);
}

/* Inodes are found by number at any time: there is nothing to forget. */
static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    (void)ino;
    (void)nlookup;
    fuse_reply_none(req);
}

static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    (void)count;
    (void)forgets;
    fuse_reply_none(req);
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct stat st;
    struct fs_caller caller = caller_of(req);
    reply_entry(req, fs_mknod(front_of(req)->fs, parent, name, mode, rdev, &caller, &st), &st);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct stat st;
    struct fs_caller caller = caller_of(req);
    reply_entry(req, fs_mkdir(front_of(req)->fs, parent, name, mode, &caller, &st), &st);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct stat st;
    struct fs_caller caller = caller_of(req);
    reply_entry(req, fs_symlink(front_of(req)->fs, target, parent, name, &caller, &st), &st);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct stat st;
    reply_entry(req, fs_link(front_of(req)->fs, ino, parent, name, &st), &st);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    reply_result(req, fs_unlink(front_of(req)->fs, parent, name));
}

static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    reply_result(req, fs_rmdir(front_of(req)->fs, parent, name));
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t parent2, const char *name2,
                      unsigned flags)
{
    reply_result(req, fs_rename(front_of(req)->fs, parent, name, parent2, name2, flags));
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[4097];
    ssize_t len = fs_readlink(front_of(req)->fs, ino, target);
    if (len < 0) {
        (void)fuse_reply_err(req, (int)-len);
        return;
    }
    target[len] = '\0';
    (void)fuse_reply_readlink(req, target);
}

/* --- directories -------------------------------------------------------------------------------------------------------------- */

struct dir_reply {
    fuse_req_t req;
    struct front *front;
    char *buf;
    size_t size, len;
    bool plus;
};

static int add_entry(const struct fs_entry *entry, void *arg)
{
    struct dir_reply *d = arg;
    struct stat st = {.st_ino = entry->ino, .st_mode = entry->type};
    size_t left = d->size - d->len, need;
    /* Nobody but the self-test is to see its file. */
    if (atomic_load(&d->front->testing) && strncmp(entry->name, SELF_TEST_NAME, strlen(SELF_TEST_NAME)) == 0)
        return 0;
    if (d->plus) {
        /* An entry that was removed since it was listed is left out. */
        if (fs_getattr(d->front->fs, entry->ino, &st) < 0)
            return 0;
        struct fuse_entry_param e = entry_of(d->front, &st);
        need = fuse_add_direntry_plus(d->req, d->buf + d->len, left, entry->name, &e, (off_t)entry->offset);
    } else {
        need = fuse_add_direntry(d->req, d->buf + d->len, left, entry->name, &st, (off_t)entry->offset);
    }
    if (need > left)
        return 1;
    d->len += need;
    return 0;
}

static void list_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
    struct dir_reply d = {.req = req, .front = front_of(req), .size = size, .plus = plus};
    d.buf = xmalloc(size);
    int r = fs_readdir(d.front->fs, ino, (uint64_t)offset, add_entry, &d);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_buf(req, d.buf, d.len);
    free(d.buf);
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)fi;
    list_directory(req, ino, size, offset, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    (void)fi;
    list_directory(req, ino, size, offset, true);
}

/* --- attributes ----------------------------------------------------------------------------------------------------------------- */

static void reply_attr(fuse_req_t req, int r, const struct stat *st)
{
    if (r < 0)
        reply_result(req, r);
    else
        (void)fuse_reply_attr(req, st, front_of(req)->options.attr_timeout);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    struct stat st;
    reply_attr(req, fs_getattr(front_of(req)->fs, ino, &st), &st);
}

static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set, struct fuse_file_info *fi)
{
    (void)fi;
    static const struct {
        int from;
        unsigned to;
    } bits[] = {{FUSE_SET_ATTR_MODE, FS_SET_MODE},   {FUSE_SET_ATTR_UID, FS_SET_UID},
                {FUSE_SET_ATTR_GID, FS_SET_GID},     {FUSE_SET_ATTR_SIZE, FS_SET_SIZE},
                {FUSE_SET_ATTR_ATIME, FS_SET_ATIME}, {FUSE_SET_ATTR_MTIME, FS_SET_MTIME}};
    struct stat set = *attr, st;
    unsigned mask = 0;
    for (size_t i = 0; i < ARRAY_LEN(bits); i++)
        mask |= to_set & bits[i].from ? bits[i].to : 0;
    int64_t now = clock_realtime_ns();
    struct timespec ts = {.tv_sec = now / 1000000000, .tv_nsec = now % 1000000000};
    if (to_set & FUSE_SET_ATTR_ATIME_NOW)
        set.st_atim = ts;
    if (to_set & FUSE_SET_ATTR_MTIME_NOW)
        set.st_mtim = ts;
    struct fs_caller caller = caller_of(req);
    reply_attr(req, fs_setattr(front_of(req)->fs, ino, mask, &set, &caller, &st), &st);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    (void)ino;
    struct statvfs st;
    int r = fs_statfs(front_of(req)->fs, &st);
    if (r < 0)
        (void)fuse_reply_err(req, -r);
    else
        (void)fuse_reply_statfs(req, &st);
}

/* Replies with what `fn`-like calls returned: a length only if nothing but that was asked for. */
static void reply_xattr(fuse_req_t req, ssize_t len, const char *buf, size_t size)
{
    if (len < 0)
        (void)fuse_reply_err(req, (int)-len);
    else if (size == 0)
        (void)fuse_reply_xattr(req, (size_t)len);
    else
        (void)fuse_reply_buf(req, buf, (size_t)len);
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    _cleanup_free_ char *buf = size ? xmalloc(size) : NULL;
    reply_xattr(req, fs_getxattr(front_of(req)->fs, ino, name, buf, size), buf, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    _cleanup_free_ char *buf = size ? xmalloc(size) : NULL;
    reply_xattr(req, fs_listxattr(front_of(req)->fs, ino, buf, size), buf, size);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value, size_t size, int flags)
{
    reply_result(req, fs_setxattr(front_of(req)->fs, ino, name, value, size, flags));
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    reply_result(req, fs_removexattr(front_of(req)->fs, ino, name));
}

/* --- open files ------------------------------------------------------------------------------------------------------------------- */

/* Who writes bypasses the page cache: one copy, from the caller into the stage. Who reads a sealed version has it
 * cached; while somebody changes the file, readers look at the draft itself. */
static void set_open_flags(const struct front *front, const struct fs_opened *opened, struct fuse_file_info *fi)
{
    int access = fi->flags & O_ACCMODE;
    bool direct_possible = access == O_WRONLY || atomic_load(&front->mmap_shared);
    fi->fh = opened->handle;
    fi->direct_io = direct_possible && (access != O_RDONLY || opened->has_draft);
    fi->keep_cache = !fi->direct_io && !opened->has_draft;
}

static void op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    struct fs_caller caller = caller_of(req);
    struct fs_opened opened;
    int r = fs_open(front->fs, ino, fi->flags, &caller, &opened);
    if (r < 0) {
        reply_result(req, r == -ENOENT ? -ESTALE : r);
        return;
    }
    set_open_flags(front, &opened, fi);
    if (fuse_reply_open(req, fi) == -ENOENT)
        fs_release(front->fs, opened.handle); /* the caller was interrupted: no release will come */
}

static void op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    struct fs_caller caller = caller_of(req);
    struct fs_opened opened;
    struct stat st;
    int r = fs_create(front->fs, parent, name, mode, fi->flags, &caller, &st, &opened);
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    set_open_flags(front, &opened, fi);
    struct fuse_entry_param entry = entry_of(front, &st);
    if (fuse_reply_create(req, &entry, fi) == -ENOENT)
        fs_release(front->fs, opened.handle);
}

static void op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    reply_result(req, fs_flush(front_of(req)->fs, ino, fi->fh));
}

static void op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    fs_release(front_of(req)->fs, fi->fh);
    (void)fuse_reply_err(req, 0);
}

static void sync_done(int result, void *arg)
{
    struct syncing *syncing = arg;
    struct front *front = syncing->front;
    mutex_lock(&front->locked.lock);
    TAILQ_REMOVE(&front->locked.syncing, syncing, link);
    mutex_unlock(&front->locked.lock);
    (void)fuse_reply_err(syncing->req, result < 0 ? EIO : 0);
    free(syncing);
}

static void op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi)
{
    (void)datasync;
    (void)fi;
    struct front *front = front_of(req);
    uint64_t seq;
    int r = fs_fsync(front->fs, ino, &seq);
    if (r < 0 || seq == 0) {
        reply_result(req, r);
        return;
    }
    struct syncing *syncing = xcalloc(1, sizeof *syncing);
    *syncing = (struct syncing){.front = front, .req = req, .pid = fuse_req_ctx(req)->pid};
    mutex_lock(&front->locked.lock);
    TAILQ_INSERT_TAIL(&front->locked.syncing, syncing, link);
    mutex_unlock(&front->locked.lock);
    store_wait(front->store, seq, sync_done, syncing, &syncing->ticket);
}

/* --- content ----------------------------------------------------------------------------------------------------------------------- */

/* The kernel's count of a payload that lies where the stage wants it: then the slab itself is kept. */
static bool may_steal(const char *buf, size_t size, const struct front *front)
{
    return size >= STAGE_STEAL_MIN && current.slab != SLAB_NONE &&
           (const uint8_t *)buf == (uint8_t *)stage_slab_memory(front->stage, current.slab) + SLAB_PAYLOAD_OFFSET;
}

static void op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
                     struct fuse_file_info *fi)
{
    (void)fi;
    struct front *front = front_of(req);
    if (size == 0) {
        (void)fuse_reply_write(req, 0);
        return;
    }
    if (front_must_queue(front)) {
        front_park(front, req);
        return;
    }
    struct fs_caller caller = caller_of(req);
    bool steal = may_steal(buf, size, front);
    int r = fs_write(front->fs, ino, (uint64_t)offset, (uint32_t)size, steal ? current.slab : SLAB_NONE, buf, &caller);
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    current.stolen = steal;
    (void)fuse_reply_write(req, size);
}

struct slow_read {
    struct front *front;
    fuse_req_t req;
    uint64_t ino, offset;
    size_t size;
    bool may_be_short;
};

static void read_slowly(void *arg)
{
    struct slow_read *read = arg;
    uint8_t *buf = thread_buffer(THREAD_BUFFER_REPLY, MAX_WRITE);
    ssize_t n = fs_read_slow(read->front->fs, read->ino, read->offset, buf, read->size, read->may_be_short);
    if (n < 0)
        (void)fuse_reply_err(read->req, (int)-n);
    else
        (void)fuse_reply_buf(read->req, (const char *)buf, (size_t)n);
    free(read);
}

static void op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, struct fuse_file_info *fi)
{
    static _Thread_local struct fs_read fast;
    struct front *front = front_of(req);
    size = (size_t)min_u64(size, MAX_WRITE);
    int r = fs_read_fast(front->fs, ino, (uint64_t)offset, size, &fast);
    if (r < 0) {
        (void)fuse_reply_err(req, -r);
        return;
    }
    if (r == 0) {
        (void)fuse_reply_iov(req, fast.iov, (int)fast.iov_count);
        fs_read_done(front->fs, &fast);
        return;
    }
    struct slow_read *slow = xmalloc(sizeof *slow);
    /* The page cache would take a short answer for the end of the file; direct readers get what is good. */
    bool direct = (fs_handle_flags(front->fs, fi->fh) & O_ACCMODE) != O_RDONLY && atomic_load(&front->mmap_shared);
    *slow = (struct slow_read){front, req, ino, (uint64_t)offset, size, direct};
    store_submit_read(front->store, read_slowly, slow);
}

static void op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length, struct fuse_file_info *fi)
{
    (void)fi;
    reply_result(req, fs_fallocate(front_of(req)->fs, ino, mode, (uint64_t)offset, (uint64_t)length));
}

static void op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence, struct fuse_file_info *fi)
{
    (void)fi;
    int64_t at = fs_lseek(front_of(req)->fs, ino, (uint64_t)offset, whence);
    if (at < 0)
        (void)fuse_reply_err(req, (int)-at);
    else
        (void)fuse_reply_lseek(req, at);
}

static void op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset, struct fuse_file_info *from_fi,
                               fuse_ino_t to, off_t to_offset, struct fuse_file_info *to_fi, size_t length, int flags)
{
    (void)from_fi;
    (void)to_fi;
    (void)flags;
    struct fs_caller caller = caller_of(req);
    ssize_t n = fs_copy(front_of(req)->fs, from, (uint64_t)from_offset, to, (uint64_t)to_offset, length, &caller);
    if (n < 0)
        reply_result(req, (int)n);
    else
        (void)fuse_reply_write(req, (size_t)n);
}

const struct fuse_lowlevel_ops front_ops = {
    .init = op_init,
    .lookup = op_lookup,
    .forget = op_forget,
    .forget_multi = op_forget_multi,
    .getattr = op_getattr,
    .setattr = op_setattr,
    .readlink = op_readlink,
    .mknod = op_mknod,
    .mkdir = op_mkdir,
    .unlink = op_unlink,
    .rmdir = op_rmdir,
    .symlink = op_symlink,
    .rename = op_rename,
    .link = op_link,
    .open = op_open,
    .read = op_read,
    .write = op_write,
    .flush = op_flush,
    .release = op_release,
    .fsync = op_fsync,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .fsyncdir = op_fsync,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .create = op_create,
    .fallocate = op_fallocate,
    .lseek = op_lseek,
    .copy_file_range = op_copy_file_range,
};
