// SPDX-License-Identifier: Apache-2.0
/* Inside the store: content that is brought from the remote.
 *
 *   pull_window.c  chunks on their way, and those that wait in memory for a reader
 *   pull.c         one GET, and what is done with it
 *   pull_read.c    reads of them
 *   prefetch.c     files that are read from front to back, and what is asked for ahead of them
 *   warm.c         whole files and directories, fetched or evicted because it was asked for
 *
 * A chunk is named by its hash, so it does not matter which reader asked: it is on its way once,
 * and a reader that needs it meanwhile waits for it. All memory of this comes out of one budget,
 * the window. */
#pragma once

#include <uthash.h>

#include "dense/bases.h"
#include "fetch/internal.h"

#define PULL_GROUP_BYTES (8u * 1024 * 1024) /* most that one GET asks for */
#define PULL_GROUP_GAP (128u * 1024) /* that is fetched for nothing rather than by another GET */
#define PULL_GROUP_CHUNKS 1024u
#define PULL_WINDOW_SPARE (64 * MIB) /* of the window, beside one group for each thread */
#define PULL_SPARE_MAX 16u
#define PULL_READERS 16u
#define PULL_THREADS_USUAL 16u
#define PULL_STREAMS 32u
#define PULL_UNKEPT_MAX 32u
#define PULL_JOBS 4u /* of warming and evicting, at once */

/* Adjacent chunks of one remote pack. */
struct pull_group {
    TAILQ_ENTRY(pull_group) link;
    struct pull_plan *plan; /* in which it waits; NULL: it was taken */
    uint64_t pack, offset;
    uint32_t length; /* stored, with gaps */
    uint64_t cost;   /* memory that it takes */
    uint64_t first;  /* where in the file the first of it is needed */
    bool for_reader; /* stays in memory until it was read; else it is fetched to be promoted */
    uint32_t count;
    struct chunk_entry *entries; /* in order of place */
};
TAILQ_HEAD(pull_group_list, pull_group);

/* Groups that wait for a thread, in order of need. */
struct pull_plan {
    struct pull_group_list groups;
    unsigned count;
};

enum pull_state { PULL_PLANNED, PULL_LOADING, PULL_READY, PULL_FAILED };

/* Memory that counts against the window: what one GET brought, or what one chunk decodes to. */
struct pull_buffer {
    uint8_t *bytes;
    uint64_t cost;
    unsigned refs; /* with the lock */
};

/* A reader that is called when a chunk that is on its way has come, or failed. */
struct pull_waiter {
    STAILQ_ENTRY(pull_waiter) link;
    void (*job)(void *arg);
    void *arg;
};
STAILQ_HEAD(pull_waiter_list, pull_waiter);

struct pull_chunk {
    UT_hash_handle hh;
    TAILQ_ENTRY(pull_chunk) link; /* READY: by last use */
    struct chunk_name name;
    enum pull_state state;
    struct pull_group *group;        /* PLANNED */
    unsigned pins;                   /* readers that wait for it, copy from it or have it on loan */
    pthread_cond_t arrived;          /* or failed, or was given up */
    struct pull_waiter_list waiters; /* LOADING */
    bool for_reader;
    bool promoting; /* READY: not on NVMe yet, but on its way there */
    bool forgotten; /* out of the table; freed with the last pin */
    int error;
    struct base_loss loss; /* -ENOLINK */
    uint32_t len;
    uint64_t read; /* bytes of it that readers took */
    int64_t used;
    const uint8_t *bytes;
    struct pull_buffer *buffer; /* where they lie */
};
TAILQ_HEAD(pull_chunk_list, pull_chunk);

/* A file that is read. */
struct pull_stream {
    uint64_t ino;        /* 0: free */
    uint64_t next;       /* where a reader that goes on would go on */
    uint64_t sequential; /* bytes read one after the other until there */
    unsigned requests;
    bool missed; /* something was not on NVMe */
    bool planning, ended;
    uint64_t planned; /* what lies before this was planned */
    int64_t used, quiet_until;
    struct pull_plan plan;
};

/* A group that came and has been read, and is not on NVMe yet. */
struct pull_fetched {
    struct pull_group *group;
    struct pull_buffer *stored;
    bool *good;                  /* of each chunk */
    struct pull_buffer **opened; /* of each that refers to others: it is promoted by itself */
    uint64_t scratch;            /* memory to encode it with, which the group took */
};

struct warm_job;

struct pull {
    struct remote *remote;
    struct store *store;
    unsigned thread_count;
    pthread_t *threads;
    struct pool *readers;   /* reads of files that wait for the remote */
    uint64_t window;        /* most that may be held */
    pthread_cond_t changed; /* work, or room, or the end of some */
    struct {
        struct cairn_mutex lock; /* a leaf */
        struct pull_chunk *chunks;
        struct pull_chunk_list ready;
        uint64_t held;
        uint8_t *spare[PULL_SPARE_MAX]; /* of PULL_GROUP_BYTES: memory that was touched before is
                                           faster */
        unsigned spares;
        struct pull_plan solo; /* chunks that one reader asked for */
        struct pull_stream streams[PULL_STREAMS];
        unsigned next_stream; /* of the streams */
        /* what readers fetched themselves: a thread stores it */
        struct pull_fetched unkept[PULL_UNKEPT_MAX];
        unsigned unkept_count;
        unsigned waiting; /* readers that will be called, or are being */
        bool stopping;
        struct warm_job *jobs[PULL_JOBS];
        uint64_t next_job;
    } locked;
};

/* Most memory that it takes, threads aside. */
static inline uint64_t pull_window(unsigned threads)
{
    return (uint64_t)(threads ? threads : PULL_THREADS_USUAL) * PULL_GROUP_BYTES +
           PULL_WINDOW_SPARE;
}

