// SPDX-License-Identifier: Apache-2.0
#include "fuse/ops.h"

int dir_reply_add(const struct fs_entry *entry, void *arg)
{
    struct dir_reply *d = arg;
    struct stat st = {.st_ino = entry->ino, .st_mode = entry->type};
    size_t left = d->size - d->len, need;
    if (d->plus) {
        /* An entry removed since it was listed is omitted. If its attributes cannot be read, it is
         * listed without them; and so is "..", whose attributes the kernel ignores. */
        struct fuse_entry_param e = {.attr = st};
        if (strcmp(entry->name, "..") != 0 && d->read(d->front, entry->ino, &e) == -ENOENT)
            return 0;
        need = fuse_add_direntry_plus(d->req, d->buf + d->len, left, entry->name, &e,
                                      (off_t)entry->offset);
    } else {
        need = fuse_add_direntry(d->req, d->buf + d->len, left, entry->name, &st,
                                 (off_t)entry->offset);
    }
    if (need > left)
        return 1;
    d->len += need;
    return 0;
}
