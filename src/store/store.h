// SPDX-License-Identifier: Apache-2.0
/* A store: everything below the file semantics. It keeps the order of operations, carries them down, and brings them
 * back.
 *
 *   store_open()     recovers what is durable, and what the stage still has
 *   store_commit()   an operation becomes part of the history (acknowledged, in the stage)
 *   store_seal()     a file's draft becomes a version, part of the history
 *   background       targets are chosen, written to packs and a journal batch; the view follows; the horizon moves
 *   store_wait()     tells when the horizon has reached an operation
 *
 * Threads: any, unless said otherwise. Errors are negative errno; nothing acknowledged is lost by any of them. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "codec/encode.h"
#include "format/record.h"
#include "overlay/ns.h"
#include "stage/stage.h"

struct store;

/* How a store goes on to a remote. */
struct remote_options {
    const char *name;          /* "s3://BUCKET/PREFIX" or "dir:/PATH", for messages; NULL: no remote */
    struct tier *tier;         /* opened by the caller; owned by the store from store_open() on, failed or not */
    const char *holder;        /* "host:/path pid 123": how others see us */
    unsigned upload_threads;   /* packs on their way at once */
    unsigned fetch_threads;    /* ranges that are fetched at once, ahead of readers; 0: 16 */
    uint64_t upload_limit;     /* bytes/s, 0: none */
    int64_t lease_ns;          /* a holder that renewed nothing for this long may be replaced */
    int64_t gc_grace_ns;       /* objects that no head needs live on for this long */
    int64_t follow_ns;         /* read_only: how often to look for a newer head; 0: never */
    bool takeover;             /* replace a holder that lives */
    bool unfenced;             /* go on where exclusive creation does not work */
    bool read_only;            /* publish nothing; show what the newest head names */
    void (*progress)(const char *line, void *arg); /* what an open waits for; may be NULL */
    bool (*cancelled)(void *arg);                  /* ends an open that waits with -ECANCELED; may be NULL */
    void *progress_arg;                            /* of both */
};

#define STORE_WRITEBACK_THREADS_MAX 64u

struct store_options {
    struct remote_options remote;
    const char *path;          /* the store's folder; exists, empty or a store */
    const char *stage_dir;     /* a tmpfs; where others write there too, the stage is in a folder of its user's own */
    bool read_only;            /* nobody will write: a copy of a mounted store may be looked at */
    uint64_t stage_bytes;
    uint64_t cap_bytes;        /* 0: what the disk has */
    unsigned writeback_threads; /* 1 to STORE_WRITEBACK_THREADS_MAX */
    uint64_t writeback_limit;  /* bytes/s, 0: none */
    int64_t writeback_delay_ns;
    enum reduce reduce;
    bool adopting; /* the mount outlived its daemon: what is open, or known to the kernel, lives on */
};

/* Opens or makes the store and recovers. On failure *ret_text says in one line what is wrong and what to do (caller
 * frees). The caller holds STORE/lock. */
CAIRN_MUST_CHECK int store_open(const struct store_options *options, struct store **ret, char **ret_text);

/* Starts the background. `room` is called when a request that got -EAGAIN may succeed: in any thread,
 * perhaps under locks, so it may take leaf locks only. */
CAIRN_MUST_CHECK int store_start(struct store *store, void (*room)(void *arg), void *arg);

/* Stops the background and closes. What is not durable stays in the stage; if all is, the stage is removed. */
void store_close(struct store *store);

struct ns *store_ns(struct store *store);
struct stage *store_stage(struct store *store);
uint64_t store_new_ino(struct store *store);

/* --- history ------------------------------------------------------------------------------------------------------- */

/* Performs `rec` (without seq and time): in the log, in the overlay, in the history. Inodes that it names are held by
 * the caller. cookie 0 becomes its sequence number. On a nascent file it happens but is not history. Content of an
 * inode that loses its last name is dropped, or kept with RECORD_ORPHAN.
 * -EAGAIN: no room in the log now, nothing happened. -ENOSPC: the store is full. -ENOENT: the inode is gone. -ENODATA: the xattr
 * to remove is. */
CAIRN_MUST_CHECK int store_commit(struct store *store, struct record *rec);
/* Two that are one: whoever looks, after whatever end, finds both or neither. Neither is of a nascent file. */
CAIRN_MUST_CHECK int store_commit_both(struct store *store, struct record *rec, struct record *rec2);

/* Gives a nascent file that was made without a name (REC_NASCENT with RECORD_ORPHAN) its first: parent, name. It and `parent` are
 * held. -EAGAIN as above; -ENOSPC: it has too many xattrs. */
