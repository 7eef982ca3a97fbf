// SPDX-License-Identifier: Apache-2.0
#include "fs/past.h"

#include <stdio.h>
#include <sys/stat.h>

#include "base/cause.h"
#include "fs/internal.h"
#include "store/lookback.h"

#define NAMED_FIRST 3u /* offsets of "." and ".." come before */

/* --- a state ---------------------------------------------------------------------------------- */

static struct lookback *past_lookback(struct fs *fs)
{
    return store_lookback(history_store(fs));
}

void fs_past_tick(struct fs *fs)
{
    lookback_tick(history_store(fs));
}

/* A view that was entered, and the number of an inode in it. */
struct entered {
    struct fs *fs;
    unsigned slot;
    struct view *view; /* NULL: none */
    uint64_t number;
};

static void leave(struct entered *entered)
{
    if (entered->view)
        past_views_leave(lookback_views(past_lookback(entered->fs)), entered->slot);
}
#define _cleanup_entered_ __attribute__((cleanup(leave)))

/* -ENOENT: the mount has no earlier states. That of a node has them in another store: -EAGAIN:
 * that is being opened; -EIO: it could not be, as the remote is away. */
static int check_lookback(struct fs *fs, bool waits)
{
    if (past_lookback(fs))
        return 0;
    if (!store_node(fs->store) || atomic_load(&fs->others))
        return -ENOENT;
    int r = waits ? elsewhere_await(fs) : elsewhere_check(fs);
    if (past_lookback(fs))
        return 0;
    if (r == -EIO)
        cause_note("earlier states are in the remote, which could not be read since the mount "
                   "began, or since another daemon went on with it");
    return r == 0 ? -ENOENT : r;
}

static int enter(struct fs *fs, uint64_t ino, bool waits, struct entered *ret)
{
    *ret = (struct entered){.fs = fs, .slot = past_slot(ino), .number = past_number(ino)};
    int r = check_lookback(fs, waits);
    if (r == -ENOENT || ino == FS_HISTORY_INO)
        return -ESTALE;
    TRY(r);
    struct lookback *lookback = past_lookback(fs);
    ret->view = past_views_enter(lookback_views(lookback), ret->slot);
    if (ret->view)
        return 0;
    return waits ? lookback_enter(lookback, ret->slot, &ret->view) : -EAGAIN;
}

/* Is it a directory right below .history? */
static bool is_state_root(const struct fs *fs, uint64_t ino)
{
    return ino != FS_HISTORY_INO && ino != fs->shown_root && past_number(ino) == ROOT_INO;
}

int fs_show_past(struct fs *fs, uint64_t number, uint64_t *ret_root)
{
    struct lookback_item item;
    char name[24];
    (void)snprintf(name, sizeof name, "%llu", (unsigned long long)number);
    TRY(lookback_find(past_lookback(fs), name, &item));
    *ret_root = past_ino(item.slot, ROOT_INO);
    TRY(fs_past_open(fs, *ret_root, true)); /* lookback_free() closes it */
    fs->shown_root = *ret_root;
    return 0;
}

bool fs_is_history(struct fs *fs, uint64_t parent, const char *name)
{
    struct view_entry entry;
    return parent == ROOT_INO && strcmp(name, FS_HISTORY_NAME) == 0 &&
           lookback_is_shown(past_lookback(fs)) &&
           ns_lookup(fs->ns, parent, name, strlen(name), &entry) == -ENOENT;
}

/* --- attributes ------------------------------------------------------------------------------- */

/* Returns the bits that each class of users has both then and now. */
static uint32_t allowed(const struct attrs *then, const struct attrs *now)
{
    uint32_t mode = then->mode & ~(uint32_t)(S_ISUID | S_ISGID);
    if (then->uid == now->uid && then->gid == now->gid)
        return mode & (now->mode | ~0777u);
    uint32_t all = now->mode >> 6 & now->mode >> 3 & now->mode & 7;
    return mode & (all << 6 | all << 3 | all | ~0777u);
}

