// SPDX-License-Identifier: Apache-2.0
/* Sets the extended attributes of files and directories that `cairn restore` restores. */
#include <sys/xattr.h>

#include "cli/copy_internal.h"
#include "overlay/ns.h"

#define VALUE_MAX (64u * 1024) /* of Linux */

struct xattrs_copy {
    struct ns *ns;
    uint64_t ino;
    int fd;
    uint8_t *value;
    char *why; /* of the first attribute that could not be set */
};

static bool begins_with(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

/* user.cairn.* describes how the mount stores the file now. security.* holds capabilities, which a
 * restore must not grant. */
static bool is_copied(const char *name)
{
    return (begins_with(name, "user.") && !begins_with(name, "user.cairn.")) ||
           begins_with(name, "trusted.");
}

/* An attribute that cannot be set is no reason to lose the file. */
static void set_xattr(struct xattrs_copy *xattrs, const char *name, size_t size)
{
    if (fsetxattr(xattrs->fd, name, xattrs->value, size, 0) == 0 || errno == EPERM ||
        errno == EOPNOTSUPP || xattrs->why)
        return;
    xattrs->why = xasprintf("the extended attribute %s cannot be set: %s", name, strerror(errno));
}

static int copy_xattr(const char *name, size_t len, void *arg)
{
    struct xattrs_copy *xattrs = arg;
    char text[NAME_LEN_MAX + 1];
    check(len < sizeof text);
    memcpy(text, name, len);
    text[len] = '\0';
    if (!is_copied(text))
        return 0;
    ssize_t size = ns_getxattr(xattrs->ns, xattrs->ino, name, len, xattrs->value, VALUE_MAX);
    if (size < 0)
        return (int)size;
    set_xattr(xattrs, text, (size_t)size);
    return 0;
}

int copy_xattrs(const struct copy *copy, const struct ns_inode *inode, int fd, char **ret_why)
{
    *ret_why = NULL;
    if (!copy->restores || !inode->may_have_xattrs)
        return 0;
    _cleanup_free_ uint8_t *value = xmalloc(VALUE_MAX);
    struct xattrs_copy xattrs = {
        .ns = store_ns(copy->store), .ino = inode->ino, .fd = fd, .value = value};
    int r = ns_listxattr(xattrs.ns, inode->ino, copy_xattr, &xattrs);
    *ret_why = xattrs.why;
    return r;
}
