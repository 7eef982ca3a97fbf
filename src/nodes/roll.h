// SPDX-License-Identifier: Apache-2.0
/* Who writes the prefix, as any node can see it, whether it merges or not: one look at heads,
 * writers and feeds, which is asked for, and made in a thread of its own. */
#pragma once

#include "format/prefix.h"

struct node;

enum roll_state {
    ROLL_LIVES,
    ROLL_SILENT, /* not heard of for longer than the lease, or what it tells is not counted */
    ROLL_LEFT,
    ROLL_ENDED, /* without leaving */
};

struct roll_stay {
    uint64_t epoch;
    uint32_t node;
    char holder[HOLDER_MAX];
    enum roll_state state;
    bool is_own;            /* of the node that looks */
    bool is_over;           /* it left, or ended, and a head says so: nothing waits for it */
    uint64_t round;         /* the newest that it determines; 0: none yet */
    uint64_t merged;        /* its operations up to this number are in the union */
    int64_t behind_ns;      /* since that round */
    int64_t heard_ns;       /* since it was heard of, by the clock of the medium */
    int64_t clock_error_ns; /* of its node's clock, as it said last; 0: not known */
    char why[96];           /* what it tells is not counted; "": it is */
};

struct roll {
    uint64_t number; /* of the look; 0: none was asked for */
    bool is_running;
    int error; /* 0: it succeeded */
    char error_text[256];
    uint64_t head, generation, round; /* of the union; head 0: there is none */
    int64_t age_ns;                   /* of that round */
    int64_t lease_ns;
    bool merges;             /* this node does */
    char merger[HOLDER_MAX]; /* which one does; "": none */
    char waits_for[256];     /* why a job is not to begin again yet; "": it may */
    uint64_t held_back_by;   /* epoch of the stay that the union waits for; 0: for none */
    size_t stay_count;
    struct roll_stay *stays; /* by epoch */
};

/* What may come before a look, in its thread: node_end_epoch(). */
struct roll_before {
    int (*fn)(struct node *node, uint64_t epoch, char **ret_text); /* NULL: nothing */
    uint64_t epoch;
};
/* Begins a look, if none is under way. Any thread. *ret_number: which one will answer. -EBUSY: a
 * look is under way, and something is to come before. */
CAIRN_MUST_CHECK int node_roll_start(struct node *node, const struct roll_before *before,
                                     uint64_t *ret_number);
/* The last one. Any thread; roll_done() frees what it has. */
void node_roll(struct node *node, struct roll *ret);
void roll_done(struct roll *roll);
