// SPDX-License-Identifier: Apache-2.0
/* A file of another node is about to be changed: its content is stored again, in a new file of this
 * node, which takes its name. For the others that is a file that another one replaced. */
#include <fcntl.h>
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/event.h"
#include "base/log.h"
#include "fs/internal.h"
#include "fs/taken.h"

#define PIECE (128u * 1024) /* below STAGE_STEAL_MIN: it is copied into the stage */
#define ROOM_WAIT_NS (60ll * 1000000000)
#define COPY_NAME_LEN 48u
#define VALUE_MAX (64u * 1024) /* of an xattr */

struct bringing {
    struct fs *fs;
    struct ns_inode from;
    char name[NAME_LEN_MAX + 1];
    char copy_name[COPY_NAME_LEN];
    struct fs_caller caller; /* its owner */
    uint64_t ino, handle;    /* of the new file */
};

static int note_name(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct bringing *b = arg;
    if (entry->ino != b->from.ino)
        return 0;
    memcpy(b->name, name, name_len);
    b->name[name_len] = '\0';
    return 1;
}

static int find_name(struct bringing *b)
{
    if (b->from.parent)
        TRY(ns_readdir(b->fs->ns, b->from.parent, 0, 1024, note_name, b));
    if (b->name[0] && b->from.nlink == 1)
        return 0;
    if (b->from.nlink <= 1) /* it is being removed, or moved */
        return -ESTALE;
    cause_note("a file of another node that has several names cannot be changed here");
    return -EROFS;
}

/* Waits for room as a request does that is parked. */
static int write_piece(struct bringing *b, uint64_t offset, const void *bytes, uint32_t length)
{
    const struct fs_write w = {
        .ino = b->ino, .offset = offset, .length = length, .slab = SLAB_NONE, .data = bytes};
    struct event *progress = horizon_progress(b->fs->commit->horizon);
    uint64_t seen = event_count(progress);
    int64_t until = clock_monotonic_ns() + ROOM_WAIT_NS;
    int r;
    while ((r = fs_write(b->fs, &w, NULL)) == -EAGAIN && event_wait(progress, &seen, until))
        ;
    return r;
}

static int copy_pieces(struct bringing *b, struct store *others, uint64_t size)
{
    _cleanup_free_ uint8_t *bytes = xmalloc(PIECE);
    for (uint64_t at = 0; at < size; at += PIECE) {
        struct store_read_end end;
        const struct store_read how = {.ino = b->from.ino,
                                       .offset = at,
                                       .buf = bytes,
                                       .length = (size_t)min_u64(PIECE, size - at),
                                       .reach = STORE_REACH_REMOTE};
        TRY(store_read(others, &how, &end));
        TRY(write_piece(b, at, bytes, (uint32_t)how.length));
    }
    return 0;
}

/* -ESTALE: its node changed it meanwhile, and a copy would be a mixture. */
static int copy_content(struct bringing *b)
{
    struct store *others = atomic_load(&b->fs->others);
    struct ns_inode there, now;
    if (!others)
        return -EIO;
    int r = ns_inode(store_ns(others), b->from.ino, &there);
    if (r == 0)
        r = copy_pieces(b, others, there.attrs.size);
    if (r == 0)
        r = ns_inode(store_ns(others), b->from.ino, &now);
    if (r < 0)
        return r == -ENOENT ? -ESTALE : r;
    return now.version == there.version ? 0 : -ESTALE;
}

struct copying_xattrs {
    struct bringing *b;
    int result;
};

static int copy_xattr(const char *name, size_t name_len, void *arg)
{
    struct copying_xattrs *copying = arg;
    struct bringing *b = copying->b;
    _cleanup_free_ uint8_t *value = xmalloc(VALUE_MAX);
    ssize_t len = ns_getxattr(b->fs->ns, b->from.ino, name, name_len, value, VALUE_MAX);
    struct record rec = {.type = REC_SETXATTR,
                         .ino = b->ino,
                         .name = name,
                         .name_len = (uint16_t)name_len,
                         .value = value,
                         .value_len = len < 0 ? 0 : (uint32_t)len};
    copying->result = len < 0 ? (int)len : history_commit(b->fs->commit->history, &rec);
    return copying->result < 0;
}

static int copy_attributes(struct bringing *b)
{
    struct copying_xattrs copying = {.b = b};
    struct stat st;
    const struct stat set = {.st_mode = b->from.attrs.mode & 07777,
                             .st_mtim = {.tv_sec = b->from.attrs.mtime / 1000000000,
                                         .tv_nsec = b->from.attrs.mtime % 1000000000}};
    TRY(ns_listxattr(b->fs->ns, b->from.ino, copy_xattr, &copying));
    TRY(copying.result);
    return fs_setattr(b->fs, b->ino, FS_SET_MODE | FS_SET_MTIME, &set, &b->caller, &st);
}

/* Unless somebody else was quicker. */
static int replace(struct bringing *b, uint64_t *ret_nameless)
{
    struct view_entry entry;
    TRY(ns_lookup(b->fs->ns, b->from.parent, b->name, strlen(b->name), &entry));
    if (entry.ino != b->from.ino)
        return -ESTALE;
    struct record rec = {.type = REC_RENAME,
                         .ino = b->ino,
                         .ino2 = b->from.ino,
                         .parent = b->from.parent,
                         .parent2 = b->from.parent,
                         .cookie = entry.cookie,
                         .name = b->copy_name,
                         .name_len = (uint16_t)strlen(b->copy_name),
                         .name2 = b->name,
                         .name2_len = (uint16_t)strlen(b->name)};
    return fs_taken_commit(b->fs, &rec, ret_nameless);
}

static int make_copy(struct bringing *b)
{
    struct stat st;
    struct fs_opened opened;
    const struct fs_new_inode new = {.parent = b->from.parent,
                                     .name = b->copy_name,
                                     .mode = S_IFREG | 0600,
                                     .caller = &b->caller};
    (void)snprintf(b->copy_name, sizeof b->copy_name, ".cairn-%llx-%llx",
                   (unsigned long long)b->from.ino, (unsigned long long)clock_monotonic_ns());
    TRY(fs_create(b->fs, &new, O_WRONLY, &st, &opened));
    b->ino = st.st_ino;
    b->handle = opened.handle;
    int r = copy_content(b);
    if (r == 0)
        r = copy_attributes(b);
    if (r == 0)
        r = fs_flush(b->fs, b->ino, b->handle);
    int closed = fs_release(b->fs, b->handle, false);
    return r < 0 ? r : closed;
}

static int bring(struct bringing *b)
{
    uint64_t nameless = 0;
    TRY(find_name(b));
    int r = make_copy(b);
    if (r == 0) {
        fs_taken_begin(b->fs);
        r = replace(b, &nameless);
        fs_taken_end(b->fs);
    }
    if (r < 0 && b->ino && fs_unlink(b->fs, b->from.parent, b->copy_name) < 0)
        log_warn("%s, a copy of another node's file that failed, stays", b->copy_name);
    if (r < 0)
        return r;
    cause_clear();
    return -ESTALE;
}

int fs_bring_here(struct fs *fs, uint64_t ino)
{
    struct bringing b = {.fs = fs};
    TRY(ns_hold(fs->ns, ino, &b.from));
    b.caller = (struct fs_caller){.uid = b.from.attrs.uid, .gid = b.from.attrs.gid};
    int r = bring(&b);
    ns_drop(fs->ns, ino);
    return r;
}
