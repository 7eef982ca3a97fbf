// SPDX-License-Identifier: Apache-2.0
/* Applies each operation to the overlay. */
#include "overlay/internal.h"

static struct node *held_node_locked(struct ns *ns, uint64_t ino)
{
    check_held(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    check(node != NULL);
    return node;
}

static bool is_dir(const struct node *node)
{
    return S_ISDIR(node->inode.attrs.mode);
}

/* A name in `dir` changed at `time`. */
static void touch_dir_locked(struct ns *ns, struct node *dir, int64_t time, uint64_t seq)
{
    check_held(&ns->locked.lock);
    dir->inode.attrs.mtime = dir->inode.attrs.ctime = time;
    node_touch_locked(ns, dir, seq);
}

/* Assigns the record's first name, in `dir`, to the record's file. */
static struct entry *set_name_locked(struct ns *ns, struct node *dir, const struct record *rec,
                                     uint32_t mode, uint64_t seq)
{
    check_held(&ns->locked.lock);
    const struct view_entry state = {rec->ino, rec->cookie, mode & S_IFMT};
    return entry_set_locked(ns, dir, rec->name, rec->name_len, &state, seq);
}

/* An inode of another node may be created again after it was removed: its name changed
 * meanwhile. */
static struct node *make_node_locked(struct ns *ns, const struct record *rec, bool nascent)
{
    check_held(&ns->locked.lock);
    struct node *node = node_find_locked(ns, rec->ino);
    check(!node || (node->gone && rec->flags & RECORD_TAKEN));
    if (!node)
        node = node_new_locked(ns, rec->ino);
    node->gone = node->inode.orphan = node->inode.is_elsewhere = false;
    node->inode.attrs = rec->attrs;
    node->inode.parent = rec->parent;
    node->inode.nascent = nascent;
    node->inode.nlink = is_dir(node) ? 2 : 1;
    return node;
}

/* A new file changed its directory when it was created, possibly long before its birth: times that
 * were set since then stay, unless they are later than `now`, and so were set by a clock that was
 * ahead. */
static void note_birth_locked(struct node *dir, int64_t btime, int64_t now)
{
    check_rank_held(LOCK_NAMESPACE);
    int64_t ctime = dir->inode.attrs.ctime;
    if (btime > ctime || ctime > now)
        dir->inode.attrs.mtime = dir->inode.attrs.ctime = btime;
}

/* Applied once without a name if the file was an orphan, then again with its name. */
static void apply_nascent_at_locked(struct ns *ns, const struct record *rec, int64_t now)
{
    check_held(&ns->locked.lock);
    struct node *dir = held_node_locked(ns, rec->parent);
    struct node *node = node_find_locked(ns, rec->ino);
    if (!node)
        node = make_node_locked(ns, rec, true);
    else
        node->inode.attrs.ctime = rec->time;
    node->inode.orphan = rec->flags & RECORD_ORPHAN;
    node->inode.nlink = !node->inode.orphan;
    node->inode.parent = node->inode.orphan ? 0 : rec->parent;
    if (node->inode.orphan)
        return;
    node->birth_entry = set_name_locked(ns, dir, rec, rec->attrs.mode, SEQ_NASCENT);
    node->covers = rec->ino2;
    note_birth_locked(dir, rec->attrs.btime, now);
}

static void apply_nascent_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    apply_nascent_at_locked(ns, rec, rec->time);
}

static void apply_birth_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *node = node_find_locked(ns, rec->ino);
    struct node *dir = held_node_locked(ns, rec->parent);
    if (!node)
        node = make_node_locked(ns, rec, false);
    /* a recovery repeats the creation without a name, but not the operation that added the name */
    if (node->inode.orphan) {
        node->inode.orphan = false;
        node->inode.nlink = 1;
        node->inode.parent = rec->parent;
    }
    node->inode.nascent = false;
    node->birth_entry = NULL;
    node->covers = 0;
    (void)set_name_locked(ns, dir, rec, rec->attrs.mode, rec->seq);
    note_birth_locked(dir, rec->attrs.btime, rec->time);
    node_touch_locked(ns, dir, rec->seq);
}

