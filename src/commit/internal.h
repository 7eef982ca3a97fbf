// SPDX-License-Identifier: Apache-2.0
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
#include "format/object.h"
#include "format/pack.h"
#include "format/segment.h"
#include "format/superblock.h"
#include "store/store.h"
#include "tier/tier.h"

#define PACK_DATA_MAX (24u * 1024 * 1024)    /* stored chunks of one pack */
#define PACK_BUFFER_LEN (PACK_DATA_MAX + 3u * 1024 * 1024) /* with header, index and trailer */
#define PACK_BUFFERS 3u
#define PACK_WRITERS 2u
#define PACK_ENTRIES_MAX 12288u
#define TARGET_BYTES_MAX (1024ull * 1024 * 1024) /* missing bytes that a target may have, or one version */
#define PENDING_OPS_MAX 200000u
#define CHUNK_CACHE_ENTRIES 24u
#define READ_THREADS 4u
#define VIEW_CACHE_BYTES (48u * 1024 * 1024)
#define DAMAGE_MAX 64u
#define AGES_MAX 512u
#define DUE_MAX STAGE_DUE_MAX /* seals that wait at once */
#define PACK_CLOCKS 65536u
#define SICK_MAX 64u
#define EPOCH_LAST ((1ull << (64 - SEQ_EPOCH_SHIFT)) - 1024) /* no store gets there */
#define ID_EPOCH(id) ((id) >> 24 & 0xffffff)                 /* of an inode's, a pack's or a run's number */

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
    bool durable; /* its pack is written: it can be read there */
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
    bool is_named; /* by a batch of the journal that the view does not have yet */
    uint64_t kept; /* bytes in it that were fetched */
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

/* --- read.c ---------------------------------------------------------------------------------------------------------- */

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

/* Where the journal cannot be read on, although it goes on. */
struct journal_damage {
    bool found;
    uint64_t segment, offset;
    uint64_t behind;  /* whole batches behind it, in its segment */
    const char *what; /* static */
};

struct journal {
    uint64_t segment;    /* running number of the current one; 0: none yet */
    uint64_t offset;     /* where the next batch goes */
    uint64_t room;       /* length of the current segment's file */
    uint64_t cut_seq;    /* of the last batch */
    int64_t time;        /* of its last operation, as it was read; 0: not known */
    uint64_t epoch;      /* newest epoch of any segment */
    uint64_t bytes;      /* of all segment files */
    uint64_t spare;      /* number of the segment that is allocated ahead; 0: none */
    uint8_t chain[CHAIN_LEN];
    struct journal_damage damage;
    bool was_skipped; /* some of it is damaged, and the view has what it said */
};

/* Where the journal begins, if not with an empty history. */
struct anchor {
    bool exists;
    uint64_t number; /* of the head that says so; 0: its remote is gone */
    uint64_t epoch;
    uint64_t cut;
    int64_t time; /* of its last operation, or later */
    uint8_t chain[CHAIN_LEN];
};

struct remote;
struct evict_request;
struct heal;
struct job;

/* What the view lacks of the journal (lag.c). */
struct lag {
    bool exists;
    uint64_t cut;      /* of the last batch that it lacks */
    int64_t again_at;  /* when the next try is due; monotonic ns */
    int64_t wait_ns;   /* after the last, which failed; 0: it did not */
    uint64_t *inos;    /* files whose pinned version is durable, owned; a file may be there several times */
    size_t ino_count, ino_max;
    uint64_t *drops;   /* packs whose files go when the view has it, owned */
    size_t drop_count, drop_max;
    _Atomic uint64_t ops; /* operations that the overlay keeps for it */
};

/* Chunks that were encoded since the mount, by enum chunk_encoding. Any thread. */
struct encode_totals {
    _Atomic uint64_t raw_bytes[CHUNK_ENCODINGS], stored_bytes[CHUNK_ENCODINGS];
    _Atomic uint64_t cpu_ns;
    _Atomic uint64_t wrong; /* did not decode to the same, and are stored raw */
};

