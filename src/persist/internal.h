/* Inside the store. Nobody else includes this. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <uthash.h>

#include "base/lock.h"
#include "base/pool.h"
#include "codec/cut.h"
#include "codec/hash.h"
#include "format/pack.h"
#include "format/segment.h"
#include "format/superblock.h"
#include "persist/store.h"
#include "tier/tier.h"

#define PACK_DATA_MAX (24u * 1024 * 1024)    /* stored chunks of one pack */
#define PACK_BUFFER_LEN (PACK_DATA_MAX + 3u * 1024 * 1024) /* with header, index and trailer */
#define PACK_BUFFERS 3u
#define PACK_ENTRIES_MAX 12288u
#define TARGET_BYTES_MAX (1024ull * 1024 * 1024) /* missing bytes that a target may have, or one version */
#define PENDING_OPS_MAX 200000u
#define CHUNK_CACHE_ENTRIES 24u
#define READ_THREADS 4u
#define VIEW_CACHE_BYTES (48u * 1024 * 1024)
#define DAMAGE_MAX 64u

/* --- history.c ------------------------------------------------------------------------------------------------------- */

/* An operation that is not durable yet. */
struct op {
    TAILQ_ENTRY(op) link;
    uint64_t seq;
    int64_t happened; /* monotonic ns */
    uint16_t type;
    uint32_t flags;
    uint64_t ino, ino2, version;
    uint32_t len;
    uint8_t bytes[]; /* the encoded record */
};
TAILQ_HEAD(op_list, op);

/* --- packs.c --------------------------------------------------------------------------------------------------------- */

/* A chunk that lies in a pack (or will) that the view does not know yet. */
struct fresh {
    UT_hash_handle hh;
    struct chunk_entry entry;
};

enum pack_state { PACK_FILLING, PACK_WRITING, PACK_DURABLE, PACK_FAILED };

/* A pack that the view does not know yet. */
struct new_pack {
    TAILQ_ENTRY(new_pack) link;
    uint64_t id;
    uint64_t length; /* of the file */
    uint64_t data_len;
    uint32_t count;
    enum pack_state state;
    bool logged; /* the stage's log names it */
    int error;
    uint8_t *buffer;             /* while filling and writing */
    struct chunk_entry *entries; /* PACK_ENTRIES_MAX while filling, then count */
    struct store *store;
};
TAILQ_HEAD(new_pack_list, new_pack);

struct pack_pin {
    UT_hash_handle hh;
    uint64_t pack;
    unsigned pins;
    bool dropping; /* its file is about to go: no chunk of it may be used */
};

/* --- fetch.c --------------------------------------------------------------------------------------------------------- */

struct cached_chunk {
    struct chunk_name name;
    uint32_t len; /* 0: empty */
    uint64_t used;
    uint8_t *bytes; /* CHUNK_SIZE_MAX */
};

struct damage {
    char *path;
    char *what;
    struct chunk_name chunk;
};

/* --- horizon.c ------------------------------------------------------------------------------------------------------- */

struct waiter {
    TAILQ_ENTRY(waiter) link;
    uint64_t seq, ticket;
    void (*fn)(int result, void *arg);
    void *arg;
};
TAILQ_HEAD(waiter_list, waiter);

/* --- journal.c ------------------------------------------------------------------------------------------------------- */

struct journal {
    uint64_t segment;    /* running number of the current one; 0: none yet */
    uint64_t offset;     /* where the next batch goes */
    uint64_t room;       /* length of the current segment's file */
    uint64_t cut_seq;    /* of the last batch */
    uint64_t epoch;      /* newest epoch of any segment */
    uint64_t bytes;      /* of all segment files */
    uint64_t spare;      /* number of the segment that is allocated ahead; 0: none */
    uint8_t chain[CHAIN_LEN];
};

struct store {
    struct store_options options;
    char *path, *stage_dir;
    struct superblock sb;
    struct tier *tier;
    struct view *view;
    struct ns *ns;
    struct stage *stage;
    uint64_t epoch;
    _Atomic uint64_t next_ino;
    _Atomic uint64_t next_pack;
    void (*on_room)(void *arg);
    void *on_room_arg;

