// SPDX-License-Identifier: Apache-2.0
/* Extended attributes: user.cairn.* are computed by the filesystem, the others are stored. */
#include <stdio.h>
#include <sys/xattr.h>

#include "base/hex.h"
#include "format/hint.h"
#include "fs/internal.h"

#define OWN_PREFIX "user.cairn."
#define TRUSTED_PREFIX "trusted."
/* Stored like any other. Eviction leaves this file, or all files below this directory, on NVMe. */
#define PIN_NAME "user.cairn.pin"

static bool is_hint(const char *name)
{
    return strcmp(name, HINT_XATTR) == 0;
}

static bool is_own(const char *name)
{
    return strncmp(name, OWN_PREFIX, strlen(OWN_PREFIX)) == 0 && strcmp(name, PIN_NAME) != 0 &&
           !is_hint(name);
}

int xattr_check_name(const char *name)
{
    if (strlen(name) > NAME_LEN_MAX)
        return -ERANGE;
    static const char *const stored[] = {"user.", TRUSTED_PREFIX, "security."};
    for (size_t i = 0; i < ARRAY_LEN(stored); i++)
        if (strncmp(name, stored[i], strlen(stored[i])) == 0)
            return name[strlen(stored[i])] ? 0 : -EINVAL;
    return -EOPNOTSUPP;
}

/* Returns the lowest tier that has all of the content. */
static int xattr_level(struct fs *fs, uint64_t ino, char *text, size_t size)
{
    uint64_t missing = 0;
    bool durable = store_is_durable(fs->store, ino);
    bool published = durable && horizon_published(fs->commit->horizon) > 0;
    struct fetch_unsafe unsafe = {0};
    if (published)
        TRY(remote_needs(fs->store, ino, &missing));
    if (published && missing == 0)
        TRY(fetch_remote_damaged(fs->store, ino, &unsafe));
    if (unsafe.lost_bytes > 0)
        return -EIO; /* no tier has all of it */
    published = published && missing == 0 && unsafe.pending_bytes == 0;
    (void)snprintf(text, size, "%s", !durable ? "stage" : published ? "remote" : "nvme");
    return 0;
}

static int xattr_stored_bytes(struct fs *fs, uint64_t ino, char *text, size_t size)
{
    uint64_t bytes;
    if (!store_is_durable(fs->store, ino))
        return -ENODATA;
    int r = fetch_stored_bytes(fs->store, ino, &bytes);
    (void)snprintf(text, size, "%llu", (unsigned long long)(r < 0 ? 0 : bytes));
    return r;
}

static int xattr_hash(struct fs *fs, uint64_t ino, char *text, size_t size)
{
    uint8_t hash[32];
    check(size > 2 * sizeof hash);
    if (!store_is_durable(fs->store, ino))
        return -ENODATA;
    TRY(fetch_content_root(fs->store, ino, hash));
    hex_print(text, hash, sizeof hash);
    return 0;
}

/* libcairn decides by these values: how much of the stage a file without a name may use, whether
 * data is uploaded to a remote, and how many loads have this file open. */
static int xattr_lane(struct fs *fs, uint64_t ino, char *text, size_t size)
{
    struct remote_status remote;
    remote_get_status(fs->store, &remote);
    (void)snprintf(text, size, "1 stage=%llu remote=%d loads=%llu",
                   (unsigned long long)stage_usage(fs->stage).total_bytes,
                   remote.state != REMOTE_NONE && remote.state != REMOTE_FENCED,
                   (unsigned long long)fs_loads(fs, ino));
    return 0;
}

/* The newest operation of this node: cairnfs puts it into the hint of a marker. Operations have no
 * numbers from the time around a round, in which clocks of nodes may differ. So one that is older
 * than a marker is never of a later round, unless a clock is wrong. */
static int xattr_newest(struct fs *fs, uint64_t ino, char *text, size_t size)
{
    (void)ino;
    if (!store_node(fs->store))
        return -ENODATA;
    (void)snprintf(text, size, "%llu", (unsigned long long)history_newest(fs->commit->history));
    return 0;
}

static ssize_t get_own(struct fs *fs, uint64_t ino, const char *name, void *buf, size_t size)
{
    static const struct {
        const char *name;
        bool files_only;
        int (*text)(struct fs *fs, uint64_t ino, char *text, size_t size);
    } own[] = {{"level", false, xattr_level},
               {"stored_bytes", true, xattr_stored_bytes},
               {"hash", true, xattr_hash},
               {"newest", false, xattr_newest},
               {"lane", false, xattr_lane}};
    struct ns_inode inode;
    TRY(ns_inode(fs->ns, ino, &inode));
    for (size_t i = 0; i < ARRAY_LEN(own); i++) {
        if (strcmp(name + strlen(OWN_PREFIX), own[i].name) != 0)
            continue;
        char text[80];
        if (own[i].files_only && !S_ISREG(inode.attrs.mode))
            return -ENODATA;
        TRY(own[i].text(fs, ino, text, sizeof text));
        size_t len = strlen(text);
        if (size && len > size)
            return -ERANGE;
        if (size)
            memcpy(buf, text, len);
        return (ssize_t)len;
    }
    return -ENODATA;
}