struct store {
    struct store_options options;
    struct remote *remote; /* NULL: none */
    struct heal *heal;
    struct job *job;
    _Atomic uint64_t gc_asked, gc_done; /* rounds of the local gc that somebody waits for, by number */
    _Atomic bool gc_soon;               /* there are packs to be dropped that need not wait for their turn */
    struct anchor anchor;
    bool met_damage; /* by this start: what nothing names is set aside, not removed */
    bool whole_journal; /* the recovery verifies it from its beginning, not only from where the view is */
    struct {
        pthread_t thread;
        bool started;
        _Atomic bool done, stopping;
        int result;
        uint64_t count, cut, length; /* taken in this session; of the newest, and its run's length */
        uint64_t left;               /* bytes of the journal after the last trim */
        int64_t again_at;            /* after a failure; monotonic ns */
    } snapshot; /* snapshot.c: the writeback thread's, but while its own thread is under way */
    _Atomic uint64_t turn; /* odd: the view is being exchanged for that of a newer head */
    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed;
        store_change_fn *fn;
        void *arg;
        unsigned calls; /* of `fn` that are under way */
    } change;
    char *path;
    char *stage_dir; /* the folder that the stage is in */
    uint8_t stage_name[16];
    _Atomic bool stage_is_lost; /* its files were removed */
    struct superblock sb;
    struct tier *tier;
    struct view *view;
    struct {
        _Atomic bool is_lost;
        const char *_Atomic stays; /* why it cannot be made anew, static; NULL: it can */
        int64_t examine_at;        /* monotonic ns; the writeback thread's */
    } lost_view; /* new_view.c */
    struct ns *ns;
    struct stage *stage;
    uint64_t *nameless; /* inodes without a name that a recovery left alive; not changed after it */
    size_t nameless_count;
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
        int64_t compacted; /* when the log was, for room for a draft: monotonic ns */
        unsigned lookers;  /* at the list, without the lock: what is in it stays */
        uint64_t chosen;   /* the newest cut that writeback chose */
        uint64_t due[DUE_MAX]; /* inodes whose seals wait, in the order in which they came */
        unsigned due_count;
        int64_t due_since;     /* monotonic ns: the first of these; an operation that enters now happened then */
        uint64_t recount[DUE_MAX]; /* that entered, and whose st_blocks changed by that */
        unsigned recount_count;    /* with due_count at most DUE_MAX */
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
        uint64_t writing_bytes; /* of packs that are being written */
        unsigned drop_holds; /* no drop begins now */
    } packs;

    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed; /* the writeback thread waits on it */
        struct waiter_list waiters;
        uint64_t next_ticket;
        uint64_t horizon;
        int64_t urge_until;
        unsigned waiting_writers;
        bool stopping, kicked;
        uint64_t errors;
        char last_error[256];
        int64_t last_error_ns;
        uint64_t target_bytes; /* of the target that is being written, still to go */
        struct {
            uint64_t cut;
            int64_t happened; /* monotonic ns: the oldest operation that came with it */
        } ages[AGES_MAX]; /* ascending; of cuts that a remote may lack */
        unsigned age_count;
    } horizon;

    struct journal journal; /* writeback thread only, after recovery */
    struct lag lag;         /* writeback thread only, but `ops` */

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
    struct encode_totals encoded;
    _Atomic uint64_t kept_bytes; /* fetched, not yet named by a batch */
    _Atomic int64_t kept_at;     /* when the last of them came; monotonic ns */
    _Atomic bool keep_flush;     /* they shall be named soon */
    _Atomic int64_t no_evict_until; /* nothing was found that could be evicted: not looked for again sooner */
    _Atomic int64_t no_evict_since; /* since when; 0: something was */
    _Atomic uint64_t healed_total, evicted_total;
    _Atomic uint64_t pinned_bytes; /* of packs on NVMe that hold what is pinned; UINT64_MAX: not known */
    _Atomic uint64_t pins_changed; /* newest operation when a pin was set or removed last */
    _Atomic bool pins_asked;       /* somebody wants to know what is pinned */
    _Atomic uint32_t used_at[PACK_CLOCKS]; /* when packs were used, by a hash of their ids: seconds since the start */
    int64_t started_at;
    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed;
        struct evict_request *request;
        bool serving, stopping;
    } evict;
    _Atomic bool seal_rest; /* a recovery left drafts or new files that are no versions yet */
    _Atomic bool is_lifted; /* the rate limit is off; set with the horizon's lock */

    struct { /* of the threads that only writeback uses; its lock comes before that of the horizon */
        struct cairn_mutex lock;
        pid_t threads[STORE_WRITEBACK_THREADS_MAX + PACK_WRITERS];
        unsigned thread_count;
        int normal; /* nice value */
        bool low;
    } priority;

    struct {
        struct cairn_mutex lock;
        struct cached_chunk entries[CHUNK_CACHE_ENTRIES];
        uint64_t clock;
        struct damage damage[DAMAGE_MAX];
        unsigned damage_count;
        struct chunk_name sick[SICK_MAX]; /* damaged on NVMe, and good in the remote */
        unsigned sick_count;
    } cache;

    struct {
        struct cairn_mutex lock;
        pthread_cond_t changed;
        pthread_t thread;
        bool started, stopping, wanted;
        bool scarce;         /* less than wanted is to be had */
        bool hopeless;       /* and the last search for more was in vain */
        int64_t searched;    /* when that began; monotonic ns */
        uint64_t granted;    /* what may be staged: allocated ahead by the tier, and not taken by packs since that was looked at */
        uint64_t with_changes; /* what may be staged and changed in names and attributes */
        uint64_t left;       /* of what is granted, beside what was staged then */
        uint64_t taken;      /* by packs, ever */
        uint64_t rounds_begun, rounds_done; /* of the thread */
        uint64_t journal_bytes, view_bytes, runs_bytes;
    } room;
};

