// SPDX-License-Identifier: Apache-2.0
/* Chunks of NVMe, decoded: each once for all reads that want it at about the same time, and kept
 * for those that follow, as long as its place is not needed.
 *
 *   EMPTY    decoded_get() of a chunk without a place takes the least recently used one -> LOADING
 *   LOADING  one thread reads and decodes it, without the lock. decoded_end() -> READY, EMPTY
 *   READY    answers point at the bytes, which do not change while pins hold the place
 *
 * Plans that want a chunk which is LOADING wait in its list, without a thread. The thread that
 * decodes the chunk goes on with them. Only plans in the threads `cairn-read` decode or wait here:
 * so all of these plans have ended when no such thread has work. */
#pragma once

#include <sys/queue.h>

#include "base/lock.h"
#include "format/pack.h"

/* Places. Enough for what readers of one file are apart who began together; no more, as a lone
 * reader's bytes go through all of it, and a processor's cache does not grow with it. */
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
    struct plan_list waiting; /* LOADING */
    uint8_t *bytes;           /* CHUNK_SIZE_MAX, on whole pages */
};

struct decoded_set {
    struct cairn_mutex lock; /* a leaf */
    struct decoded places[DECODED_MAX];
    TAILQ_HEAD(, decoded) by_use; /* the least recently used one first */
    uint8_t *memory;              /* of all places; NULL: none was needed yet */
};

void decoded_init(struct decoded_set *set);
void decoded_done(struct decoded_set *set);

/* The chunk, pinned, if it is READY; else NULL. */
struct decoded *decoded_find(struct decoded_set *set, const struct chunk_name *name);

enum decoded_get {
    DECODED_FOUND,  /* *ret is READY, and pinned */
    DECODED_MINE,   /* *ret is LOADING: the caller decodes it into its bytes, and ends that */
    DECODED_OTHERS, /* another thread decodes it */
    DECODED_FULL,   /* all places are pinned, or LOADING */
};
enum decoded_get decoded_get(struct decoded_set *set, const struct chunk_name *name,
                             struct decoded **ret);
/* `len` 0: it could not be read. Else it is READY, and pinned for the caller. Adds the plans that
 * waited to `woken`. */
void decoded_end(struct decoded_set *set, struct decoded *place, uint32_t len,
                 struct plan_list *woken);
/* The plan is the chunk's until it was decoded. False: nothing decodes it now. */
bool decoded_wait(struct decoded_set *set, const struct chunk_name *name, struct plan *plan);
void decoded_unpin(struct decoded_set *set, struct decoded *place);
