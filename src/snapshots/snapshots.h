// SPDX-License-Identifier: Apache-2.0
/* Earlier states of a prefix that stay: those that -o keep chooses, and those with a name.
 *
 *   policy.c  -o keep: which states stay
 *   known.c   what heads and names say, from one pass of gc to the next
 *   kept.h    which heads stay for longer than the grace, and which runs and packs they need: for
 * gc naming.c  snapshots get names, other names, and lose them
 *
 * What is not said to be of any thread is of the thread that publishes. */
#pragma once

#include "prefix/prefix.h"

struct kept;
struct snapshots;
struct view_remote_pack;

/* The remote, which is a later component, as this one asks for it. */
struct snapshots_remote {
    void *arg; /* goes back with each call */
    /* Before something is deleted or named: -ESTALE: another writer has the prefix; -EAGAIN. */
    int (*check_ours)(void *arg);
    /* The head becomes the newest one of the prefix. -ESTALE: another store created one. */
    int (*publish)(void *arg, struct head *head);
    /* Has the thread that publishes call snapshots_tick() soon. Any thread. */
    void (*kick)(void *arg);
    /* Is nothing published any more? Any thread. */
    bool (*is_over)(void *arg);
};

/* The prefix is lent. */
struct snapshots *snapshots_new(struct prefix *prefix, const struct snapshots_remote *remote);
void snapshots_free(struct snapshots *snapshots); /* NULL is fine */
/* This store published the head. */
void snapshots_note_head(struct snapshots *snapshots, const struct head *head);

/* --- what stays, when gc last looked ---------------------------------------------------------- */

/* A pass of gc looked: `bytes` are those of packs that only heads that stay need. */
void snapshots_note_kept(struct snapshots *snapshots, const struct kept *kept, uint64_t bytes);
/* Heads that stay for longer than the grace. Any thread. */
void snapshots_totals(struct snapshots *snapshots, uint64_t *ret_heads, uint64_t *ret_bytes);
/* Calls `fn` with each of them, and the bytes of packs that no other head needs. Any thread. */
void snapshots_each(struct snapshots *snapshots,
                    void (*fn)(uint64_t head, uint64_t bytes, void *arg), void *arg);

/* Adds the heads that need the pack, which is unreferenced; `slack`: see kept.h. Any thread. */
void snapshots_needing(struct snapshots *snapshots, const struct view_remote_pack *pack,
                       int64_t slack, struct numbers *ret);

/* The head stays, whatever the policy says, until it was let go as often as it was held: someone
 * reads its state. A pass of gc that is under way may have chosen without it. Any thread. */
void snapshots_hold(struct snapshots *snapshots, uint64_t head);
void snapshots_let_go(struct snapshots *snapshots, uint64_t head);

/* --- naming.c --------------------------------------------------------------------------------- */

struct naming {
    enum { NAMING_CREATE, NAMING_RENAME, NAMING_DELETE } kind;
    char name[64], new_name[64]; /* sane ones: format/snapshot.h */
    uint64_t seq;                /* NAMING_CREATE: the head has this operation */
};
struct naming_state {
    uint64_t number; /* of the last request; 0: there was none */
    bool running;
    int error;
    char text[256];    /* why, where there was an error */
    uint64_t head;     /* that has the name now */
    int64_t published; /* that head was; ns since 1970 */
};
/* Any thread: asks for it. -EBUSY: another request is running; -EROFS: a mount that only reads;
 * -EOPNOTSUPP: several nodes write the prefix. */
CAIRN_MUST_CHECK int snapshots_ask(struct snapshots *snapshots, const struct naming *naming,
                                   uint64_t *ret_number);
/* Any thread. */
void snapshots_look(struct snapshots *snapshots, struct naming_state *ret);
/* Between two rounds: carries a request out, once the newest head has what it needs. `published`:
 * the last operation that it has. -ESTALE: another writer has the prefix. */
CAIRN_MUST_CHECK int snapshots_tick(struct snapshots *snapshots, uint64_t published);