ssize_t fs_getxattr(struct fs *fs, uint64_t ino, const char *name, void *buf, size_t size)
{
    if (is_own(name))
        return get_own(fs, ino, name, buf, size);
    TRY(xattr_check_name(name));
    return ns_getxattr(fs->ns, ino, name, strlen(name), buf, size);
}

/* Setting the value that is there already changes nothing, not even ctime. */
static bool is_same(struct fs *fs, uint64_t ino, const char *name, const void *value, size_t size)
{
    _cleanup_free_ char *have = xmalloc(size + 1);
    return ns_getxattr(fs->ns, ino, name, strlen(name), have, size + 1) == (ssize_t)size &&
           memcmp(have, value, size) == 0;
}

static int commit_xattr(struct fs *fs, struct record *rec)
{
    struct ns_inode inode;
    bool pins = strcmp(rec->name, PIN_NAME) == 0;
    TRY(ns_hold(fs->ns, rec->ino, &inode));
    int r = history_commit(fs->commit->history, rec);
    ns_drop(fs->ns, rec->ino);
    if (r == 0 && pins)
        fetch_pins_changed(fs->store);
    return r;
}

int fs_setxattr(struct fs *fs, uint64_t ino, const char *name, const void *value, size_t size,
                int flags)
{
    TRY(xattr_check_name(name));
    if (is_own(name) || (is_hint(name) && !store_node(fs->store)))
        return -EPERM;
    if (is_hint(name) && !hint_is_valid(value, size))
        return -EINVAL;
    if (size > 65536)
        return -E2BIG;
    ssize_t have = ns_getxattr(fs->ns, ino, name, strlen(name), NULL, 0);
    if (have < 0 && have != -ENODATA)
        return (int)have;
    if (flags & XATTR_CREATE && have >= 0)
        return -EEXIST;
    if (flags & XATTR_REPLACE && have < 0)
        return -ENODATA;
    if (have == (ssize_t)size && is_same(fs, ino, name, value, size))
        return 0;
    TRY(room_admit_change(fs->commit->room, size + 4096));
    struct record rec = {.type = REC_SETXATTR,
                         .ino = ino,
                         .name = name,
                         .name_len = (uint16_t)strlen(name),
                         .value = value,
                         .value_len = (uint32_t)size};
    return commit_xattr(fs, &rec);
}

static int commit_removal(struct fs *fs, uint64_t ino, const char *name)
{
    struct record rec = {
        .type = REC_REMOVEXATTR, .ino = ino, .name = name, .name_len = (uint16_t)strlen(name)};
    return commit_xattr(fs, &rec);
}

int drop_capabilities(struct fs *fs, const struct ns_inode *inode)
{
    const char *name = "security.capability";
    if (!inode->may_have_xattrs ||
        ns_getxattr(fs->ns, inode->ino, name, strlen(name), NULL, 0) == -ENODATA)
        return 0;
    int r = commit_removal(fs, inode->ino, name);
    return r == -ENODATA ? 0 : r;
}

int fs_removexattr(struct fs *fs, uint64_t ino, const char *name)
{
    TRY(xattr_check_name(name));
    if (is_own(name))
        return -EPERM;
    ssize_t have = ns_getxattr(fs->ns, ino, name, strlen(name), NULL, 0);
    if (have < 0)
        return (int)have;
    return commit_removal(fs, ino, name);
}

static bool may_list(const struct fs_caller *caller, const char *name, size_t name_len)
{
    bool is_stored_hint = name_len == strlen(HINT_XATTR) && memcmp(name, HINT_XATTR, name_len) == 0;
    if (allocated_is_name(name, name_len) || is_stored_hint)
        return false;
    bool is_trusted = name_len > strlen(TRUSTED_PREFIX) &&
                      memcmp(name, TRUSTED_PREFIX, strlen(TRUSTED_PREFIX)) == 0;
    return !is_trusted || (caller->is_admin && caller->is_admin(caller->arg));
}

int xattr_add_name(const char *name, size_t name_len, void *arg)
{
    struct xattr_names *list = arg;
    if (!may_list(list->caller, name, name_len))
        return 0;
    if (list->size) {
        if (list->len + name_len + 1 > list->size)
            return -ERANGE;
        memcpy(list->buf + list->len, name, name_len);
        list->buf[list->len + name_len] = '\0';
    }
    list->len += name_len + 1;
    return 0;
}

ssize_t fs_listxattr(struct fs *fs, uint64_t ino, const struct fs_caller *caller, char *buf,
                     size_t size)
{
    struct xattr_names list = {.caller = caller, .buf = buf, .size = size};
    int r = ns_listxattr(fs->ns, ino, xattr_add_name, &list);
    return r < 0 ? r : (ssize_t)list.len;
}
