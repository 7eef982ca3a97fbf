// SPDX-License-Identifier: Apache-2.0
/* Earlier states of a prefix that stay: those that -o keep chooses, and those with a name.
 *
 *   policy.c  -o keep: which states stay
 *   known.c   the content of heads and names, kept from one pass of gc to the next
 *   kept.h    for gc: which heads stay longer than the grace, and which runs and packs they need
 *   naming.c  names of snapshots are added, changed and removed
 *
 * Calls without "any thread" are for the thread that publishes. */
#pragma once

#include "prefix/prefix.h"

struct kept;
struct snapshots;

/* The operations on the remote that this component needs: the remote is a later component. */
struct snapshots_remote {
    void *arg; /* passed to each call */
    /* Called before an object is deleted or a head is named: -ESTALE: another writer has the
     * prefix; -EAGAIN. */
    int (*check_ours)(void *arg);
    /* Publishes the head as the newest one of the prefix. -ESTALE: another store created one. */
    int (*publish)(void *arg, struct head *head);
    /* Makes the thread that publishes call snapshots_tick() soon. Any thread. */
    void (*kick)(void *arg);
    /* Returns whether nothing is published any more. Any thread. */
    bool (*is_over)(void *arg);
};

/* The prefix stays the caller's. */
struct snapshots *snapshots_new(struct prefix *prefix, const struct snapshots_remote *remote);
void snapshots_free(struct snapshots *snapshots); /* NULL: no effect */
/* This store published the head. */
void snapshots_note_head(struct snapshots *snapshots, const struct head *head);

/* --- states that stay, by the last pass of gc ------------------------------------------------- */

/* A pass of gc has chosen the heads that stay: `bytes` are those of packs that only such heads
 * need. */
void snapshots_note_kept(struct snapshots *snapshots, const struct kept *kept, uint64_t bytes);
/* Returns how many heads stay longer than the grace, and the bytes. Any thread. */
void snapshots_totals(struct snapshots *snapshots, uint64_t *ret_heads, uint64_t *ret_bytes);
/* Calls `fn` with each head that stays, and the bytes of packs that no other head needs. Any
 * thread. */
void snapshots_each(struct snapshots *snapshots,
                    void (*fn)(uint64_t head, uint64_t bytes, void *arg), void *arg);

/* Keeps the head, independent of the policy, until it was released as often as it was held: a
 * reader reads its state. A pass of gc that is under way may have chosen without it. Any thread. */
void snapshots_hold(struct snapshots *snapshots, uint64_t head);
void snapshots_let_go(struct snapshots *snapshots, uint64_t head);

/* --- naming.c --------------------------------------------------------------------------------- */

struct naming {
    enum { NAMING_CREATE, NAMING_RENAME, NAMING_DELETE } kind;
    char name[64], new_name[64]; /* valid names: format/snapshot.h */
    uint64_t seq;                /* NAMING_CREATE: the head must have this operation */
    bool is_local;               /* for store/local_snapshots.h, not for this component */
};
struct naming_state {
    uint64_t number; /* of the last request; 0: none */
    bool running;
    int error;
    char text[256];    /* the reason of an error */
    uint64_t head;     /* the head that has the name now */
    int64_t published; /* when that head was published; ns since 1970 */
};
/* Any thread: requests a change of names. -EBUSY: another request is running; -EROFS: a mount that
 * only reads; -EOPNOTSUPP: several nodes write the prefix. */
CAIRN_MUST_CHECK int snapshots_ask(struct snapshots *snapshots, const struct naming *naming,
                                   uint64_t *ret_number);
/* Any thread. */
void snapshots_look(struct snapshots *snapshots, struct naming_state *ret);
/* Called between two rounds: carries out a request, once the newest head has the operation that it
 * needs. `published`: the last operation of that head. -ESTALE: another writer has the prefix. */
CAIRN_MUST_CHECK int snapshots_tick(struct snapshots *snapshots, uint64_t published);
