// SPDX-License-Identifier: Apache-2.0
/* A path of an inode, for messages. */

#include "view/db.h"

#define PATH_DEPTH_MAX 4096u /* a damaged tree may have a loop */

/* A name of `ino` in `parent`; NULL if there is none. Caller frees. */
static char *name_in_parent(const struct snap *snap, uint64_t parent, uint64_t ino)
{
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, snap, key_u64(NEW_KEY, KEY_COOKIE, parent));
    while (scan_step(&scan) > 0)
        if (scan_decode(&scan) == 0 && scan.row.entry.ino == ino)
            return xasprintf("%.*s", (int)scan.row.name_len, scan.row.name);
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
