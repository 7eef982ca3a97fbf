// SPDX-License-Identifier: Apache-2.0
/* Names: lookup, creation, links, removal, renames, listing. */
#include <fcntl.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "fs/internal.h"

#define LINKS_MAX 65000u /* as ext4 */

static int name_ok(const char *name)
{
    return strlen(name) > NAME_LEN_MAX ? -ENAMETOOLONG : 0;
}

/* A lookup by number: for a handle (name_to_handle_at(2), NFS) whose inode the kernel has
 * forgotten. */
static int lookup_dots(struct fs *fs, uint64_t ino, const char *name, struct stat *ret)
{
    struct ns_inode inode;
    TRY(ns_inode(fs->ns, ino, &inode));
    bool is_up = strcmp(name, "..") == 0 && ino != ROOT_INO;
    return fs_getattr(fs, is_up ? inode.parent : ino, ret);
}

int fs_lookup(struct fs *fs, uint64_t parent, const char *name, struct stat *ret)
{
    struct view_entry entry;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return lookup_dots(fs, parent, name, ret);
    TRY(name_ok(name));
    TRY(ns_lookup(fs->ns, parent, name, strlen(name), &entry));
    return fs_getattr(fs, entry.ino, ret);
}

/* Inodes that an operation is about to change, held until drop_held(). */
struct held {
    struct fs *fs;
    uint64_t inos[4];
    size_t count;
};

static int hold_inode(struct held *held, uint64_t ino, struct ns_inode *ret)
{
    int r = ns_hold(held->fs->ns, ino, ret);
    if (r == 0)
        held->inos[held->count++] = ino;
    return r;
}

static void drop_held(struct held *held)
{
    for (size_t i = 0; i < held->count; i++)
        ns_drop(held->fs->ns, held->inos[i]);
}

#define _cleanup_held_ __attribute__((cleanup(drop_held)))

/* Holds the directory in which a new name is created; -EEXIST if it exists. */
static int hold_directory(struct held *held, uint64_t parent, const char *name,
                          struct ns_inode *ret_dir)
{
    struct view_entry entry;
    TRY(name_ok(name));
    TRY(hold_inode(held, parent, ret_dir));
    if (ret_dir->nlink == 0)
        return -ENOENT;
    int r = ns_lookup(held->fs->ns, parent, name, strlen(name), &entry);
    return r == 0 ? -EEXIST : r == -ENOENT ? 0 : r;
}

static struct attrs new_attrs(const struct ns_inode *dir, mode_t mode,
                              const struct fs_caller *caller)
{
    int64_t now = clock_realtime_ns();
    struct attrs attrs = {.mode = mode,
                          .uid = caller->uid,
                          .gid = caller->gid,
                          .atime = now,
                          .mtime = now,
                          .ctime = now,
                          .btime = now};
    if (dir->attrs.mode & S_ISGID) {
        attrs.gid = dir->attrs.gid;
        if (S_ISDIR(mode))
            attrs.mode |= S_ISGID;
    }
    return attrs;
}

/* Creates an inode with a name: `rec` has its type, attrs.mode, and the other fields of its kind;
 * its number, if it is assigned already. */
static int make_named_inode(struct fs *fs, struct record *rec, const struct fs_new_inode *new)
{
    NAMES_SCOPE(fs);
    _cleanup_held_ struct held held = {.fs = fs};
    struct ns_inode dir;
    TRY(hold_directory(&held, new->parent, new->name, &dir));
    TRY(room_admit_change(fs->commit->room, 4096));
    uint32_t rdev = rec->attrs.rdev;
    uint64_t size = rec->attrs.size;
    rec->attrs = new_attrs(&dir, rec->attrs.mode, new->caller);
    rec->attrs.rdev = rdev;
    rec->attrs.size = size;
    if (rec->ino == 0)
        rec->ino = store_new_ino(fs->store);
    rec->parent = new->parent;
    rec->name = new->name;
    rec->name_len = (uint16_t)strlen(new->name);
    return history_commit(fs->commit->history, rec);
}

