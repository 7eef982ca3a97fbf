// SPDX-License-Identifier: Apache-2.0
/* Who writes the prefix, and what they told: the stays of nodes, each from joining to leaving, with
 * the feeds that the union does not have yet.
 *
 * A round is *determined* by a stay whose feeds say which of its operations was the newest at it.
 * The union may stand at a round that all stays determine, and at no other. So one that does not
 * tell, or whose feed cannot be believed, holds the union back, and is named.
 *
 * One that is silent for longer than the lease may have died with operations that nobody else has,
 * and others may rely on these. So a verdict ends it, and a *generation*: all nodes go back to the
 * newest round that it determines, too. Feeds of an earlier generation count nowhere from then on.
 *
 * The list of writers is made before that of feeds, and the time before both: whoever joins later
 * numbers nothing before that time. One thread. */
#pragma once

#include "nodes/told.h"

DEFINE_VECTOR(told_feeds, struct told);

struct stay {
    uint64_t epoch;
    uint32_t node;
    char holder[HOLDER_MAX];
    int64_t lease_ns; /* of its node; 0: not known */
    /* of its node, when its entry was read; 0: not known, so it tells of no rounds */
    int64_t clock_error_ns;
    int64_t heard_of; /* by the medium's clock: when it joined, or put its newest feed */
    bool has_row;     /* of the newest head */
    struct head_writer row;
    bool has_totals;
    struct told_totals totals; /* of the row's feed */
    struct told_feeds feeds;   /* behind the row, each follows the one before */
    uint64_t doubted;          /* round of a feed that did not follow, when it was read once */
    uint64_t refused;          /* round of a feed that is not counted; 0: none */
    uint64_t outdated;         /* rounds up to it were told in an earlier generation */
    int64_t again_at;          /* monotonic: when it is read again */
    const char *why;           /* it is not counted; NULL: it was not read, or is fine */
    int64_t age_ns;            /* when it was judged last */
    bool is_silent;
    bool is_unknown; /* its entry is damaged, so it may be any stay: it stands for that */
};
DEFINE_VECTOR(stay_list, struct stay);

/* An object of writers/. What it says stays the same as long as it lives. */
struct entry_seen {
    uint64_t number;
    uint64_t epoch; /* of the stay; 0: it cannot be read */
    uint32_t node;
    int64_t lease_ns, clock_error_ns;
    char holder[HOLDER_MAX];
    int64_t modified;
    int64_t again_at; /* monotonic: when it is read again */
    bool is_there;
};

struct stays {
    struct prefix *prefix;
    struct busy *busy;
    int64_t lease_ns;
    struct stay_list list; /* by epoch; not those that a later stay of their node has replaced */
    VECTOR(struct entry_seen) entries; /* by number */
    struct numbers ended;              /* stays with a verdict; sorted */
    uint64_t generation;               /* of the newest head */
    size_t bytes, bytes_max;           /* of feeds that are kept */
    int64_t judge_at, ended_at;        /* monotonic: when to judge, and to list `ended`, again */
    bool most_are_silent;
};

#define WRITERS "writers"
/* Reads an object of it, as prefix_read_object(). Any thread. */
CAIRN_MUST_CHECK int writer_entry_read(struct prefix *prefix, uint64_t number,
                                       struct writer_entry *ret);

void stays_init(struct stays *stays, struct prefix *prefix, struct busy *busy, int64_t lease_ns);
void stays_done(struct stays *stays);

/* Only the rows of the head are known, and no feed. */
void stays_begin(struct stays *stays, const struct head *head);
/* Lists writers, then feeds, and reads what is new. -EAGAIN: they changed meanwhile. */
CAIRN_MUST_CHECK int stays_look(struct stays *stays, const struct head *head);
/* Is the inode of a number that the node of this stay reserved? */
bool stays_owns(const struct stays *stays, uint64_t epoch, uint64_t ino);

/* The newest round that the stay determines, up to `round`, behind `cut`; 0: none. */
uint64_t stay_round(const struct stay *stay, uint64_t round, uint64_t cut);
/* The same of all stays together. */
uint64_t stays_round(const struct stays *stays, uint64_t round, uint64_t cut);
/* How many feeds of the stay belong to a round that all determine. */
size_t stay_feeds_up_to(const struct stay *stay, uint64_t round);
static inline bool stay_has_left(const struct stay *stay)
{
    return (stay->has_row && stay->row.state == HEAD_WRITER_ENDED) ||
           (stay->feeds.count > 0 && stay->feeds.at[stay->feeds.count - 1].flags & FEED_LEAVES);
}

/* Writes the rows of a head for that round, and its sums and largest numbers. Of a dead stay they
 * say that it ended. -E2BIG: they are too many. -EAGAIN: a feed of the rows cannot be read now. */
CAIRN_MUST_CHECK int stays_fill_head(struct stays *stays, uint64_t round, struct head *head);
/* The head was created: what it has need not be kept. */
void stays_merged(struct stays *stays, const struct head *head);

/* --- verdicts.c ------------------------------------------------------------------------------- */

/* Says who fell silent, and who is heard again. */
CAIRN_MUST_CHECK int stays_judge(struct stays *stays, int64_t now_monotonic);

/* This epoch is over. 0 also if that was said before. */
CAIRN_MUST_CHECK int ended_put(struct prefix *prefix, uint64_t epoch, enum ended_why why,
                               uint64_t by);
CAIRN_MUST_CHECK int stays_look_at_ended(struct stays *stays, int64_t now_monotonic);
/* Ends those that were silent for longer than the lease when they were judged; none, where more
 * than half are. `by`: this node's epoch. */
CAIRN_MUST_CHECK int stays_give_verdicts(struct stays *stays, uint64_t by);
/* The longest of all nodes. */
int64_t stays_lease(const struct stays *stays);
/* It ended without leaving, and no head says so yet. */
bool stay_is_dead(const struct stays *stays, const struct stay *stay);
bool stays_have_dead(const struct stays *stays);