CAIRN_MUST_CHECK int store_name(struct store *store, struct record *rec);

/* Seals the draft of `ino`, if any, or a nascent file. Does nothing for orphans. -EAGAIN as above. */
CAIRN_MUST_CHECK int store_seal(struct store *store, uint64_t ino);

/* The same, but it may wait until there is something else to enter, which then comes after it: any operation of the history, or another
 * seal; a change that takes content away (store_cut()); a question for the horizon; or until writeback_delay has passed. For a file that
 * others are still writing: many such seals become one. */
CAIRN_MUST_CHECK int store_seal_later(struct store *store, uint64_t ino);
/* Enters the seals that wait. -EAGAIN as above. Before store_newest() where that is to include all that was closed. */
CAIRN_MUST_CHECK int store_seal_due(struct store *store);

/* Seals every draft below `dir` (and of `dir` itself if it is a file). */
CAIRN_MUST_CHECK int store_seal_below(struct store *store, uint64_t dir);

/* Seals every draft and every nascent file: nobody will write any more. */
CAIRN_MUST_CHECK int store_seal_all(struct store *store);

/* Adopting: the inodes without a name that were found. Lent, as long as the store. Returns how many. */
size_t store_nameless(const struct store *store, const uint64_t **ret_inos);

/* Sequence number of the last operation of the history. */
uint64_t store_newest(struct store *store);

/* --- horizon ------------------------------------------------------------------------------------------------------- */

uint64_t store_horizon(struct store *store);

/* Calls `fn` once: with 0 when the horizon is at `seq` or later (at once, if it is), with -ESHUTDOWN when the store
 * stops. While somebody waits, limits and low priority are lifted. *ret_ticket names the wait, for store_unwait(): true
 * if `fn` will not be called any more. */
void store_wait(struct store *store, uint64_t seq, void (*fn)(int result, void *arg), void *arg, uint64_t *ret_ticket);
bool store_unwait(struct store *store, uint64_t ticket);

/* Somebody outside waits too, until `until_ns` (monotonic). */
void store_urge(struct store *store, int64_t until_ns);

/* --- content ------------------------------------------------------------------------------------------------------- */

/* May `bytes` more be staged? Room on NVMe is reserved before a byte is acknowledged. -EAGAIN: wait for room;
 * -ENOSPC: there is none, and a search that began after the request began to wait found none that comes free. */
CAIRN_MUST_CHECK int store_admit(struct store *store, uint64_t bytes);
/* The same for `bytes` of names and attributes, of which there is room beside content: they wait only when that is used up, too. */
CAIRN_MUST_CHECK int store_admit_change(struct store *store, uint64_t bytes);
/* Tells store_admit() since when the request that the calling thread handles has waited, in monotonic ns; 0: it has not waited. */
void store_waits_since(int64_t ns);

/* Stages a write (see stage_write(); what concerns opening a draft is filled in here). -EAGAIN. */
CAIRN_MUST_CHECK int store_write(struct store *store, struct stage_write *w);
/* Discards content and sets the size, see stage_cut(). -EAGAIN. */
CAIRN_MUST_CHECK int store_cut(struct store *store, uint64_t ino, uint64_t offset, uint64_t length, uint64_t new_size);
/* Refers to `length` bytes of a stored chunk from `offset` of the file on. -EAGAIN; -ENOENT: it is stored no longer. */
CAIRN_MUST_CHECK int store_put_chunk(struct store *store, uint64_t ino, uint64_t offset, uint64_t length,
                                     const struct chunk_name *name, uint32_t chunk_offset);
/* What durable content consists of, in order: see view_extents(). */
CAIRN_MUST_CHECK int store_extents_below(struct store *store, uint64_t ino, uint64_t offset, uint64_t length,
                                         int (*fn)(const struct view_extent *part, void *arg), void *arg);

/* Marks that requests wait for room, which makes writeback hurry. */
void store_note_waiting(struct store *store, unsigned waiting);

/* How far a read may go. */
enum store_reach {
    STORE_REACH_NEAR, /* NVMe; -EREMOTE: some of it would have to come from the remote */
    STORE_REACH_FAR,  /* and the remote: may take as long as that is patient */
};

/* Reads durable content of the newest version into `buf`: exactly `length` bytes (zeros past the end or in holes).
 * *ret_good: bytes that are good from the start, if the result is an error. -EIO: damage, or the remote did not give it. -ESTALE:
 * another state is shown by now (store_turn()). Blocks. */
CAIRN_MUST_CHECK int store_read_below(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length,
                                      enum store_reach reach, size_t *ret_good);