int fs_mkdir(struct fs *fs, const struct fs_new_inode *new, struct stat *ret)
{
    struct record rec = {.type = REC_MAKE,
                         .attrs = {.mode = (uint32_t)(S_IFDIR | (new->mode & 07777))}};
    TRY(make_named_inode(fs, &rec, new));
    return fs_getattr(fs, rec.ino, ret);
}

int fs_mknod(struct fs *fs, const struct fs_new_inode *new, struct stat *ret)
{
    bool regular = S_ISREG(new->mode) || (new->mode &S_IFMT) == 0;
    struct record rec = {.type = REC_MAKE,
                         .attrs = {.mode = (uint32_t) new->mode, .rdev = (uint32_t) new->rdev}};
    if (regular) {
        rec.type = REC_NASCENT;
        rec.attrs.mode = (uint32_t)(S_IFREG | (new->mode & 07777));
    }
    TRY(make_named_inode(fs, &rec, new));
    /* The file is not open, so nothing else would seal it soon. It exists already: a repetition of
     * the call would fail with -EEXIST. */
    if (regular && history_seal(fs->commit->history, rec.ino) == -EAGAIN)
        log_debug("inode %llu is sealed later, as other drafts are", (unsigned long long)rec.ino);
    return fs_getattr(fs, rec.ino, ret);
}

int fs_symlink(struct fs *fs, const char *target, const struct fs_new_inode *new, struct stat *ret)
{
    size_t len = strlen(target);
    if (len == 0)
        return -ENOENT;
    if (len > 4095)
        return -ENAMETOOLONG;
    struct record rec = {.type = REC_MAKE,
                         .attrs = {.mode = S_IFLNK | 0777, .size = len},
                         .value = target,
                         .value_len = (uint32_t)len};
    TRY(make_named_inode(fs, &rec, new));
    return fs_getattr(fs, rec.ino, ret);
}

/* Creates an inode without a name; the directory is not changed. */
static int make_nameless(struct fs *fs, struct record *rec, const struct fs_new_inode *new)
{
    _cleanup_held_ struct held held = {.fs = fs};
    struct ns_inode dir;
    struct ns_inode root;
    TRY(hold_inode(&held, new->parent, &dir));
    TRY(dir.nlink == 0 ? -EPERM : room_admit_change(fs->commit->room, 4096));
    TRY(hold_inode(&held, ROOT_INO, &root));
    rec->attrs = new_attrs(&dir, rec->attrs.mode, new->caller);
    rec->parent = ROOT_INO; /* which exists in each recovery */
    rec->flags = RECORD_ORPHAN;
    LOCK_SCOPE(&fs->locked.lock);
    int r = history_commit(fs->commit->history, rec);
    if (r == 0)
        live_note_nameless_locked(fs, rec->ino)->may_get_name = true;
    return r;
}

int fs_create(struct fs *fs, const struct fs_new_inode *new, int flags, struct stat *ret_stat,
              struct fs_opened *ret)
{
    struct record rec = {.type = REC_NASCENT,
                         .ino = store_new_ino(fs->store),
                         .attrs = {.mode = (uint32_t)(S_IFREG | (new->mode & 07777))}};
    struct ns_inode inode;
    /* The handle first: a new file that cannot be closed would never be sealed. */
    TRY(open_ahead(fs, rec.ino, flags & ~O_TRUNC, &ret->handle));
    int r = new->name ? make_named_inode(fs, &rec, new) : make_nameless(fs, &rec, new);
    if (r == 0)
        r = ns_hold(fs->ns, rec.ino, &inode);
    if (r < 0) {
        open_undo(fs, rec.ino, ret->handle);
        return r;
    }
    ret->has_draft = true;
    ret->atime_due = false;
    ret->seals = close_seals(flags);
    ret->is_elsewhere = false;
    return fs_getattr(fs, rec.ino, ret_stat);
}

/* Adds the first name of a file that was created without one. */
static int link_nameless(struct fs *fs, uint64_t ino, uint64_t parent, const char *name)
{
    struct record rec = {.type = REC_NASCENT,
                         .ino = ino,
                         .attrs = {.mode = S_IFREG},
                         .parent = parent,
                         .name = name,
                         .name_len = (uint16_t)strlen(name)};
    LOCK_SCOPE(&fs->locked.lock);
    struct live_inode *live = live_nameless_locked(fs, ino);
    if (!live || !live->may_get_name)
        return -ENOENT;
    int r = history_name(fs->commit->history, &rec);
    if (r == 0)
        live_note_named_locked(fs, live);
    return r;
}

