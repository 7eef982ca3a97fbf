// SPDX-License-Identifier: Apache-2.0
/* Chunks of NVMe, decoded: each once for all reads that need it at about the same time, and kept
 * for later reads until its place is reused.
 *
 *    EMPTY    decoded_get() of a chunk without a place takes the least recently used one -> LOADING
 *    LOADING  one thread reads and decodes it, without the lock. decoded_end() -> READY, EMPTY
 *    READY    answers point at the bytes, which do not change while pins hold the place
 *
 * Plans that need a LOADING chunk wait in its list, without a thread. The thread that decodes the
 * chunk then continues them. Only plans in the threads `cairn-read` decode or wait here: so all of
 * these plans have ended when no such thread has work. */
#pragma once

#include <sys/queue.h>

#include "base/lock.h"
#include "format/pack.h"

/* Number of places. Enough for the distance between readers of one file that began together, but no
 * more: the bytes of a single reader pass through all places, and processor caches do not grow with
 * them. */
#define DECODED_MAX 24u

struct plan;
STAILQ_HEAD(plan_list, plan);

enum decoded_state { DECODED_EMPTY, DECODED_LOADING, DECODED_READY };

struct decoded {
    TAILQ_ENTRY(decoded) link;
    struct chunk_name name;
    enum decoded_state state;
    unsigned pins;
    uint32_t len;
    struct plan_list waiting; /* plans that wait while LOADING */
    uint8_t *bytes;           /* CHUNK_SIZE_MAX, on whole pages */
};

struct decoded_set {
    struct cairn_mutex lock; /* a leaf */
    struct decoded places[DECODED_MAX];
    TAILQ_HEAD(, decoded) by_use; /* least recently used first */
    uint8_t *memory;              /* of all places; NULL: none was needed yet */
};

void decoded_init(struct decoded_set *set);
void decoded_done(struct decoded_set *set);

/* Returns the chunk's place, pinned, if it is READY; else NULL. */
struct decoded *decoded_find(struct decoded_set *set, const struct chunk_name *name);

enum decoded_get {
    DECODED_FOUND, /* *ret is READY, and pinned */
    /* *ret is LOADING: the caller decodes the chunk into its bytes, and calls decoded_end() */
    DECODED_MINE,
    DECODED_OTHERS, /* another thread decodes the chunk */
    DECODED_FULL,   /* all places are pinned, or LOADING */
};
enum decoded_get decoded_get(struct decoded_set *set, const struct chunk_name *name,
                             struct decoded **ret);
/* Ends LOADING. `len` 0: the chunk could not be read. Else the place is READY, and pinned for the
 * caller. Adds the plans that waited to `woken`. */
void decoded_end(struct decoded_set *set, struct decoded *place, uint32_t len,
                 struct plan_list *woken);
/* Queues the plan with the chunk until it is decoded. False: no thread decodes the chunk now. */
bool decoded_wait(struct decoded_set *set, const struct chunk_name *name, struct plan *plan);
void decoded_unpin(struct decoded_set *set, struct decoded *place);
