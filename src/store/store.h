// SPDX-License-Identifier: Apache-2.0
/* A store: everything below the file semantics. It keeps the order of operations, carries them
 * down, and brings them back.
 *
 *   store_open()      recovers the durable state, and the data that the stage still has
 *   history_commit()  an operation becomes part of the history (acknowledged, in the stage)
 *   history_seal()    a file's draft becomes a version, part of the history
 *   background        targets are chosen, written to packs and a journal batch; the view follows;
 *                     the horizon moves
 *   horizon_await()   tells when the horizon has reached an operation
 *
 * What each component below gives is in its own header: commit/commit.h, remote/remote.h,
 * fetch/fetch.h.
 * Threads: any, unless said otherwise. Errors are negative errno; nothing acknowledged is lost by
 * any of them. */
#pragma once

#include "commit/commit.h"
#include "commit/options.h"
#include "fetch/fetch.h"
#include "remote/remote.h"

/* Opens or makes the store and recovers. On failure *ret_text says in one line what is wrong and
 * what to do (caller frees). *ret_again: it is to be opened again, with another
 * options->remote.tier: its view is damaged, and is made anew then; or a node goes back (back.h).
 * The caller holds STORE/lock. */
CAIRN_MUST_CHECK int store_open(const struct store_options *options, struct store **ret,
                                bool *ret_again, char **ret_text);

/* Starts the background. `room` is called when a request that got -EAGAIN may succeed: in any
 * thread, perhaps under locks, so it may take leaf locks only. */
CAIRN_MUST_CHECK int store_start(struct store *store, void (*room)(void *arg), void *arg);

/* Stops the background and closes. What is not durable stays in the stage; if all is, the stage is
 * removed. */
void store_close(struct store *store);

/* The same, where another daemon will go on with the mount: the stage stays. It holds open files,
 * also files without a name, which are never durable. */
void store_leave(struct store *store);

/* Whatever waits for the remote, now or later, soon fails: the store is about to be closed. Any
 * thread. */
void store_interrupt(struct store *store);

/* Ends a wait of horizon_await() or remote_start_wait(). True: its function will not be called any
 * more. */
bool store_unwait(struct store *store, uint64_t ticket);

/* Of several nodes: `fn` is called for each newer union head, in a thread of the store's, without
 * locks. NULL: no more, and none is under way on return. */
void store_hear_union(struct store *store, void (*fn)(void *arg), void *arg);

/* Adopting: the inodes without a name that were found. Lent, as long as the store. Returns how
 * many. */
size_t store_nameless(const struct store *store, const uint64_t **ret_inos);

/* For fs/ and above: the objects of commit/, as long as the store. */
struct commit *store_commit(struct store *store);
struct ns *store_ns(struct store *store);
struct stage *store_stage(struct store *store);
/* NULL: it is none of several nodes. */
struct node *store_node(struct store *store);
uint64_t store_new_ino(struct store *store);
/* Where several nodes write the remote: did this one make the inode? Any thread. */
bool store_owns_inode(struct store *store, uint64_t ino);

/* Where several nodes write the remote: did all others go back to an earlier state than this
 * store's? Then nothing is acknowledged here until it is opened again (back.h). */
bool store_is_behind(struct store *store, uint64_t *ret_generation);
/* How often all nodes had gone back when it was opened. Any thread. */
uint64_t store_generation(const struct store *store);
/* As node_on_open(), between store_open() and store_start(). */
void store_on_open(struct store *store, void (*fn)(void *arg, int64_t opens), void *arg);

/* Makes the copy of a store, which the caller has locked and which is not mounted, a store of its
 * own: it gets a new random id, and packs that it wrote under the old one stay its own. History and
 * chunk key remain, so a remote knows it as another writer of that history. One durable write
 * decides. -EBUSY: its stage has data. *ret_text says what is wrong (caller frees). Blocks. */
CAIRN_MUST_CHECK int store_new_id(const char *path, char ret_id[33], char **ret_text);

/* Memory that an earlier session of the store at `path` left in its stage in `stage_dir`, and the
 * next one takes over. No store: 0. */
uint64_t store_left_stage_bytes(const char *path, const char *stage_dir);

/* --- work that is asked for ------------------------------------------------------------------- */

enum job_kind {
    JOB_NONE,
    /* reads and verifies everything; what is damaged in one tier is healed from another */
    JOB_SCRUB,
    JOB_GC, /* deletes unreferenced packs, now */
};

struct job_options {
    enum job_kind kind;
    bool local, remote; /* which tiers */
    bool dry_run;       /* JOB_GC: tell, delete nothing */
    uint64_t rate;      /* JOB_SCRUB: bytes/s; 0: no limit */
};