int fs_link(struct fs *fs, uint64_t ino, uint64_t parent, const char *name, struct stat *ret)
{
    NAMES_SCOPE(fs);
    _cleanup_held_ struct held held = {.fs = fs};
    struct ns_inode dir, inode;
    TRY(hold_directory(&held, parent, name, &dir));
    TRY(hold_inode(&held, ino, &inode));
    if (S_ISDIR(inode.attrs.mode))
        return -EPERM;
    if (inode.nlink == 0) {
        TRY(link_nameless(fs, ino, parent, name));
        return fs_getattr(fs, ino, ret);
    }
    if (inode.nlink >= LINKS_MAX)
        return -EMLINK;
    TRY(history_seal(fs->commit->history, ino));
    struct record rec = {.type = REC_LINK,
                         .ino = ino,
                         .parent = parent,
                         .name = name,
                         .name_len = (uint16_t)strlen(name)};
    TRY(history_commit(fs->commit->history, &rec));
    return fs_getattr(fs, ino, ret);
}

/* Commits an operation that may remove the last name of `lost` (NULL: none), which then lives until
 * it is forgotten. `also`: an operation to commit together with it, or NULL. */
static int commit_losing(struct fs *fs, struct record *rec, struct record *also,
                         const struct ns_inode *lost)
{
    LOCK_SCOPE(&fs->locked.lock);
    bool is_last = lost && (lost->nlink == 1 || S_ISDIR(lost->attrs.mode));
    if (is_last)
        rec->flags |= RECORD_ORPHAN;
    int r = also ? history_commit_both(fs->commit->history, rec, also)
                 : history_commit(fs->commit->history, rec);
    if (r == 0 && is_last)
        live_note_nameless_locked(fs, lost->ino);
    return r;
}

static int remove_name(struct fs *fs, uint64_t parent, const char *name, bool directory,
                       uint64_t *ret_ino)
{
    NAMES_SCOPE(fs);
    _cleanup_held_ struct held held = {.fs = fs};
    struct view_entry entry;
    struct ns_inode dir, inode;
    struct ns_birth birth;
    TRY(name_ok(name));
    TRY(hold_inode(&held, parent, &dir));
    TRY(ns_lookup(fs->ns, parent, name, strlen(name), &entry));
    TRY(hold_inode(&held, entry.ino, &inode));
    *ret_ino = entry.ino;
    if (S_ISDIR(inode.attrs.mode) != directory)
        return directory ? -ENOTDIR : -EISDIR;
    if (directory)
        TRY(ns_check_empty(fs->ns, entry.ino));
    /* The file that it covers in the history must be removed, too. */
    if (inode.nascent && ns_birth(fs->ns, inode.ino, &birth) && birth.covers) {
        TRY(history_seal(fs->commit->history, inode.ino));
        fs_end_replaced(fs);
        TRY(ns_inode(fs->ns, inode.ino, &inode));
    }
    /* History does not record the end of a file that it does not have: the directory's times are an
     * operation of their own. */
    if (inode.nascent)
        TRY(touch(fs, parent));
    struct record rec = {.type = REC_UNLINK,
                         .ino = entry.ino,
                         .parent = parent,
                         .name = name,
                         .name_len = (uint16_t)strlen(name)};
    return commit_losing(fs, &rec, NULL, &inode);
}

int fs_unlink(struct fs *fs, uint64_t parent, const char *name)
{
    uint64_t removed;
    return remove_name(fs, parent, name, false, &removed);
}

int fs_rmdir(struct fs *fs, uint64_t parent, const char *name, uint64_t *ret_ino)
{
    return remove_name(fs, parent, name, true, ret_ino);
}

/* --- rename ----------------------------------------------------------------------------------- */

struct renaming {
    struct fs *fs;
    struct held held;
    struct ns_inode from, to, source, target;
    uint64_t source_cookie, target_cookie;
    bool has_target;
    const struct fs_rename *names;
    const struct fs_caller *caller;
};

