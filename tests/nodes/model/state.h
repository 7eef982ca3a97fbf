// SPDX-License-Identifier: Apache-2.0
/* One state of the protocol by which several nodes write one prefix: nodes, the store, a merger or
 * two, and two jobs. See main.c. Every field is a byte, so that states are compared and hashed as
 * bytes.
 *
 * Time: the instants (rounds) 1 to K pass one by one. An operation has the number of the next
 * instant that had not passed, so a cut at round r has the operations with a time of r or less. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
    NODES_MAX = 3,
    SESSIONS_MAX = 4,   /* those of the nodes, and one that joins later */
    OPERATIONS_MAX = 6, /* of one session: three for each job */
    JOBS = 2,
    MERGERS = 2,
    GENERATIONS_MAX = 2, /* no verdict ends a third generation */
    NO_SESSION = 255,
    ROUND_LAST = 255, /* LEAVES: all later rounds */
};

enum session_state {
    SESSION_NONE,
    SESSION_ALIVE,
    SESSION_CRASHED,
    SESSION_FENCED,  /* it has seen that it is ended */
    SESSION_JOINING, /* it has read a head; writers/NUMBER is not there yet */
    SESSION_LEFT,    /* its feed with LEAVES has landed */
};

/* Of the first operation after idleness, which waits for mark(). */
enum mark_state { MARK_NONE, MARK_SENT, MARK_LANDED /* and ended/EPOCH is to be looked for */ };

enum feed_state {
    FEED_NONE,
    FEED_SENT,
    FEED_CLEAN_LANDED /* the DELETE of the mark is to follow */
};

/* A feed on its way to the store. */
struct feed {
    uint8_t state;
    uint8_t round; /* its end, hi. ROUND_LAST: flag LEAVES */
    uint8_t clean; /* flag CLEAN */
    uint8_t generation;
};

enum operation_kind { OP_SHARD, OP_MARKER, OP_DELETE /* of the node's shard of the step before */ };

struct operation {
    uint8_t name; /* operation_name() */
    uint8_t time;
};

/* One stay of one store; its index is its EPOCH. */
struct session {
    uint8_t state, node;
    uint8_t generation;     /* of the newest head that it has seen */
    uint8_t is_open;        /* in that generation */
    uint8_t mark;           /* enum mark_state */
    uint8_t is_dirty;       /* may number operations: its mark is known to be in the store */
    uint8_t lease_ran_out;  /* its last look is older than L */
    uint8_t repeats_delete; /* a copy of the DELETE of its mark is still on its way */
    uint8_t count;          /* numbered operations */
    struct operation operations[OPERATIONS_MAX];
    uint8_t published;       /* operations in feeds that have landed */
    uint8_t published_round; /* newest round that its feeds determine */
    uint8_t feed_generation; /* of the newest feed that has landed */
    uint8_t leave_is_late;   /* planted: a LEAVES of a daemon that died is on its way */
    struct feed feed;
};

struct head {
    uint8_t generation;
    uint8_t round;                /* of the cut */
    uint8_t merged[SESSIONS_MAX]; /* operations of each session that the cut has */
    uint8_t ended;                /* set of sessions */
};

enum merger_step { MERGER_IDLE, MERGER_HAS_HEAD, MERGER_HAS_SESSIONS, MERGER_HAS_FEEDS };

struct merger {
    uint8_t step;
    uint8_t verdict; /* session + 1. 0: none */
    uint8_t clock;   /* newest round that had passed when it read the head */
    uint8_t marks;   /* as listed */
    uint8_t base;    /* number of the head that it read; with one merger always 0 */
    uint8_t early_published[SESSIONS_MAX], early_round[SESSIONS_MAX]; /* planted: feeds-first */
    struct head next;                                                 /* to be put */
};

struct job {
    uint8_t runs;
    uint8_t session[NODES_MAX]; /* of its process on the node. NO_SESSION: that has not started */
    uint8_t is_old[NODES_MAX];  /* the process began before the node opened: EIO */
    uint8_t has_shard[NODES_MAX];
    uint8_t has_deleted[NODES_MAX];
    uint8_t has_marker;
};

struct state {
    uint8_t now; /* instants that have passed, in true time */
    struct head head;
    uint8_t head_number; /* counted with two mergers only */
    uint8_t marks;  /* objects marks/: set of sessions. Without marks: those that have joined */
    uint8_t claims; /* objects ended/: set of sessions */
    uint8_t ended_generation[SESSIONS_MAX]; /* of feeds that count for an ended session, + 1 */
    uint8_t crashes, zombies, joins, leaves, restarts; /* so far */
    uint8_t broken;                                    /* set of enum broken */
    struct session sessions[SESSIONS_MAX];
    struct job jobs[JOBS];
    struct merger mergers[MERGERS];
};

_Static_assert(_Alignof(struct state) == 1, "states are compared as bytes");

static inline bool in_set(uint8_t set, unsigned member)
{
    return (set >> member & 1) != 0;
}

static inline uint8_t with_member(uint8_t set, unsigned member)
{
    return (uint8_t)(set | 1u << member);
}

static inline uint8_t without_member(uint8_t set, unsigned member)
{
    return (uint8_t)(set & ~(1u << member));
}

static inline uint8_t operation_name(unsigned job, enum operation_kind kind)
{
    return (uint8_t)(1 + 3 * job + kind);
}

static inline unsigned operation_job(const struct operation *operation)
{
    return (operation->name - 1u) / 3;
}

static inline enum operation_kind operation_kind(const struct operation *operation)
{
    return (enum operation_kind)((operation->name - 1u) % 3);
}

static inline bool has_joined(const struct session *session)
{
    return session->state != SESSION_NONE && session->state != SESSION_JOINING;
}

static inline bool feed_leaves(const struct feed *feed)
{
    return feed->state != FEED_NONE && feed->round == ROUND_LAST;
}

static inline bool is_ended(const struct state *state, unsigned number)
{
    return in_set(state->head.ended, number);
}

/* The first of the session's operations up to `end` that a cut at the round has not. */
static inline uint8_t number_at(const struct session *session, uint8_t end, uint8_t round)
{
    uint8_t number = 0;
    for (uint8_t i = 0; i < end; i++)
        if (session->operations[i].time <= round)
            number = (uint8_t)(i + 1);
    return number;
}
