// SPDX-License-Identifier: Apache-2.0
/* Who writes the prefix, and their feeds: the stays of nodes, each from joining to leaving, with
 * the feeds that the union does not contain yet.
 *
 * A stay *determines* a round if its feeds say which of its operations was the newest at that
 * round. The union can be at a round that all stays determine, and at no other. So a stay that does
 * not report, or whose feed is not credible, holds the union back, and is named.
 *
 * A node that is silent for longer than the lease may have died with operations that nobody else
 * has, and on which others may rely. So a verdict ends its stay, and with it a *generation*: all
 * nodes go back to the newest round that it determines, too. Feeds of an earlier generation no
 * longer count then.
 *
 * Writers are listed before feeds, and the time is read before both: a node that joins later
 * numbers nothing before that time. One thread. */
#pragma once

#include "nodes/hints.h"

DEFINE_VECTOR(told_feeds, struct told);

struct stay {
    uint64_t epoch;
    uint32_t node;
    char holder[HOLDER_MAX];
    int64_t lease_ns; /* of its node; 0: not known */
    /* of its node, when its entry was read; 0: not known, so it reports no rounds */
    int64_t clock_error_ns;
    /* last sign of life by the medium's clock: when it joined, wrote its heartbeat, or put its
     * newest feed */
    int64_t heard_of;
    bool has_row; /* in the newest head */
    struct head_writer row;
    bool has_totals;
    struct told_totals totals; /* of the row's feed */
    struct told_feeds feeds;   /* after the row, each follows the preceding one */
    uint64_t doubted;          /* round of a feed that did not follow, when it was read once */
    uint64_t refused;          /* round of a feed that is not counted; 0: none */
    uint64_t outdated;         /* rounds up to it were reported in an earlier generation */
    int64_t again_at;          /* monotonic: when to read that feed again */
    const char *why;           /* why it is not counted; NULL: it was not read, or is fine */
    int64_t age_ns;            /* at the last judgement */
    bool is_silent;
    bool is_early; /* it told of a round that was to come; that was said */
    /* its entry is damaged, so it may belong to any stay: this one stands for it */
    bool is_unknown;
};
DEFINE_VECTOR(stay_list, struct stay);

/* An object of writers/. Its content, except the time, is constant. */
struct entry_seen {
    uint64_t number;
    uint64_t epoch; /* of the stay; 0: it cannot be read */
    uint32_t node;
    int64_t lease_ns, clock_error_ns;
    char holder[HOLDER_MAX];
    int64_t modified;
    int64_t again_at; /* monotonic: when to read it again */
    bool is_there;
};

struct stays {
    struct prefix *prefix;
    struct busy *busy;
    int64_t lease_ns;
    struct stay_list list; /* by epoch; without those replaced by a later stay of their node */
    VECTOR(struct entry_seen) entries; /* by number */
    struct numbers ended;              /* stays with a verdict; sorted */
    struct hint_list hints;            /* of feeds that are not merged */
    uint64_t generation;               /* of the newest head */
    size_t bytes, bytes_max;           /* of feeds kept in memory */
    int64_t judge_at, ended_at;        /* monotonic: when to judge, and to list `ended`, again */
    bool most_are_silent;
};

#define WRITERS "writers"
/* Reads an object of writers/, as prefix_read_object(). Any thread. */
CAIRN_MUST_CHECK int writer_entry_read(struct prefix *prefix, uint64_t number,
                                       struct writer_entry *ret);

void stays_init(struct stays *stays, struct prefix *prefix, struct busy *busy, int64_t lease_ns);
void stays_done(struct stays *stays);

/* Starts with the rows of the head, and no feed. */
void stays_begin(struct stays *stays, const struct head *head);
/* Lists writers, then feeds, and reads new ones. -EAGAIN: they changed meanwhile. */
CAIRN_MUST_CHECK int stays_look(struct stays *stays, const struct head *head);
/* The stay of that epoch. NULL: none is known. */
struct stay *stays_find(const struct stays *stays, uint64_t epoch);
/* The node that reserved the epoch; 0: none did. */
uint32_t stays_node_of(const struct stays *stays, uint64_t epoch);
/* Does the inode have a number reserved by the node of this stay? */
bool stays_owns(const struct stays *stays, uint64_t epoch, uint64_t ino);

/* The newest round that the stay determines, after `cut` and up to `round`; 0: none. */
uint64_t stay_round(const struct stay *stay, uint64_t round, uint64_t cut);
/* Returns the last round that the stay has reported; 0: none. */
uint64_t stay_told_up_to(const struct stay *stay);
/* How many feeds of the stay a head for that round includes. */
size_t stay_feeds_up_to(const struct stay *stay, uint64_t round);
static inline bool stay_has_left(const struct stay *stay)
{
    return (stay->has_row && stay->row.state == HEAD_WRITER_ENDED) ||
           (stay->feeds.count > 0 && stay->feeds.at[stay->feeds.count - 1].flags & FEED_LEAVES);
}

/* Fills a head for that round: its rows, sums and largest numbers. Rows of dead stays say that they
 * ended. -E2BIG: too many rows. -EAGAIN: a feed of the rows cannot be read now. */
CAIRN_MUST_CHECK int stays_fill_head(struct stays *stays, uint64_t round, struct head *head);
/* The head was created: drops the feeds that it includes. */
void stays_merged(struct stays *stays, const struct head *head);

/* --- common_round.c --------------------------------------------------------------------------- */

/* As stay_round(), of all stays together; no hint is contradicted there. */
uint64_t stays_round(const struct stays *stays, uint64_t round, uint64_t cut);
/* Names nodes whose rounds contradict a hint, once for each. */
void stays_say_contradictions(struct stays *stays);

/* --- verdicts.c ------------------------------------------------------------------------------- */

/* Names a node that told of a round that was to come by the clock of the medium, once. */
void stay_say_early(struct stay *stay, const struct told_wish *wish);
/* Logs which nodes fell silent, and which report again. */
CAIRN_MUST_CHECK int stays_judge(struct stays *stays, int64_t now_monotonic);

/* Puts the verdict that this epoch is over. 0 also if it exists already. */
CAIRN_MUST_CHECK int ended_put(struct prefix *prefix, uint64_t epoch, enum ended_why why,
                               uint64_t by);
CAIRN_MUST_CHECK int stays_look_at_ended(struct stays *stays, int64_t now_monotonic);
/* Ends the stays that were silent for longer than the lease at the last judgement; none if more
 * than half are. `by`: this node's epoch. */
CAIRN_MUST_CHECK int stays_give_verdicts(struct stays *stays, uint64_t by);
/* The longest lease of all nodes. */
int64_t stays_lease(const struct stays *stays);
/* Returns whether the stay ended without leaving, and no head records that yet. */
bool stay_is_dead(const struct stays *stays, const struct stay *stay);
bool stays_have_dead(const struct stays *stays);
