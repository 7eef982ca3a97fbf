// SPDX-License-Identifier: Apache-2.0
/* Extended attributes of what `cairn restore` brings back. */
#include <sys/xattr.h>

#include "cli/copy_internal.h"
#include "overlay/ns.h"

#define VALUE_MAX (64u * 1024) /* of Linux */

struct xattrs_copy {
    struct ns *ns;
    uint64_t ino;
    int fd;
    uint8_t *value;
};

/* user.cairn.* says how a file is kept now, and capabilities come back with nobody's word. */
static bool is_copied(const char *name)
{
    return strncmp(name, "user.cairn.", strlen("user.cairn.")) != 0 &&
           strncmp(name, "security.", strlen("security.")) != 0;
}

/* The caller may not set it, or the filesystem has no such attributes. */
static bool is_left_out(int error)
{
    return error == EPERM || error == EOPNOTSUPP;
}

static int copy_xattr(const char *name, size_t len, void *arg)
{
    struct xattrs_copy *copy = arg;
    char text[NAME_LEN_MAX + 1];
    memcpy(text, name, len);
    text[len] = '\0';
    if (!is_copied(text))
        return 0;
    ssize_t size = ns_getxattr(copy->ns, copy->ino, name, len, copy->value, VALUE_MAX);
    if (size < 0)
        return (int)size;
    int r = fsetxattr(copy->fd, text, copy->value, (size_t)size, 0);
    return r < 0 && !is_left_out(errno) ? -errno : 0;
}

int copy_xattrs(const struct copy *copy, const struct ns_inode *inode, int fd)
{
    if (!copy->restores || !inode->may_have_xattrs)
        return 0;
    _cleanup_free_ uint8_t *value = xmalloc(VALUE_MAX);
    struct xattrs_copy xattrs = {store_ns(copy->store), inode->ino, fd, value};
    return ns_listxattr(xattrs.ns, inode->ino, copy_xattr, &xattrs);
}
