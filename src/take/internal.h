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
    uint64_t local; /* of an alias */
};

struct take {
    struct take_options options;
    struct commit *commit; /* of the own store */
    struct ns *ns;
    struct touched *touched;
    struct store *others;    /* NULL: not open yet */
    struct view *view;       /* of the others: the union */
    uint64_t floor;          /* the operations of daemons before this one */
    bool has_floor;          /* the union has them */
    struct ino_set *aliases; /* directories of the union that another one of this node stands for */
    struct ino_set *pending; /* inodes of the union that are to be looked at */
    /* Here, what the kernel is to be told of: whose attributes changed, and of these whose content.
     * Not of names: it would be waited for by the directory's lock, which a call holds that this
     * daemon has to answer; it keeps them for a second only. */
    struct take_inos changed, rewritten;
    struct take_inos nameless; /* that lost their last names, and have not ended yet */
    char later[512];           /* what was left for later last, and why */
    int64_t later_since; /* monotonic ns, though all that this node did is merged; 0: nothing is */
    pthread_t thread;
    bool is_started;
    _Atomic bool stops;
    _Atomic bool is_open;    /* the store that follows is there, or there is no union yet */
    _Atomic bool has_looked; /* what the union had is shown */
    struct event event;
    struct {
        struct cairn_mutex lock; /* a leaf */
        struct take_inos noted;  /* of the union: changed since the last look */
        bool all;                /* all of it is to be looked at */
        uint64_t heads;          /* that the others showed */
        struct take_status status;
    } locked;
};

/* What became of an entry, or an inode. Negative: an error. */
enum taken {
    TAKEN_DONE,
    TAKEN_LATER, /* this node changed it, and no head has that yet */
};

/* TAKEN_LATER; `name`: what it is about, of an inode NULL. */
int take_later(struct take *take, uint64_t ino, const char *name, const char *why);
void ino_set_add(struct ino_set **set, uint64_t ino, uint64_t local);
void ino_set_clear(struct ino_set **set);

/* --- inodes.c: with the gate closed, fs_taken_begin() ----------------------------------------- */

/* The directory of this node for one of the union. -ENOENT: there is none yet. */
CAIRN_MUST_CHECK int take_local_dir(struct take *take, uint64_t ino, uint64_t *ret);
/* Attributes, extended ones, and the version of another node's file become those of the union.
 * enum taken. */
CAIRN_MUST_CHECK int take_inode(struct take *take, uint64_t ino);
/* Makes an inode that only the union has. */
CAIRN_MUST_CHECK int take_new_inode(struct take *take, const struct view_inode *inode, uint64_t dir,
                                    const char *name, uint16_t name_len);
/* What has no name any more ends, or ends when it is closed. The kernel may know it still, and gets
 * an error for it then, as for any file that another node removed. */
void take_end_nameless(struct take *take);
CAIRN_MUST_CHECK int take_commit(struct take *take, struct record *rec);

/* --- names.c ---------------------------------------------------------------------------------- */

/* The entries of a directory become those of the union's. enum taken. */
CAIRN_MUST_CHECK int take_directory(struct take *take, uint64_t ino);