/* store.c: the durable part alone, the stage left as it is (for checks and readers); `whole_journal`: see there */
CAIRN_MUST_CHECK int store_open_medium(const struct store_options *options, bool whole_journal, struct store **ret,
                                       char **ret_text);
/* store.c: without its view */
/* Notes in the superblock, durably, that chunks may be in these encodings: SUPERBLOCK_INCOMPAT_ENCODINGS of `incompat`, others are left out.
 * Comes before the first such chunk. */
CAIRN_MUST_CHECK int store_allow_encodings(struct store *store, uint64_t incompat);
CAIRN_MUST_CHECK int store_open_bare(const struct store_options *options, struct store **ret, char **ret_text);
void store_discard(struct store *store);
/* store.c: the newest head of options->remote, in a folder that is empty, for reading alone */
CAIRN_MUST_CHECK int store_open_far(const struct store_options *options, struct store **ret, char **ret_text);

/* history.c */
void history_init(struct store *store);
void history_done(struct store *store);
CAIRN_MUST_CHECK int history_compact(struct store *store);

/* Between history.c and seal.c, with the history's lock. -EAGAIN: no room in the log. */
/* Encoded xattrs of a nascent file. The stage appends on its own as long as it leaves the whole margin: what was found to fit beside half
 * of the margin fits yet when it is entered. */
#define GROUP_MAX (STAGE_LOG_MARGIN / 2)
/* Encoded records, one behind the other. */
struct dump {
    uint8_t *bytes;
    size_t len, max;
};
int dump_record(const struct record *rec, void *dump); /* appends it; 0 */
CAIRN_MUST_CHECK int history_compact_locked(struct store *store);
/* Before what opens a draft, or makes one longer in the log: stricter than for all else, so that seals find room. */
CAIRN_MUST_CHECK int history_draft_room_locked(struct store *store);
/* For `len` bytes that belong together and what else an operation needs. */
CAIRN_MUST_CHECK int history_group_room_locked(struct store *store, size_t len);
#define CLOCK_BACK_MAX_NS (10ll * 1000000000) /* by which a clock is set back, at most, without having been wrong before */
/* Gives an operation its number and time; to what makes names, cookies too. */
void history_stamp_locked(struct store *store, struct record *rec);
void history_stamp_with_cookies_locked(struct store *store, struct record *rec);
void history_enter_group_locked(struct store *store, const struct dump *group);
/* As store_seal_due(), before anything else enters; and store_seal(), after these. */
CAIRN_MUST_CHECK int history_seal_due_locked(struct store *store);
CAIRN_MUST_CHECK int history_seal_locked(struct store *store, uint64_t ino);
bool history_is_due_locked(struct store *store, uint64_t ino);
/* Leaves the lock; an operation happened, or did not: returns r. */
int history_leave(struct store *store, int r);
/* Enters what has waited for `ns`, and tells what is to be told of what entered; with no lock held. */
void history_seal_ripe(struct store *store, int64_t ns);
/* With the history's lock: before a change of content, which opens a draft if there is none. -EAGAIN: no room in the log. */
CAIRN_MUST_CHECK int history_change_room_locked(struct store *store, uint64_t ino);
/* Is the log crowded by what is alive in it? What is not is thrown out first, once a second at most. */
bool history_is_crowded(struct store *store);
bool history_has_draft_below(struct store *store, uint64_t dir);
void history_resume(struct store *store, int64_t last_time); /* recovery: when the last durable operation happened */
void history_readd(struct store *store, const struct record *rec); /* recovery: a pending operation of the log */
/* The operations up to a cut that was chosen, in order; they stay until they are retired. The caller frees the array. */
struct op **history_up_to(struct store *store, uint64_t cut, size_t *ret_count);
/* All; they stay until history_looked(), or are retired. */
struct op **history_look(struct store *store, size_t *ret_count);
void history_looked(struct store *store, struct op **ops);
size_t history_retire(struct store *store, uint64_t seq); /* how many there were */
bool history_oldest(struct store *store, uint64_t *ret_seq, int64_t *ret_happened);
int64_t history_last_time(struct store *store); /* when the last operation happened */

