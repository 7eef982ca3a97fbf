// SPDX-License-Identifier: Apache-2.0
/* A save: a header, and its part with each owner: copying (jobs.h), publishing (publish.h), the
 * level after that (level.h). lane.h says how it goes from one to the next. */
#pragma once

#include "client/jobs.h"
#include "client/level.h"
#include "client/publish.h"

/* A source that is to be copied now, and is not larger, is copied into memory. */
#define SNAPSHOT_BYTES (256 * KIB)
/* The most that one save copies so: later sources are written to the draft before the call
 * returns. */
#define SNAPSHOT_SAVE_BYTES (64 * MIB)

enum save_state { SAVE_OPEN, SAVE_PUBLISHED, SAVE_FAILED };

/* Guarded by the lane's lock from `refs` on. The fields before it do not change once the save is in
 * the lane's list. */
struct cairn_save {
    struct cairn_lane *lane; /* counted */
    uint32_t flags;
    int32_t max_block_ms; /* how long calls and fences may wait for it; below 0: no end */
    uint64_t number;      /* in the order of their begins */
    uint64_t bytes;       /* of the file */
    const char *path;     /* of the draft */

    unsigned refs;
    TAILQ_ENTRY(cairn_save) link; /* in the lane's list: until it has ended and its draft is gone */
    enum save_state state;
    int error; /* 0, unless it has failed */
    char cause[CAUSE_MAX];
    bool is_reported, is_untold;
    TAILQ_ENTRY(cairn_save) untold; /* in the list of the lane, if it is_untold */
    struct copying copying;
    struct publishing publishing;
    struct levels levels;
};

/* --- save.c ----------------------------------------------------------------------------------- */

/* The last reference frees the save: its draft is gone by then. The lane loses one, too. */
void save_unref_locked(struct cairn_save *save);

/* Ends it, unless it has ended: pieces that no thread has are dropped, and saves that come after it
 * fail. */
void save_fail_locked(struct cairn_save *save, int error, const char *fmt, ...) CAIRN_PRINTF(3, 4);
void save_published_locked(struct cairn_save *save);

/* A thread has copied a piece, or dropped it. */
void save_piece_ended_locked(struct cairn_save *save);

/* Has it all that it gets, and have those before it ended? */
bool save_is_ready_locked(const struct cairn_save *save);
/* Gives it to the publisher, if its time has come. */
void save_offer_locked(struct cairn_save *save);
/* Saves that wait for one that has ended may go on now, or fail. */
void saves_settle_locked(struct cairn_lane *lane);

/* Is no byte of a source read any more? */
bool save_is_quiet_locked(const struct cairn_save *save);
bool save_has_failed(struct cairn_save *save);
/* Its error, which counts as told. */
int save_report_locked(struct cairn_save *save);

/* --- begin.c: the sources of a call
 * --------------------------------------------------------------- */

struct source_of {
    const struct cairn_source *source;
    uint64_t at;  /* in the file */
    size_t entry; /* of the zip */
};

/* A save in the lane's list, with one reference for the caller. `zip` may be NULL; its entries
 * belong to the save then. */
CAIRN_MUST_CHECK int save_new(struct cairn_lane *lane, const char *path, uint64_t bytes,
                              const struct cairn_save_options *options, const struct zip *zip,
                              struct cairn_save **ret);

/* Adds sources. Returns when those that are copied now have been, or the save has failed (which is
 * no error of the call). */
CAIRN_MUST_CHECK int save_add(struct cairn_save *save, const struct source_of *sources,
                              size_t count);

/* No put comes any more; if it commits, it may get its name. Of a stream: writes it. */
CAIRN_MUST_CHECK int save_close(struct cairn_save *save, bool commits);
