// SPDX-License-Identifier: Apache-2.0
/* Reads names, directories, links and attributes: the overlay over the view. */
#include <stdio.h>

#include "base/pool.h"
#include "base/vector.h"
#include "overlay/internal.h"

#define LISTED_MIN 16u /* entries that are looked up together */
#define LISTED_MAX 1024u
#define DEPTH_MAX 4096u /* parents climbed before a loop is assumed */

int ns_lookup(struct ns *ns, uint64_t parent, const char *name, size_t name_len,
              struct view_entry *ret)
{
    if (name_len > NAME_LEN_MAX)
        return -ENAMETOOLONG;
    mutex_lock(&ns->locked.lock);
    struct node *dir = node_find_locked(ns, parent);
    struct entry *entry = entry_find_locked(dir, name, name_len);
    bool known = entry || (dir && dir->known_to == UINT64_MAX);
    *ret = (struct view_entry){0};
    if (entry)
        *ret = (struct view_entry){.ino = entry->ino, .cookie = entry->cookie, .type = entry->type};
    mutex_unlock(&ns->locked.lock);
    if (known)
        return ret->ino ? 0 : -ENOENT;
    return view_lookup(ns->view, parent, name, name_len, ret);
}

/* --- directories ------------------------------------------------------------------------------ */

/* A step of a listing. The entries of the view are read first, and merged with the overlay under
 * its lock: a name that is changed or moved meanwhile is in one of them. */
struct listing {
    struct ns *ns;
    uint64_t parent;
    size_t max;
    struct listed *below; /* of the view, ascending; room for `max` */
    size_t below_count;
    bool below_all;     /* the view has no entries behind these */
    struct listed *out; /* room for `max` */
    size_t out_count;
    uint64_t out_to; /* `out` has the entries up to this cookie; UINT64_MAX: all */
};

static void fill_listed_slot(struct listed *slot, const struct view_entry *entry, bool of_view,
                             const char *name, size_t name_len)
{
    slot->entry = *entry;
    slot->of_view = of_view;
    slot->name_len = (uint16_t)name_len;
    memcpy(slot->name, name, name_len);
}

static int collect_below(const struct view_entry *entry, const char *name, size_t name_len,
                         void *arg)
{
    struct listing *l = arg;
    l->below_all = l->below_count < l->max;
    if (!l->below_all)
        return 1;
    fill_listed_slot(&l->below[l->below_count++], entry, true, name, name_len);
    return 0;
}

static void list_overlay_entry_locked(struct listing *l, const struct entry *entry)
{
    check_held(&l->ns->locked.lock);
    struct view_entry e = {.ino = entry->ino, .cookie = entry->cookie, .type = entry->type};
    fill_listed_slot(&l->out[l->out_count++], &e, false, entry->name, entry->name_len);
}

/* Returns the entry, or if it is clean, and so equal to the view's, the next one that is not. */
static struct entry *skip_clean_locked(struct entry *entry)
{
    check_rank_held(LOCK_NAMESPACE);
    while (entry && entry->seq == 0)
        entry = entry_next_locked(entry);
    return entry;
}

/* Fills `out` in order of cookies, up to the point to which the view was read. */
static void merge_below_locked(struct listing *l, struct node *dir, uint64_t after)
{
    check_held(&l->ns->locked.lock);
    struct entry *entry = skip_clean_locked(dir ? entry_after_locked(dir, after) : NULL);
    size_t i = 0;
    l->out_to = l->below_all ? UINT64_MAX : l->below[l->below_count - 1].entry.cookie;
    for (;;) {
        const struct listed *below = i < l->below_count ? &l->below[i] : NULL;
        bool is_added = entry && entry->cookie <= (below ? below->entry.cookie : l->out_to);
        if (!is_added && !below)
            return;
        if (l->out_count == l->max) {
            l->out_to = l->out[l->out_count - 1].entry.cookie;
            return;
        }
        if (is_added) {
            list_overlay_entry_locked(l, entry);
            i += below && below->entry.cookie == entry->cookie;
            entry = skip_clean_locked(entry_next_locked(entry));
            continue;
        }
        const struct entry *covers = entry_find_locked(dir, below->name, below->name_len);
        if (!covers || covers->seq == 0)
            l->out[l->out_count++] = *below;
        i++;
    }
}

static uint64_t retired_count(struct ns *ns)
{
    LOCK_SCOPE(&ns->locked.lock);
    return ns->locked.retired;
}

/* Lists from the overlay alone, as far as the directory is known. True: these are the next entries,
 * or there are none. False: the view must be read, from *after on. */