/* horizon.c */
void horizon_init(struct store *store);
void horizon_done(struct store *store);
void horizon_advance(struct store *store, uint64_t seq);
void horizon_error(struct store *store, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void horizon_kick(struct store *store);
/* There is an operation more. Writeback wakes up for it only if somebody waits: small operations come by the ten thousand. */
void horizon_note(struct store *store);
/* Does somebody wait for the horizon (awaited), or for room (urgent)? */
bool horizon_is_awaited_locked(struct store *store);
bool horizon_is_urgent_locked(struct store *store);
bool horizon_is_urgent(struct store *store);
/* When a cut became durable, how old its oldest operation is; what the remote has is forgotten. */
void ages_note(struct store *store, uint64_t cut, int64_t happened);
/* Age of the oldest durable or pending operation after `seq`; 0: there is none. Monotonic ns. */
int64_t ages_oldest_after(struct store *store, uint64_t seq);

/* priority.c */
void priority_init(struct store *store);
void priority_done(struct store *store);
void priority_join(void *store); /* the calling thread is one of them from now on */
void priority_raise(struct store *store);  /* somebody waits; with no lock held */
void priority_settle(struct store *store); /* low, unless somebody waits */

/* packs.c */
void packs_init(struct store *store);
void packs_done(struct store *store);
/* Names the chunk and makes sure that it lies in some pack: known, or added to one that is being filled. *ret_pinned: the pack
 * of a chunk that was known, pinned for the caller (0: none). `scratch` has PACKS_SCRATCH_LEN bytes. */
#define PACKS_SCRATCH_LEN (CHUNK_SCRATCH_LEN + CHUNK_SIZE_MAX)
CAIRN_MUST_CHECK int packs_add(struct store *store, const struct iovec *iov, size_t iov_count, size_t raw_len,
                               void *scratch, struct chunk_name *ret_name, uint64_t *ret_pinned);
/* Adds a chunk as it is stored (compaction). */
CAIRN_MUST_CHECK int packs_add_stored(struct store *store, const struct chunk_entry *entry, const void *stored);
/* The same for one that was fetched, against room_keep(). -EEXIST: it is being stored already. */
CAIRN_MUST_CHECK int packs_keep(struct store *store, const struct chunk_entry *entry, const void *stored);
/* Every chunk added before is durable on return, names of packs too. */
CAIRN_MUST_CHECK int packs_finish(struct store *store);
/* Forgets packs that failed and those written since they did; their chunks must be added again. */
void packs_abandon(struct store *store);
/* Is the chunk stored, and can be relied on? Then its pack is pinned. */
bool packs_pin_stored(struct store *store, const struct chunk_name *name, uint64_t *ret_pinned);
void packs_unpin(struct store *store, uint64_t pack);
bool packs_pin(struct store *store, uint64_t pack); /* false: it is about to go */
/* While held, no pack begins to be dropped. */
void packs_hold_drops(struct store *store, bool hold);
bool packs_are_dropping(struct store *store); /* some, marked before */
uint64_t store_new_pack_id(struct store *store);
uint64_t store_newest_pack_id(struct store *store);
void packs_note_named(struct store *store, const uint64_t *ids, size_t count); /* a batch that is durable names them */
void packs_retire_named(struct store *store); /* the view knows them now */
/* Its place in a pack that is written, and that the view does not know; 0: none. */
uint64_t packs_find_fresh(struct store *store, const struct chunk_name *name, struct chunk_entry *ret);
/* Of those that no batch names, is there one of which nothing is staged? */
bool packs_have_leftovers(struct store *store);
bool packs_has_fresh(struct store *store, const struct chunk_name *name); /* perhaps not yet written */
bool packs_begin_drop(struct store *store, uint64_t pack);
void packs_end_drop(struct store *store, uint64_t pack);
void packs_readd(struct store *store, uint64_t id, uint64_t length, const struct chunk_entry *entries, uint32_t count);
/* A pack that is written, and that the view does not know: for the writeback thread and recovery; NULL: there is none. */
const struct new_pack *packs_find_written(struct store *store, uint64_t id);
void pack_object_name(uint64_t pack, char buf[32]);

/* pack_file.c */
/* Header of a pack in a buffer of PACK_BUFFER_LEN; where its data ends. */
uint64_t pack_begin(const uint8_t owner[16], uint64_t id, uint8_t *buffer);
/* Where the data would end with one chunk more: at most PACK_DATA_MAX. */
uint64_t pack_end_with(uint64_t data_len, const struct chunk_entry *entry);
/* Puts a chunk, which is stored in so many parts, behind its frame; *entry gets its place. Returns pack_end_with(). */
uint64_t pack_place(const struct store *store, uint64_t id, uint8_t *buffer, uint64_t data_len, struct chunk_entry *entry,
                    const struct iovec *stored, size_t parts);
/* Index and trailer behind the chunks; the length of the whole. */
uint64_t pack_finish(const uint8_t owner[16], uint64_t id, uint8_t *buffer, uint64_t data_len,
                     const struct chunk_entry *entries, uint32_t count);
/* Of any tier's pack, whose trailer names `owner`; the length of its file. What looks damaged is read again; `fn` is called once all of
 * it was read. -EUCLEAN, -EBADMSG, -EIO: it cannot be read. */
CAIRN_MUST_CHECK int pack_read_index(struct tier *tier, const uint8_t owner[16], uint64_t pack,
                                     int (*fn)(const struct chunk_entry *entry, void *arg), void *arg, uint64_t *ret_length);
/* The same of a pack on NVMe. */
CAIRN_MUST_CHECK int packs_read_index(struct store *store, uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *arg), void *arg);
/* The same; 1: it cannot be read, and was made again from the chunks. Reads all of the pack then. */
CAIRN_MUST_CHECK int packs_recover_index(struct store *store, uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *arg),
                                         void *arg);
