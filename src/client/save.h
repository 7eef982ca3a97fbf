// SPDX-License-Identifier: Apache-2.0
/* A save: a header, and a part for each owner: copying (jobs.h), publishing (publish.h), and the
 * level after that (level.h). lane.h describes how it passes from one to the next. */
#pragma once

#include "client/jobs.h"
#include "client/level.h"
#include "client/publish.h"

/* A source that must be copied before the call returns is copied into memory, up to this size. */
#define SNAPSHOT_BYTES (256 * KIB)
/* Limit of such copies per save: further sources are written to the draft before the call
 * returns. */
#define SNAPSHOT_SAVE_BYTES (64 * MIB)

enum save_state { SAVE_OPEN, SAVE_PUBLISHED, SAVE_FAILED };

/* Guarded by the lane's lock from `refs` on. Earlier fields are constant once the save is in the
 * lane's list. */
struct cairn_save {
    struct cairn_lane *lane; /* reference counted */
    uint32_t flags;
    int32_t max_block_ms; /* how long calls and fences may wait for it; below 0: no limit */
    uint64_t number;      /* in the order in which saves begin */
    uint64_t bytes;       /* of the file */
    const char *path;     /* of the draft */

    unsigned refs;
    /* in the lane's list, until it has ended and its draft is removed */
    TAILQ_ENTRY(cairn_save) link;
    enum save_state state;
    int error; /* 0, unless it has failed */
    char cause[CAUSE_MAX];
    bool is_reported, is_untold;
    TAILQ_ENTRY(cairn_save) untold; /* in the list of the lane, if is_untold */
    struct copying copying;
    struct publishing publishing;
    struct levels levels;
};

/* --- save.c ----------------------------------------------------------------------------------- */

/* Drops a reference. The last one frees the save, whose draft is removed by then, and drops a
 * reference of the lane. */
void save_unref_locked(struct cairn_save *save);

/* Fails the save, unless it has ended: pieces not assigned to a thread are dropped, and saves that
 * must come after it fail. */
void save_fail_locked(struct cairn_save *save, int error, const char *fmt, ...) CAIRN_PRINTF(3, 4);
void save_published_locked(struct cairn_save *save);

/* Call when a thread has copied a piece, or dropped it. */
void save_piece_ended_locked(struct cairn_save *save);

/* Does it have all its bytes, and have its predecessors ended? */
bool save_is_ready_locked(const struct cairn_save *save);
/* Queues it for the publisher, if it is ready. */
void save_offer_locked(struct cairn_save *save);
/* Lets saves that waited for an ended one continue, or fail. */
void saves_settle_locked(struct cairn_lane *lane);

/* Will no byte of a source be read any more? */
bool save_is_quiet_locked(const struct cairn_save *save);
bool save_has_failed(struct cairn_save *save);
/* Returns its error, which then counts as reported. */
int save_report_locked(struct cairn_save *save);

/* --- begin.c: the sources of a call ----------------------------------------------------------- */

struct source_of {
    const struct cairn_source *source;
    uint64_t at;  /* in the file */
    size_t entry; /* of the zip */
};

/* Creates a save in the lane's list, with one reference for the caller. `zip` may be NULL; the save
 * takes over its entries. */
CAIRN_MUST_CHECK int save_new(struct cairn_lane *lane, const char *path, uint64_t bytes,
                              const struct cairn_save_options *options, const struct zip *zip,
                              struct cairn_save **ret);

/* Adds sources. Returns when those that must be copied now have been, or the save has failed (which
 * is not an error of the call). */
CAIRN_MUST_CHECK int save_add(struct cairn_save *save, const struct source_of *sources,
                              size_t count);

/* No more puts are accepted; if `commits`, the save may get its name. For a stream: writes it. */
CAIRN_MUST_CHECK int save_close(struct cairn_save *save, bool commits);
