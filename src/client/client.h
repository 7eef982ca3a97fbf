// SPDX-License-Identifier: Apache-2.0
/* Shared declarations of this room: a lane, its saves, and the pieces that threads copy.
 *
 * A save goes OPEN -> PUBLISHED or FAILED, by one step each:
 *   1. the call has its draft opened (open.c, draft.h), notes what is to be copied (jobs) and what
 * is already in memory of ours (segments);
 *   2. threads "cairn-copy" take pieces of the jobs; "cairn-device" does so for sources on devices
 * (device_copy.c);
 *   3. when no byte is missing, it is committed and what it waits for has ended, "cairn-publish"
 * writes the segments and gives the name. A failure drops what was not begun. The draft is taken
 * away by "cairn-publish" when no thread uses it any more.
 *
 * Locks: one mutex a lane guards the lane and its saves; never held over I/O, over a copy or over
 * the caller's log. Memory for what a call needs is allocated by that call, before it changes
 * anything: -ENOMEM is an answer like others.
 *
 * Aborts are for our own bugs (check()); nothing else ends the process. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/base.h"
#include "base/cause.h"
#include "base/lock.h"
#include "client/draft.h"
#include "client/refer.h"
#include "client/ring.h"
#include "client/zip.h"

#include <cairn/cairn.h>

#define PIECE_BYTES                                                                                \
    MIB /* of a host source; what one request of FUSE takes, from the border of a page on */
#define SNAPSHOT_BYTES                                                                             \
    (256 * KIB) /* a source that is to be copied now, and is not larger, is copied into memory */
#define SNAPSHOT_SAVE_BYTES                                                                        \
    (64 * MIB) /* of one save: what comes then is written to the draft before the call returns */
#define COPY_THREADS_MAX 16
#define OPENERS_MAX 8
#define DEVICES_MAX 16 /* of one lane */
#define LOOKS_MAX                                                                                  \
    64 /* pieces whose fingerprints are under way, or which are to be copied because of them */
#define ON_HOST (-1)
#define UNTOLD_MAX 64 /* failed saves that are kept for cairn_lane_take_error() */

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
    uint64_t given;             /* bytes that threads were given so far */
    size_t piece;               /* index of the next one */
    size_t entry;               /* of the zip, if the save has one */
    uint32_t *crcs;             /* one a piece; NULL: the format has none */
    char *key;                  /* of a source that may be referred to; NULL: none, and no prints */
    struct refer_piece *prints; /* one a piece */
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

/* All of it is guarded by the lane's lock, but for what is set before the save is in the lane's
 * list, the draft, and the zip: these belong to the thread that opens, then to who copies, then to
 * "cairn-publish". */
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
    struct {
        uint64_t waiting, flying; /* bytes of unread that are not enqueued there yet, or are and did
                                     not come yet */
        uint64_t looking; /* bytes of unread whose fingerprint is under way: the device reads them,
                             and may have to again */
    } on_device[DEVICES_MAX];
    uint64_t source_bytes, copied_bytes, referenced_bytes;

    char *pattern;               /* of its path, if others are to refer to it; set at its begin */
    struct refer_version *older; /* counted: what it may refer to; set at its begin */
    int older_fd; /* that file, as long as the save may refer to it; then -1. Of "cairn-publish"
                     alone */

    struct cairn_save
        *before; /* the earlier one of the same name, counted; NULL when that has ended */
    struct cairn_save **after; /* counted; NULL where one is published */
    size_t after_count;
    dev_t dev; /* of the file that got the name */
    ino_t ino;

    int error;
    char cause[CAUSE_MAX];
    bool is_reported;
    int level; /* NVME or REMOTE, once it was seen there because somebody waited for that; else
                * -1 */

    struct {
        struct cairn_save *next; /* in the lane's list */
        bool is_queued, is_synced;
        unsigned waiters[CAIRN_REMOTE + 1],
            failures[CAIRN_REMOTE + 1]; /* by the level that is waited for */
        int error;                      /* of the last failure */
        char cause[CAUSE_MAX];
    } sync;
};

