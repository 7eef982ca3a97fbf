// SPDX-License-Identifier: Apache-2.0
/* A path of an inode, for messages. */
#include <sys/stat.h>

#include "view/db.h"

#define PATH_DEPTH_MAX 4096u /* a damaged tree may have a loop */

/* A name of `ino` in `parent`; NULL if there is none. Caller frees. */
static char *name_in_parent(const struct snap *snap, uint64_t parent, uint64_t ino)
{
    struct key key;
    key_u64(&key, KEY_COOKIE, parent);
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, snap, &key);
    for (; scan_valid(&scan); scan_next(&scan)) {
        struct view_entry entry;
        const char *name;
        size_t name_len;
        if (cookie_decode(0, scan.value, scan.value_len, &entry, &name, &name_len) == 0 &&
            entry.ino == ino)
            return xasprintf("%.*s", (int)name_len, name);
    }
    return NULL;
}

char *view_name(struct view *view, uint64_t parent, uint64_t ino)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    return name_in_parent(&snap, parent, ino);
}

char *snap_path(const struct snap *snap, uint64_t ino)
{
    char *path = xstrdup("");
    for (unsigned depth = 0; depth < PATH_DEPTH_MAX; depth++) {
        if (ino == ROOT_INO && depth == 0)
            break;
        if (ino == ROOT_INO)
            return path;
        struct inode_row row;
        _cleanup_free_ char *name = NULL;
        if (db_get_inode(snap->view, snap, ino, &row) == 0)
            name = name_in_parent(snap, row.pub.parent, ino);
        if (!name) {
            free(path);
            return xstrdup("?");
        }
        char *longer = xasprintf("/%s%s", name, path);
        free(path);
        path = longer;
        ino = row.pub.parent;
    }
    free(path);
    return xstrdup(ino == ROOT_INO ? "/" : "?");
}

char *view_path(struct view *view, uint64_t ino)
{
    _cleanup_snap_ struct snap snap;
    snap_begin(&snap, view);
    return snap_path(&snap, ino);
}