static bool list_known(struct listing *l, uint64_t *after)
{
    LOCK_SCOPE(&l->ns->locked.lock);
    struct node *dir = node_find_locked(l->ns, l->parent);
    l->out_count = 0;
    if (!dir || *after >= dir->known_to)
        return false;
    known_set_locked(l->ns, dir, dir->known_to); /* marks it as used recently */
    struct entry *entry = entry_after_locked(dir, *after);
    for (; entry && entry->cookie <= dir->known_to && l->out_count < l->max;
         entry = entry_next_locked(entry))
        list_overlay_entry_locked(l, entry);
    *after = dir->known_to;
    return l->out_count > 0 || dir->known_to == UINT64_MAX;
}

/* False: ns_retire() was called since, and the read of the view may be outdated. An entry that left
 * the overlay may be missing, or an entry of the view that it covered may be visible again. */
static bool merge_below(struct listing *l, uint64_t after, uint64_t retired)
{
    LOCK_SCOPE(&l->ns->locked.lock);
    if (retired != l->ns->locked.retired)
        return false;
    struct node *dir = node_find_locked(l->ns, l->parent);
    merge_below_locked(l, dir, after);
    if (dir && dir->known_to == after && !l->ns->is_following)
        known_extend_locked(l->ns, dir, l->out, l->out_count, l->out_to);
    return true;
}

/* Returns the next entries after `after`, as one consistent listing. No entries: the listing has
 * ended. */
static int list_some(struct listing *l, uint64_t after)
{
    if (list_known(l, &after))
        return 0;
    for (;;) {
        uint64_t retired = retired_count(l->ns);
        l->below_count = 0;
        l->below_all = true;
        int r = view_readdir(l->ns->view, l->parent, after, collect_below, l);
        if (r < 0 && r != -ENOENT) /* the view may not have the directory yet */
            return r;
        if (!merge_below(l, after, retired))
            continue;
        if (l->out_count > 0 || l->out_to == UINT64_MAX)
            return 0;
        after = l->out_to;
    }
}

/* The directory is held, so that there is a node that records the known entries. */
int ns_readdir(struct ns *ns, uint64_t parent, uint64_t after, size_t expected,
               int (*fn)(const struct view_entry *entry, const char *name, size_t name_len,
                         void *arg),
               void *arg)
{
    struct ns_inode dir;
    int r = ns_hold(ns, parent, &dir);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    struct listing l = {
        .ns = ns, .parent = parent, .max = min_u64(max_u64(expected, LISTED_MIN), LISTED_MAX)};
    l.below = thread_buffer(THREAD_BUFFER_LISTING, 2 * LISTED_MAX * sizeof *l.below);
    l.out = l.below + LISTED_MAX;
    do {
        r = list_some(&l, after);
        for (size_t i = 0; i < l.out_count && r == 0; i++) {
            r = fn(&l.out[i].entry, l.out[i].name, l.out[i].name_len, arg);
            after = l.out[i].entry.cookie;
        }
    } while (r == 0 && l.out_count > 0);
    ns_drop(ns, parent);
    return r < 0 ? r : 0;
}

uint64_t ns_applied(struct ns *ns)
{
    return ns->has_nodes ? UINT64_MAX : view_state(ns->view).applied_seq;
}

static int found_one(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)entry;
    (void)name;
    (void)name_len;
    *(bool *)arg = true;
    return 1;
}

int ns_check_empty(struct ns *ns, uint64_t ino)
{
    bool any = false;
    int r = ns_readdir(ns, ino, 0, 1, found_one, &any);
    return r < 0 ? r : any ? -ENOTEMPTY : 0;
}

/* --- links and attributes --------------------------------------------------------------------- */

