// SPDX-License-Identifier: Apache-2.0
/* The clock of one of several nodes: the time of the medium that all of them share, and a bound of
 * the error.
 *
 * *The time* is that of the medium: of the server of a bucket, or of whatever sets the times of
 * files in a directory. Each reading of it bounds the offset of the time from CLOCK_BOOTTIME. The
 * wall clock of this machine bounds it, too, if somebody vouches for its accuracy: the kernel,
 * informed by a time daemon, or a person. If both disagree, the medium is right: all nodes share
 * it.
 *
 * The time of this node is CLOCK_BOOTTIME plus an offset, which is slewed, and never stepped within
 * an *era*. A new era begins when earlier bounds may be wrong: the wall clock was set, or nobody
 * looked at the clock for a second, because the machine slept or the daemon stood still. Then all
 * bounds are determined anew.
 *
 * Any thread. */
#pragma once

#include "tier/tier.h"

struct node_clock;

struct node_clock_options {
    int64_t error_least; /* ns: errors outside the model, such as the time to assign a number */
    int64_t error_most;  /* ns: with a larger error the clock has no bound */
    bool needs_medium;   /* no bound before the medium was read in this era */
};

struct clock_look {
    int64_t boottime; /* CLOCK_BOOTTIME, ns */
    int64_t now;      /* the time, ns since 1970; without a bound the best guess */
    int64_t error;    /* bound of the distance from `now` to the time; negative: none */
    uint64_t era;
    int64_t era_began; /* CLOCK_BOOTTIME, ns; 0: this is the first era */
};

struct node_clock *node_clock_new(const struct node_clock_options *options);
void node_clock_free(struct node_clock *clock);

/* Returns the current time. Also detects the end of an era. */
void node_clock_look(struct node_clock *clock, struct clock_look *ret);
/* Starts or ends the watch: while watched, somebody looks every 100 ms, so a gap is detected. */
void node_clock_is_watched(struct node_clock *clock, bool is_watched);
/* Call it also for a medium without a common time (!is_shared): then no reading is required. */
void node_clock_read_medium(struct node_clock *clock, const struct tier_reading *reading);
/* Somebody vouches that the wall clock is within `error` of the time; negative: nobody does. */
void node_clock_vouch(struct node_clock *clock, int64_t error);
/* In how many ns the next reading of the medium is most useful; 0: now. */
int64_t node_clock_next_reading(struct node_clock *clock);

enum clock_state {
    CLOCK_BOUND,
    CLOCK_UNREAD, /* the medium must be read (again) */
    CLOCK_WIDE,   /* the readings do not bound the time closely enough yet */
    CLOCK_UNKNOWN /* the medium has no common time, and nobody vouches for the wall clock */
};
struct node_clock_status {
    enum clock_state state;
    int64_t error;       /* ns; also set for CLOCK_WIDE; else negative */
    bool is_vouched;     /* somebody vouches for the wall clock */
    int64_t contradicts; /* ns that the wall clock is behind the medium's bounds; 0: it is not */
    uint64_t steps;      /* eras that ended because the wall clock was set */
    uint64_t pauses;     /* eras that ended because nobody looked */
    int64_t step;        /* by how much the clock was last set, ns */
    int64_t pause;       /* length of the last such gap, ns */
};
void node_clock_status(struct node_clock *clock, struct node_clock_status *ret);

/* --- with given samples of the kernel's clocks: for tests ------------------------------------- */

/* A sample of the kernel's clocks, ns. */
struct clock_sample {
    int64_t boottime;
    int64_t raw; /* CLOCK_MONOTONIC_RAW: not slewed by time daemons */
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
