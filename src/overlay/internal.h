// SPDX-License-Identifier: Apache-2.0
/* Inside the overlay. No other component includes this. */
#pragma once

#include <bsd/sys/cdefs.h>
#include <bsd/sys/tree.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <uthash.h>

#include "base/lock.h"
#include "overlay/ns.h"

#define SEQ_NASCENT UINT64_MAX /* of changes that are not part of history yet */

/* The overlay's state of one name in a directory. */
struct entry {
    RB_ENTRY(entry) by_name;
    RB_ENTRY(entry) by_cookie; /* only while ino != 0 */
    /* Linked only while the entry is a change of the history: seq is neither 0 nor SEQ_NASCENT. */
    TAILQ_ENTRY(entry) dirty;
    struct node *dir;
    uint64_t ino; /* 0: the name does not exist */
    uint64_t cookie;
    uint64_t seq;   /* of the last change; 0: clean, equal to the view's entry */
    uint64_t below; /* nascent: seq of the change that this entry covers; 0: none */
    uint32_t type;
    uint16_t name_len;
    char name[];
};

RB_HEAD(name_tree, entry);
RB_HEAD(cookie_tree, entry);
TAILQ_HEAD(entry_list, entry);

struct xattr {
    TAILQ_ENTRY(xattr) link;
    uint64_t seq;
    bool removed;
    uint16_t name_len;
    uint32_t value_len;
    char *name;
    void *value;
};

TAILQ_HEAD(xattr_list, xattr);

struct node {
    UT_hash_handle hh;
    TAILQ_ENTRY(node) dirty; /* linked only while dirty_seq != 0 */
    struct ns_inode inode;
    bool gone; /* removed; the view may still have it */
    uint32_t holds;
    struct name_tree names; /* of a directory: entries that differ from the view, and clean ones */
    struct cookie_tree cookies;
    uint32_t nascent_names; /* of a directory: entries that are no part of history yet */
    /* of a directory: the trees have every entry with a cookie up to this one; UINT64_MAX: all
     * entries */
    uint64_t known_to;
    TAILQ_ENTRY(node) known; /* linked only while known_to != 0 */
    /* of a directory: bytes of its clean entries, and of the node itself while the directory is
     * known */
    size_t clean_bytes;
    struct xattr_list xattrs;
    struct entry *birth_entry; /* nascent: the entry of its name */
    uint64_t covers;           /* nascent: the inode that has this name in the history; 0: none */
    char *target;              /* target of a symbolic link that the view lacks */
    uint32_t target_len;
};

TAILQ_HEAD(node_list, node);

/* One entry of a directory listing. */
struct listed {
    struct view_entry entry;
    bool of_view; /* from the view: the overlay has no entry of this name */
    uint16_t name_len;
    char name[NAME_LEN_MAX];
};

struct ns {
    struct view *view;
    bool is_following; /* nodes without changes of their own are read from the view each time */
    bool has_nodes;    /* and the view shows the writes of several nodes */
    struct {
        struct cairn_mutex lock;
        struct node *nodes;
        struct node_list dirty;          /* in order of dirty_seq */
        struct entry_list dirty_entries; /* in order of seq */
        /* counts calls of ns_retire(): a read of the view from before the last one may be
         * outdated */
        uint64_t retired;
        size_t size;
        struct node_list known; /* directories with known_to != 0, least recently listed first */
        size_t clean_bytes, clean_max;
    } locked;
};

/* ns.c */
struct node *node_find_locked(struct ns *ns, uint64_t ino);
struct node *node_new_locked(struct ns *ns, uint64_t ino);
void node_settle_locked(struct ns *ns, struct node *node);
void node_touch_locked(struct ns *ns, struct node *node, uint64_t seq);
struct entry *entry_find_locked(struct node *dir, const char *name, size_t name_len);
struct entry *entry_set_locked(struct ns *ns, struct node *dir, const char *name, size_t name_len,
                               const struct view_entry *state, uint64_t seq);
void entry_add_clean_locked(struct ns *ns, struct node *dir, const struct listed *listed);
void entry_clean_locked(struct ns *ns, struct entry *entry);
void entry_free_locked(struct ns *ns, struct entry *entry);
struct entry *entry_after_locked(struct node *dir, uint64_t cookie);
struct entry *entry_next_locked(struct entry *entry);
struct entry *entry_last_locked(struct node *dir, uint64_t cookie);
struct entry *entry_before_locked(struct entry *entry);
struct xattr *xattr_find_locked(struct node *node, const char *name, size_t name_len);
void xattr_set_locked(struct node *node, const struct record *rec, uint64_t seq);

/* known.c */
size_t entry_bytes(const struct entry *entry);
void known_set_locked(struct ns *ns, struct node *dir, uint64_t known_to);
void known_extend_locked(struct ns *ns, struct node *dir, const struct listed *listed, size_t count,
                         uint64_t to);
void known_retire_locked(struct ns *ns, struct entry *entry);