static void apply_seal_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    if (rec->flags & RECORD_BIRTH)
        apply_birth_locked(ns, rec);
    struct node *node = held_node_locked(ns, rec->ino);
    uint32_t rdev = node->inode.attrs.rdev;
    int64_t btime = node->inode.attrs.btime;
    node->inode.attrs = rec->attrs;
    node->inode.attrs.rdev = rdev;
    node->inode.attrs.btime = btime;
    node->inode.version = rec->version;
    node_touch_locked(ns, node, rec->seq);
}

/* A file of another node, whose content this store does not have. */
static void apply_version_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *node, *dir;
    if (rec->flags & RECORD_BIRTH) {
        dir = held_node_locked(ns, rec->parent);
        node = make_node_locked(ns, rec, false);
        (void)set_name_locked(ns, dir, rec, rec->attrs.mode, rec->seq);
        note_birth_locked(dir, rec->attrs.btime, rec->time);
        node_touch_locked(ns, dir, rec->seq);
    } else {
        node = held_node_locked(ns, rec->ino);
    }
    const int64_t btime = node->inode.attrs.btime;
    node->inode.attrs = rec->attrs;
    node->inode.attrs.btime = btime;
    node->inode.version = rec->version;
    node->inode.blocks_bytes = rec->length;
    node->inode.is_elsewhere = true;
    node_touch_locked(ns, node, rec->seq);
}

static void apply_make_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *dir = held_node_locked(ns, rec->parent);
    struct node *node = make_node_locked(ns, rec, false);
    if (S_ISLNK(rec->attrs.mode)) {
        node->target = xmalloc(rec->value_len);
        memcpy(node->target, rec->value, rec->value_len);
        node->target_len = rec->value_len;
    }
    (void)set_name_locked(ns, dir, rec, rec->attrs.mode, rec->seq);
    if (is_dir(node)) {
        dir->inode.nlink++;
        known_set_locked(ns, node, UINT64_MAX); /* the view has no entries of it */
    }
    touch_dir_locked(ns, dir, rec->time, rec->seq);
    node_touch_locked(ns, node, rec->seq);
}

static void apply_link_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *dir = held_node_locked(ns, rec->parent), *node = held_node_locked(ns, rec->ino);
    (void)set_name_locked(ns, dir, rec, node->inode.attrs.mode, rec->seq);
    if (node->inode.nlink++ == 0 || node->inode.parent == 0)
        node->inode.parent = rec->parent;
    node->inode.orphan = false;
    node->inode.attrs.ctime = rec->time;
    node_touch_locked(ns, node, rec->seq);
    touch_dir_locked(ns, dir, rec->time, rec->seq);
}

/* Removes one name of `node`, in `dir`. */
static void lose_name_locked(struct ns *ns, struct node *node, const struct node *dir,
                             const struct record *rec)
{
    check_held(&ns->locked.lock);
    if (node->inode.nlink > 1 && node->inode.parent == dir->inode.ino && !is_dir(node))
        node->inode.parent = 0;
    node->inode.nlink = is_dir(node) ? 0 : node->inode.nlink - 1;
    node->inode.attrs.ctime = rec->time;
    if (node->inode.nlink == 0) {
        node->inode.orphan = rec->flags & RECORD_ORPHAN;
        node->gone = !node->inode.orphan;
    }
    node_touch_locked(ns, node, rec->seq);
}

/* Removes the only name of a nascent file: the covered entry is visible again. */
static void unlink_nascent_locked(struct ns *ns, struct node *node)
{
    check_held(&ns->locked.lock);
    struct entry *entry = node->birth_entry;
    node->birth_entry = NULL;
    if (!entry)
        return;
    struct node *dir = entry->dir;
    uint64_t below = entry->below;
    if (below)
        (void)entry_set_locked(ns, dir, entry->name, entry->name_len, NULL, below);
    else
        entry_free_locked(ns, entry);
    node_settle_locked(ns, dir);
}

static void apply_unlink_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *dir = held_node_locked(ns, rec->parent), *node = held_node_locked(ns, rec->ino);
    if (node->inode.nascent) {
        unlink_nascent_locked(ns, node);
        lose_name_locked(ns, node, dir, rec);
        return;
    }
    (void)entry_set_locked(ns, dir, rec->name, rec->name_len, NULL, rec->seq);
    if (is_dir(node))
        dir->inode.nlink--;
    touch_dir_locked(ns, dir, rec->time, rec->seq);
    lose_name_locked(ns, node, dir, rec);
}

