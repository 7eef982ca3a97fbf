// SPDX-License-Identifier: Apache-2.0
/* Compares inodes of the union with those of this node, and makes these equal. */
#include <stdio.h>
#include <sys/stat.h>

#include "commit/touched.h"
#include "fs/taken.h"
#include "overlay/ns.h"
#include "take/internal.h"

#define VALUE_MAX (64u * 1024) /* of an xattr */
#define TARGET_MAX 4096u       /* of a symbolic link */

/* --- sets of inodes --------------------------------------------------------------------------- */

void ino_set_add(struct ino_set **set, uint64_t ino, uint64_t local)
{
    struct ino_set *item;
    HASH_FIND(hh, *set, &ino, sizeof ino, item);
    if (!item) {
        item = xmalloc(sizeof *item);
        item->ino = ino;
        HASH_ADD(hh, *set, ino, sizeof item->ino, item);
    }
    item->local = local;
}

void ino_set_clear(struct ino_set **set)
{
    struct ino_set *item, *next;
    HASH_ITER(hh, *set, item, next)
    {
        HASH_DEL(*set, item);
        free(item);
    }
}

int take_later(struct take *take, uint64_t ino, const char *name, const char *why)
{
    (void)snprintf(take->later, sizeof take->later, "inode %llu%s%s: %s", (unsigned long long)ino,
                   name ? ", " : "", name ? name : "", why);
    return TAKEN_LATER;
}

/* --- operations ------------------------------------------------------------------------------- */

int take_commit(struct take *take, struct record *rec)
{
    uint64_t nameless;
    TRY(fs_taken_commit(take->options.fs, rec, &nameless));
    vector_add(&take->changed, rec->parent ? rec->parent : rec->ino);
    if (rec->parent2)
        vector_add(&take->changed, rec->parent2);
    if (rec->type == REC_VERSION)
        vector_add(&take->rewritten, rec->ino);
    if (nameless)
        vector_add(&take->nameless, nameless);
    return 0;
}

void take_end_nameless(struct take *take)
{
    size_t left = 0;
    for (size_t i = 0; i < take->nameless.count; i++)
        if (fs_forget(take->options.fs, take->nameless.at[i]) < 0)
            take->nameless.at[left++] = take->nameless.at[i];
    take->nameless.count = left;
}

int take_local_dir(struct take *take, uint64_t ino, uint64_t *ret)
{
    struct ns_inode inode;
    struct ino_set *alias;
    HASH_FIND(hh, take->aliases, &ino, sizeof ino, alias);
    *ret = alias ? alias->local : ino;
    TRY(ns_inode(take->ns, *ret, &inode));
    return S_ISDIR(inode.attrs.mode) && inode.nlink > 0 ? 0 : -ENOENT;
}

/* --- extended attributes ---------------------------------------------------------------------- */

struct xattr_names {
    VECTOR(char) bytes; /* each with its NUL */
};

static int add_name(const char *name, size_t name_len, void *arg)
{
    struct xattr_names *names = arg;
    vector_add_all(&names->bytes, name, name_len);
    vector_add(&names->bytes, '\0');
    return 0;
}

static int take_xattr(struct take *take, uint64_t ino, uint64_t local, const char *name)
{
    _cleanup_free_ uint8_t *value = xmalloc(VALUE_MAX), *mine = xmalloc(VALUE_MAX);
    size_t name_len = strlen(name);
    ssize_t len = view_getxattr(take->view, ino, name, name_len, value, VALUE_MAX);
    ssize_t had = ns_getxattr(take->ns, local, name, name_len, mine, VALUE_MAX);
    struct record rec = {.type = len == -ENODATA ? REC_REMOVEXATTR : REC_SETXATTR,
                         .flags = RECORD_TAKEN,
                         .ino = local,
                         .name = name,
                         .name_len = (uint16_t)name_len,
                         .value = value,
                         .value_len = len < 0 ? 0 : (uint32_t)len};
    if (len < 0 && len != -ENODATA)
        return len == -ENOENT ? 0 : (int)len;
    if (had == len && (len < 0 || memcmp(value, mine, (size_t)len) == 0))
        return 0;
    return take_commit(take, &rec);
}

