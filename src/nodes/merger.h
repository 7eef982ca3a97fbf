// SPDX-License-Identifier: Apache-2.0
/* The merger: of all nodes that write a prefix, the one that holds the lease of the common prefix
 * makes *union heads* there, each the state that all nodes had together at a round. Every node has
 * a merger, and all but one wait.
 *
 * It may end at any point, and two may be at work: heads are created exclusively, and whoever
 * follows begins with the newest one. */
#pragma once

#include "format/prefix.h"
#include "nodes/merge.h"
#include "prefix/prefix.h"

#define UNION_CACHE_BYTES (48 * MIB) /* of the union's names, memtables included */

struct merger;

struct merger_options {
    const char *path;            /* STORE/union: all in it is made anew when the merger begins */
    const struct superblock *sb; /* the store's */
    /* Of this session, reserved in the prefix: numbers of its runs have it, and no other's. */
    uint64_t epoch;
    struct room *room; /* NULL: none accounts for it */
    /* Of the common prefix: tier, name, holder, lease_ns and gc_grace_ns. As long as the merger
     * lives. */
    const struct remote_options *remote;
    int64_t round_ns;      /* length of a round */
    size_t told_bytes_max; /* of feeds in memory that wait to be merged; 0: 256 MiB */
    /* There is a newer union head, this merger's or another's. In its thread, without locks. NULL
     * is fine. */
    void (*on_head)(const struct head *head, void *arg);
    /* Do nodes work, so that it is to look often? NULL: they do. */
    bool (*is_active)(void *arg);
    /* A time that has passed for sure, as in merger_turn(). NULL: the wall clock. */
    int64_t (*time_passed)(void *arg);
    void *arg;
};

/* Makes nothing and asks nothing yet. */
struct merger *merger_new(const struct merger_options *options);
/* Ends the thread, and gives the lease back. NULL is fine. */
void merger_free(struct merger *merger);

/* The thread: a turn every second. */
CAIRN_MUST_CHECK int merger_start(struct merger *merger);
/* It ends soon; what it waits for is given up. Any thread. */
void merger_stop(struct merger *merger);
/* Waits for its end, and gives the lease back: another node merges from then on. One thread. */
void merger_end(struct merger *merger);
/* This stay has told all up to `number`, and its node leaves: if no other node merges, this one
 * does it once more, so that readers see the end of a job. For at most `ns`. Another thread than
 * its. */
void merger_finish(struct merger *merger, uint64_t stay, uint64_t number, int64_t ns);

/* One turn. `now` (ns since 1970) has passed for sure, by the clocks of all nodes; negative: the
 * time is not known. Looks at the lease, and, if it holds that and knows the time, publishes the
 * newest round that all determine. In a thread of its own, or the merger's. An error: the remote or
 * the disk failed, and another turn may go on. */
CAIRN_MUST_CHECK int merger_turn(struct merger *merger, int64_t now);

struct merger_stay {
    uint64_t epoch;
    uint32_t node;
    char holder[HOLDER_MAX];
    uint64_t round;  /* the newest that it determines; 0: none yet */
    uint64_t merged; /* its operations up to this number are in the union */
    int64_t age_ns;  /* since it was heard of, by the clock of the medium, when that was asked */
    bool has_left, is_silent;
    char why[96]; /* why a feed of it is not counted; "": all are */
};

struct merger_status {
    bool is_merger;
    char holder[HOLDER_MAX]; /* of the lease, if it is another's; "": not known */
    uint64_t head, round;    /* of the union; 0: there is none */
    uint64_t generation;
    uint64_t ended;             /* stays that ended without leaving; of a merger that waits: 0 */
    int64_t age_ns;             /* of that round at the last turn */
    uint64_t held_back_by;      /* epoch of the stay that determines the least; 0: none does */
    struct merge_counts counts; /* since it became the merger */
    int error;                  /* of the last turn; 0: none */
    size_t stay_count;
    struct merger_stay *stays; /* by epoch; of a merger that waits: none */
};
/* As of the last turn. Any thread. */
void merger_status(struct merger *merger, struct merger_status *ret);
void merger_status_done(struct merger_status *status);