/* Moves `node` from `from` to `to`. */
static void move_locked(struct ns *ns, struct node *node, struct node *from, struct node *to,
                        const struct record *rec)
{
    check_held(&ns->locked.lock);
    if (is_dir(node) && from != to) {
        from->inode.nlink--;
        to->inode.nlink++;
    }
    node->inode.parent = to->inode.ino;
    node->inode.attrs.ctime = rec->time;
    node_touch_locked(ns, node, rec->seq);
}

static void replace_locked(struct ns *ns, struct node *dir, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *old = held_node_locked(ns, rec->ino2);
    if (is_dir(old))
        dir->inode.nlink--;
    if (old->inode.nascent)
        unlink_nascent_locked(ns, old);
    lose_name_locked(ns, old, dir, rec);
}

static void apply_rename_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *from = held_node_locked(ns, rec->parent), *to = held_node_locked(ns, rec->parent2);
    struct node *node = held_node_locked(ns, rec->ino);
    bool exchange = rec->flags & RECORD_EXCHANGE;
    if (rec->ino2 && !exchange)
        replace_locked(ns, to, rec);
    if (exchange) {
        struct node *other = held_node_locked(ns, rec->ino2);
        const struct view_entry swapped = {rec->ino2, rec->cookie2,
                                           other->inode.attrs.mode & S_IFMT};
        (void)entry_set_locked(ns, from, rec->name, rec->name_len, &swapped, rec->seq);
        move_locked(ns, other, to, from, rec);
    } else {
        (void)entry_set_locked(ns, from, rec->name, rec->name_len, NULL, rec->seq);
    }
    const struct view_entry moved = {rec->ino, rec->cookie, node->inode.attrs.mode & S_IFMT};
    (void)entry_set_locked(ns, to, rec->name2, rec->name2_len, &moved, rec->seq);
    move_locked(ns, node, from, to, rec);
    touch_dir_locked(ns, from, rec->time, rec->seq);
    touch_dir_locked(ns, to, rec->time, rec->seq);
}

static void apply_setattr_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *node = held_node_locked(ns, rec->ino);
    record_set_attrs(rec, &node->inode.attrs);
    node_touch_locked(ns, node, rec->seq);
}

static void apply_xattr_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *node = held_node_locked(ns, rec->ino);
    xattr_set_locked(node, rec, node->inode.nascent ? SEQ_NASCENT : rec->seq);
    node->inode.may_have_xattrs = true;
    node->inode.attrs.ctime = rec->time;
    node_touch_locked(ns, node, rec->seq);
}

static void apply_reap_locked(struct ns *ns, const struct record *rec)
{
    check_held(&ns->locked.lock);
    struct node *node = held_node_locked(ns, rec->ino);
    node->gone = true;
    node_touch_locked(ns, node, rec->seq);
}

void ns_apply(struct ns *ns, const struct record *rec)
{
    static void (*const apply[])(struct ns *, const struct record *) = {
        [REC_SEAL] = apply_seal_locked,       [REC_MAKE] = apply_make_locked,
        [REC_LINK] = apply_link_locked,       [REC_UNLINK] = apply_unlink_locked,
        [REC_RENAME] = apply_rename_locked,   [REC_SETATTR] = apply_setattr_locked,
        [REC_SETXATTR] = apply_xattr_locked,  [REC_REMOVEXATTR] = apply_xattr_locked,
        [REC_REAP] = apply_reap_locked,       [REC_NASCENT] = apply_nascent_locked,
        [REC_VERSION] = apply_version_locked,
    };
    check(rec->type < ARRAY_LEN(apply) && apply[rec->type]);
    LOCK_SCOPE(&ns->locked.lock);
    apply[rec->type](ns, rec);
}

void ns_restore_nascent(struct ns *ns, const struct record *rec, int64_t now)
{
    check(rec->type == REC_NASCENT);
    LOCK_SCOPE(&ns->locked.lock);
    apply_nascent_at_locked(ns, rec, now);
}
