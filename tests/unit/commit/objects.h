// SPDX-License-Identifier: Apache-2.0
/* The objects of commit/ in a directory of their own, wired as commit_init() does it, without a
 * store: no recovery, no writeback thread, nothing above commit/. */
#pragma once

#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/journal_internal.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/read_internal.h"
#include "commit/room_internal.h"
#include "tier/tier.h"
#include "view/view.h"

struct objects {
    char path[32], stage_dir[40];
    struct local local;
    struct priority *priority;
    struct change *change;
    struct damage *damage;
    struct horizon *horizon;
    struct journal *journal;
    struct room *room;
    struct packs *packs;
    struct history *history;
    uint64_t used, staged; /* what the room is told */
    bool is_carried, may_free;
};

extern struct objects o;

/* For test suites: objects without a view and a stage, or with both, as the history needs them. */
void objects_setup(void);
void objects_setup_with_stage(void);
void objects_teardown(void);

/* From then on the next call of the tier that *op names fails, and *op becomes NULL. */
void objects_fail(const char **op);
/* A chunk that stands by itself, and its bytes, by number. */
void objects_chunk(unsigned number, uint8_t *bytes, size_t len, struct chunk_entry *ret);