ssize_t ns_readlink(struct ns *ns, uint64_t ino, char *buf, size_t size)
{
    mutex_lock(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    bool known = node && node->target;
    ssize_t r = 0;
    if (known) {
        r = node->target_len <= size ? (ssize_t)node->target_len : -ERANGE;
        if (r > 0)
            memcpy(buf, node->target, (size_t)r);
    }
    mutex_unlock(&ns->locked.lock);
    return known ? r : view_readlink(ns->view, ino, buf, size);
}

ssize_t ns_getxattr(struct ns *ns, uint64_t ino, const char *name, size_t name_len, void *buf,
                    size_t size)
{
    mutex_lock(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    struct xattr *xattr = node ? xattr_find_locked(node, name, name_len) : NULL;
    bool known = xattr || (node && node->inode.nascent);
    ssize_t r = -ENODATA;
    if (xattr && !xattr->removed) {
        r = (ssize_t)xattr->value_len;
        if (size && xattr->value_len > size)
            r = -ERANGE;
        else if (size && xattr->value_len)
            memcpy(buf, xattr->value, xattr->value_len);
    }
    mutex_unlock(&ns->locked.lock);
    if (!known)
        r = view_getxattr(ns->view, ino, name, name_len, buf, size);
    return r == -ENOENT ? -ENODATA : r;
}

/* Names of xattrs, one behind the other: length (2 bytes), bytes. */
DEFINE_VECTOR(name_list, char);

static int add_name(const char *name, size_t name_len, void *arg)
{
    struct name_list *list = arg;
    uint16_t prefix = (uint16_t)name_len;
    vector_add_all(list, (const char *)&prefix, sizeof prefix);
    vector_add_all(list, name, name_len);
    return 0;
}

static int for_each_listed_name(const struct name_list *list,
                                int (*fn)(const char *name, size_t name_len, void *arg), void *arg)
{
    int r = 0;
    uint16_t len;
    for (size_t at = 0; at < list->count && r == 0; at += sizeof len + len) {
        memcpy(&len, list->at + at, sizeof len);
        r = fn(list->at + at + sizeof len, len, arg);
    }
    return r;
}

struct xattr_merge {
    struct node *node; /* may be NULL */
    struct name_list all;
};

static int merge_view_xattr(const char *name, size_t name_len, void *arg)
{
    struct xattr_merge *merge = arg;
    bool covered = merge->node && xattr_find_locked(merge->node, name, name_len);
    return covered ? 0 : add_name(name, name_len, &merge->all);
}

/* Merges the names of the view with those of the overlay. False: the read of the view may be
 * outdated. */
static bool merge_xattrs(struct ns *ns, uint64_t ino, uint64_t retired,
                         const struct name_list *below, struct name_list *ret)
{
    LOCK_SCOPE(&ns->locked.lock);
    if (ns->locked.retired != retired)
        return false;
    struct xattr_merge merge = {.node = node_find_locked(ns, ino)};
    struct xattr *xattr;
    (void)for_each_listed_name(below, merge_view_xattr, &merge);
    if (merge.node)
        TAILQ_FOREACH(xattr, &merge.node->xattrs, link)
    if (!xattr->removed)
        (void)add_name(xattr->name, xattr->name_len, &merge.all);
    *ret = merge.all;
    return true;
}

int ns_listxattr(struct ns *ns, uint64_t ino,
                 int (*fn)(const char *name, size_t name_len, void *arg), void *arg)
{
    _cleanup_vector_ struct name_list below = {0}, all = {0};
    uint64_t retired;
    int r;
    do {
        retired = retired_count(ns);
        below.count = 0;
        r = view_listxattr(ns->view, ino, add_name, &below);
        if (r == -ENOENT) /* the view may not have the inode yet */
            r = 0;
    } while (r == 0 && !merge_xattrs(ns, ino, retired, &below, &all));
    if (r == 0)
        r = for_each_listed_name(&all, fn, arg);
    return r < 0 ? r : 0;
}

/* --- nascent files ---------------------------------------------------------------------------- */

bool ns_birth(struct ns *ns, uint64_t ino, struct ns_birth *ret)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    if (!node || !node->inode.nascent || !node->birth_entry)
        return false;
    const struct entry *entry = node->birth_entry;
    ret->parent = entry->dir->inode.ino;
    ret->cookie = entry->cookie;
    ret->covers = node->covers;
    ret->name_len = entry->name_len;
    memcpy(ret->name, entry->name, entry->name_len);
    return true;
}

bool ns_has_times_of_nascent(struct ns *ns, uint64_t ino, int64_t *ret_time)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    if (!node || node->nascent_names == 0 || node->inode.attrs.mtime != node->inode.attrs.ctime)
        return false;
    *ret_time = node->inode.attrs.mtime;
    return true;
}

static int dump_xattrs_locked(struct node *node, int (*fn)(const struct record *rec, void *arg),
                              void *arg)
{
    check_rank_held(LOCK_NAMESPACE);
    struct xattr *xattr;
    TAILQ_FOREACH(xattr, &node->xattrs, link)
    {
        struct record rec = {.type = xattr->removed ? REC_REMOVEXATTR : REC_SETXATTR,
                             .ino = node->inode.ino,
                             .time = node->inode.attrs.ctime,
                             .name = xattr->name,
                             .name_len = xattr->name_len,
                             .value = xattr->value,
                             .value_len = xattr->value_len};
        TRY(fn(&rec, arg));
    }
    return 0;
}

