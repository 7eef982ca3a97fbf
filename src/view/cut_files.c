// SPDX-License-Identifier: Apache-2.0
#include "view/cut_files.h"

#include <sys/stat.h>

#include "view/cut.h"

struct files_walk {
    const struct snap *snap;
    int (*fn)(const struct view_inode *file, void *arg);
    void *arg;
};

/* The inode may have been removed. */
static int give_file(const struct files_walk *walk, uint64_t ino)
{
    struct inode_row row;
    int r = db_get_inode(walk->snap->view, walk->snap, ino, &row);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    return S_ISREG(row.pub.attrs.mode) ? walk->fn(&row.pub, walk->arg) : 0;
}

/* Passes on inodes whose numbers are at byte `at` of the keys that begin with `prefix`. */
static int walk_files(const struct files_walk *walk, const struct key *prefix, size_t at)
{
    _cleanup_scan_ struct scan scan;
    check(at > 0 && at <= prefix->len);
    scan_open(&scan, walk->snap, prefix);
    int r = EACH_KEY(&scan, scan.key_len == at + sizeof(uint64_t)
                                ? give_file(walk, key_get_u64(scan.key, at))
                                : -EUCLEAN);
    return r > 0 ? 0 : r;
}

int view_cut_changed_files(struct view_cut *cut,
                           int (*fn)(const struct view_inode *file, void *arg), void *arg)
{
    static const uint8_t inodes = KEY_INODE;
    _cleanup_hold_ struct snap *snap = &cut->snap;
    const struct files_walk walk = {snap, fn, arg};
    struct key prefix;
    if (view_cut_is_whole(cut))
        key_type(&prefix, KEY_INODE);
    else
        key_touched(&prefix, &inodes, sizeof inodes);
    int r = snap_resume(snap);
    return r < 0 ? r : walk_files(&walk, &prefix, prefix.len);
}

char *view_cut_path(struct view_cut *cut, uint64_t ino)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    return snap_resume(snap) == 0 ? snap_path(snap, ino) : NULL;
}

static int look_up_name_in_cut(const struct snap *snap, const char *name, size_t len,
                               struct inode_row *row)
{
    struct view_entry entry;
    _cleanup_value_ struct value value = {0};
    if (len > NAME_LEN_MAX)
        return -ENOENT;
    TRY(db_get(snap->view, snap, key_named(NEW_KEY, KEY_NAME, row->pub.ino, name, len), &value));
    TRY(name_decode(value.data, value.len, &entry));
    return db_get_inode(snap->view, snap, entry.ino, row);
}

static int cut_files_look_up(const struct snap *snap, const char *path, struct view_inode *ret)
{
    struct inode_row row;
    int r = db_get_inode(snap->view, snap, ROOT_INO, &row);
    while (r == 0 && *path) {
        size_t len = strcspn(++path, "/");
        r = look_up_name_in_cut(snap, path, len, &row);
        path += len;
    }
    if (r == 0)
        *ret = row.pub;
    return r;
}

int view_cut_lookup(struct view_cut *cut, const char *path, struct view_inode *ret_inode)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    int r = snap_resume(snap);
    return r < 0 ? r : cut_files_look_up(snap, path, ret_inode);
}

static int walk_names(const struct snap *snap, const struct key *prefix,
                      int (*fn)(const char *name, uint64_t ino, void *arg), void *arg)
{
    char name[NAME_LEN_MAX + 1];
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, snap, prefix);
    int r = EACH_ROW(&scan, fn(row_name(&scan.row, name), scan.row.entry.ino, arg));
    return r > 0 ? 0 : r;
}

int view_cut_names(struct view_cut *cut, uint64_t parent, const char *prefix, size_t prefix_len,
                   int (*fn)(const char *name, uint64_t ino, void *arg), void *arg)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    check(prefix_len <= NAME_LEN_MAX);
    int r = snap_resume(snap);
    return r < 0 ? r
                 : walk_names(snap, key_named(NEW_KEY, KEY_NAME, parent, prefix, prefix_len), fn,
                              arg);
}

int view_cut_content(struct view_cut *cut, uint64_t ino,
                     int (*fn)(const struct view_extent *part, void *arg), void *arg)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    struct inode_row row;
    TRY(snap_resume(snap));
    TRY(db_get_inode(snap->view, snap, ino, &row));
    return snap_content(snap, &row, 0, row.pub.attrs.size, fn, arg);
}

int view_cut_chunk(struct view_cut *cut, const struct chunk_name *name,
                   struct chunk_entry *ret_entry)
{
    _cleanup_hold_ struct snap *snap = &cut->snap;
    struct chunk_row row;
    const struct look then = {.snap = snap};
    TRY(snap_resume(snap));
    TRY(look_chunk(&then, KEY_CHUNK, name, &row));
    *ret_entry = row.entry;
    return 0;
}