static int rename_find(struct renaming *rn)
{
    const struct fs_rename *n = rn->names;
    struct view_entry entry;
    TRY(name_ok(n->name2));
    TRY(hold_inode(&rn->held, n->parent, &rn->from));
    TRY(hold_inode(&rn->held, n->parent2, &rn->to));
    TRY(ns_lookup(rn->fs->ns, n->parent, n->name, strlen(n->name), &entry));
    TRY(hold_inode(&rn->held, entry.ino, &rn->source));
    rn->source_cookie = entry.cookie;
    int r = ns_lookup(rn->fs->ns, n->parent2, n->name2, strlen(n->name2), &entry);
    if (r == -ENOENT)
        return 0;
    rn->has_target = r == 0;
    rn->target_cookie = entry.cookie;
    return r < 0 ? r : hold_inode(&rn->held, entry.ino, &rn->target);
}

/* Returns whether a directory would be moved into itself. The kernel checks this by the names that
 * it knows, but other nodes may have moved a directory meanwhile (taken.h). */
static bool rename_makes_loop(const struct renaming *rn)
{
    struct ns *ns = rn->fs->ns;
    bool exchanges = rn->names->flags & RENAME_EXCHANGE;
    if (rn->from.ino == rn->to.ino)
        return false;
    return (S_ISDIR(rn->source.attrs.mode) && ns_may_be_below(ns, rn->to.ino, rn->source.ino)) ||
           (exchanges && rn->has_target && S_ISDIR(rn->target.attrs.mode) &&
            ns_may_be_below(ns, rn->from.ino, rn->target.ino));
}

static int rename_check(const struct renaming *rn)
{
    bool source_is_dir = S_ISDIR(rn->source.attrs.mode);
    if (rename_makes_loop(rn))
        return -EINVAL;
    if (rn->names->flags & RENAME_EXCHANGE)
        return rn->has_target ? 0 : -ENOENT;
    if (rn->to.nlink == 0)
        return -ENOENT;
    if (!rn->has_target)
        return 0;
    if (rn->names->flags & RENAME_NOREPLACE)
        return -EEXIST;
    bool target_is_dir = S_ISDIR(rn->target.attrs.mode);
    if (target_is_dir != source_is_dir)
        return target_is_dir ? -EISDIR : -ENOTDIR;
    return target_is_dir ? ns_check_empty(rn->fs->ns, rn->target.ino) : 0;
}

static int seal_moving(struct fs *fs, const struct ns_inode *inode)
{
    return S_ISDIR(inode->attrs.mode) ? history_seal_below(fs->commit->history, inode->ino)
                                      : history_seal(fs->commit->history, inode->ino);
}

/* Sets the places in the order of a directory. A name that stays keeps its place, whatever file it
 * refers to; a file that gets another name in the same directory keeps its place, too. So a
 * concurrent listing sees each entry once, and ends: only names that are new in a directory come
 * last. */
static void rename_keep_places(const struct renaming *rn, struct record *rec)
{
    bool source_stays = rn->names->flags & (RENAME_EXCHANGE | RENAME_WHITEOUT);
    if (rn->has_target)
        rec->cookie = rn->target_cookie;
    else if (rn->from.ino == rn->to.ino && !source_stays)
        rec->cookie = rn->source_cookie;
    if (rn->names->flags & RENAME_EXCHANGE)
        rec->cookie2 = rn->source_cookie;
}

/* Creates a whiteout, which a union of directories treats as "removed here": a device 0:0 under the
 * name that was moved away. */
static int make_whiteout(const struct renaming *rn, struct record *ret)
{
    *ret = (struct record){.type = REC_MAKE,
                           .ino = store_new_ino(rn->fs->store),
                           .attrs = new_attrs(&rn->from, S_IFCHR, rn->caller),
                           .parent = rn->from.ino,
                           .cookie = rn->source_cookie,
                           .name = rn->names->name,
                           .name_len = (uint16_t)strlen(rn->names->name)};
    return room_admit_change(rn->fs->commit->room, 4096);
}