/* Part of a chunk that is known by name. The same. */
CAIRN_MUST_CHECK int store_read_chunk(struct store *store, uint64_t ino, const struct chunk_name *name, uint64_t offset,
                                      void *buf, size_t length, enum store_reach reach);

/* Content as it is now, staged or durable. The same. */
CAIRN_MUST_CHECK int store_read(struct store *store, uint64_t ino, uint64_t offset, void *buf, size_t length, enum store_reach reach,
                                size_t *ret_good);

/* Memory of the store that holds what was asked for, until store_loan_done(). */
#define STORE_LOANS 4u
struct pull_chunk;
struct store_loan {
    size_t count;
    struct iovec iov[STORE_LOANS];
    struct pull_chunk *chunk[STORE_LOANS];
};
/* Durable content that came from the remote just now, without a copy: 0, and *ret is the caller's. -EAGAIN: not all of it lies in
 * memory; -EINPROGRESS: what is missing is on its way, and `job` is called when it has come or failed, by a thread that may block,
 * possibly before this returns. Does no I/O but RocksDB's. */
CAIRN_MUST_CHECK int store_lend(struct store *store, uint64_t ino, uint64_t offset, size_t length, void (*job)(void *arg),
                                void *arg, struct store_loan *ret);
void store_loan_done(struct store *store, struct store_loan *loan);

/* Runs `job` on a thread that may block on NVMe, or one that may block on the remote. */
void store_submit_read(struct store *store, enum store_reach reach, void (*job)(void *arg), void *arg);
/* Returns when none of them, nor of those of store_lend(), runs or waits any more. Nobody submits new ones. */
void store_end_reads(struct store *store);

/* --- the remote -------------------------------------------------------------------------------------------------------- */

/* Newest cut that the remote has; 0: none. */
uint64_t store_remote_horizon(struct store *store);

/* As store_wait(), for the remote's horizon; -ESHUTDOWN too where no remote will ever have it (none, or fenced). Rate limits of
 * both tiers are lifted meanwhile. store_unwait() takes these tickets too. */
void store_wait_remote(struct store *store, uint64_t seq, void (*fn)(int result, void *arg), void *arg,
                       uint64_t *ret_ticket);

/* The sequence that the remote horizon must reach until the last durable change of `ino` is in it; 0: it is. Asks the NVMe
 * level first: what is not durable there is not here. */
CAIRN_MUST_CHECK int store_remote_needs(struct store *store, uint64_t ino, uint64_t *ret_seq);

/* From now on limits are lifted, until the store is closed; returns at once (umount --drain). */
void store_drain_remote(struct store *store);

/* Does it show what another writer publishes, and has no operations of its own? */
bool store_follows(const struct store *store);

/* Makes the copy of a store, which the caller has locked and nobody mounted, a store of its own: it gets a new random id, and what it wrote
 * under the old one stays its own. History and chunk key remain, so a remote knows it as another writer of that history. One durable write
 * decides. -EBUSY: its stage has data. *ret_text says what is wrong (caller frees). Blocks. */
CAIRN_MUST_CHECK int store_new_id(const char *path, char ret_id[33], char **ret_text);

/* Memory that an earlier session of the store at `path` left in its stage in `stage_dir`, and the next one takes over. No store: 0. */
uint64_t store_left_stage_bytes(const char *path, const char *stage_dir);

/* To be called about once a second: what is staged is carried to NVMe at once, as for somebody who waits, when the files of the stage were
 * removed and would not outlive this process. */
void store_watch_stage(struct store *store);
/* The folder that the stage is in. */
const char *store_stage_folder(const struct store *store);

/* -EROFS, with its cause, where it follows: it has no changes of its own, also where root made its mount writable. */
CAIRN_MUST_CHECK int store_takes_changes(const struct store *store);

/* `fn` is called after each change of what is shown that who caches it cannot know of, with the inodes that it concerns, in a thread of the
 * store's or of who seals, and without locks. `has_content`: content may differ too (a mount that follows has taken over a newer head);
 * else only attributes do (how much of it is stored, once it is sealed or durable). NULL: no more, and none is under way on
 * return. */
typedef void store_change_fn(const uint64_t *inos, size_t count, bool has_content, void *arg);
void store_on_change(struct store *store, store_change_fn *fn, void *arg);

/* Another number after each such change; waits while one is being made. Who reads in several steps, and finds another number at
 * the end, may have seen parts of two states. */
uint64_t store_turn(struct store *store);