/* Does its header or its trailer say that this store wrote it under this name? */
bool packs_is_ours(struct store *store, uint64_t pack);

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
    bool is_dense; /* st_blocks does not change when it becomes durable */
};
struct batch {
    uint8_t *bytes;
    size_t len, max;
    uint32_t count;
    uint64_t *packs; /* ids that it names */
    size_t pack_count;
};
/* Packs that go with a batch. */
struct drops {
    const uint64_t *ids;
    size_t count;
    uint32_t flags; /* RECORD_EVICTED */
};
CAIRN_MUST_CHECK int batch_build(struct store *store, uint64_t cut, struct op *const *ops, size_t op_count,
                                 const struct version_content *versions, size_t version_count,
                                 const struct drops *drops, struct batch *ret);
void batch_done(struct batch *batch);
/* Would a batch of these operations write nothing? */
bool batch_is_void(struct store *store, struct op *const *ops, size_t op_count);

/* journal.c */
/* Removes segments whose batches are all at or before `cut`, which a snapshot has. */
void journal_trim(struct store *store, uint64_t cut);
/* Removes all of it. */
CAIRN_MUST_CHECK int journal_remove_all(struct store *store);
/* Reads the segments, from the anchor on if there is one, and calls `fn` for each batch in order; sets store->journal. With `from`
 * (0: all), segments that end before that number are left out, and what they hold is not verified; damage before it is passed over.
 * -EUCLEAN with journal.damage: something is damaged, and it is not the end. */
