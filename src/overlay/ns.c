// SPDX-License-Identifier: Apache-2.0
/* Nodes and entries of the overlay: lookup, creation, lifetime, retirement. */
#include "overlay/internal.h"

static int compare_names(const struct entry *a, const struct entry *b)
{
    if (a->name_len != b->name_len)
        return a->name_len < b->name_len ? -1 : 1;
    return memcmp(a->name, b->name, a->name_len);
}

static int compare_cookies(const struct entry *a, const struct entry *b)
{
    return a->cookie < b->cookie ? -1 : a->cookie > b->cookie;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
RB_GENERATE_INTERNAL(name_tree, entry, by_name, compare_names, static)
RB_GENERATE_INTERNAL(cookie_tree, entry, by_cookie, compare_cookies, static)
#pragma GCC diagnostic pop

struct ns *ns_new(struct view *view)
{
    struct ns *ns = xcalloc(1, sizeof *ns);
    ns->view = view;
    mutex_init(&ns->locked.lock, LOCK_NAMESPACE);
    TAILQ_INIT(&ns->locked.dirty);
    TAILQ_INIT(&ns->locked.dirty_entries);
    TAILQ_INIT(&ns->locked.known);
    ns->locked.clean_max = NS_CLEAN_BYTES;
    return ns;
}

struct node *node_find_locked(struct ns *ns, uint64_t ino)
{
    check_held(&ns->locked.lock);
    struct node *node = NULL;
    HASH_FIND(hh, ns->locked.nodes, &ino, sizeof ino, node);
    return node;
}

struct node *node_new_locked(struct ns *ns, uint64_t ino)
{
    check_held(&ns->locked.lock);
    struct node *node = xcalloc(1, sizeof *node);
    node->inode.ino = ino;
    RB_INIT(&node->names);
    RB_INIT(&node->cookies);
    TAILQ_INIT(&node->xattrs);
    HASH_ADD(hh, ns->locked.nodes, inode.ino, sizeof node->inode.ino, node);
    ns->locked.size++;
    return node;
}

static void xattr_free(struct node *node, struct xattr *xattr)
{
    TAILQ_REMOVE(&node->xattrs, xattr, link);
    free(xattr->name);
    free(xattr->value);
    free(xattr);
}

static void node_free_locked(struct ns *ns, struct node *node)
{
    check_held(&ns->locked.lock);
    struct xattr *xattr;
    while ((xattr = TAILQ_FIRST(&node->xattrs)))
        xattr_free(node, xattr);
    if (node->inode.dirty_seq)
        TAILQ_REMOVE(&ns->locked.dirty, node, dirty);
    known_set_locked(ns, node, 0);
    HASH_DEL(ns->locked.nodes, node);
    ns->locked.size--;
    free(node->target);
    free(node);
}

/* Frees a node that has no information beyond the view, and that nothing holds. */
void node_settle_locked(struct ns *ns, struct node *node)
{
    check_held(&ns->locked.lock);
    bool lives_unseen = node->inode.nascent && !node->gone;
    if (node->holds == 0 && node->inode.dirty_seq == 0 && !lives_unseen && RB_EMPTY(&node->names))
        node_free_locked(ns, node);
}

void node_touch_locked(struct ns *ns, struct node *node, uint64_t seq)
{
    check_held(&ns->locked.lock);
    if (node->inode.nascent || seq == SEQ_NASCENT)
        return;
    if (node->inode.dirty_seq)
        TAILQ_REMOVE(&ns->locked.dirty, node, dirty);
    node->inode.dirty_seq = seq;
    TAILQ_INSERT_TAIL(&ns->locked.dirty, node, dirty);
}

struct entry *entry_find_locked(struct node *dir, const char *name, size_t name_len)
{
    check_rank_held(LOCK_NAMESPACE);
    _Alignas(struct entry) char room[sizeof(struct entry) + NAME_LEN_MAX];
    struct entry *probe = (struct entry *)(void *)room;
    if (!dir || name_len > NAME_LEN_MAX)
        return NULL;
    probe->name_len = (uint16_t)name_len;
    memcpy(probe->name, name, name_len);
    return RB_FIND(name_tree, &dir->names, probe);
}

static struct entry *ns_entry_new_locked(struct node *dir, const char *name, size_t name_len)
{
    check_rank_held(LOCK_NAMESPACE);
    struct entry *entry = xcalloc(1, sizeof *entry + name_len);
    entry->dir = dir;
    entry->name_len = (uint16_t)name_len;
    memcpy(entry->name, name, name_len);
    check(RB_INSERT(name_tree, &dir->names, entry) == NULL);
    return entry;
}

/* Adds the entry to the indexes by cookie and seq. */
static void entry_enlist_locked(struct ns *ns, struct entry *entry)
{
    check_held(&ns->locked.lock);
    if (entry->ino)
        check(RB_INSERT(cookie_tree, &entry->dir->cookies, entry) == NULL);
    if (entry->seq == 0) {
        entry->dir->clean_bytes += entry_bytes(entry);
        ns->locked.clean_bytes += entry_bytes(entry);
        return;
    }
    ns->locked.size++;
    if (entry->seq == SEQ_NASCENT)
        entry->dir->nascent_names++;
    else
        TAILQ_INSERT_TAIL(&ns->locked.dirty_entries, entry, dirty);
}

static void entry_unlist_locked(struct ns *ns, struct entry *entry)
{
    check_held(&ns->locked.lock);
    if (entry->ino)
        RB_REMOVE(cookie_tree, &entry->dir->cookies, entry);
    if (entry->seq == 0) {
        entry->dir->clean_bytes -= entry_bytes(entry);
        ns->locked.clean_bytes -= entry_bytes(entry);
        return;
    }
    ns->locked.size--;
    if (entry->seq == SEQ_NASCENT)
        entry->dir->nascent_names--;
    else
        TAILQ_REMOVE(&ns->locked.dirty_entries, entry, dirty);
}

/* Sets the overlay's state of a name; NULL: the name is removed. */
struct entry *entry_set_locked(struct ns *ns, struct node *dir, const char *name, size_t name_len,
                               const struct view_entry *state, uint64_t seq)
{
    check_held(&ns->locked.lock);
    struct entry *entry = entry_find_locked(dir, name, name_len);
    uint64_t below = 0;
    if (entry) {
        below = entry->seq == SEQ_NASCENT ? entry->below : entry->seq;
        entry_unlist_locked(ns, entry);
    } else {
        entry = ns_entry_new_locked(dir, name, name_len);
    }
    entry->ino = state ? state->ino : 0;
    entry->cookie = state ? state->cookie : 0;
    entry->type = state ? state->type : 0;
    entry->seq = seq;
    entry->below = seq == SEQ_NASCENT ? below : 0;
    entry_enlist_locked(ns, entry);
    return entry;
}

/* Adds the view's entry of a name of which the overlay has none. */
void entry_add_clean_locked(struct ns *ns, struct node *dir, const struct listed *listed)
{
    check_held(&ns->locked.lock);
    if (entry_find_locked(dir, listed->name, listed->name_len))
        return;
    struct entry *entry = ns_entry_new_locked(dir, listed->name, listed->name_len);
    entry->ino = listed->entry.ino;
    entry->cookie = listed->entry.cookie;
    entry->type = listed->entry.type;
    entry_enlist_locked(ns, entry);
}

/* The entry is equal to the view's now. */
void entry_clean_locked(struct ns *ns, struct entry *entry)
{
    check_held(&ns->locked.lock);
    entry_unlist_locked(ns, entry);
    entry->seq = entry->below = 0;
    entry_enlist_locked(ns, entry);
}

void entry_free_locked(struct ns *ns, struct entry *entry)
{
    check_held(&ns->locked.lock);
    entry_unlist_locked(ns, entry);
    RB_REMOVE(name_tree, &entry->dir->names, entry);
    free(entry);
}

struct entry *entry_after_locked(struct node *dir, uint64_t cookie)
{
    check_rank_held(LOCK_NAMESPACE);
    struct entry probe = {.cookie = cookie + 1};
    return RB_NFIND(cookie_tree, &dir->cookies, &probe);
}

struct entry *entry_next_locked(struct entry *entry)
{
    check_rank_held(LOCK_NAMESPACE);
    return RB_NEXT(cookie_tree, NULL, entry);
}

/* Returns the entry with the largest cookie up to `cookie`. */
struct entry *entry_last_locked(struct node *dir, uint64_t cookie)
{
    check_rank_held(LOCK_NAMESPACE);
    struct entry *after = cookie < UINT64_MAX ? entry_after_locked(dir, cookie) : NULL;
    return after ? entry_before_locked(after) : RB_MAX(cookie_tree, &dir->cookies);
}

struct entry *entry_before_locked(struct entry *entry)
{
    check_rank_held(LOCK_NAMESPACE);
    return RB_PREV(cookie_tree, NULL, entry);
}

struct xattr *xattr_find_locked(struct node *node, const char *name, size_t name_len)
{
    check_rank_held(LOCK_NAMESPACE);
    struct xattr *xattr;
    TAILQ_FOREACH(xattr, &node->xattrs, link)
    if (xattr->name_len == name_len && memcmp(xattr->name, name, name_len) == 0)
        return xattr;
    return NULL;
}

void xattr_set_locked(struct node *node, const struct record *rec, uint64_t seq)
{
    check_rank_held(LOCK_NAMESPACE);
    struct xattr *old = xattr_find_locked(node, rec->name, rec->name_len);
    if (old)
        xattr_free(node, old);
    /* A nascent file has no xattr in the view that a removal would have to hide, and none that
     * history could repeat. */
    if (seq == SEQ_NASCENT && rec->type == REC_REMOVEXATTR)
        return;
    struct xattr *xattr = xcalloc(1, sizeof *xattr);
    xattr->seq = seq;
    xattr->removed = rec->type == REC_REMOVEXATTR;
    xattr->name_len = rec->name_len;
    xattr->name = xmalloc(rec->name_len);
    memcpy(xattr->name, rec->name, rec->name_len);
    xattr->value_len = rec->value_len;
    xattr->value = xmalloc(rec->value_len);
    if (rec->value_len)
        memcpy(xattr->value, rec->value, rec->value_len);
    TAILQ_INSERT_TAIL(&node->xattrs, xattr, link);
}

/* --- reading inodes --------------------------------------------------------------------------- */

static struct ns_inode ns_inode_of_view(const struct view_inode *v)
{
    return (struct ns_inode){.ino = v->ino,
                             .attrs = v->attrs,
                             .nlink = v->nlink,
                             .version = v->version,
                             .parent = v->parent,
                             .blocks_bytes = v->blocks_bytes,
                             .may_have_xattrs = v->xattrs > 0,
                             .orphan = v->nlink == 0,
                             .is_elsewhere = v->is_elsewhere};
}

void ns_set_following(struct ns *ns, bool has_nodes)
{
    ns->is_following = true;
    ns->has_nodes = has_nodes;
}

static bool speaks_for_itself(const struct ns *ns, const struct node *node)
{
    return node && !(ns->is_following && node->inode.dirty_seq == 0 && !node->inode.nascent);
}

static int read_ns_inode(struct ns *ns, uint64_t ino, struct ns_inode *ret, bool hold)
{
    for (;;) {
        mutex_lock(&ns->locked.lock);
        struct node *node = node_find_locked(ns, ino);
        uint64_t retired = ns->locked.retired;
        if (speaks_for_itself(ns, node)) {
            int r = node->gone ? -ENOENT : 0;
            *ret = node->inode;
            if (r == 0 && hold)
                node->holds++;
            mutex_unlock(&ns->locked.lock);
            return r;
        }
        mutex_unlock(&ns->locked.lock);

        struct view_inode v;
        TRY(view_inode(ns->view, ino, &v));
        *ret = ns_inode_of_view(&v);
        if (!hold)
            return 0;
        mutex_lock(&ns->locked.lock);
        /* If ns_retire() was called meanwhile, the read of the view may be outdated. */
        node = node_find_locked(ns, ino);
        bool usable = ns->locked.retired == retired && !speaks_for_itself(ns, node);
        if (usable && !node) {
            node = node_new_locked(ns, ino);
            node->inode = *ret;
        }
        if (usable)
            node->holds++;
        mutex_unlock(&ns->locked.lock);
        if (usable)
            return 0;
    }
}

int ns_inode(struct ns *ns, uint64_t ino, struct ns_inode *ret)
{
    return read_ns_inode(ns, ino, ret, false);
}

int ns_hold(struct ns *ns, uint64_t ino, struct ns_inode *ret)
{
    return read_ns_inode(ns, ino, ret, true);
}

void ns_drop(struct ns *ns, uint64_t ino)
{
    LOCK_SCOPE(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    check(node && node->holds > 0);
    node->holds--;
    node_settle_locked(ns, node);
}

/* --- retiring --------------------------------------------------------------------------------- */

static void retire_node_locked(struct ns *ns, struct node *node, uint64_t seq)
{
    check_held(&ns->locked.lock);
    struct xattr *xattr, *next;
    for (xattr = TAILQ_FIRST(&node->xattrs); xattr; xattr = next) {
        next = TAILQ_NEXT(xattr, link);
        if (xattr->seq <= seq)
            xattr_free(node, xattr);
    }
    TAILQ_REMOVE(&ns->locked.dirty, node, dirty);
    node->inode.dirty_seq = 0;
    free(node->target);
    node->target = NULL;
    node_settle_locked(ns, node);
}

static void retire_locked(struct ns *ns, uint64_t seq)
{
    check_held(&ns->locked.lock);
    ns->locked.retired++;
    struct entry *entry;
    while ((entry = TAILQ_FIRST(&ns->locked.dirty_entries)) && entry->seq <= seq)
        known_retire_locked(ns, entry);
    struct node *node;
    while ((node = TAILQ_FIRST(&ns->locked.dirty)) && node->inode.dirty_seq <= seq)
        retire_node_locked(ns, node, seq);
}

void ns_retire(struct ns *ns, uint64_t seq)
{
    LOCK_SCOPE(&ns->locked.lock);
    retire_locked(ns, seq);
}

void ns_stored(struct ns *ns, uint64_t ino)
{
    struct view_inode v;
    mutex_lock(&ns->locked.lock);
    bool is_here = node_find_locked(ns, ino) != NULL;
    mutex_unlock(&ns->locked.lock);
    if (!is_here || view_inode(ns->view, ino, &v) < 0)
        return;
    LOCK_SCOPE(&ns->locked.lock);
    struct node *node = node_find_locked(ns, ino);
    if (node)
        node->inode.blocks_bytes = v.blocks_bytes;
}

size_t ns_overlay_size(struct ns *ns)
{
    LOCK_SCOPE(&ns->locked.lock);
    return ns->locked.size;
}

void ns_free(struct ns *ns)
{
    if (!ns)
        return;
    struct node *node, *next;
    mutex_lock(&ns->locked.lock);
    HASH_ITER(hh, ns->locked.nodes, node, next)
    {
        struct entry *entry;
        while ((entry = RB_ROOT(&node->names)))
            entry_free_locked(ns, entry);
    }
    HASH_ITER(hh, ns->locked.nodes, node, next)
    node_free_locked(ns, node);
    mutex_unlock(&ns->locked.lock);
    mutex_done(&ns->locked.lock);
    free(ns);
}
