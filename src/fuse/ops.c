// SPDX-License-Identifier: Apache-2.0
/* One request, one call of fs/, one reply. -EAGAIN from fs/ means: park it. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/xattr.h>

#include "base/clock.h"
#include "base/pool.h"
#include "fs/taken.h"
#include "fuse/ops.h"
#include "fuse/earlier.h"

void reply_result(fuse_req_t req, int r)
{
    if (r == -EAGAIN)
        front_park(req);
    else
        (void)fuse_reply_err(req, r < 0 ? front_failed_now(front_of(req), r) : 0);
}

void reply_error(fuse_req_t req, int r)
{
    (void)fuse_reply_err(req, front_failed_now(front_of(req), r));
}

struct fuse_entry_param front_entry(struct front *front, const struct stat *st)
{
    struct fuse_entry_param entry = {.ino = st->st_ino,
                                     .generation = 1, /* inode numbers are never reused */
                                     .attr = *st,
                                     .entry_timeout = front->options.entry_timeout};
    entry.attr_timeout = cached_for(front, &entry.attr);
    return entry;
}

/* Replies to a request that may have changed the entries of `parent`. */
static void reply_changed(fuse_req_t req, uint64_t parent, int r)
{
    cached_entries_changed(front_of(req), parent, r);
    reply_result(req, r);
}

/* `is_linked`: the kernel would accept these attributes regardless of notifications in between, so
 * they must not be cached. */
static void reply_entry(fuse_req_t req, int r, const struct stat *st, bool is_linked)
{
    if (r < 0) {
        reply_result(req, r);
        return;
    }
    struct fuse_entry_param entry = front_entry(front_of(req), st);
    if (is_linked)
        entry.attr_timeout = 0;
    (void)fuse_reply_entry(req, &entry);
}

/* Was it applied by a daemon that died before it answered? Then sets the result to answer, and *st,
 * unless NULL, to the current attributes. */
static bool was_done(struct front *front, struct stat *st, int *ret)
{
    if (current.is_applied)
        *ret = st ? fs_getattr(front->fs, current.before.ino, st) : 0;
    return current.is_applied;
}

static void reply_made(fuse_req_t req, uint64_t parent, int r, const struct stat *st)
{
    cached_entries_changed(front_of(req), parent, r);
    reply_entry(req, r, st, false);
}

/* O_TRUNC is sent as a setattr after the open. If it came with the open, it would be applied before
 * the kernel has checked whether it is allowed (a running program would lose its code to an open
 * for reading that fails with ETXTBSY). If files may belong to other nodes, it does come with the
 * open: otherwise their content would be copied in vain. */
static void op_init(void *userdata, struct fuse_conn_info *conn)
{
    const struct front *front = userdata;
    const unsigned atomic_trunc = front->options.has_nodes ? 0 : FUSE_CAP_ATOMIC_O_TRUNC;
    conn->want &= ~(unsigned)(FUSE_CAP_SPLICE_READ | FUSE_CAP_SPLICE_WRITE | FUSE_CAP_SPLICE_MOVE |
                              atomic_trunc);
    if (front->options.has_nodes)
        conn->want |= conn->capable & FUSE_CAP_ATOMIC_O_TRUNC;
    conn->want |=
        conn->capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_PARALLEL_DIROPS |
                         FUSE_CAP_ASYNC_DIO | FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO);
    conn->max_write = MAX_WRITE;
    conn->max_background = 64;
    conn->congestion_threshold = 48;
    conn->time_gran = 1;
}

/* --- names ------------------------------------------------------------------------------------ */

static void op_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct front *front = front_of(req);
    struct stat st;
    bool is_root = parent == FUSE_ROOT_ID || parent == front->options.root;
    if (is_root && self_test_lookup(req, name))
        return;
    if (fs_is_past(parent)) {
        earlier_lookup(req, parent, name);
        return;
    }
    int r = fs_lookup(front->fs, parent, name, &st);
    if (r == -ENOENT && fs_is_history(front->fs, parent, name)) {
        earlier_lookup_top(req);
        return;
    }
    if (r == -ENOENT) {
        bool may_come = parent == FUSE_ROOT_ID && strcmp(name, FS_HISTORY_NAME) == 0;
        struct fuse_entry_param none = {.entry_timeout =
                                            may_come ? 0 : front->options.absence_timeout};
        (void)fuse_reply_entry(req, &none);
        return;
    }
    reply_entry(req, r, &st, false);
}