    struct {
        struct cairn_mutex lock; /* held while an operation enters log, overlay and list: their order is one */
        struct op_list ops;
        uint64_t op_count, op_bytes;
        uint64_t newest;
        int64_t last_time;
    } history;

    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed;
        struct fresh *fresh;
        struct new_pack *filling;
        struct new_pack_list written; /* durable and writing, not yet in a batch */
        struct pack_pin *pins;
        uint8_t *buffers[PACK_BUFFERS];
        unsigned buffers_free;
        uint64_t new_bytes; /* lengths of packs that are not in the view */
    } packs;

    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed; /* the writeback thread waits on it */
        struct waiter_list waiters;
        uint64_t next_ticket;
        uint64_t horizon;
        int64_t urge_until;
        unsigned waiting_writers;
        bool stopping, drain, kicked;
        uint64_t errors;
        char last_error[256];
        int64_t last_error_ns;
        uint64_t target_bytes; /* of the target that is being written, still to go */
    } horizon;

    struct journal journal; /* writeback thread only, after recovery */

    pthread_t thread;
    bool thread_started;
    struct pool *workers;      /* hash and encode */
    struct pool *pack_writers; /* one put each */
    struct pool *readers;
    struct {
        struct cairn_mutex lock;
        uint64_t allowance_at; /* monotonic ns at which the rate limit allows more */
    } limit;
    _Atomic uint64_t written_total, dedup_total;
    _Atomic bool is_lifted; /* limits and low priority are off */

    struct {
        struct cairn_mutex lock;
        struct cached_chunk entries[CHUNK_CACHE_ENTRIES];
        uint64_t clock;
        struct damage damage[DAMAGE_MAX];
        unsigned damage_count;
    } cache;

    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed;
        pthread_t thread;
        bool started, stopping, wanted;
        bool scarce;         /* less than wanted is to be had */
        bool hopeless;       /* and nothing is left that could come free */
        uint64_t held;       /* bytes allocated ahead by the tier */
        uint64_t journal_bytes, view_bytes;
    } room;
};

/* store.c: the durable part alone, the stage left as it is (for checks) */
CAIRN_MUST_CHECK int store_open_medium(const struct store_options *options, struct store **ret, char **ret_text);
void store_discard(struct store *store);

/* history.c */
void history_init(struct store *store);
void history_done(struct store *store);
CAIRN_MUST_CHECK int history_compact(struct store *store);
void history_readd(struct store *store, const struct record *rec); /* recovery: a pending operation of the log */
/* Copies out the operations up to `seq`, in order; they stay in the list. */
struct op **history_up_to(struct store *store, uint64_t seq, size_t *ret_count);
void history_retire(struct store *store, uint64_t seq);
bool history_oldest(struct store *store, uint64_t *ret_seq, int64_t *ret_happened);

/* horizon.c */
void horizon_init(struct store *store);
void horizon_done(struct store *store);
void horizon_advance(struct store *store, uint64_t seq);
void horizon_error(struct store *store, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void horizon_kick(struct store *store);

/* packs.c */
void packs_init(struct store *store);
void packs_done(struct store *store);
/* Names the chunk and makes sure that it lies in some pack: known, or added to one that is being filled. *ret_pinned: the pack
 * of a chunk that was known, pinned for the caller (0: none). `scratch` holds two chunks. */
CAIRN_MUST_CHECK int packs_add(struct store *store, const struct iovec *iov, size_t iov_count, size_t raw_len,
                               void *scratch, struct chunk_name *ret_name, uint64_t *ret_pinned);
/* Adds a chunk as it is stored (compaction). */
CAIRN_MUST_CHECK int packs_add_stored(struct store *store, const struct chunk_entry *entry, const void *stored);
/* Every chunk added before is durable on return, names of packs too. */
CAIRN_MUST_CHECK int packs_finish(struct store *store);
/* Forgets packs that failed and those written since they did; their chunks must be added again. */
void packs_abandon(struct store *store);
/* Is the chunk stored, and can be relied on? Then its pack is pinned. */
bool packs_pin_stored(struct store *store, const struct chunk_name *name, uint64_t *ret_pinned);
void packs_unpin(struct store *store, uint64_t pack);
void packs_retire(struct store *store, const uint64_t *ids, size_t count); /* the view knows them now */
uint64_t packs_find_fresh(struct store *store, const struct chunk_name *name, struct chunk_entry *ret);
bool packs_begin_drop(struct store *store, uint64_t pack);
void packs_end_drop(struct store *store, uint64_t pack);
void packs_readd(struct store *store, uint64_t id, uint64_t length, const struct chunk_entry *entries, uint32_t count);
int packs_read_index(struct store *store, uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *arg),
                     void *arg);
