// SPDX-License-Identifier: Apache-2.0
/* A save: its sources, its state, and the calls that begin, fill and end it. client.h says how the
 * threads of a lane carry it. */
#pragma once

#include <pthread.h>

#include "base/cause.h"
#include "client/draft.h"
#include "client/refer.h"
#include "client/zip.h"

#include <cairn/cairn.h>

/* The piece of a host source: what one request of FUSE takes, from the border of a page on. */
#define PIECE_BYTES MIB
/* A source that is to be copied now, and is not larger, is copied into memory. */
#define SNAPSHOT_BYTES (256 * KIB)
/* The most that one save copies so: what comes then is written to the draft before the call
 * returns. */
#define SNAPSHOT_SAVE_BYTES (64 * MIB)
#define DEVICES_MAX 16 /* of one lane */
#define ON_HOST (-1)

/* Bytes of the file that are in memory of ours, and written at the end. */
struct segment {
    uint64_t at, length;
    void *data; /* freed with the save */
};

/* One source that is copied piece by piece. */
struct job {
    struct job *next; /* in a queue of the lane */
    struct cairn_save *save;
    uint64_t at, length; /* in the file */
    const char *host;
    int slot; /* of its device in the lane; ON_HOST */
    uint64_t address;
    bool is_now;
    uint64_t given;    /* bytes that threads were given so far */
    size_t piece;      /* index of the next one */
    size_t entry;      /* of the zip, if the save has one */
    uint32_t *crcs;    /* one a piece; NULL: the format has none */
    uint64_t *samples; /* one a piece: of a host source at the call that named it; NULL: the
                          caller waits for the copy */
    char *key;         /* of a source that may be referred to; NULL: none, and no prints */
    struct refer_piece *prints;      /* one a piece */
    const struct refer_entry *older; /* the same source in save->older */
};

/* Sources of one call; freed with the save. */
struct batch {
    struct batch *next;
    size_t job_count, segment_count;
    struct job *jobs;
    struct segment *segments;
    bool has_producer; /* of the newest job on a device: what it comes after */
    int ordinal, slot;
    uint64_t producer;
};

enum save_state { SAVE_OPEN, SAVE_PUBLISHED, SAVE_FAILED };

/* Bytes of a save that are on their way from one device. With the lane's lock. */
struct save_on_device {
    uint64_t waiting, flying; /* bytes of unread that are not enqueued there yet, or are and did
                                 not come yet */
    uint64_t looking; /* bytes of unread whose fingerprint is under way: the device reads them,
                         and may have to again */
};

/* Waits for a level that a save reaches after it has its name: level.c. With the lane's lock. */
struct save_levels {
    struct cairn_save *next; /* in the lane's list */
    bool is_queued, is_synced;
    /* by the level that is waited for */
    unsigned waiters[CAIRN_REMOTE + 1], failures[CAIRN_REMOTE + 1];
    int error; /* of the last failure */
    char cause[CAUSE_MAX];
};

/* All of it is guarded by the lane's lock, but for what is set before the save is in the lane's
 * list, the draft, and the zip: these belong to the thread that opens, then to those that copy,
 * then to "cairn-publish". */
struct cairn_save {
    struct cairn_lane *lane; /* counted */
    struct cairn_save *next; /* in the lane's list: until it has ended and its draft is gone */
    unsigned refs;
    enum save_state state;
    uint32_t flags;
    int32_t max_block_ms; /* how long calls and fences may wait for it; below 0: no end */
    uint64_t number;      /* in the order of their begins */
    struct draft draft;
    uint64_t bytes; /* of the file */
    struct zip zip; /* count 0: no zip */

    struct batch *batches; /* newest first */
    uint64_t snapshot_bytes;
    bool is_fixed;       /* no put comes any more */
    bool is_committed;   /* it may get its name */
    bool is_publishing;  /* a thread writes its last bytes and gives the name */
    bool is_naming;      /* and it is at the name: no failure comes any more but its own */
    uint64_t unread;     /* bytes of sources that were not copied yet */
    uint64_t now_unread; /* of these: what its call waits for */
    unsigned in_flight;  /* pieces that threads have */
    unsigned reading;    /* of these: whose source is read by the process itself */
    struct save_on_device on_device[DEVICES_MAX];
    uint64_t source_bytes, copied_bytes, referenced_bytes;

    char *pattern;               /* of its path, if others are to refer to it; set at its begin */
    struct refer_version *older; /* counted: what it may refer to; set at its begin */
    int older_fd; /* that file, as long as the save may refer to it; then -1. Of "cairn-publish"
                     alone */

    /* the earlier one of the same name, counted; NULL when that has ended */
    struct cairn_save *before;
    struct cairn_save **after; /* counted; NULL where one is published */
    size_t after_count;
    dev_t dev; /* of the file that got the name */
    ino_t ino;
    struct timespec mtime; /* when it got the name */

    int error;
    char cause[CAUSE_MAX];
    bool is_reported;
    int level; /* NVME or REMOTE, once it was seen there because a caller waited for that; else
                * -1 */

    struct save_levels sync;
};

/* --- save.c ----------------------------------------------------------------------------------- */

void batch_free(struct batch *batch);

/* The last reference frees the save: its draft is gone by then. The lane loses one, too. */
void save_unref_locked(struct cairn_save *save);

/* Ends it, unless it has ended: what was not begun is dropped, and saves that come after it fail.
 * The cause is copied. */
void save_fail_locked(struct cairn_save *save, int error, const char *cause);
void save_published_locked(struct cairn_save *save);

/* Saves that wait for one that has ended may go on now, or fail. */
void saves_settle_locked(struct cairn_lane *lane);

bool save_has_failed(struct cairn_save *save);

/* Its error, which counts as told. */
int save_report_locked(struct cairn_save *save);

/* When a wait of so many ms ends, in ns of the monotonic clock; -1: never. */
int64_t deadline_of(int64_t timeout_ms);
/* Waits for a signal of the condition, or of the lane's `changed`. False: the deadline has passed.
 * The caller looks again in both cases. */
bool wait_locked(struct cairn_lane *lane, pthread_cond_t *cond, int64_t deadline);
bool wait_changed_locked(struct cairn_lane *lane, int64_t deadline);

/* --- open.c ----------------------------------------------------------------------------------- */

/* Opens the draft of a save that is in no list yet, and finds what it may refer to. An error: the
 * save is gone, or will be; -ETIMEDOUT: the filesystem has not answered within its max_block_ms. */
CAIRN_MUST_CHECK int save_open(struct cairn_save *save, const char *path, mode_t mode);

/* --- begin.c: what a call names --------------------------------------------------------------- */

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

/* Adds what is to be copied. Returns when what is to be copied now has been, or the save has failed
 * (which is no error of the call). */
CAIRN_MUST_CHECK int save_add(struct cairn_save *save, const struct source_of *sources,
                              size_t count);

/* No put comes any more; unless held, it may get its name. Of a stream: writes it. */
CAIRN_MUST_CHECK int save_close(struct cairn_save *save, bool commits);

/* --- publish.c -------------------------------------------------------------------------------- */

/* Waits until a committed stream may be written, and writes it. */
CAIRN_MUST_CHECK int save_publish_stream(struct cairn_save *save);