/* The request may be late, or be repeated: the kernel may have found the inode again since. Then
 * another FORGET will come. */
static bool kernel_knows(struct front *front, uint64_t ino)
{
    return fuse_lowlevel_notify_inval_inode(front->se, ino, -1, 0) != -ENOENT;
}

/* Inodes are found by number at any time: FORGET matters only for unlinked ones. */
static void op_forget_multi(fuse_req_t req, size_t count, struct fuse_forget_data *forgets)
{
    struct front *front = front_of(req);
    int r = 0;
    for (size_t i = 0; i < count && r == 0; i++)
        if (fs_is_nameless(front->fs, forgets[i].ino) && !kernel_knows(front, forgets[i].ino))
            r = fs_forget(front->fs, forgets[i].ino);
    if (r < 0)
        front_park(req); /* when it is repeated, those before it are handled already */
    else
        fuse_reply_none(req);
}

static void op_forget(fuse_req_t req, fuse_ino_t ino, uint64_t nlookup)
{
    op_forget_multi(req, 1, &(struct fuse_forget_data){.ino = ino, .nlookup = nlookup});
}

static void op_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode, dev_t rdev)
{
    struct stat st;
    const struct fs_caller caller = caller_of(req);
    const struct fs_new_inode new = {parent, name, mode, rdev, &caller};
    int r;
    if (!was_done(front_of(req), &st, &r))
        r = fs_mknod(front_of(req)->fs, &new, &st);
    reply_made(req, parent, r, &st);
}

static void op_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode)
{
    struct stat st;
    const struct fs_caller caller = caller_of(req);
    const struct fs_new_inode new = {parent, name, mode, 0, &caller};
    int r;
    if (!was_done(front_of(req), &st, &r))
        r = fs_mkdir(front_of(req)->fs, &new, &st);
    reply_made(req, parent, r, &st);
}

static void op_symlink(fuse_req_t req, const char *target, fuse_ino_t parent, const char *name)
{
    struct stat st;
    const struct fs_caller caller = caller_of(req);
    const struct fs_new_inode new = {parent, name, 0, 0, &caller};
    int r;
    if (!was_done(front_of(req), &st, &r))
        r = fs_symlink(front_of(req)->fs, target, &new, &st);
    reply_made(req, parent, r, &st);
}

static void op_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t parent, const char *name)
{
    struct stat st;
    int r;
    if (!was_done(front_of(req), &st, &r))
        r = fs_link(front_of(req)->fs, ino, parent, name, &st);
    cached_entries_changed(front_of(req), parent, r);
    reply_entry(req, r, &st, true);
}

static void op_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct front *front = front_of(req);
    int r;
    if (!was_done(front, NULL, &r))
        r = fs_unlink(front->fs, parent, name);
    reply_changed(req, parent, r);
}

/* 0: no inode. */
static uint64_t ino_of(struct front *front, uint64_t parent, const char *name)
{
    struct stat st;
    return fs_lookup(front->fs, parent, name, &st) == 0 ? st.st_ino : 0;
}

/* Notifies the kernel about an inode that loses a name: kernels before about 6.16 only mark its
 * attributes as stale, or not even that. */
static void op_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    struct front *front = front_of(req);
    uint64_t lost = current.before.ino;
    int r;
    if (!was_done(front, NULL, &r))
        r = fs_rmdir(front->fs, parent, name, &lost);
    if (r == 0)
        cached_marked(front, lost);
    reply_changed(req, parent, r);
}

static void op_rename(fuse_req_t req, fuse_ino_t parent, const char *name, fuse_ino_t parent2,
                      const char *name2, unsigned flags)
{
    struct front *front = front_of(req);
    struct fs_caller caller = caller_of(req);
    const struct fs_rename names = {parent, name, parent2, name2, flags};
    struct fs_renamed renamed;
    int r;
    if (was_done(front, NULL, &r)) /* reads who has the names now */
        renamed = (struct fs_renamed){ino_of(front, parent2, name2), ino_of(front, parent, name)};
    else
        r = fs_rename(front->fs, &names, &caller, &renamed);
    cached_entries_changed(front, parent, r);
    if (parent2 != parent)
        cached_entries_changed(front, parent2, r);
    if (r == 0 && renamed.source)
        cached_marked(front, renamed.source);
    if (r == 0 && renamed.target)
        cached_marked(front, renamed.target);
    reply_result(req, r);
}

