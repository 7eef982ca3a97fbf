// SPDX-License-Identifier: Apache-2.0
/* Inside the store: content that is fetched from the remote.
 *
 *    pull_window.c  chunks on their way, and chunks that wait in memory for a reader
 *    pull.c         one GET, and the use of its content
 *    pull_read.c    reads of such chunks
 *    prefetch.c     files that are read from front to back, and requests ahead of the reader
 *    warm.c         whole files and directories, fetched or evicted on request
 *
 * A chunk is named by its hash, so it does not matter which reader asked for it: it is fetched
 * once, and a reader that needs it meanwhile waits for it. All memory of this is counted against
 * one budget, the window. */
#pragma once

#include <uthash.h>

#include "dense/bases.h"
#include "fetch/internal.h"

#define PULL_GROUP_BYTES (8u * 1024 * 1024) /* most bytes of one GET */
/* of unneeded bytes that are fetched rather than using another GET */
#define PULL_GROUP_GAP (128u * 1024)
#define PULL_GROUP_CHUNKS 1024u
#define PULL_WINDOW_SPARE (64 * MIB) /* of the window, beside one group for each thread */
#define PULL_SPARE_MAX 16u
#define PULL_READERS 16u
#define PULL_THREADS_USUAL 16u
#define PULL_STREAMS 32u
#define PULL_UNKEPT_MAX 32u
#define PULL_JOBS 4u /* jobs of warming and evicting, at once */

/* Adjacent chunks of one remote pack. */
struct pull_group {
    TAILQ_ENTRY(pull_group) link;
    struct pull_plan *plan; /* the plan in which it waits; NULL: it was taken */
    uint64_t pack, offset;
    uint32_t length; /* stored, with gaps */
    uint64_t cost;   /* memory that is counted for it */
    uint64_t first;  /* where in the file its first bytes are needed */
    /* its chunks stay in memory until they were read; else it is fetched to be promoted */
    bool for_reader;
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

/* Memory that counts against the window: the content of one GET, or of one decoded chunk. */
struct pull_buffer {
    uint8_t *bytes;
    uint64_t cost;
    unsigned refs; /* with the lock */
};

/* A reader that is called when a chunk on its way has arrived, or failed. */
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
    pthread_cond_t arrived;          /* signalled when it arrived, failed, or was given up */
    struct pull_waiter_list waiters; /* LOADING */
    bool for_reader;
    bool promoting; /* READY: not on NVMe yet, but being promoted */
    bool forgotten; /* removed from the table; freed with the last pin */
    int error;
    struct base_loss loss; /* -ENOLINK */
    uint32_t len;
    uint64_t read; /* bytes of it that readers have read */
    int64_t used;
    const uint8_t *bytes;
    struct pull_buffer *buffer; /* the buffer that contains the bytes */
};
TAILQ_HEAD(pull_chunk_list, pull_chunk);

/* A file that is being read. */
struct pull_stream {
    uint64_t ino;        /* 0: free */
    uint64_t next;       /* the offset at which a sequential reader would continue */
    uint64_t sequential; /* bytes read sequentially until there */
    unsigned requests;
    bool missed; /* some chunk was not on NVMe */
    bool planning, ended;
    uint64_t planned; /* the content before this offset was planned */
    int64_t used, quiet_until;
    struct pull_plan plan;
};

/* A group that arrived and has been read, and is not on NVMe yet. */
struct pull_fetched {
    struct pull_group *group;
    struct pull_buffer *stored;
    bool *good;                  /* of each chunk */
    struct pull_buffer **opened; /* of each chunk with references: it is promoted by itself */
    uint64_t scratch;            /* memory to encode it, which was counted with the group */
};

struct warm_job;

struct pull {
    struct remote *remote;
    struct store *store;
    unsigned thread_count;
    pthread_t *threads;
    struct pool *readers;   /* reads of files that wait for the remote */
    uint64_t window;        /* most memory that may be held */
    pthread_cond_t changed; /* signalled for new work, room, or work that ended */
    struct {
        struct cairn_mutex lock; /* a leaf */
        struct pull_chunk *chunks;
        struct pull_chunk_list ready;
        uint64_t held;
        /* of PULL_GROUP_BYTES: memory that was touched before is faster */
        uint8_t *spare[PULL_SPARE_MAX];
        unsigned spares;
        struct pull_plan solo; /* chunks that a single reader asked for */
        struct pull_stream streams[PULL_STREAMS];
        unsigned next_stream; /* of the streams */
        /* groups that readers fetched themselves: a thread stores them on NVMe */
        struct pull_fetched unkept[PULL_UNKEPT_MAX];
        unsigned unkept_count;
        unsigned waiting; /* readers that will be called, or are being called */
        bool stopping;
        struct warm_job *jobs[PULL_JOBS];
        uint64_t next_job;
    } locked;
};

/* Returns the most memory that is used, without threads. */
static inline uint64_t pull_window(unsigned threads)
{
    return (uint64_t)(threads ? threads : PULL_THREADS_USUAL) * PULL_GROUP_BYTES +
           PULL_WINDOW_SPARE;
}

/* --- pull_window.c ---------------------------------------------------------------------------- */

/* Returns memory for `length` bytes, whose cost was counted with the group; one reference. */
struct pull_buffer *pull_buffer_new(struct pull *pull, uint64_t length);
void pull_buffer_put_locked(struct pull *pull, struct pull_buffer *buffer);
/* Frees spare memory that is kept for later buffers, down to `max_bytes`. */
void pull_drop_spares_locked(struct pull *pull, uint64_t max_bytes);
/* Removes the chunk from the table; the last unpin frees it. */
void pull_forget_locked(struct pull *pull, struct pull_chunk *chunk);
/* Returns whether no reader needs the chunk any more, once it has no pins. It stays until it is on
 * NVMe: a reader that needs it again would fetch it again. */