/* A file without a name is recorded as if it had been created without one, so in no directory,
 * which might be gone. */
static struct record nascent_record(const struct node *node)
{
    const struct entry *entry = node->birth_entry;
    struct record rec = {.type = REC_NASCENT,
                         .flags = entry ? 0 : RECORD_ORPHAN,
                         .ino = node->inode.ino,
                         .parent = entry ? entry->dir->inode.ino : ROOT_INO,
                         .time = node->inode.attrs.btime,
                         .attrs = node->inode.attrs};
    if (entry) {
        rec.cookie = entry->cookie;
        rec.name = entry->name;
        rec.name_len = entry->name_len;
    }
    return rec;
}

int ns_dump_nascent(struct ns *ns, bool with_nameless,
                    int (*fn)(const struct record *rec, void *arg), void *arg)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct node *node, *next;
    HASH_ITER(hh, ns->locked.nodes, node, next)
    {
        if (!node->inode.nascent || node->gone || (!node->birth_entry && !with_nameless))
            continue;
        struct record rec = nascent_record(node);
        TRY(fn(&rec, arg));
        TRY(dump_xattrs_locked(node, fn, arg));
    }
    return 0;
}

int ns_dump_xattrs(struct ns *ns, uint64_t ino, int (*fn)(const struct record *rec, void *arg),
                   void *arg)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    return node ? dump_xattrs_locked(node, fn, arg) : 0;
}

/* --- ancestry --------------------------------------------------------------------------------- */

/* Returns whether the file has, or had, several names: no row says where all of them are. */
static bool is_anywhere(const struct ns_inode *inode)
{
    return !S_ISDIR(inode->attrs.mode) &&
           (inode->nlink > 1 || (inode->nlink == 1 && inode->parent == 0));
}

bool ns_may_be_below(struct ns *ns, uint64_t ino, uint64_t dir)
{
    struct ns_inode inode;
    if (ino == dir)
        return true;
    if (ns_inode(ns, dir, &inode) < 0 || !S_ISDIR(inode.attrs.mode))
        return false;
    for (unsigned depth = 0; depth < DEPTH_MAX; depth++) {
        if (ino == dir)
            return true;
        if (ino == ROOT_INO || ns_inode(ns, ino, &inode) < 0)
            return false;
        if (is_anywhere(&inode))
            return true;
        ino = inode.parent;
    }
    return false;
}

struct change {
    uint64_t ino, seq;
};
DEFINE_VECTOR(changes, struct change);

/* Lists all changed inodes, so that their ancestors can be looked up without the lock. */
static struct changes list_changed_nodes(struct ns *ns)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct changes changes = {0};
    struct node *node;
    TAILQ_FOREACH(node, &ns->locked.dirty, dirty)
    vector_add(&changes, (struct change){.ino = node->inode.ino, .seq = node->inode.dirty_seq});
    return changes;
}

uint64_t ns_last_change(struct ns *ns, uint64_t ino)
{
    _cleanup_vector_ struct changes changes = list_changed_nodes(ns);
    /* Newest first: the first change below the path is the answer. */
    for (size_t i = changes.count; i-- > 0;)
        if (ns_may_be_below(ns, changes.at[i].ino, ino) ||
            ns_may_be_below(ns, ino, changes.at[i].ino))
            return changes.at[i].seq;
    return 0;
}

/* Returns a name of `ino` among the changed entries of the directory. */
static char *read_changed_name(struct ns *ns, uint64_t parent, uint64_t ino)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct node *dir = node_find_locked(ns, parent);
    struct entry *entry = dir ? entry_after_locked(dir, 0) : NULL;
    while (entry && entry->ino != ino)
        entry = entry_next_locked(entry);
    return entry ? xasprintf("%.*s", (int)entry->name_len, entry->name) : NULL;
}

char *ns_path(struct ns *ns, uint64_t ino)
{
    char *path = xstrdup(ino == ROOT_INO ? "/" : "");
    for (unsigned depth = 0; depth < DEPTH_MAX && ino != ROOT_INO; depth++) {
        struct ns_inode inode;
        bool known = ns_inode(ns, ino, &inode) == 0;
        _cleanup_free_ char *name = known ? read_changed_name(ns, inode.parent, ino) : NULL;
        if (known && !name)
            name = view_name(ns->view, inode.parent, ino);
        char *before = name ? xasprintf("/%s%s", name, path)
                            : xasprintf("inode %llu%s", (unsigned long long)ino, path);
        free(path);
        path = before;
        if (!name)
            break;
        ino = inode.parent;
    }
    return path;
}