struct queue {
    struct job *first, **last;
};

/* A piece whose fingerprint is under way on a device, or which is to be copied because of it. */
struct look {
    struct job *job;
    size_t index;
    uint64_t at, length;
    struct device_event *event;
};

struct look_queue {
    struct look of[LOOKS_MAX];
    size_t first, count;
};

/* A device that the lane copied from; opened once. */
struct lane_device {
    int ordinal;
    struct device *device;
    bool has_no_prints;      /* changed by the device thread with the lock held */
    struct look_queue looks; /* fingerprints under way; of the device thread alone */
    struct ring_piece *first,
        **last; /* copies that are enqueued, in that order; of the device thread alone */
};

struct cairn_lane {
    struct cairn_lane *next; /* of the process; guarded by the list's lock */
    struct cairn_lane_options options;
    int log_level;
    unsigned generation;   /* of the process: another after fork */
    _Atomic uint64_t busy; /* bytes of sources and pieces under way that a fence may have to wait
                              for; changed with the lock held */
    _Atomic uint64_t blocked_ns;
    pthread_t copiers[COPY_THREADS_MAX + 1], publisher; /* set before there are others */
    unsigned copier_count;
    bool has_publisher, has_device_thread, has_syncer;
    pthread_t device_thread, syncer, openers[OPENERS_MAX];
    unsigned opener_count; /* guarded by lock, until it is stopping */

    struct cairn_mutex lock;
    pthread_cond_t work;         /* copiers: a queue has a job */
    pthread_cond_t publish;      /* the publisher: a save may have become ready */
    pthread_cond_t changed;      /* those who wait for saves */
    pthread_cond_t sync_work;    /* the syncer: to_sync has one */
    pthread_cond_t open_work;    /* openers: openings has one */
    pthread_cond_t opened;       /* those who wait for one */
    pthread_cond_t devices_work; /* the device thread: a source, or a free piece of the ring */

    /* Guarded by lock. */
    unsigned refs; /* the handle, and one each save */
    bool stopping;
    struct opening *openings, **openings_last;
    unsigned queued_openings, idle_openers;
    struct queue now, lazy;
    struct queue device_now, device_lazy;
    struct lane_device devices[DEVICES_MAX]; /* the first device_count stay as they are */
    int device_count;
    struct look_queue to_copy;
    size_t looks_under_way; /* of the device thread alone */
    struct refer refer;
    struct ring ring;
    bool ring_grows; /* one thread is at it */
    struct ring_piece *filled,
        **filled_last; /* their bytes came from a device, and go into files */
    struct cairn_save *saves, **saves_last;
    struct cairn_save *to_sync;            /* counted; whose turn is next first */
    struct cairn_save *untold[UNTOLD_MAX]; /* counted, oldest first */
    size_t unreported_count;
    uint64_t untold_lost; /* that found no place there */
    uint64_t begun;
    struct cairn_lane_stats stats;
};

/* --- lane.c ----------------------------------------------------------------------------------- */

/* Starts the threads, unless they run. */
CAIRN_MUST_CHECK int lane_start(struct cairn_lane *lane);

/* -ECHILD, with cause: the process is a child of the lane's. */
CAIRN_MUST_CHECK int lane_check(const struct cairn_lane *lane);

/* Unlocks it, and frees it where that was the last reference. */
void lane_unlock_last(struct cairn_lane *lane);

/* A call of the API ends: notes a cause if there is none, and how long it took. */
int lane_return(struct cairn_lane *lane, int64_t begun_ns, int r);

/* Of all lanes that this process has and had. */
struct lanes_stats {
    uint64_t pending_bytes, pending_saves, blocked_ns, published, failed;
    char error[256]; /* of the last save that failed */
};
/* Takes the locks of all lanes, one after the other. */
void lanes_stats(struct lanes_stats *ret);
void lanes_note_error(const char *cause);

void lane_log(struct cairn_lane *lane, int level, const char *fmt, ...) CAIRN_PRINTF(3, 4);

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