/* Returns the inode's mode: -errno if its present one cannot be read. */
static int restrict_mode(struct fs *fs, const struct attrs *then, uint64_t number, uint32_t *ret)
{
    struct ns_inode now;
    int r = ns_inode(fs->ns, number, &now);
    *ret = allowed(then, r == 0 ? &now.attrs : then);
    return r == -ENOENT ? 0 : r;
}

static int fill_past(struct fs *fs, const struct entered *in, const struct view_inode *inode,
                     struct stat *ret)
{
    const struct attrs *a = &inode->attrs;
    uint32_t mode;
    TRY(restrict_mode(fs, a, inode->ino, &mode));
    uint64_t blocks = inode->blocks_bytes;
    if (S_ISREG(a->mode) && blocks >= a->size)
        blocks = align_up(a->size, 4096);
    *ret = (struct stat){.st_ino = past_ino(in->slot, inode->ino),
                         .st_mode = mode,
                         .st_nlink = inode->nlink,
                         .st_uid = a->uid,
                         .st_gid = a->gid,
                         .st_rdev = a->rdev,
                         .st_size = (off_t)a->size,
                         .st_blksize = S_ISDIR(mode) ? DIR_BLOCK_SIZE : BLOCK_SIZE,
                         .st_blocks = (blkcnt_t)((blocks + 511) / 512),
                         .st_atim = fs_timespec(a->atime),
                         .st_mtim = fs_timespec(a->mtime),
                         .st_ctim = fs_timespec(a->ctime)};
    return 0;
}

/* Attributes of .history, and of the snapshots in it, whose states are not opened for this: those
 * of the present root. The root of a state is checked when something in it is used
 * (check_root()). */
static int fill_top(struct fs *fs, uint64_t ino, int64_t time, struct stat *ret)
{
    struct ns_inode root;
    TRY(ns_inode(fs->ns, ROOT_INO, &root));
    time = time ? time : root.attrs.mtime;
    *ret = (struct stat){.st_ino = ino,
                         .st_mode = S_IFDIR | (root.attrs.mode & 0777),
                         .st_nlink = 2,
                         .st_uid = root.attrs.uid,
                         .st_gid = root.attrs.gid,
                         .st_blksize = DIR_BLOCK_SIZE,
                         .st_atim = fs_timespec(time),
                         .st_mtim = fs_timespec(time),
                         .st_ctim = fs_timespec(time)};
    return 0;
}

/* The kernel does not know the permissions of the state's root. Groups are not looked up: a member
 * has only the bits that group and others have. */
static int check_root(const struct entered *in, const struct fs_caller *caller, unsigned wanted)
{
    struct view_inode root;
    if (!is_state_root(in->fs, past_ino(in->slot, in->number)) || caller->uid == 0)
        return 0;
    TRY(view_inode(in->view, ROOT_INO, &root));
    uint32_t mode = root.attrs.mode;
    uint32_t has = caller->uid == root.attrs.uid ? mode >> 6 & 7 : mode >> 3 & mode & 7;
    return (has & wanted) == wanted ? 0 : -EACCES;
}

/* A state that is not known here may be known to the remote. */
static int state_attrs(struct fs *fs, uint64_t ino, bool waits, struct stat *ret)
{
    struct lookback *lookback = past_lookback(fs);
    struct lookback_items all = {0};
    struct lookback_item item;
    if (!lookback_known(lookback, past_slot(ino), &item)) {
        if (!waits)
            return -EAGAIN;
        TRY(lookback_list(lookback, &all));
        vector_free(&all);
        if (!lookback_known(lookback, past_slot(ino), &item))
            return -ENOENT;
    }
    return fill_top(fs, ino, item.published, ret);
}

int fs_past_getattr(struct fs *fs, uint64_t ino, bool waits, struct stat *ret)
{
    _cleanup_entered_ struct entered in = {0};
    struct view_inode inode;
    TRY(check_lookback(fs, waits));
    if (ino == FS_HISTORY_INO)
        return fill_top(fs, ino, 0, ret);
    if (is_state_root(fs, ino))
        return state_attrs(fs, ino, waits, ret);
    TRY(enter(fs, ino, waits, &in));
    TRY(view_inode(in.view, in.number, &inode));
    return fill_past(fs, &in, &inode, ret);
}