void pack_object_name(uint64_t pack, char buf[32]);

/* content.c: the chunks of a pinned version or of a piece of a draft */
struct content {
    struct extent *extents;
    size_t count, max;
    uint8_t *inline_bytes;
    uint32_t inline_len;
    uint64_t *pinned; /* packs pinned by deduplication */
    size_t pinned_count, pinned_max;
};
CAIRN_MUST_CHECK int content_write_layer(struct store *store, const struct stage_sealed *version, struct content *ret);
/* One run of parts; cut state in and out. Borders are in `extents`; the rest of the run was held back if `more`. */
CAIRN_MUST_CHECK int content_write_run(struct store *store, const struct stage_part *parts, size_t count,
                                       struct cut_state *state, bool more, struct content *content);
void content_done(struct store *store, struct content *content);
void limit_wait(struct store *store, uint64_t bytes);

/* batch.c */
struct version_content { /* in order of seal_seq */
    uint64_t ino, version, keep, seal_seq;
    struct content content;
    uint64_t bytes;
};
struct batch {
    uint8_t *bytes;
    size_t len, max;
    uint32_t count;
    uint64_t *packs; /* ids that it names */
    size_t pack_count;
};
CAIRN_MUST_CHECK int batch_build(struct store *store, uint64_t cut, struct op *const *ops, size_t op_count,
                                 const struct version_content *versions, size_t version_count, const uint64_t *drops,
                                 size_t drop_count, struct batch *ret);
void batch_done(struct batch *batch);
/* Would a batch of these operations write nothing? */
bool batch_is_void(struct store *store, struct op *const *ops, size_t op_count);

/* journal.c */
/* Reads all segments; calls `fn` for each batch in order. Sets store->journal. */
struct journal_batch {
    struct batch_header header;
    uint8_t chain[CHAIN_LEN]; /* with it */
    const void *records;
};
CAIRN_MUST_CHECK int journal_read(struct store *store, int (*fn)(const struct journal_batch *batch, void *arg), void *arg);
/* Begins a segment for the store's epoch: durable on return. */
CAIRN_MUST_CHECK int journal_begin(struct store *store);
CAIRN_MUST_CHECK int journal_append(struct store *store, uint64_t cut, const void *records, size_t len, uint32_t count);

/* writeback.c */
CAIRN_MUST_CHECK int writeback_start(struct store *store);
void writeback_stop(struct store *store);

/* recover.c */
CAIRN_MUST_CHECK int recover(struct store *store, char **ret_text);
CAIRN_MUST_CHECK int recover_view(struct store *store, char **ret_text);
int view_pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg), void *fn_arg, void *arg);

/* room.c */
CAIRN_MUST_CHECK int room_start(struct store *store);
void room_stop(struct store *store);
void room_account(struct store *store);
uint64_t room_used(struct store *store);
/* Bytes that may still be staged and written, by what is known now. */
uint64_t room_available(struct store *store);
bool room_is_short(struct store *store);
/* The view's database cannot bear a full disk: there is room for it to write, or -ENOSPC. */
CAIRN_MUST_CHECK int room_for_view(struct store *store);
void room_settle(struct store *store, bool progress);

/* gc.c */
/* Packs that nothing needs, marked as dropping: at most `max`. */
size_t gc_dead_packs(struct store *store, uint64_t *ids, size_t max);
/* Adds what is alive in mostly dead packs to a new pack; these, marked as dropping: the next batch moves and drops. */
size_t gc_compact(struct store *store, uint64_t *ids, size_t max);
void gc_remove(struct store *store, const uint64_t *ids, size_t count);

/* fetch.c */
void fetch_init(struct store *store);
void fetch_done(struct store *store);
CAIRN_MUST_CHECK int fetch_chunk(struct store *store, const struct chunk_name *name, void *buf, uint32_t *ret_len);
/* A chunk that did not verify: nothing may rely on it, so equal content is stored anew, which heals it. */
bool is_damaged(struct store *store, const struct chunk_name *name);
void note_damage(struct store *store, uint64_t ino, const struct chunk_name *name, int error);