bool pull_is_used_up(const struct pull_chunk *chunk);
struct pull_chunk *pull_find_locked(struct pull *pull, const struct chunk_name *name);
/* Returns whether the chunk is to be fetched, being fetched, or being promoted. When that ends,
 * `changed` is signalled. */
bool pull_is_coming_locked(struct pull *pull, const struct chunk_name *name);
void pull_unpin_locked(struct pull *pull, struct pull_chunk *chunk);
struct pull_wanted;
struct pull_group *pull_group_new(const struct pull_wanted *wanted, uint32_t count,
                                  bool for_reader);
void pull_group_free(struct pull_group *group);
/* Wanted chunks, which are ordered by place and combined into groups of adjacent ones, in order of
 * need. */
struct pull_wanted {
    struct chunk_entry entry;
    uint64_t first; /* where in the file it is needed */
};
void pull_make_groups(struct pull_wanted *wanted, size_t count, bool for_reader,
                      struct pull_group_list *ret);

/* Adds a group to a plan, without the chunks that are on their way already. Frees the group if no
 * chunk is left. */
void pull_plan_locked(struct pull *pull, struct pull_plan *plan, struct pull_group *group);
void pull_unplan_locked(struct pull *pull, struct pull_plan *plan);
/* Makes room in the window for the group, by dropping chunks that were not read for a while
 * (`force`: any chunk that nothing holds); then removes it from its plan and marks its chunks as on
 * their way. False: no room. */
bool pull_take_locked(struct pull *pull, struct pull_group *group, bool force);
/* Frees memory that was not used for a while. */
void pull_trim_locked(struct pull *pull);

/* --- pull.c ----------------------------------------------------------------------------------- */

/* Sets store->fetch->pull, also after a failure. */
CAIRN_MUST_CHECK int pull_start(struct store *store);
/* Called in this order: pull_stop_work(): no new work begins; pull_end(), after the tier was
 * interrupted: waits until work under way has ended. NULL: no effect. */
void pull_stop_work(struct pull *pull);
void pull_end(struct pull *pull);
void pull_free(struct pull *pull);

/* Fetches a group that was taken, and frees it. Returns the first error; *ret_not_promoted: stored
 * bytes for which NVMe had no room within `wait_ns`. */
int pull_fetch_group(struct pull *pull, struct pull_group *group, int64_t wait_ns,
                     uint64_t *ret_not_promoted);
/* As pull_fetch_group(), for a reader, which need not wait until the group is on NVMe:
 * pull_promote_one_locked() promotes it later. */
void pull_fetch_for_reader(struct pull *pull, struct pull_group *group);
/* False: no group waits to be promoted. Releases the lock meanwhile. */
bool pull_promote_one_locked(struct pull *pull, int64_t wait_ns);

/* --- pull_read.c ------------------------------------------------------------------------------ */

/* Reads part of a chunk that is in memory. False: it is not in memory. */
bool pull_read_ready(struct pull *pull, const struct chunk_name *name, uint64_t offset, void *buf,
                     size_t length, int *ret);
/* Reads part of a chunk that lies in the remote at `place`, fetched now unless it is on its way; if
 * it has moved, from its new place. -ENOENT: it has no place there any more; -ENODATA: its pack is
 * missing; -ENOLINK: a chunk that it refers to cannot be read (the cause names it); -EHOSTDOWN: the
 * remote did not return it (the status has the reason); -EBADMSG, -EUCLEAN: it is damaged there.
 * Blocks. */
CAIRN_MUST_CHECK int pull_read(struct pull *pull, const struct chunk_entry *place, uint64_t offset,
                               void *buf, size_t length);
/* A reader has read `length` bytes of the chunk. */
void pull_note_read_locked(struct pull *pull, struct pull_chunk *chunk, uint64_t length);
/* Adds a waiter, which is called when the chunk, which is on its way, has arrived or failed; it
 * must stay valid until then. */
void pull_wait_locked(struct pull *pull, struct pull_chunk *chunk, struct pull_waiter *waiter);

/* Returns whether NVMe has a place for the chunk, now or when a pack that is being written is
 * complete. */
bool pull_is_local(struct store *store, const struct chunk_name *name);

/* Calls the waiters, and empties the list. They may block. */
void pull_call_waiters(struct pull *pull, struct pull_waiter_list *waiters);
/* Returns when no reader will be called any more. */
void pull_await_waiters(struct pull *pull);

/* --- prefetch.c ------------------------------------------------------------------------------- */

void *prefetch_main(void *pull);
/* A reader reads [offset, offset + length) of the file. */
void prefetch_note_read(struct pull *pull, uint64_t ino, uint64_t offset, uint64_t length);
/* Some of the content that was read was not on NVMe. */
void prefetch_note_miss(struct pull *pull, uint64_t ino);

/* --- warm.c ----------------------------------------------------------------------------------- */

/* Takes the next group of a job, and returns the job with it. NULL: there is none, or no room. */
struct pull_group *warm_take_locked(struct pull *pull, struct warm_job **ret_job);
void warm_group_done_locked(struct pull *pull, struct warm_job *job, uint64_t bytes, int error,
                            uint64_t not_promoted);
void warm_stop(struct pull *pull); /* asks all jobs to end */
void warm_end(struct pull *pull);  /* waits until they have ended */
