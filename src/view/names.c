// SPDX-License-Identifier: Apache-2.0
/* Names and inodes: MAKE, LINK, UNLINK, RENAME, REAP.
 *
 * No function keeps the row of an inode over a call that may change the same inode (a directory may
 * be both parents of a rename): each function loads the row that it changes and stores it again. */
#include <sys/stat.h>

#include "view/apply.h"

#define DEPTH_MAX (1u << 20) /* ends a walk to the root in a damaged tree */
#define INO_COUNTER_MASK ((1ull << 48) - 1)

int dir_change(struct txn *txn, uint64_t parent, const struct dir_change *change)
{
    struct inode_row row;
    int r = txn_get_inode(txn, parent, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "no such directory") : r;
    struct attrs *a = &row.pub.attrs;
    if (!S_ISDIR(a->mode) || row.pub.nlink == 0)
        return txn_damage(txn, "the parent is not a directory or was removed");
    if ((change->entries < 0 && row.entries == 0) || (change->subdirs < 0 && row.pub.nlink <= 2))
        return txn_damage(txn, "a directory's counts fall below zero");
    if (!change->later_only || change->time > a->ctime || a->ctime > change->now)
        a->mtime = a->ctime = change->time;
    row.entries += (uint64_t)(int64_t)change->entries;
    row.pub.nlink += (uint32_t)change->subdirs;
    txn_put_inode(txn, &row);
    return 0;
}

static int dir_changed(struct txn *txn, uint64_t parent, int64_t time, int entries, int subdirs)
{
    return dir_change(txn, parent,
                      &(struct dir_change){time, .entries = entries, .subdirs = subdirs});
}

int name_add(struct txn *txn, uint64_t parent, const char *name, size_t name_len,
             const struct view_entry *entry)
{
    struct key key;
    key_named(&key, KEY_NAME, parent, name, name_len);
    int r = txn_has(txn, &key);
    if (r != -ENOENT)
        return r < 0 ? r : txn_damage(txn, "the name exists");
    uint8_t value[COOKIE_VALUE_HEADER_LEN + NAME_LEN_MAX + NAME_VALUE_LEN];
    txn_put(txn, &key, value, name_encode(entry, value));
    key_u64_u64(&key, KEY_COOKIE, parent, entry->cookie);
    r = entry->cookie ? txn_has(txn, &key) : 0;
    if (r != -ENOENT)
        return r < 0 ? r : txn_damage(txn, "the cookie is 0 or exists");
    txn_put(txn, &key, value, cookie_encode(entry, name, name_len, value));
    return 0;
}

/* Removes the pair of keys; the name must refer to `ino`. */
static int name_remove(struct txn *txn, uint64_t parent, const char *name, size_t name_len,
                       uint64_t ino, struct view_entry *ret_entry)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_named(&key, KEY_NAME, parent, name, name_len);
    int r = txn_get(txn, &key, &value);
    if (r == 0)
        r = name_decode(value.data, value.len, ret_entry);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "no such name") : r;
    if (ret_entry->ino != ino)
        return txn_damage(txn, "the name stands for another inode");
    txn_delete(txn, &key);
    txn_delete(txn, key_u64_u64(NEW_KEY, KEY_COOKIE, parent, ret_entry->cookie));
    return 0;
}

void count_file(struct txn *txn, const struct inode_row *row, int sign)
{
    if (!S_ISREG(row->pub.attrs.mode))
        return;
    txn->state.files += (uint64_t)(int64_t)sign;
    txn->state.logical_bytes += sign < 0 ? -row->pub.attrs.size : row->pub.attrs.size;
}

int inode_create(struct txn *txn, const struct inode_row *row)
{
    int r = txn_has(txn, key_u64(NEW_KEY, KEY_INODE, row->pub.ino));
    if (r != -ENOENT)
        return r < 0 ? r : txn_damage(txn, "the inode exists");
    if (row->pub.ino == 0 || row->pub.attrs.size > VIEW_OFFSET_MAX)
        return txn_damage(txn, "the inode has no number or an impossible size");
    txn_put_inode(txn, row);
    count_file(txn, row, 1);
    txn->state.max_ino = max_u64(txn->state.max_ino, row->pub.ino & INO_COUNTER_MASK);
    return 0;
}

/* Each seek continues from the preceding key: from the start it would step over all deleted
 * keys. */
static int remove_xattrs(struct txn *txn, struct inode_row *row)
{
    struct key key;
    key_u64(&key, KEY_XATTR, row->pub.ino);
    for (; row->pub.xattrs > 0; row->pub.xattrs--) {
        struct found found;
        int r = txn_seek(txn, &key, KEY_U64_LEN, &found);
        if (r < 0)
            return r == -ENOENT ? txn_damage(txn, "an inode has fewer xattrs than it counts") : r;
        if (found.key_len > KEY_U64_LEN + NAME_LEN_MAX)
            return -EUCLEAN;
        key.len = 0;
        key_add_bytes(&key, found.key, found.key_len);
        txn_delete(txn, &key);
    }
    return 0;
}