struct journal_batch {
    struct batch_header header;
    uint8_t chain[CHAIN_LEN]; /* with it */
    const void *records;
};
CAIRN_MUST_CHECK int journal_read(struct store *store, uint64_t from, int (*fn)(const struct journal_batch *batch, void *arg), void *arg);
/* Begins a segment for the store's epoch: durable on return. */
CAIRN_MUST_CHECK int journal_begin(struct store *store);
CAIRN_MUST_CHECK int journal_append(struct store *store, uint64_t cut, const void *records, size_t len, uint32_t count);

/* change.c */
void change_init(struct store *store);
void change_done(struct store *store);
/* Calls the function of store_on_change(). Without locks. */
void change_tell(struct store *store, const uint64_t *inos, size_t count, bool has_content);

/* writeback.c */
CAIRN_MUST_CHECK int writeback_start(struct store *store);
void writeback_stop(struct store *store);
/* The writeback thread: a cut with the same state, without the packs that are to be dropped. False: the store stops. */
bool writeback_own_cut(struct store *store, const struct drops *drops);
/* No operation is pending, but such of files that lived and died since. For the writeback thread. */
bool writeback_has_nothing(struct store *store);

/* lag.c: the view cannot be written, and lacks batches that are durable. For the writeback thread alone, but lag_ops(). */
static inline bool lag_exists(const struct store *store)
{
    return store->lag.exists;
}
/* Operations that are durable, and that the overlay has to keep. Any thread. */
uint64_t lag_ops(struct store *store);
/* The view did not take this batch (`error`), which is durable. Its operations leave the list of what is pending. */
void lag_add(struct store *store, uint64_t cut, const struct batch *batch, const struct drops *drops, int error);
/* The pinned version of this file is in that batch. */
void lag_add_version(struct store *store, uint64_t ino);
/* One try to bring the view up to the journal's end; then all is let go. */
void lag_catch_up(struct store *store);
/* The same, where it is due; also where no batch is missing, but the view's database has failed. */
void lag_tick(struct store *store);
void lag_done(struct store *store);

/* upkeep.c: the writeback thread's alone. */
struct upkeep {
    int64_t tidy_at; /* when what was due at the mount begins; monotonic ns, 0: it has begun */
    int64_t gc_at, evict_at, pins_at;
    uint64_t pins_counted; /* pins_changed when pins were counted last */
    bool pins_final;       /* the view knew of it then */
    uint64_t evict_horizon; /* of the remote, when nothing was found */
    uint64_t trimmed;       /* the same at the last trim of the journal */
};
void upkeep_begin(struct upkeep *upkeep);
/* True: something was done, and there may be more. */
bool upkeep_rounds(struct store *store, struct upkeep *upkeep);

/* recover.c */
CAIRN_MUST_CHECK int recover(struct store *store, char **ret_text);
CAIRN_MUST_CHECK int recover_view(struct store *store, char **ret_text);
/* Of a live store, in the writeback thread: the view applies what it lacks of the journal, which is read again. -ESTALE: it is no longer
 * the view of this journal; the next mount makes it anew. */
CAIRN_MUST_CHECK int view_catch_up(struct store *store);
/* With all that is in it; none is fine. */
CAIRN_MUST_CHECK int remove_folder(const char *path);
/* Removes STORE/view, which need not be there. */
CAIRN_MUST_CHECK int remove_view(struct store *store);
int view_pack_index(uint64_t pack, int (*fn)(const struct chunk_entry *entry, void *fn_arg), void *fn_arg, void *arg);

/* aside.c: nothing of a store is unlinked because it could not be read. What recovery does not understand goes to STORE/lost+found. */
#define ASIDE_FOLDER "lost+found"
/* Moves STORE/name there; it may be a folder. Durable with aside_sync(). -ENOENT: it is not there. */
CAIRN_MUST_CHECK int set_aside(const struct store *store, const char *name);
/* Makes the folder, durably. */
CAIRN_MUST_CHECK int aside_begin(const struct store *store);
CAIRN_MUST_CHECK int aside_sync(const struct store *store);
/* The path there of what is called `name` below STORE. Caller frees. */
char *aside_path(const struct store *store, const char *name);