enum remote_state {
    REMOTE_NONE,
    REMOTE_CONNECTING,  /* never reached since mount */
    REMOTE_IDLE,        /* has everything that NVMe has */
    REMOTE_UPLOADING,
    REMOTE_UNREACHABLE, /* tries again and again; `error` says why */
    REMOTE_FENCED,      /* another writer took the prefix over; `error` names it */
    REMOTE_FOLLOWING,   /* read-only */
};

struct remote_status {
    enum remote_state state;
    char name[256];
    uint64_t head, horizon_seq;
    double seconds_behind;       /* age of the oldest operation that is not in the remote */
    uint64_t behind_bytes, behind_chunks; /* live, and not in the remote */
    uint64_t target_bytes;       /* of the cut that is being uploaded, still to go */
    uint64_t packs, pack_bytes;
    uint64_t files, logical_bytes; /* of the published state */
    uint64_t uploaded_bytes_total, fetched_bytes_total, requests_total, retries_total;
    uint64_t errors;
    char error[256];             /* the last, in words */
    double error_age_s, unreachable_s; /* seconds; negative: none */
};
void store_remote_status(struct store *store, struct remote_status *ret);
/* What is here and not in the remote, of what is durable; of a mount that is fenced it never will be. Looks at a bounded number of
 * changes. Reads the view. */
struct store_unpublished {
    uint64_t inodes; /* made, changed or removed since the newest head of this mount */
    uint64_t files, bytes; /* regular files of these, and their sizes */
    bool has_more;
};
CAIRN_MUST_CHECK int store_unpublished(struct store *store, struct store_unpublished *ret);
/* Offline: what the store remembers of its remote. state REMOTE_NONE: it never had one. */
CAIRN_MUST_CHECK int store_peek_remote(const char *path, struct remote_status *ret);

/* --- work that somebody asks for --------------------------------------------------------------------------------------- */

enum job_kind {
    JOB_NONE,
    JOB_SCRUB, /* reads and verifies everything; what is damaged in one tier is healed from another */
    JOB_GC,    /* deletes what nothing needs, now */
};

struct job_options {
    enum job_kind kind;
    bool local, remote; /* which tiers */
    bool dry_run;       /* JOB_GC: tell, delete nothing */
    uint64_t rate;      /* JOB_SCRUB: bytes/s; 0: no limit */
};

struct job_counts {
    uint64_t bytes, bytes_total;     /* read, and to be read */
    uint64_t packs, chunks;          /* looked at */
    uint64_t found, healed, unhealed; /* JOB_SCRUB: chunks that are damaged or missing, in one tier or the other */
    uint64_t objects, removed_bytes; /* JOB_GC: deleted, or that would be */
};

struct job_status {
    enum job_kind kind; /* of the last one; JOB_NONE: none since mount */
    uint64_t number;
    bool running, cancelled;
    int error; /* negative: it could not do all of it */
    struct job_counts counts;
    uint64_t lines; /* said so far; only the first few thousand are kept */
};

/* One at a time: -EBUSY. *ret_number names it. */
CAIRN_MUST_CHECK int store_job_start(struct store *store, const struct job_options *options, uint64_t *ret_number);
/* Calls `fn` for the lines from number `from` on. */
void store_job_status(struct store *store, uint64_t from, void (*fn)(const char *line, void *arg), void *arg,
                      struct job_status *ret);
void store_job_cancel(struct store *store);

/* --- what is on NVMe, because somebody said so -------------------------------------------------------------------------- */

struct warm_status {
    bool ended;
    int error;               /* negative: it could not look at everything; -ECANCELED */
    uint64_t total_bytes;    /* stored; to be fetched, or that could leave */
    uint64_t done_bytes;
    uint64_t failed_bytes;   /* the remote did not give them */
    uint64_t not_kept_bytes; /* fetched, but NVMe has no room */
    uint64_t dropped_bytes;  /* evicted */
    uint64_t pinned_bytes, unpublished_bytes, busy_bytes; /* that stay: pinned; not in the published remote; in use */
};

/* Fetches all of a file, or of all below a directory, onto NVMe; or (`evicts`) drops there what the published remote has. At most a
 * few at once: -EBUSY. -ENOTCONN: there is no remote. */
CAIRN_MUST_CHECK int store_warm_start(struct store *store, uint64_t ino, bool evicts, uint64_t *ret_job);
/* How it goes; known until others need its place. -ENOENT. */
CAIRN_MUST_CHECK int store_warm_status(struct store *store, uint64_t job, bool cancel, struct warm_status *ret);

/* Something was pinned, or no longer is. Any thread. */
void store_pins_changed(struct store *store);

/* --- looking at it --------------------------------------------------------------------------------------------------- */