/* Removes the inode with its xattrs, link target and content. The caller has subtracted it from the
 * counters. */
static int remove_nameless_inode(struct txn *txn, struct inode_row *row)
{
    TRY(content_clear(txn, row));
    TRY(remove_xattrs(txn, row));
    if (S_ISLNK(row->pub.attrs.mode))
        txn_delete(txn, key_u64(NEW_KEY, KEY_LINK, row->pub.ino));
    txn_delete(txn, key_u64(NEW_KEY, KEY_INODE, row->pub.ino));
    return 0;
}

/* The inode lost its last name. */
static int inode_unnamed(struct txn *txn, struct inode_row *row, bool orphan)
{
    row->pub.nlink = 0;
    count_file(txn, row, -1);
    if (!orphan)
        return remove_nameless_inode(txn, row);
    txn_put_inode(txn, row);
    txn_put_bytes(txn, key_u64(NEW_KEY, KEY_ORPHAN, row->pub.ino), NULL, 0);
    return 0;
}

/* The inode loses a name that was removed from `parent`. */
static int inode_lose_name(struct txn *txn, uint64_t ino, uint64_t parent, int64_t time,
                           bool orphan)
{
    struct inode_row row;
    int r = txn_get_inode(txn, ino, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "a name's inode is missing") : r;
    row.pub.attrs.ctime = time;
    if (S_ISDIR(row.pub.attrs.mode))
        return row.entries ? txn_damage(txn, "the directory is not empty")
                           : inode_unnamed(txn, &row, orphan);
    if (row.pub.nlink == 0)
        return txn_damage(txn, "an inode has more names than it counts");
    if (row.pub.nlink == 1)
        return inode_unnamed(txn, &row, orphan);
    if (orphan)
        return txn_damage(txn, "an inode with other names is called an orphan");
    row.pub.nlink--;
    if (row.pub.parent == parent)
        row.pub.parent = 0;
    txn_put_inode(txn, &row);
    return 0;
}

int apply_make(struct txn *txn, const struct record *rec)
{
    bool dir = S_ISDIR(rec->attrs.mode), link = S_ISLNK(rec->attrs.mode);
    struct inode_row row = {
        .pub = {.ino = rec->ino, .attrs = rec->attrs, .nlink = dir ? 2 : 1, .parent = rec->parent}};
    TRY(inode_create(txn, &row));
    if (link)
        txn_put_bytes(txn, key_u64(NEW_KEY, KEY_LINK, rec->ino), rec->value, rec->value_len);
    struct view_entry entry = {
        .ino = rec->ino, .cookie = rec->cookie, .type = rec->attrs.mode & S_IFMT};
    int r = name_add(txn, rec->parent, rec->name, rec->name_len, &entry);
    return r < 0 ? r : dir_changed(txn, rec->parent, rec->time, 1, dir);
}

/* The inode had no name, and is about to get one. */
static int end_orphan(struct txn *txn, const struct inode_row *row)
{
    struct key key;
    key_u64(&key, KEY_ORPHAN, row->pub.ino);
    int r = txn_has(txn, &key);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "the inode is not an orphan") : r;
    txn_delete(txn, &key);
    count_file(txn, row, 1);
    return 0;
}

int apply_link(struct txn *txn, const struct record *rec)
{
    struct inode_row row;
    bool is_orphan = rec->flags & RECORD_ORPHAN;
    int r = txn_get_inode(txn, rec->ino, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "no such inode") : r;
    if (S_ISDIR(row.pub.attrs.mode) || (row.pub.nlink == 0) != is_orphan ||
        row.pub.nlink == UINT32_MAX)
        return txn_damage(txn, "the inode cannot have another name");
    TRY(is_orphan ? end_orphan(txn, &row) : 0);
    row.pub.nlink++;
    if (row.pub.parent == 0 || is_orphan)
        row.pub.parent = rec->parent;
    row.pub.attrs.ctime = rec->time;
    txn_put_inode(txn, &row);
    struct view_entry entry = {
        .ino = rec->ino, .cookie = rec->cookie, .type = row.pub.attrs.mode & S_IFMT};
    r = name_add(txn, rec->parent, rec->name, rec->name_len, &entry);
    return r < 0 ? r : dir_changed(txn, rec->parent, rec->time, 1, 0);
}

int apply_unlink(struct txn *txn, const struct record *rec)
{
    struct view_entry entry;
    int r = name_remove(txn, rec->parent, rec->name, rec->name_len, rec->ino, &entry);
    if (r == 0)
        r = inode_lose_name(txn, rec->ino, rec->parent, rec->time, rec->flags & RECORD_ORPHAN);
    int subdirs = r == 0 && S_ISDIR(entry.type) ? -1 : 0;
    return r < 0 ? r : dir_changed(txn, rec->parent, rec->time, -1, subdirs);
}

