// SPDX-License-Identifier: Apache-2.0
/* The merger: among the nodes that write a prefix, the one that holds the lease of the common
 * prefix creates *union heads* there, each the common state of all nodes at a round. Every node has
 * a merger, and all but one wait.
 *
 * It may end at any point, and two may be active at once: heads are created exclusively, and each
 * merger begins with the newest one. */
#pragma once

#include "format/prefix.h"
#include "nodes/merge.h"
#include "prefix/prefix.h"

#define UNION_CACHE_BYTES (48 * MIB) /* for the union's names, memtables included */

struct merger;

/* With more nodes each makes fewer requests, so that all together make about as many. */
#define NODES_FEW 8u

struct merger_options {
    const char *path;            /* STORE/union: rebuilt completely when the merger begins */
    const struct superblock *sb; /* the store's */
    /* Of this session, reserved in the prefix: ids of its runs contain it, and no others do. */
    uint64_t epoch;
    struct room *room; /* NULL: no accounting */
    /* Of the common prefix: tier, name, holder, lease_ns and gc_grace_ns. Borrowed for the merger's
     * life. */
    const struct remote_options *remote;
    int64_t round_ns;      /* length of a round */
    size_t told_bytes_max; /* limit of feeds in memory that wait to be merged; 0: 256 MiB */
    /* Called when there is a newer union head, from this merger or another. In the merger's thread,
     * without locks. NULL: not called. */
    void (*on_head)(const struct head *head, void *arg);
    /* Are nodes active, so that it should check often? NULL: always. */
    bool (*is_active)(void *arg);
    /* Returns a time that has certainly passed, as for merger_turn(). NULL: the wall clock. */
    int64_t (*time_passed)(void *arg);
    void *arg;
};

/* Creates no object and sends no request yet. */
struct merger *merger_new(const struct merger_options *options);
/* Ends the thread, and releases the lease. NULL is fine. */
void merger_free(struct merger *merger);

/* Starts the thread: one turn every second. */
CAIRN_MUST_CHECK int merger_start(struct merger *merger);
/* Makes the merger end soon, and cancels its waits. Any thread. */
void merger_stop(struct merger *merger);
/* Waits for its end, and releases the lease: from then on another node merges. One thread. */
void merger_end(struct merger *merger);
/* Called when the stay has reported everything up to `number`, and its node is leaving: if no other
 * node merges, this one merges once more, so that readers see the end of a job. Waits `ns` at most.
 * Not in the merger's thread. */
void merger_finish(struct merger *merger, uint64_t stay, uint64_t number, int64_t ns);

/* Makes one turn. `now` (ns since 1970) has certainly passed, by the clocks of all nodes; negative:
 * the time is not known. Checks the lease and, if it holds the lease and the time is known,
 * publishes the newest round that all stays determine. In a thread of its own, or the merger's. An
 * error: the remote or the disk failed; another turn may continue. */
CAIRN_MUST_CHECK int merger_turn(struct merger *merger, int64_t now);

struct merger_stay {
    uint64_t epoch;
    uint32_t node;
    char holder[HOLDER_MAX];
    uint64_t round;  /* the newest round that it determines; 0: none yet */
    uint64_t merged; /* the union contains its operations up to this number */
    /* since its last sign of life, by the medium's clock, at the time of the check */
    int64_t age_ns;
    bool has_left, is_silent;
    char why[96]; /* why one of its feeds is not counted; "": all are */
};

struct merger_status {
    bool is_merger;
    char holder[HOLDER_MAX]; /* of the lease, if another node holds it; "": not known */
    uint64_t head, round;    /* of the union; 0: none */
    uint64_t generation;
    uint64_t ended;             /* stays that ended without leaving; 0 in a merger that waits */
    int64_t age_ns;             /* age of that round at the last turn */
    uint64_t held_back_by;      /* epoch of the stay that determines the oldest round; 0: none */
    struct merge_counts counts; /* since it became the merger */
    int error;                  /* of the last turn; 0: success */
    size_t stay_count;
    struct merger_stay *stays; /* by epoch; none in a merger that waits */
};
/* The state after the last turn. Any thread. */
void merger_status(struct merger *merger, struct merger_status *ret);
void merger_status_done(struct merger_status *status);
