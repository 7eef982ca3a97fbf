// SPDX-License-Identifier: Apache-2.0
/* Inside the upload: one round of it.
 *
 * upload.c        the thread; a round: its cut, its packs, its head
 * upload_order.c  the order of sending
 * upload_packs.c  divides a list of chunks into packs, and sends them
 * upload_read.c   reads a chunk from where it is intact
 * upload_doom.c   which packs its head leaves unreferenced
 *
 * With reduce=dense a chunk may be stored with bases, so a round has phases (dense/round.h). */
#pragma once

#include <semaphore.h>

#include "base/vector.h"
#include "dense/round.h"
#include "remote/internal.h"

#define PASS_CHUNKS 32768u /* listed at a time */
#define FILLING_MAX 4u     /* senders that read at the same time */

struct layout;
struct sending;

/* A chunk to be sent, with its place on NVMe. */
struct upload_chunk {
    struct chunk_entry entry;
    uint64_t unit;  /* its group: a burst (layout.h), or a pack that is being rewritten */
    uint64_t place; /* position in the unit */
};

struct upload {
    struct remote *remote;
    struct view_cut *cut;
    uint64_t pending_bytes;  /* stored bytes on NVMe that the remote lacks */
    VECTOR(uint64_t) pins;   /* packs on NVMe, ascending */
    VECTOR(uint64_t) doomed; /* packs in the remote that the view is about to leave unreferenced */

    struct dense_round *dense;       /* NULL: without reduce=dense */
    struct layout *layout;           /* NULL: a small round, which makes one pack */
    const struct dense_phase *phase; /* being sent */

    /* upload_packs.c: the list being sent. */
    struct upload_chunk *list; /* by unit, and position in it */
    size_t count;
    /* indexes in the list: where each pack's chunks begin, and the end of the last */
    size_t *packs;
    size_t pack_count;
    struct sending *open; /* a pack that the next phase may continue */
    _Atomic size_t next;  /* first pack not taken by a thread */
    _Atomic int error;
    sem_t fillers;            /* limits the senders that fill a pack */
    bool is_relocating;       /* the list is a repair_plan's */
    bool has_sent;            /* another list of this round was sent */
    _Atomic unsigned rescues; /* attempted in this round */
    _Atomic uint64_t unread;  /* chunks of the list that can be read nowhere */
};

/* --- upload_order.c --------------------------------------------------------------------------- */

/* Sends the chunks of the cut that the remote lacks, phase after phase. */
CAIRN_MUST_CHECK int upload_send_pending(struct upload *up);

/* --- upload_doom.c ---------------------------------------------------------------------------- */

/* Before view_published(): marks the packs that the head leaves unreferenced, and spares those that
 * staged content needs. Afterwards, also after an error, call upload_end_dooms(). */
CAIRN_MUST_CHECK int upload_begin_dooms(struct upload *up);
void upload_end_dooms(struct upload *up);

/* --- upload_packs.c --------------------------------------------------------------------------- */

/* Sends the chunks of the list, in any order; on return they have their places in the remote. Those
 * that can be read nowhere are omitted, and logged. */
CAIRN_MUST_CHECK int upload_send_list(struct upload *up);
/* A phase that makes a single pack leaves it open for the next phase, so that dependents are in the
 * same pack as their bases. This sends the open pack; call it after the last phase. */
CAIRN_MUST_CHECK int upload_send_open(struct upload *up);
/* Frees the open pack, unsent. */
void upload_drop_open(struct upload *up);
/* Waits until there is room for the view's database, which does not survive a full disk.
 * -ECANCELED: the upload must stop. */
CAIRN_MUST_CHECK int upload_wait_for_view_room(struct remote *remote);