/* --- names ------------------------------------------------------------------------------------ */

static int lookup_snapshot(struct fs *fs, const char *name, bool waits, struct stat *ret)
{
    struct lookback *lookback = past_lookback(fs);
    struct lookback_item item;
    if (!waits)
        return -EAGAIN;
    TRY(lookback_find(lookback, name, &item));
    return fill_top(fs, past_ino(item.slot, ROOT_INO), item.published, ret);
}

/* Looks up "." and "..": for a handle whose inode the kernel has forgotten. */
static int lookup_past_dots(struct fs *fs, uint64_t ino, bool is_up, bool waits, struct stat *ret)
{
    _cleanup_entered_ struct entered in = {0};
    struct view_inode inode;
    if (!is_up)
        return fs_past_getattr(fs, ino, waits, ret);
    if (ino == FS_HISTORY_INO)
        return fs_getattr(fs, ROOT_INO, ret);
    if (is_state_root(fs, ino))
        return fs_past_getattr(fs, FS_HISTORY_INO, waits, ret);
    TRY(enter(fs, ino, waits, &in));
    TRY(view_inode(in.view, in.number, &inode));
    return fs_past_getattr(fs, past_ino(in.slot, inode.parent), waits, ret);
}

int fs_past_lookup(struct fs *fs, uint64_t parent, const char *name, const struct fs_caller *caller,
                   bool waits, struct stat *ret)
{
    _cleanup_entered_ struct entered in = {0};
    struct view_entry entry;
    struct view_inode inode;
    TRY(check_lookback(fs, waits));
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return lookup_past_dots(fs, parent, name[1] == '.', waits, ret);
    if (strlen(name) > NAME_LEN_MAX)
        return -ENAMETOOLONG;
    if (parent == FS_HISTORY_INO)
        return lookup_snapshot(fs, name, waits, ret);
    TRY(enter(fs, parent, waits, &in));
    TRY(check_root(&in, caller, 1));
    TRY(view_lookup(in.view, in.number, name, strlen(name), &entry));
    TRY(view_inode(in.view, entry.ino, &inode));
    return fill_past(fs, &in, &inode, ret);
}

/* --- listing ---------------------------------------------------------------------------------- */

static bool list_dots(const struct fs_listing *l, uint64_t parent)
{
    const struct fs_entry dots[] = {{.ino = l->dir, .offset = 1, .type = S_IFDIR, .name = "."},
                                    {.ino = parent, .offset = 2, .type = S_IFDIR, .name = ".."}};
    for (size_t i = (size_t)min_u64(l->after, 2); i < 2; i++)
        if (l->fn(&dots[i], l->arg) != 0)
            return false;
    return true;
}

/* The offset is made from the number of the item's head, so that it stays the same while items are
 * added and removed; items of named snapshots of one head follow it. */
static uint64_t offset_of(const struct lookback_items *items, size_t i)
{
    size_t same = 0;
    while (same < i && items->at[i - same - 1].head == items->at[i].head)
        same++;
    return NAMED_FIRST + items->at[i].head * 1024 + min_u64(same, 1023);
}

static int list_snapshots(struct fs *fs, const struct fs_listing *l, bool waits)
{
    struct lookback_items items = {0};
    if (!waits)
        return -EAGAIN;
    if (!list_dots(l, ROOT_INO))
        return 0;
    TRY(lookback_list(past_lookback(fs), &items));
    for (size_t i = 0; i < items.count; i++) {
        const struct lookback_item *item = &items.at[i];
        const struct fs_entry entry = {.ino = past_ino(item->slot, ROOT_INO),
                                       .offset = offset_of(&items, i),
                                       .type = S_IFDIR,
                                       .name = item->name};
        if (item->slot && entry.offset > l->after && l->fn(&entry, l->arg) != 0)
            break;
    }
    vector_free(&items);
    return 0;
}

