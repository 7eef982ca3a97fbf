// SPDX-License-Identifier: Apache-2.0
/* Inside the upload: one round of it.
 *
 *   upload.c        the thread; a round: its cut, what it carries, its head
 *   upload_order.c  what is sent before what
 *   upload_packs.c  a list of chunks is divided into packs, and sent
 *   upload_read.c   a chunk, from wherever it still is whole
 *   upload_doom.c   which packs its head leaves unreferenced
 *
 * With reduce=dense a chunk may be stored by means of others, so a round has phases
 * (dense/round.h). */
#pragma once

#include <semaphore.h>

#include "base/vector.h"
#include "dense/round.h"
#include "remote/internal.h"

#define PASS_CHUNKS 32768u /* listed at once */
#define FILLING_MAX 4u     /* senders that read at once */

struct layout;
struct sending;

/* A chunk that is to be sent, with its place on NVMe. */
struct upload_chunk {
    struct chunk_entry entry;
    uint64_t unit;  /* what belongs together: a burst (layout.h), or a pack that is written anew */
    uint64_t place; /* in that */
};

struct upload {
    struct remote *remote;
    struct view_cut *cut;
    uint64_t pending_bytes;  /* stored on NVMe, that the remote lacks */
    VECTOR(uint64_t) pins;   /* packs on NVMe, ascending */
    VECTOR(uint64_t) doomed; /* packs in the remote that the view is about to leave unreferenced */

    struct dense_round *dense;       /* NULL: without reduce=dense */
    struct layout *layout;           /* NULL: a small round, which makes a pack */
    const struct dense_phase *phase; /* that is being sent */

    /* upload_packs.c: what is being sent. */
    struct upload_chunk *list; /* by unit, and place in it */
    size_t count;
    size_t *packs; /* of the list: where each pack's chunks begin, and the end of the last */
    size_t pack_count;
    struct sending *open; /* a pack that the next phase may go on with */
    _Atomic size_t next;  /* pack that no thread has taken */
    _Atomic int error;
    sem_t fillers;            /* of senders that fill a pack */
    bool is_relocating;       /* the list is a repair_plan's */
    bool has_sent;            /* another list of this round */
    _Atomic unsigned rescues; /* that were tried in this round */
    _Atomic uint64_t unread;  /* chunks of it that can be read from nowhere */
};

/* --- upload_order.c --------------------------------------------------------------------------- */

/* Sends what the remote lacks of the cut, phase after phase. */
CAIRN_MUST_CHECK int upload_send_pending(struct upload *up);

/* --- upload_doom.c ---------------------------------------------------------------------------- */

/* Before view_published(): marks the packs that the head leaves unreferenced, and spares those that
 * staged content needs. Then, whatever came of it, upload_end_dooms(). */
CAIRN_MUST_CHECK int upload_begin_dooms(struct upload *up);
void upload_end_dooms(struct upload *up);

/* --- upload_packs.c --------------------------------------------------------------------------- */

/* Sends the chunks of the list, in any order; they have their places in the remote on return. Those
 * that can be read from nowhere are left out, and said. */
CAIRN_MUST_CHECK int upload_send_list(struct upload *up);
/* A phase that makes one pack leaves it open for the next one, so that what refers to a chunk lies
 * beside it. This sends it; after the last phase. */
CAIRN_MUST_CHECK int upload_send_open(struct upload *up);
/* Frees the open pack, unsent. */
void upload_drop_open(struct upload *up);
/* The view's database cannot bear a full disk: waits until there is room. -ECANCELED: it stops. */
CAIRN_MUST_CHECK int upload_wait_for_view_room(struct remote *remote);