int apply_reap(struct txn *txn, const struct record *rec)
{
    struct key key;
    key_u64(&key, KEY_ORPHAN, rec->ino);
    int r = txn_has(txn, &key);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "the inode is not an orphan") : r;
    txn_delete(txn, &key);
    struct inode_row row;
    r = txn_get_inode(txn, rec->ino, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "the orphan's inode is missing") : r;
    return remove_nameless_inode(txn, &row);
}

/* Prevents moving a directory below itself. */
static int check_not_below(struct txn *txn, uint64_t dir, uint64_t above)
{
    for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
        if (dir == above)
            return txn_damage(txn, "a directory would lie below itself");
        if (dir == ROOT_INO)
            return 0;
        struct inode_row row;
        int r = txn_get_inode(txn, dir, &row);
        if (r < 0)
            return r == -ENOENT ? txn_damage(txn, "no such directory") : r;
        dir = row.pub.parent;
    }
    return txn_damage(txn, "the path to the root does not end");
}

/* Moves the inode, of type `type`, to its new name in `parent`; the old name is already removed. */
static int inode_move(struct txn *txn, uint64_t ino, uint64_t from, uint64_t parent, int64_t time)
{
    struct inode_row row;
    int r = txn_get_inode(txn, ino, &row);
    if (r < 0)
        return r == -ENOENT ? txn_damage(txn, "a name's inode is missing") : r;
    if (S_ISDIR(row.pub.attrs.mode) && from != parent)
        TRY(check_not_below(txn, parent, ino));
    row.pub.parent = parent;
    row.pub.attrs.ctime = time;
    txn_put_inode(txn, &row);
    return 0;
}

/* Changes both directories of a rename, which may be the same. */
static int dirs_change(struct txn *txn, const struct record *rec, int entries, int subdirs,
                       int entries2, int subdirs2)
{
    if (rec->parent == rec->parent2)
        return dir_changed(txn, rec->parent, rec->time, entries + entries2, subdirs + subdirs2);
    int r = dir_changed(txn, rec->parent, rec->time, entries, subdirs);
    return r < 0 ? r : dir_changed(txn, rec->parent2, rec->time, entries2, subdirs2);
}

/* Replaces the inode under the name in parent2, of type `type`, by one of type `by`. */
static int replace_name(struct txn *txn, const struct record *rec, uint32_t type, uint32_t by)
{
    if (rec->ino == rec->ino2)
        return txn_damage(txn, "an inode replaces itself");
    if (S_ISDIR(type) != S_ISDIR(by))
        return txn_damage(txn, "a directory and another kind replace each other");
    return inode_lose_name(txn, rec->ino2, rec->parent2, rec->time, rec->flags & RECORD_ORPHAN);
}

/* Removes a replaced directory first: it must be empty while the moved name may still be in it. */
static int rename_over(struct txn *txn, const struct record *rec)
{
    struct view_entry entry, old;
    bool replaces = rec->ino2 != 0;
    if (replaces)
        TRY(name_remove(txn, rec->parent2, rec->name2, rec->name2_len, rec->ino2, &old));
    TRY(name_remove(txn, rec->parent, rec->name, rec->name_len, rec->ino, &entry));
    if (replaces)
        TRY(replace_name(txn, rec, old.type, entry.type));
    TRY(inode_move(txn, rec->ino, rec->parent, rec->parent2, rec->time));
    int dir = S_ISDIR(entry.type), gone = replaces ? 1 : 0;
    entry.cookie = rec->cookie;
    TRY(name_add(txn, rec->parent2, rec->name2, rec->name2_len, &entry));
    return dirs_change(txn, rec, -1, -dir, 1 - gone, dir && !replaces);
}

static int rename_exchange(struct txn *txn, const struct record *rec)
{
    struct view_entry entry, entry2;
    TRY(name_remove(txn, rec->parent, rec->name, rec->name_len, rec->ino, &entry));
    TRY(name_remove(txn, rec->parent2, rec->name2, rec->name2_len, rec->ino2, &entry2));
    TRY(inode_move(txn, rec->ino, rec->parent, rec->parent2, rec->time));
    TRY(inode_move(txn, rec->ino2, rec->parent2, rec->parent, rec->time));
    int dir = S_ISDIR(entry.type), dir2 = S_ISDIR(entry2.type);
    entry.cookie = rec->cookie;
    entry2.cookie = rec->cookie2;
    TRY(name_add(txn, rec->parent2, rec->name2, rec->name2_len, &entry));
    TRY(name_add(txn, rec->parent, rec->name, rec->name_len, &entry2));
    return dirs_change(txn, rec, 0, dir2 - dir, 0, dir - dir2);
}

int apply_rename(struct txn *txn, const struct record *rec)
{
    return rec->flags & RECORD_EXCHANGE ? rename_exchange(txn, rec) : rename_over(txn, rec);
}