/* --- pull_window.c ---------------------------------------------------------------------------- */

/* Memory for `length` bytes, of which the cost was taken with the group; one reference. */
struct pull_buffer *pull_buffer_new(struct pull *pull, uint64_t length);
void pull_buffer_put_locked(struct pull *pull, struct pull_buffer *buffer);
/* Memory that is kept for later buffers: no more than so much of it. */
void pull_drop_spares_locked(struct pull *pull, uint64_t max_bytes);
/* Takes the chunk out of the table; the last unpin frees it. */
void pull_forget_locked(struct pull *pull, struct pull_chunk *chunk);
/* Does no reader need it any more, once it has no pins? Until it is on NVMe it stays: a reader that
 * needs it once more would fetch it once more. */
bool pull_is_used_up(const struct pull_chunk *chunk);
struct pull_chunk *pull_find_locked(struct pull *pull, const struct chunk_name *name);
/* Is it to be fetched, being fetched, or on its way to NVMe? When that ends, `changed` is
 * signalled.
 */
bool pull_is_coming_locked(struct pull *pull, const struct chunk_name *name);
void pull_unpin_locked(struct pull *pull, struct pull_chunk *chunk);
struct pull_wanted;
struct pull_group *pull_group_new(const struct pull_wanted *wanted, uint32_t count,
                                  bool for_reader);
void pull_group_free(struct pull_group *group);
/* Orders what is wanted by place, and makes groups of what is adjacent there, in order of need. */
struct pull_wanted {
    struct chunk_entry entry;
    uint64_t first; /* where in the file it is needed */
};
void pull_make_groups(struct pull_wanted *wanted, size_t count, bool for_reader,
                      struct pull_group_list *ret);

/* Puts a group into a plan, less the chunks that are on their way already. Frees it if nothing is
 * left. */
void pull_plan_locked(struct pull *pull, struct pull_plan *plan, struct pull_group *group);
void pull_unplan_locked(struct pull *pull, struct pull_plan *plan);
/* Room in the window for the group, taken from chunks that were not read for a while (`force`: from
 * any that nothing holds); then it is out of its plan and its chunks are on their way. */
bool pull_take_locked(struct pull *pull, struct pull_group *group, bool force);
/* Gives memory back that was not used for a while. */
void pull_trim_locked(struct pull *pull);

/* --- pull.c ----------------------------------------------------------------------------------- */

/* Sets store->fetch->pull, also where it fails. */
CAIRN_MUST_CHECK int pull_start(struct store *store);
/* First no new work begins, then (the tier interrupted) what is under way ends. NULL is fine. */
void pull_stop_work(struct pull *pull);
void pull_end(struct pull *pull);
void pull_free(struct pull *pull);

/* Fetches a group that was taken, and frees it. Returns the first error; *ret_not_promoted: stored
 * bytes that found no room on NVMe, for which it waited at most `wait_ns`. */
int pull_fetch_group(struct pull *pull, struct pull_group *group, int64_t wait_ns,
                     uint64_t *ret_not_promoted);
/* The same for a reader, which need not wait until it is on NVMe: pull_promote_one_locked() sees to
 * that. */
void pull_fetch_for_reader(struct pull *pull, struct pull_group *group);
/* False: nothing waits for it. Releases the lock meanwhile. */
bool pull_promote_one_locked(struct pull *pull, int64_t wait_ns);

/* --- pull_read.c ------------------------------------------------------------------------------ */

/* Part of a chunk that waits in memory. False: it does not. */
bool pull_read_ready(struct pull *pull, const struct chunk_name *name, uint64_t offset, void *buf,
                     size_t length, int *ret);
/* Part of a chunk that lies in the remote at `place`, fetched now unless it is on its way; where it
 * has moved, from there. -ENOENT: it has no place there any more; -ENODATA: its pack is missing;
 * -ENOLINK: what it refers to cannot be read (the cause says which); -EHOSTDOWN: the remote did not
 * give it (the status says why); -EBADMSG, -EUCLEAN: it is damaged there. Blocks. */
CAIRN_MUST_CHECK int pull_read(struct pull *pull, const struct chunk_entry *place, uint64_t offset,
                               void *buf, size_t length);
/* A reader took so much of it. */
void pull_note_read_locked(struct pull *pull, struct pull_chunk *chunk, uint64_t length);
/* The waiter, which is the chunk's until then, is called when the chunk, which is on its way, has
 * come or failed. */
void pull_wait_locked(struct pull *pull, struct pull_chunk *chunk, struct pull_waiter *waiter);

/* Has NVMe a place for it, now or when a pack that is being written is whole? */
bool pull_is_local(struct store *store, const struct chunk_name *name);

/* Calls them, and empties the list. They may block. */
void pull_call_waiters(struct pull *pull, struct pull_waiter_list *waiters);
/* Returns when no reader will be called any more. */
void pull_await_waiters(struct pull *pull);

/* --- prefetch.c ------------------------------------------------------------------------------- */

void *prefetch_main(void *pull);
/* A reader reads [offset, offset + length) of the file. */
void prefetch_note_read(struct pull *pull, uint64_t ino, uint64_t offset, uint64_t length);
/* And something of it was not on NVMe. */
void prefetch_note_miss(struct pull *pull, uint64_t ino);

/* --- warm.c ----------------------------------------------------------------------------------- */

/* Takes the next group of a job, and the job with it. NULL: there is none, or no room. */
struct pull_group *warm_take_locked(struct pull *pull, struct warm_job **ret_job);
void warm_group_done_locked(struct pull *pull, struct warm_job *job, uint64_t bytes, int error,
                            uint64_t not_promoted);
void warm_stop(struct pull *pull); /* asks all jobs to end */
void warm_end(struct pull *pull);  /* when they have */
