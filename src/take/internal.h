// SPDX-License-Identifier: Apache-2.0
/* Inside take. */
#pragma once

#include <stdatomic.h>
#include <uthash.h>

#include "base/event.h"
#include "base/lock.h"
#include "base/vector.h"
#include "take/take.h"
#include "view/view.h"

DEFINE_VECTOR(take_inos, uint64_t);

struct ino_set {
    UT_hash_handle hh;
    uint64_t ino;
    uint64_t local; /* the inode of this node that stands for `ino`, of an alias */
};

struct take {
    struct take_options options;
    struct commit *commit; /* of the own store */
    struct ns *ns;
    struct touched *touched;
    struct store *others; /* the store that follows the union; NULL: not open yet */
    struct view *view;    /* of `others`: the union */
    uint64_t floor;       /* the last operation of the daemons before this one */
    bool has_floor;       /* the union has the operations up to `floor` */
    /* directories of the union for which this node has a directory with another number */
    struct ino_set *aliases;
    struct ino_set *pending; /* inodes of the union that are still to be compared */
    /* Inodes of this node that the kernel is to be notified of: those with changed attributes, and
     * those with changed content. It is not notified of names: the notification would wait for the
     * directory's lock, which is held by a call that this daemon has to answer; the kernel caches
     * names only for a second. */
    struct take_inos changed, rewritten;
    struct take_inos nameless; /* inodes that lost their last names, and have not ended yet */
    char later[512];           /* the name or inode that was postponed last, and the reason */
    /* monotonic ns: since when something is postponed although everything that this node did is
     * merged; 0: nothing is */
    int64_t later_since;
    pthread_t thread;
    bool is_started;
    _Atomic bool stops;
    _Atomic bool is_open;    /* the store that follows is open, or there is no union yet */
    _Atomic bool has_looked; /* a turn has shown the state of the union, or there is no union yet */
    struct event event;
    struct {
        struct cairn_mutex lock; /* a leaf */
        struct take_inos noted;  /* inodes of the union that changed since the last turn */
        bool all;                /* all inodes of the union are to be compared */
        uint64_t heads;          /* number of heads that the store that follows has shown */
        struct take_status status;
    } locked;
};

/* The result for an entry, or an inode. Negative: an error. */
enum taken {
    TAKEN_DONE,
    TAKEN_LATER, /* this node changed it, and no head has the change yet */
};

/* Returns TAKEN_LATER and records the reason; `name`: of the entry, NULL for an inode. */
int take_later(struct take *take, uint64_t ino, const char *name, const char *why);
void ino_set_add(struct ino_set **set, uint64_t ino, uint64_t local);
void ino_set_clear(struct ino_set **set);

/* --- inodes.c: with the gate closed, fs_taken_begin() --- */

/* Returns the directory of this node for a directory of the union. -ENOENT: there is none yet. */
CAIRN_MUST_CHECK int take_local_dir(struct take *take, uint64_t ino, uint64_t *ret);
/* Sets attributes, extended attributes, and the version of another node's file to those of the
 * union. enum taken. */
CAIRN_MUST_CHECK int take_inode(struct take *take, uint64_t ino);
/* Creates an inode that only the union has. */
CAIRN_MUST_CHECK int take_new_inode(struct take *take, const struct view_inode *inode, uint64_t dir,
                                    const char *name, uint16_t name_len);
/* Ends the inodes that have no name any more, at once or when they are closed. The kernel may still
 * know them, and then gets an error, as for any file that another node removed. */
void take_end_nameless(struct take *take);
CAIRN_MUST_CHECK int take_commit(struct take *take, struct record *rec);

/* --- names.c ---------------------------------------------------------------------------------- */

/* Makes the entries of a directory equal to the union's. enum taken. */
CAIRN_MUST_CHECK int take_directory(struct take *take, uint64_t ino);