static int take_xattrs(struct take *take, uint64_t ino, uint64_t local)
{
    struct xattr_names names = {0};
    int r = view_listxattr(take->view, ino, add_name, &names);
    if (r == 0)
        r = ns_listxattr(take->ns, local, add_name, &names);
    for (size_t at = 0; at < names.bytes.count && r == 0; at += strlen(names.bytes.at + at) + 1)
        r = take_xattr(take, ino, local, names.bytes.at + at);
    vector_free(&names.bytes);
    return r;
}

/* --- inodes ----------------------------------------------------------------------------------- */

static struct record version_of(const struct view_inode *inode)
{
    return (struct record){.type = REC_VERSION,
                           .flags = RECORD_TAKEN,
                           .ino = inode->ino,
                           .version = inode->version,
                           .attrs = inode->attrs,
                           .length = inode->attrs.size,
                           .count = VIEW_COUNT_ELSEWHERE};
}

/* The times of a directory are those of changes in it on this node. */
static int take_attributes(struct take *take, const struct view_inode *inode,
                           const struct ns_inode *local)
{
    const struct attrs *a = &inode->attrs, *b = &local->attrs;
    uint32_t mask = 0;
    mask |= a->mode != b->mode ? ATTR_MODE : 0;
    mask |= a->uid != b->uid ? ATTR_UID : 0;
    mask |= a->gid != b->gid ? ATTR_GID : 0;
    mask |= a->mtime != b->mtime && !S_ISDIR(a->mode) ? ATTR_MTIME : 0;
    struct record rec = {.type = REC_SETATTR,
                         .flags = RECORD_TAKEN,
                         .ino = local->ino,
                         .mask = mask,
                         .attrs = inode->attrs};
    return mask ? take_commit(take, &rec) : 0;
}

static int take_into(struct take *take, const struct view_inode *inode,
                     const struct ns_inode *local)
{
    struct record version = version_of(inode);
    if (local->is_elsewhere && inode->version > local->version)
        TRY(take_commit(take, &version));
    else
        TRY(take_attributes(take, inode, local));
    return inode->xattrs || local->may_have_xattrs ? take_xattrs(take, inode->ino, local->ino) : 0;
}

int take_inode(struct take *take, uint64_t ino)
{
    struct view_inode inode;
    struct ns_inode local;
    struct ino_set *alias;
    HASH_FIND(hh, take->aliases, &ino, sizeof ino, alias);
    int r = view_inode(take->view, ino, &inode);
    if (r == 0)
        r = ns_inode(take->ns, alias ? alias->local : ino, &local);
    if (r < 0 || local.nlink == 0) /* its name is added, or removed, with a directory */
        return r == 0 || r == -ENOENT ? TAKEN_DONE : r;
    if (local.nascent || touched_has_inode(take->touched, local.ino))
        return take_later(take, ino, NULL, "newer here");
    TRY(take_into(take, &inode, &local));
    return TAKEN_DONE;
}

static int make(struct take *take, const struct view_inode *inode, struct record *rec)
{
    char target[TARGET_MAX];
    ssize_t len = S_ISLNK(inode->attrs.mode)
                      ? view_readlink(take->view, inode->ino, target, sizeof target)
                      : 0;
    if (len < 0)
        return (int)len;
    rec->value = target;
    rec->value_len = (uint32_t)len;
    return take_commit(take, rec);
}

int take_new_inode(struct take *take, const struct view_inode *inode, uint64_t dir,
                   const char *name, uint16_t name_len)
{
    struct record rec = {.type = REC_MAKE, .flags = RECORD_TAKEN, .ino = inode->ino};
    if (S_ISREG(inode->attrs.mode)) {
        rec = version_of(inode);
        rec.flags |= RECORD_BIRTH;
    }
    rec.attrs = inode->attrs;
    rec.parent = dir;
    rec.name = name;
    rec.name_len = name_len;
    TRY(S_ISREG(inode->attrs.mode) ? take_commit(take, &rec) : make(take, inode, &rec));
    return inode->xattrs ? take_xattrs(take, inode->ino, inode->ino) : 0;
}