struct job_counts {
    uint64_t bytes, bytes_total; /* read, and to be read */
    uint64_t packs, chunks;      /* looked at */
    /* JOB_SCRUB: chunks that are damaged or missing, in one tier or the other */
    uint64_t found, healed, unhealed;
    uint64_t files;                  /* JOB_SCRUB: that lack chunks which no tier gives */
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

/* Of snapshots with names. Errors as of snapshots_ask(). */
struct naming;
struct naming_state;
CAIRN_MUST_CHECK int store_naming_start(struct store *store, const struct naming *naming,
                                        uint64_t *ret_number);
/* Calls `fn` with each earlier state that stays, and the bytes of packs that it alone needs. Any
 * thread. */
void store_kept_each(struct store *store, void (*fn)(uint64_t head, uint64_t bytes, void *arg),
                     void *arg);
void store_naming_look(struct store *store, struct naming_state *ret);

/* One at a time: -EBUSY. *ret_number names it. */
CAIRN_MUST_CHECK int store_job_start(struct store *store, const struct job_options *options,
                                     uint64_t *ret_number);
/* Calls `fn` for the lines from number `from` on. */
void store_job_status(struct store *store, uint64_t from, void (*fn)(const char *line, void *arg),
                      void *arg, struct job_status *ret);
void store_job_cancel(struct store *store);

/* --- looking at it ---------------------------------------------------------------------------- */

struct store_status {
    uint8_t store_id[16];
    uint64_t epoch;
    uint64_t cap_bytes, used_bytes, reserved_bytes, available_bytes;
    /* of what is used: comes free when more is needed, for the published remote has it */
    uint64_t evictable_bytes;
    uint64_t newest_seq;
    /* store_peek(): a stage that was left, its control file; caller frees; NULL: none */
    char *staged_in;
    uint64_t staged_bytes; /* of writes that may be there alone, at most */
    uint64_t behind_bytes, behind_files;
    double seconds_behind;        /* age of the oldest operation that is not durable */
    struct commit_status nvme;    /* the way there */
    uint64_t evicted_bytes_total; /* left NVMe */
    struct view_state view;
    uint64_t memory_bound_bytes; /* all of it, the stage included */
    char memory_formula[256];
};
void store_status(struct store *store, struct store_status *ret);

/* Bytes of the packs in the remote that its newest state does not need, but earlier ones do: those
 * that stay by -o keep or by a name, and those that the grace keeps. Counts packs of the view, for
 * a fiftieth of the time at most, and else returns the last count. Any thread. */
uint64_t store_history_bytes(struct store *store);
/* Snapshots of a store without a remote: store/local_snapshots.h. */
struct local_snapshots_cost store_snapshots_cost(struct store *store);

/* Bytes that are missing before the horizon can be at `seq`. */
uint64_t store_missing_bytes(struct store *store, uint64_t seq);

/* The level of an inode's last change: horizon reached (nvme) or not (stage). */
bool store_is_durable(struct store *store, uint64_t ino);

/* The version of a regular file's content, where the view has all of it. -EAGAIN: newer content is
 * in the stage alone, or may be any moment; -EREMOTE: another node has it; -ENOENT. */
CAIRN_MUST_CHECK int store_version_in_view(struct store *store, uint64_t ino, uint64_t *ret);

/* Where two regular files of a mount differ, each of which may be of an earlier state: as
 * reader_differ() says, of one moment during the call. -EAGAIN: one of them changes, or its content
 * is not all in the view; -ESTALE: its state is not there any more. Blocks while a state is opened.
 */
struct reader_range;
struct store_differ {
    uint64_t inos[2];
    int64_t until; /* monotonic, ns: what is left then counts as different */
    int (*fn)(const struct reader_range *range, void *arg);
    void *arg;
};
CAIRN_MUST_CHECK int store_differ(struct store *store, const struct store_differ *want);

/* Returns when the view knows all that is durable, or at `until_ns` (monotonic): it may follow late
 * where it meets errors. Blocks. */
void store_await_view(struct store *store, int64_t until_ns);

/* Offline: verifies everything. Returns the number of problems or -errno. */
CAIRN_MUST_CHECK int store_fsck(const char *path,
                                void (*report)(const char *line, bool is_problem, void *arg),
                                void *arg);
/* Offline: truncates the journal where it is damaged, and sets aside in STORE/lost+found the rest
 * of it. Reports what it did. *ret_truncated: false if there was nothing to truncate. */
CAIRN_MUST_CHECK int store_repair(const char *path,
                                  void (*report)(const char *line, bool is_problem, void *arg),
                                  void *arg, bool *ret_truncated);
/* Offline: a status without recovering. */
CAIRN_MUST_CHECK int store_peek(const char *path, struct store_status *ret);
/* Offline: durable changes that no published head has. */
CAIRN_MUST_CHECK int store_peek_unpublished(const char *path, struct remote_unpublished *ret);
/* The control file of the stage whose session has not ended: a daemon has it, or left it (caller
 * frees). NULL: everything that was acknowledged is on NVMe. Takes no lock. */
CAIRN_MUST_CHECK int store_open_session(const char *path, char **ret_stage);
