// SPDX-License-Identifier: Apache-2.0
/* Known directories, which were listed or created in this mount: the overlay keeps clean entries of
 * them, equal to the view's.
 *
 * For a directory that is known up to a cookie, the trees have all its entries up to that cookie,
 * and the view is not read for them. This remains true: new entries are added through the overlay,
 * and retired entries stay as clean ones. When clean entries use too much memory they are dropped,
 * from the end of the directory that was created or listed least recently; a directory that alone
 * would use more than half is known only up to that limit. */
#include "overlay/internal.h"

#define MALLOC_BYTES 16u  /* about the overhead of the heap for each block */
#define TRIM_ENTRIES 256u /* entries dropped in one step, so that the lock is not held for long */

size_t entry_bytes(const struct entry *entry)
{
    return sizeof *entry + entry->name_len + MALLOC_BYTES;
}

static bool takes_more_locked(const struct ns *ns, const struct node *dir)
{
    check_held(&ns->locked.lock);
    return dir->clean_bytes < ns->locked.clean_max / 2;
}

/* A known directory is charged for its node, too. */
static void charge_node_locked(struct ns *ns, struct node *dir, int sign)
{
    check_held(&ns->locked.lock);
    size_t bytes = sizeof *dir + sizeof(UT_hash_bucket) + MALLOC_BYTES;
    dir->clean_bytes += sign < 0 ? -bytes : bytes;
    ns->locked.clean_bytes += sign < 0 ? -bytes : bytes;
}

void known_set_locked(struct ns *ns, struct node *dir, uint64_t known_to)
{
    check_held(&ns->locked.lock);
    if (dir->known_to) {
        TAILQ_REMOVE(&ns->locked.known, dir, known);
        charge_node_locked(ns, dir, -1);
    }
    dir->known_to = known_to;
    if (known_to) {
        TAILQ_INSERT_TAIL(&ns->locked.known, dir, known);
        charge_node_locked(ns, dir, 1);
    }
}

/* Drops the last clean entries; the entries before them stay known. May free the node. */
static void trim_locked(struct ns *ns, struct node *dir)
{
    check_held(&ns->locked.lock);
    uint64_t known_to = dir->known_to;
    struct entry *entry = entry_last_locked(dir, known_to), *before;
    for (unsigned count = 0; entry && count < TRIM_ENTRIES; entry = before) {
        before = entry_before_locked(entry);
        if (entry->seq != 0)
            continue;
        known_to = entry->cookie - 1;
        entry_free_locked(ns, entry);
        count++;
    }
    /* The directory keeps its place in the list: this was no use of it. */
    if (entry)
        dir->known_to = known_to;
    else
        known_set_locked(ns, dir, 0);
    node_settle_locked(ns, dir);
}

static void bound_all_locked(struct ns *ns)
{
    check_held(&ns->locked.lock);
    while (ns->locked.clean_bytes > ns->locked.clean_max)
        trim_locked(ns, TAILQ_FIRST(&ns->locked.known));
}

/* Adds entries behind the known ones: `listed` has all entries of view and trees up to the cookie
 * `to`, and ns_retire() was not called since the view was read. */
void known_extend_locked(struct ns *ns, struct node *dir, const struct listed *listed, size_t count,
                         uint64_t to)
{
    check_held(&ns->locked.lock);
    uint64_t known_to = dir->known_to;
    size_t i;
    for (i = 0; i < count && takes_more_locked(ns, dir); i++) {
        if (listed[i].of_view)
            entry_add_clean_locked(ns, dir, &listed[i]);
        known_to = listed[i].entry.cookie;
    }
    known_set_locked(ns, dir, i == count ? to : known_to);
    bound_all_locked(ns);
}

/* The entry is now equal to the view's, or the view has no such name either. */
void known_retire_locked(struct ns *ns, struct entry *entry)
{
    check_held(&ns->locked.lock);
    struct node *dir = entry->dir;
    if (entry->ino == 0 || entry->cookie > dir->known_to) {
        entry_free_locked(ns, entry);
        node_settle_locked(ns, dir);
        bound_all_locked(ns);
        return;
    }
    entry_clean_locked(ns, entry);
    if (!takes_more_locked(ns, dir))
        trim_locked(ns, dir);
    bound_all_locked(ns);
}

void ns_set_clean_max(struct ns *ns, size_t bytes)
{
    LOCK_SCOPE(&ns->locked.lock);
    ns->locked.clean_max = bytes;
    bound_all_locked(ns);
}

size_t ns_clean_bytes(struct ns *ns)
{
    LOCK_SCOPE(&ns->locked.lock);
    return ns->locked.clean_bytes;
}