/* No byte of a source is read any more: all are copied, or it failed, no thread is in one, and no
 * copy or fingerprint of a device begins or is under way: of a save that failed, what is `waiting`
 * is a piece that the device thread has in its hands. */
bool save_is_quiet_locked(const struct cairn_save *save);

/* When a wait of so many ms ends, in ns of the monotonic clock; -1: never. */
int64_t deadline_of(int64_t timeout_ms);
/* Waits for a signal of the condition, or of the lane's `changed`. False: the deadline has passed.
 * The caller looks again in both cases. */
bool wait_locked(struct cairn_lane *lane, pthread_cond_t *cond, int64_t deadline);
bool wait_changed_locked(struct cairn_lane *lane, int64_t deadline);

/* --- open.c ----------------------------------------------------------------------------------- */

void *opener_run(void *lane); /* threads "cairn-open": started by calls, as they are needed */

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

/* --- copy.c ----------------------------------------------------------------------------------- */

/* Pieces of a job. A host source is cut at the borders of pages, for what does not begin at one is
 * one request of FUSE more; one on a device as the ring is. */
size_t pieces_of(const struct job *job);
/* Of the one that begins `given` bytes from the start. */
uint64_t piece_length(const struct job *job, uint64_t given);

void *copier_run(void *lane); /* thread "cairn-copy" */
void *copier_now_run(void *lane);

/* --- publish.c -------------------------------------------------------------------------------- */

void *publisher_run(void *lane); /* thread "cairn-publish" */

/* Of a stream that is committed: waits until it is its turn, and writes it. */
CAIRN_MUST_CHECK int save_publish_stream(struct cairn_save *save);

/* --- level.c ---------------------------------------------------------------------------------- */

void *syncer_run(void *lane); /* thread "cairn-sync": starts with the first wait for these levels,
                                 looks as long as there are waits */

/* Of a published save: waits for CAIRN_NVME or CAIRN_REMOTE. */
CAIRN_MUST_CHECK int level_wait(struct cairn_save *save, enum cairn_level level, int64_t deadline);

/* --- answer.c: what crosses the border to the caller ------------------------------------------ */

/* Of $CAIRN_LOG; else all lines where the caller takes them, warnings where they go to standard
 * error. */
int log_level_of(const struct cairn_lane_options *options);

/* Fills `ret` (which begins with its size) from `have`, as much as it knows of. -EINVAL: a size
 * that cannot be. */
CAIRN_MUST_CHECK int copy_struct(void *ret, const void *have, size_t size);

/* The other direction: `ret` of `size` bytes, zeros where `from` is shorter; `from` may be NULL.
 * -E2BIG: it has members that this library does not know, and they are not zero. */
CAIRN_MUST_CHECK int take_struct(void *ret, size_t size, const void *from);

/* --- device_copy.c: sources on devices -------------------------------------------------------- */

/* The slot of a device, which is opened if it is new, and the thread started; its copies from now
 * on come after what `producer` was given so far. -ENODEV, -EBUSY, ... */
CAIRN_MUST_CHECK int lane_device(struct cairn_lane *lane, int ordinal, uint64_t producer,
                                 int *ret_slot);

/* --- device_look.c: of the thread "cairn-device" ---------------------------------------------- */

/* The next piece that is to be copied, if there is one. */
bool look_next_copy_locked(struct cairn_lane *lane, struct look *ret);
/* Enqueues the next fingerprint; ends one of that device that is done. False: there is none, or no
 * room. */
bool look_begin(struct cairn_lane *lane);
bool look_end(struct cairn_lane *lane, struct lane_device *device);
/* The save has failed: what was to be copied of it is not. */
void look_drop_locked(struct cairn_save *save);

/* The slot that has it already; else -1. */
int device_slot_locked(const struct cairn_lane *lane, int ordinal);

void *device_run(void *lane); /* thread "cairn-device" */

/* The ring gets this size, unless it has it. -EBUSY: a source on a device is under way. */
CAIRN_MUST_CHECK int lane_prepare(struct cairn_lane *lane, uint64_t bytes);

/* When all threads have ended. */
void lane_close_devices(struct cairn_lane *lane, bool is_child);
