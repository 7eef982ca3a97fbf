// SPDX-License-Identifier: Apache-2.0
/* Who writes the prefix, from the view of any node, whether it merges or not: one check of heads,
 * writers and feeds, made on request in a thread of its own. */
#pragma once

#include "format/prefix.h"

struct node;

enum roll_state {
    ROLL_LIVES,
    ROLL_SILENT, /* no sign of life for longer than the lease, or its feeds are not counted */
    ROLL_LEFT,
    ROLL_ENDED, /* without leaving */
};

struct roll_stay {
    uint64_t epoch;
    uint32_t node;
    char holder[HOLDER_MAX];
    enum roll_state state;
    bool is_own;            /* the node that makes the check */
    bool is_over;           /* it left, or ended, and a head says so: nobody waits for it */
    uint64_t round;         /* the newest round that it determines; 0: none yet */
    uint64_t merged;        /* the union contains its operations up to this number */
    int64_t behind_ns;      /* since that round */
    int64_t heard_ns;       /* since its last sign of life, by the medium's clock */
    int64_t clock_error_ns; /* of its node's clock, as last reported; 0: not known */
    char why[96];           /* why its feeds are not counted; "": they are */
};

struct roll {
    uint64_t number; /* of the check; 0: none was requested */
    bool is_running;
    int error; /* 0: it succeeded */
    char error_text[256];
    uint64_t head, generation, round; /* of the union; head 0: none */
    int64_t age_ns;                   /* of that round */
    int64_t lease_ns;
    bool merges;             /* this node merges */
    char merger[HOLDER_MAX]; /* the node that merges; "": none */
    char waits_for[256];     /* why a job must not begin again yet; "": it may */
    uint64_t held_back_by;   /* epoch of the stay for which the union waits; 0: none */
    size_t stay_count;
    struct roll_stay *stays; /* by epoch */
};

/* An action before a check, in its thread: node_end_epoch(). */
struct roll_before {
    int (*fn)(struct node *node, uint64_t epoch, char **ret_text); /* NULL: nothing */
    uint64_t epoch;
};
/* Starts a check, if none is in progress. Any thread. *ret_number: the number of the check that
 * will have the result. -EBUSY: a check is in progress, and an action was requested. */
CAIRN_MUST_CHECK int node_roll_start(struct node *node, const struct roll_before *before,
                                     uint64_t *ret_number);
/* Returns the last result. Any thread; roll_done() frees it. */
void node_roll(struct node *node, struct roll *ret);
void roll_done(struct roll *roll);
