// SPDX-License-Identifier: Apache-2.0
/* A read under way: see plan.c, which has the table of its states. Only fetch/ includes this. */
#pragma once

#include "base/vector.h"
#include "fetch/pull.h"

#define PLAN_PARTS 64u
#define PLAN_TRIES 8u
#define ZEROS_LEN (64u * 1024)
#define PLAN_IOVS (PLAN_PARTS + SLAB_PAYLOAD / ZEROS_LEN)

enum plan_state { PLAN_RESOLVE, PLAN_LEND, PLAN_WAIT, PLAN_FILL, PLAN_ANSWER };

/* The slowest tier for which the thread of a plan may wait, in ascending order. */
enum plan_wait { WAIT_NOTHING, WAIT_NVME, WAIT_REMOTE };

enum plan_kind {
    KIND_STAGED, /* was in the stage, and is in the buffer */
    KIND_HOLE,
    KIND_INLINE, /* in plan->bytes */
    KIND_CHUNK,  /* its place was not looked up yet */
    KIND_LOCAL,  /* on NVMe, at `place` */
    KIND_REMOTE, /* in the remote, at `place` */
};

struct plan_part {
    enum plan_kind kind;
    bool is_filled;         /* the part is in the buffer */
    size_t offset, length;  /* within the read */
    size_t within;          /* where in the chunk, or in plan->bytes, the part begins */
    struct chunk_name name; /* of a chunk */
    struct chunk_entry place;
    int local_error; /* KIND_REMOTE: why NVMe cannot read it; -ENOENT: it has no place on NVMe */
    int error;       /* there is no place to read it from */
    struct pull_chunk *lent; /* PLAN_LEND */
    struct decoded *decoded; /* pinned: the part lies there, and not in the buffer */
};

struct plan {
    STAILQ_ENTRY(plan) link;
    struct store *store;
    struct fetch_read_request want;
    enum plan_state state;
    /* the tiers for which the next step has to, and the thread may wait */
    enum plan_wait needs, may;
    unsigned tries;
    uint64_t generation; /* of the view: change_generation() */
    uint64_t version;    /* of the content */
    size_t length;       /* of the read, within the file */
    /* the parts are those of [at, end) of the read: the bytes before `at` are in the buffer */
    size_t at, end;
    bool is_looked;     /* the stage has nothing of the range: only the view is to be read */
    bool is_overtaken;  /* the view has a later version than the stage and the namespace had */
    bool is_lent;       /* chunks of the parts are pinned */
    uint8_t *buffer;    /* for all of the read, the thread's; NULL: the thread may not wait */
    struct bytes bytes; /* inline content */
    int error;
    struct pull_waiter waiter; /* PLAN_WAIT */
    /* Plans that the thread continues afterwards. NULL: this plan neither waits for a chunk that
     * another plan decodes, nor decodes for other plans. */
    struct plan_list *woken;
    size_t part_count, iov_count;
    struct plan_part parts[PLAN_PARTS];
    struct iovec iov[PLAN_IOVS];
};

/* Returns whether the file is of an earlier state, which does not change. */
static inline bool plan_is_past(const struct plan *plan)
{
    return past_slot(plan->want.ino) != 0;
}

/* Resolves again from the beginning, in a thread that has a buffer. */
void plan_restart(struct plan *plan);
/* Ends the plan with an error. `good`: bytes from the beginning that are in the buffer, and
 * verified. */
void plan_fail(struct plan *plan, int error, size_t good);
/* Content cannot be read: resolves again, or fails. `name`: of the chunk; NULL: the view did not
 * return which chunk it is. */
void plan_note_error(struct plan *plan, const struct chunk_name *name, int error, size_t good);

/* plan_resolve.c */
void plan_resolve(struct plan *plan);

/* plan_fill.c */
/* False: the plan waits with a chunk, and is no longer the caller's. */
CAIRN_MUST_CHECK bool plan_fill(struct plan *plan);
/* The parts are not read from the places of decoded chunks any more. */
void plan_unpin(struct plan *plan);