/* repair.c */
/* A repair cut something since the last mount: what nothing names may be named by that. Until repair_settled(). */
bool repair_was_made(const struct store *store);
CAIRN_MUST_CHECK int repair_settled(const struct store *store);

/* snapshot.c: both in the writeback thread, or when it has ended. */
/* Takes one if the journal is much longer than the state; not `at_ease`, right after a mount: only if it is longer by far. */
void snapshot_tick(struct store *store, bool at_ease);
void snapshot_stop(struct store *store);

/* room.c */
CAIRN_MUST_CHECK int room_start(struct store *store);
void room_stop(struct store *store);
void room_account(struct store *store);
/* STORE/runs changed. Any thread. */
void room_account_runs(struct store *store);
uint64_t room_used(struct store *store);
/* Bytes that may still be staged and written, by what is known now. */
uint64_t room_available(struct store *store);
/* The same with what eviction could make free. */
uint64_t room_with_eviction(struct store *store);
bool room_is_short(struct store *store);
/* The view's database cannot bear a full disk: there is room for it to write, or -ENOSPC. */
CAIRN_MUST_CHECK int room_for_view(struct store *store);
/* Could one more pack be made, and be in a cut that the view follows, beside all that is staged? */
bool room_for_moving(struct store *store);
/* After a round of the writeback thread that began at `began` (monotonic ns): it found something that came free, or may. If not, and room
 * is short, waiting has no sense for who did so before. */
void room_settle(struct store *store, int64_t began, bool found);
/* A pack of that length takes it of what is held. */
void room_spend(struct store *store, uint64_t bytes);
/* store_admit() for the writeback thread itself: -ENOSPC when the last search was in vain. */
CAIRN_MUST_CHECK int room_admit(struct store *store, uint64_t bytes);
/* Bytes that would have to come free until all is held that should be. */
uint64_t room_missing(struct store *store);
/* Fetched bytes may be kept on NVMe; they count until a batch names them. */
bool room_keep(struct store *store, uint64_t bytes);
void room_keep_done(struct store *store, uint64_t bytes);
uint64_t room_kept(struct store *store);
bool room_is_hopeless(struct store *store); /* nothing will come free soon */

/* gc.c */
/* Packs that nothing needs, marked as dropping: at most `max`. */
size_t gc_dead_packs(struct store *store, uint64_t *ids, size_t max);
/* Adds what is alive in mostly dead packs to a new pack; these, marked as dropping: the next batch moves and drops. Of a pack at
 * least `worth_percent` must be dead, and what all of them take becomes less by as much; else 0: there is nothing to gain. */
size_t gc_compact(struct store *store, unsigned worth_percent, uint64_t *ids, size_t max);
/* Adds a chunk that lives in `pack` to a new one, if its place is there. */
struct moving {
    struct store *store;
    uint64_t pack;
    uint8_t *raw, *stored;
};
CAIRN_MUST_CHECK int gc_move_chunk(const struct chunk_entry *entry, void *moving);
void gc_remove(struct store *store, const uint64_t *ids, size_t count);

/* heal.c: chunks that are damaged on NVMe, read from elsewhere, and on their way to another place there. Bounded. */
struct heal *heal_new(void);
void heal_free(struct heal *heal);
/* Takes a copy of what is stored of a chunk, verified. False: there is no room now. Any thread. */
bool heal_give(struct store *store, const struct chunk_entry *entry, const void *stored);
bool heal_is_pending(struct store *store);
/* The writeback thread: adds them to a pack; false: there are none. Its next batch names it; then they are forgotten. */
bool heal_add(struct store *store);
void heal_settle(struct store *store);

/* read.c */
void fetch_init(struct store *store);
void fetch_done(struct store *store);
/* From NVMe. -ENOENT: it has no place there; -ENODATA: its pack is missing. */
CAIRN_MUST_CHECK int fetch_chunk(struct store *store, const struct chunk_name *name, void *buf, uint32_t *ret_len);
/* A chunk that was damaged on NVMe is stored anew. */
void cure(struct store *store, const struct chunk_name *name);
/* A chunk that did not verify: nothing may rely on it, so equal content is stored anew, which heals it. */
bool is_damaged(struct store *store, const struct chunk_name *name);
void note_damage(struct store *store, uint64_t ino, const struct chunk_name *name, int error);