/* Chunks of one encoding that were stored since the mount: before and after. */
struct encoded_bytes {
    uint64_t raw, stored;
};

struct store_status {
    uint8_t store_id[16];
    uint64_t epoch;
    uint64_t cap_bytes, used_bytes, reserved_bytes, available_bytes;
    uint64_t evictable_bytes; /* of what is used: comes free when more is needed, for the published remote has it */
    uint64_t horizon_seq, newest_seq;
    bool stage_is_lost;    /* the files of the stage were removed: what is in it does not outlive the daemon */
    char *staged_in;       /* store_peek(): a stage that was left, its control file; caller frees; NULL: none */
    uint64_t staged_bytes; /* of writes that may be there alone, at most */
    bool view_is_lost;     /* it takes no change, or gives damaged rows, and no opening mends it */
    bool is_full;          /* of data that may not be dropped: writers get -ENOSPC */
    uint64_t behind_bytes, behind_files;
    double seconds_behind; /* age of the oldest operation that is not durable */
    uint64_t written_bytes_total, dedup_bytes_total;
    struct encoded_bytes encoded[CHUNK_ENCODINGS]; /* by enum chunk_encoding */
    double encode_cpu_s;       /* CPU time that encoding took, with what does not pay and the verification */
    uint64_t encoded_wrongly;  /* chunks stored raw because an encoding did not decode to the same */
    uint64_t evicted_bytes_total, healed_chunks_total; /* left NVMe; stored anew from the remote */
    uint64_t errors;
    char last_error[256];
    int64_t last_error_ns; /* monotonic */
    struct view_state view;
    uint64_t memory_bound_bytes; /* all of it, the stage included */
    char memory_formula[256];
};
void store_status(struct store *store, struct store_status *ret);

/* Is the view beyond what the live mount can mend? Then fsync goes on, reads of names may fail, and writers wait in the end. *ret_stays: why
 * a start could not make it anew, either; static; NULL: it can. Any thread. */
bool store_view_is_lost(struct store *store, const char **ret_stays);
/* The next start makes the view anew, whatever it finds: durable on 0. Any thread; blocks for the disk. */
CAIRN_MUST_CHECK int store_ask_for_new_view(struct store *store);

/* Calls `fn` for each damage seen since mount (bounded). */
void store_damage(struct store *store, void (*fn)(const char *path, const char *what, void *arg), void *arg);

/* Bytes that are missing before the horizon can be at `seq`. */
uint64_t store_missing_bytes(struct store *store, uint64_t seq);

/* The level of an inode's last change: horizon reached (nvme) or not (stage). */
bool store_is_durable(struct store *store, uint64_t ino);

/* Root hash over the chunk names of the durable version, and stored bytes of its chunks (each counted once per use). */
CAIRN_MUST_CHECK int store_content_root(struct store *store, uint64_t ino, uint8_t ret_hash[32]);
CAIRN_MUST_CHECK int store_stored_bytes(struct store *store, uint64_t ino, uint64_t *ret_bytes);

/* Do view and stage know all that is durable? They may follow late where the view meets errors. */
bool store_has_settled(struct store *store);

/* What a part of a file's durable content is. */
struct survey_part {
    bool is_chunk; /* else the content lies inline in the journal and the view */
    uint64_t length;
    uint32_t uses; /* how many of the references are this part's */
    struct chunk_name name;
    uint64_t refs; /* to the chunk, of all files */
    uint32_t raw_len, stored_len;
    uint8_t encoding; /* enum chunk_encoding */
    bool near, far; /* it is on NVMe; the published remote has it */
};
/* Calls `fn` for parts of the content from *at on, holes left out: at most `max`, holes counted. 1: there is more, from the new *at
 * on; 0: that was the end, or there is no such file in the durable state. */
CAIRN_MUST_CHECK int store_survey(struct store *store, uint64_t ino, uint64_t *at, size_t max,
                                  void (*fn)(const struct survey_part *part, void *arg), void *arg);

/* Offline: verifies everything. Returns the number of problems or -errno. */
CAIRN_MUST_CHECK int store_fsck(const char *path, void (*report)(const char *line, bool is_problem, void *arg),
                                void *arg);
/* Offline: cuts the journal where it is damaged, and sets aside in STORE/lost+found what comes behind. 1: it did; 0: nothing is to be
 * cut. Reports what it did. */
CAIRN_MUST_CHECK int store_repair(const char *path, void (*report)(const char *line, bool is_problem, void *arg), void *arg);
/* Offline: what can be told without recovering. */
CAIRN_MUST_CHECK int store_peek(const char *path, struct store_status *ret);
