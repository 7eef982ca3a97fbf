// SPDX-License-Identifier: Apache-2.0
/* The clock of one of several nodes: the time of the medium that all of them share, and how far it
 * may be from that.
 *
 * *The time* is that of the medium: of the server of a bucket, or of whatever stamps the files of
 * a directory. Each reading of it bounds the time since the machine started (CLOCK_BOOTTIME) plus
 * an offset. The wall clock of this machine bounds it, too, where somebody vouches for that: the
 * kernel, which a time daemon told, or a person. Where both disagree, the medium is right: all
 * nodes have it in common.
 *
 * The time of this node is CLOCK_BOOTTIME plus an offset, which is slewed, and never stepped within
 * an *era*. A new one begins where what was known may be wrong: the wall clock was set, or nobody
 * looked for a second, because the machine slept or the daemon stood still. Then all bounds are
 * made anew.
 *
 * Any thread. */
#pragma once

#include "tier/tier.h"

struct node_clock;

struct node_clock_options {
    int64_t error_least; /* ns: what is not modelled, such as the time to give a number */
    int64_t error_most;  /* ns: with more there is no bound */
    bool needs_medium;   /* no bound before the medium was read in this era */
};

struct clock_look {
    int64_t boottime; /* CLOCK_BOOTTIME, ns */
    int64_t now;      /* the time, ns since 1970; without a bound the best guess */
    int64_t error;    /* `now` is no further from the time; negative: there is no bound */
    uint64_t era;
    int64_t era_began; /* CLOCK_BOOTTIME, ns; 0: it is the first one */
};

struct node_clock *node_clock_new(const struct node_clock_options *options);
void node_clock_free(struct node_clock *clock);

/* What time is it? Notices, too, that an era has ended. */
void node_clock_look(struct node_clock *clock, struct clock_look *ret);
/* Somebody looks every 100 ms from now on, or does no more: so a gap is noticed. */
void node_clock_is_watched(struct node_clock *clock, bool is_watched);
/* Also of a medium that tells no common time (!is_shared): then none is needed. */
void node_clock_read_medium(struct node_clock *clock, const struct tier_reading *reading);
/* The wall clock is within `error` of the time, as somebody says; negative: nobody does. */
void node_clock_vouch(struct node_clock *clock, int64_t error);
/* In how many ns the next reading of a medium tells most: 0: now, soon, or in a while. */
int64_t node_clock_next_reading(struct node_clock *clock);

enum clock_state {
    CLOCK_BOUND,
    CLOCK_UNREAD, /* the medium has to be read (again) */
    CLOCK_WIDE,   /* what was read does not say enough yet */
    CLOCK_UNKNOWN /* the medium tells no common time, and nobody vouches for the wall clock */
};
struct node_clock_status {
    enum clock_state state;
    int64_t error;       /* ns; of CLOCK_WIDE, too; else negative */
    bool is_vouched;     /* somebody vouches for the wall clock */
    int64_t contradicts; /* ns that the wall clock is behind what the medium says; 0: it is not */
    uint64_t steps;      /* eras that ended because the wall clock was set */
    uint64_t pauses;     /* because nobody looked */
    int64_t step;        /* by so much it was set last, ns */
    int64_t pause;       /* so long the last pause was, ns */
};
void node_clock_status(struct node_clock *clock, struct node_clock_status *ret);

/* --- with another look at the clocks of the kernel: for tests ----------------------------------
 */

/* One look at the clocks of the kernel, ns. */
struct clock_sample {
    int64_t boottime;
    int64_t raw; /* CLOCK_MONOTONIC_RAW: no time daemon slews it */
    int64_t wall;
};
void node_clock_look_at(struct node_clock *clock, const struct clock_sample *sample,
                        struct clock_look *ret);
void node_clock_is_watched_at(struct node_clock *clock, bool is_watched,
                              const struct clock_sample *sample);
void node_clock_read_medium_at(struct node_clock *clock, const struct tier_reading *reading,
                               const struct clock_sample *sample);
int64_t node_clock_next_reading_at(struct node_clock *clock, const struct clock_sample *sample);
void node_clock_status_at(struct node_clock *clock, const struct clock_sample *sample,
                          struct node_clock_status *ret);
