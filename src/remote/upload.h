// SPDX-License-Identifier: Apache-2.0
/* Inside the upload: one round of it.
 *
 *   upload.c        the thread; a round: its cut, what it carries, its head
 *   upload_packs.c  a list of chunks is divided into packs, and sent
 *   upload_read.c   a chunk, from wherever it still is whole */
#pragma once

#include <semaphore.h>

#include "base/vector.h"
#include "remote/internal.h"

#define PASS_CHUNKS 32768u /* listed at once */
#define FILLING_MAX 4u     /* senders that read at once */

struct upload {
    struct remote *remote;
    struct view_cut *cut;
    VECTOR(uint64_t) pins; /* packs on NVMe, ascending */
    /* upload_packs.c: what is being sent. */
    struct chunk_entry *list; /* by place on NVMe */
    size_t count;
    size_t *packs; /* of the list: where each pack's chunks begin, and the end of the last */
    size_t pack_count;
    _Atomic size_t next; /* pack that nobody has taken */
    _Atomic int error;
    sem_t fillers;            /* of senders that fill a pack */
    bool is_relocating;       /* the list is a repair_plan's */
    _Atomic unsigned rescues; /* that were tried in this round */
    _Atomic uint64_t unread;  /* chunks of it that can be read from nowhere */
};

/* --- upload_packs.c --------------------------------------------------------------------------- */

/* Sends the chunks of the list, in any order; they have their places in the remote on return. Those
 * that can be read from nowhere are left out, and said. */
CAIRN_MUST_CHECK int upload_send_list(struct upload *up);
/* The view's database cannot bear a full disk: waits until there is room. -ECANCELED: it stops. */
CAIRN_MUST_CHECK int upload_wait_for_view_room(struct remote *remote);