static void op_readlink(fuse_req_t req, fuse_ino_t ino)
{
    char target[4097];
    if (fs_is_past(ino)) {
        earlier_readlink(req, ino);
        return;
    }
    ssize_t len = fs_readlink(front_of(req)->fs, ino, target);
    if (len < 0) {
        reply_error(req, (int)len);
        return;
    }
    target[len] = '\0';
    fs_accessed(front_of(req)->fs, ino);
    (void)fuse_reply_readlink(req, target);
}

/* --- directories ------------------------------------------------------------------------------ */

/* Usual length of an entry in an answer. */
#define ENTRY_LEN 40u
#define PLUS_ENTRY_LEN 168u
/* The first entries have attributes, because the kernel cannot know yet whether a caller wants
 * them. Few, because they cost it more than a name; it requests the attributes of the rest as soon
 * as one of these is used. */
#define PLUS_FIRST_LEN 4096u

static int read_entry(struct front *front, uint64_t ino, struct fuse_entry_param *ret)
{
    struct stat st;
    TRY(fs_getattr(front->fs, ino, &st));
    *ret = front_entry(front, &st);
    return 0;
}

static void list_directory(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                           uint64_t handle, bool plus)
{
    struct dir_reply d = {
        .req = req, .front = front_of(req), .size = size, .plus = plus, .read = read_entry};
    d.buf = thread_buffer(THREAD_BUFFER_REPLY, size);
    const struct fs_listing listing = {.dir = ino,
                                       .after = (uint64_t)offset,
                                       .until =
                                           fs_listing_end(d.front->fs, handle, (uint64_t)offset),
                                       .expected = size / (plus ? PLUS_ENTRY_LEN : ENTRY_LEN),
                                       .fn = dir_reply_add,
                                       .arg = &d};
    int r = fs_readdir(d.front->fs, &listing);
    if (r < 0) {
        reply_error(req, r);
    } else {
        fs_accessed(d.front->fs, ino);
        (void)fuse_reply_buf(req, d.buf, d.len);
    }
}

/* An open directory lives on when it is removed, like an open file. */
static void op_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    struct fs_opened opened;
    if (fs_is_past(ino)) {
        earlier_open(req, ino, fi);
        return;
    }
    int r = front_open_again(front, &opened) ? 0 : fs_open(front->fs, ino, O_RDONLY, &opened);
    if (r < 0) {
        reply_result(req, r == -ENOENT ? -ESTALE : r);
        return;
    }
    fi->fh = opened.handle;
    /* the caller was interrupted: no release will come */
    if (fuse_reply_open(req, fi) == -ENOENT)
        (void)fs_release(front->fs, opened.handle, false);
}

static void op_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    if (fs_is_past(ino))
        earlier_release(req, ino, fi);
    else
        reply_result(req, current.is_applied ? 0 : fs_release(front_of(req)->fs, fi->fh, true));
}

static void op_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                       struct fuse_file_info *fi)
{
    if (fs_is_past(ino))
        earlier_readdir(req, ino, size, offset, false);
    else
        list_directory(req, ino, size, offset, fi->fh, false);
}

static void op_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                           struct fuse_file_info *fi)
{
    size = offset == 0 ? (size_t)min_u64(size, PLUS_FIRST_LEN) : size;
    if (fs_is_past(ino))
        earlier_readdir(req, ino, size, offset, true);
    else
        list_directory(req, ino, size, offset, fi->fh, true);
}

/* --- attributes ------------------------------------------------------------------------------- */

/* If the inode is gone, perhaps deleted by another writer, the kernel looks the path up again: not
 * a failure to report. */
static void reply_of_inode(fuse_req_t req, int r)
{
    if (r == -ENOENT)
        (void)fuse_reply_err(req, ESTALE);
    else
        reply_result(req, r);
}

static void reply_attr(fuse_req_t req, int r, const struct stat *st, double timeout)
{
    if (r == 0)
        (void)fuse_reply_attr(req, st, timeout);
    else
        reply_of_inode(req, r);
}

static void op_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    struct stat st;
    if (ino == SELF_TEST_INO) {
        self_test_getattr(req);
        return;
    }
    if (fs_is_past(ino)) {
        earlier_getattr(req, ino);
        return;
    }
    int r = fs_getattr(front_of(req)->fs, ino, &st);
    reply_attr(req, r, &st, r == 0 ? cached_for(front_of(req), &st) : 0);
}

/* The kernel would accept the answer regardless of notifications in between, so it must not be
 * cached. */