static int rename_held(struct renaming *rn)
{
    const char *name = rn->names->name, *name2 = rn->names->name2;
    bool exchange = rn->names->flags & RENAME_EXCHANGE;
    TRY(rename_check(rn));
    if (rn->has_target && rn->source.ino == rn->target.ino)
        return 0;
    /* The file that moves, and a target that history does not have yet, are sealed first. */
    TRY(seal_moving(rn->fs, &rn->source));
    if (rn->has_target && (exchange || rn->target.nascent))
        TRY(seal_moving(rn->fs, &rn->target));
    struct record rec = {.type = REC_RENAME,
                         .ino = rn->source.ino,
                         .ino2 = rn->has_target ? rn->target.ino : 0,
                         .parent = rn->from.ino,
                         .parent2 = rn->to.ino,
                         .name = name,
                         .name_len = (uint16_t)strlen(name),
                         .name2 = name2,
                         .name2_len = (uint16_t)strlen(name2)};
    if (exchange)
        rec.flags |= RECORD_EXCHANGE;
    rename_keep_places(rn, &rec);
    const struct ns_inode *lost = rn->has_target && !exchange ? &rn->target : NULL;
    if (!(rn->names->flags & RENAME_WHITEOUT))
        return commit_losing(rn->fs, &rec, NULL, lost);
    struct record whiteout;
    TRY(make_whiteout(rn, &whiteout));
    return commit_losing(rn->fs, &rec, &whiteout, lost);
}

int fs_rename(struct fs *fs, const struct fs_rename *names, const struct fs_caller *caller,
              struct fs_renamed *ret)
{
    if (names->flags & ~(unsigned)(RENAME_NOREPLACE | RENAME_EXCHANGE | RENAME_WHITEOUT))
        return -EINVAL;
    NAMES_SCOPE(fs);
    struct renaming rn = {.fs = fs, .held = {.fs = fs}, .names = names, .caller = caller};
    int r = rename_find(&rn);
    if (r == 0)
        r = rename_held(&rn);
    *ret = (struct fs_renamed){rn.source.ino, rn.has_target ? rn.target.ino : 0};
    drop_held(&rn.held);
    return r;
}

/* --- reading ---------------------------------------------------------------------------------- */

ssize_t fs_readlink(struct fs *fs, uint64_t ino, char buf[4096])
{
    return ns_readlink(fs->ns, ino, buf, 4096);
}

static int list_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    const struct fs_listing *l = arg;
    char text[NAME_LEN_MAX + 1];
    if (entry->cookie > l->until)
        return 1;
    memcpy(text, name, name_len);
    text[name_len] = '\0';
    struct fs_entry e = {
        .ino = entry->ino, .offset = entry->cookie, .type = entry->type, .name = text};
    return l->fn(&e, l->arg);
}

uint64_t fs_listing_end(struct fs *fs, uint64_t handle, uint64_t after)
{
    uint64_t end = after == 0 ? 0 : stage_handle_listing_end(fs->stage, handle);
    if (end == 0) {
        end = fs_follows(fs) ? ns_applied(fs->ns) : stage_last_seq(fs->stage);
        stage_handle_set_listing_end(fs->stage, handle, end);
    }
    return end;
}

int fs_readdir(struct fs *fs, const struct fs_listing *l)
{
    const uint64_t dir = l->dir, after = l->after;
    struct ns_inode inode;
    TRY(ns_inode(fs->ns, dir, &inode));
    if (inode.nlink == 0) /* removed, and still known */
        return 0;
    /* Offsets of the two entries that every directory has; those of others are sequence numbers,
     * which are larger. */
    const struct fs_entry dots[] = {{.ino = dir, .offset = 1, .type = S_IFDIR, .name = "."},
                                    {.ino = dir == ROOT_INO ? ROOT_INO : inode.parent,
                                     .offset = 2,
                                     .type = S_IFDIR,
                                     .name = ".."}};
    for (size_t i = (size_t)min_u64(after, 2); i < 2; i++)
        if (l->fn(&dots[i], l->arg) != 0)
            return 0;
    return ns_readdir(fs->ns, dir, after <= 2 ? 0 : after, l->expected, list_entry,
                      (void *)(uintptr_t)l);
}