struct past_listing {
    const struct fs_listing *listing;
    unsigned slot;
};

static int list_past_entry(const struct view_entry *entry, const char *name, size_t name_len,
                           void *arg)
{
    const struct past_listing *l = arg;
    char text[NAME_LEN_MAX + 1];
    memcpy(text, name, name_len);
    text[name_len] = '\0';
    const struct fs_entry e = {.ino = past_ino(l->slot, entry->ino),
                               .offset = entry->cookie,
                               .type = entry->type,
                               .name = text};
    return l->listing->fn(&e, l->listing->arg);
}

int fs_past_readdir(struct fs *fs, const struct fs_listing *l, const struct fs_caller *caller,
                    bool waits)
{
    _cleanup_entered_ struct entered in = {0};
    struct view_inode inode;
    TRY(check_lookback(fs, waits));
    if (l->dir == FS_HISTORY_INO)
        return list_snapshots(fs, l, waits);
    TRY(enter(fs, l->dir, waits, &in));
    TRY(check_root(&in, caller, 4));
    TRY(view_inode(in.view, in.number, &inode));
    uint64_t parent = is_state_root(fs, l->dir) ? FS_HISTORY_INO : past_ino(in.slot, inode.parent);
    struct past_listing listing = {l, in.slot};
    if (!list_dots(l, parent))
        return 0;
    return view_readdir(in.view, in.number, l->after <= 2 ? 0 : l->after, list_past_entry,
                        &listing);
}

/* --- the rest --------------------------------------------------------------------------------- */

ssize_t fs_past_readlink(struct fs *fs, uint64_t ino, bool waits, char buf[4096])
{
    _cleanup_entered_ struct entered in = {0};
    TRY(enter(fs, ino, waits, &in));
    return view_readlink(in.view, in.number, buf, 4096);
}

/* Directories at the top belong to no state. */
static bool has_xattrs(const struct fs *fs, uint64_t ino)
{
    return ino != FS_HISTORY_INO && !is_state_root(fs, ino);
}

ssize_t fs_past_getxattr(struct fs *fs, uint64_t ino, const char *name, bool waits, void *buf,
                         size_t size)
{
    _cleanup_entered_ struct entered in = {0};
    TRY(xattr_check_name(name));
    if (!has_xattrs(fs, ino) || strcmp(name, "security.capability") == 0)
        return -ENODATA;
    TRY(enter(fs, ino, waits, &in));
    return view_getxattr(in.view, in.number, name, strlen(name), buf, size);
}

ssize_t fs_past_listxattr(struct fs *fs, uint64_t ino, const struct fs_caller *caller, bool waits,
                          char *buf, size_t size)
{
    _cleanup_entered_ struct entered in = {0};
    struct xattr_names list = {.caller = caller, .buf = buf, .size = size};
    if (!has_xattrs(fs, ino))
        return 0;
    TRY(enter(fs, ino, waits, &in));
    TRY(view_listxattr(in.view, in.number, xattr_add_name, &list));
    return (ssize_t)list.len;
}

int fs_past_open(struct fs *fs, uint64_t ino, bool waits)
{
    struct entered in = {0};
    if (ino == FS_HISTORY_INO)
        return check_lookback(fs, waits);
    return enter(fs, ino, waits, &in); /* fs_past_close() leaves it */
}

void fs_past_close(struct fs *fs, uint64_t ino)
{
    if (ino != FS_HISTORY_INO)
        past_views_leave(lookback_views(past_lookback(fs)), past_slot(ino));
}

int64_t fs_past_lseek(struct fs *fs, uint64_t ino, uint64_t offset, int whence, bool waits)
{
    _cleanup_entered_ struct entered in = {0};
    struct view_inode inode;
    TRY(enter(fs, ino, waits, &in));
    TRY(view_inode(in.view, in.number, &inode));
    if (offset >= inode.attrs.size)
        return -ENXIO;
    return seek_view(in.view, in.number, &(struct seek_range){offset, inode.attrs.size, whence});
}