static void op_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int to_set,
                       struct fuse_file_info *fi)
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
    int r = current.is_applied ? fs_getattr(front_of(req)->fs, ino, &st)
                               : fs_setattr(front_of(req)->fs, ino, mask, &set, &caller, &st);
    if (r == FS_IS_ELSEWHERE)
        r = front_bring(req, ino, set.st_size == 0);
    if (r == 0)
        stage_request_applied((int64_t)ino);
    if (r < 0)
        cached_marked(front_of(req), ino); /* it may be applied in part */
    reply_attr(req, r, &st, 0);
}

static void op_statfs(fuse_req_t req, fuse_ino_t ino)
{
    (void)ino;
    struct statvfs st;
    int r = fs_statfs(front_of(req)->fs, &st);
    if (r < 0)
        reply_error(req, r);
    else
        (void)fuse_reply_statfs(req, &st);
}

/* Replies with the result of an xattr call: only a length if only that was requested. */
static void reply_xattr(fuse_req_t req, ssize_t len, const char *buf, size_t size)
{
    if (len < 0)
        reply_error(req, (int)len);
    else if (size == 0)
        (void)fuse_reply_xattr(req, (size_t)len);
    else
        (void)fuse_reply_buf(req, buf, (size_t)len);
}

/* A starting program reads this to find out whether it may change files here: "1 open"; "1
 * wait_ms=N", then it reads again; or "1 old": earlier data may be set aside, so it may not.
 * Reading the attribute needs no privilege. */
static ssize_t settle_caller(struct front *front, pid_t tid, char *buf, size_t size)
{
    char text[64];
    enum older_word word;
    int64_t wait_ns;
    TRY(older_settle(&front->older, tid, &word, &wait_ns));
    int len = word == OLDER_WAITS
                  ? snprintf(text, sizeof text, "1 wait_ms=%lld", (long long)(wait_ns / MS_NS) + 1)
                  : snprintf(text, sizeof text, "1 %s", word == OLDER_NOT ? "open" : "old");
    if (size && (size_t)len > size)
        return -ERANGE;
    if (size)
        memcpy(buf, text, (size_t)len);
    return len;
}

static void op_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    if (fs_is_past(ino)) {
        earlier_getxattr(req, ino, name, size);
        return;
    }
    _cleanup_free_ char *buf = size ? xmalloc(size) : NULL;
    if (strcmp(name, "user.cairn.settle") == 0) {
        ssize_t len = settle_caller(front_of(req), fuse_req_ctx(req)->pid, buf, size);
        reply_xattr(req, len, buf, size);
        return;
    }
    reply_xattr(req, fs_getxattr(front_of(req)->fs, ino, name, buf, size), buf, size);
}

static void op_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    if (fs_is_past(ino)) {
        earlier_listxattr(req, ino, size);
        return;
    }
    _cleanup_free_ char *buf = size ? xmalloc(size) : NULL;
    struct fs_caller caller = caller_of(req);
    reply_xattr(req, fs_listxattr(front_of(req)->fs, ino, &caller, buf, size), buf, size);
}

static void reply_marked(fuse_req_t req, uint64_t ino, int r)
{
    cached_marked(front_of(req), ino);
    reply_of_inode(req, r);
}

static void op_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name, const char *value,
                        size_t size, int flags)
{
    const struct fuse_ctx *caller = fuse_req_ctx(req);
    if (fs_is_lane_report(name))
        reply_result(req, fs_lane_report(front_of(req)->fs, caller->pid, caller->uid, value, size));
    else
        reply_marked(
            req, ino,
            current.is_applied ? 0 : fs_setxattr(front_of(req)->fs, ino, name, value, size, flags));
}

static void op_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name)
{
    reply_marked(req, ino, current.is_applied ? 0 : fs_removexattr(front_of(req)->fs, ino, name));
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
    .open = front_op_open,
    .read = front_op_read,
    .write = front_op_write,
    .flush = front_op_flush,
    .release = front_op_release,
    .fsync = front_op_fsync,
    .opendir = op_opendir,
    .readdir = op_readdir,
    .readdirplus = op_readdirplus,
    .releasedir = op_releasedir,
    .fsyncdir = front_op_fsync,
    .statfs = op_statfs,
    .setxattr = op_setxattr,
    .getxattr = op_getxattr,
    .listxattr = op_listxattr,
    .removexattr = op_removexattr,
    .create = front_op_create,
    .fallocate = front_op_fallocate,
    .lseek = front_op_lseek,
    .copy_file_range = front_op_copy_file_range,
};
