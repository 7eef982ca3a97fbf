// SPDX-License-Identifier: Apache-2.0
/* A store: everything below the file semantics. It orders operations, moves them down the tiers,
 * and restores them.
 *
 *    store_open()      recovers the durable state, and the data that the stage still has
 *    history_commit()  an operation becomes part of the history (acknowledged, in the stage)
 *    history_seal()    a file's draft becomes a version, part of the history
 *    background        targets are chosen, written to packs and a journal batch; the view follows;
 *                      the horizon moves
 *    horizon_await()   reports when the horizon has reached an operation
 *
 * The components below have headers of their own: commit/commit.h, remote/remote.h, fetch/fetch.h.
 * Threads: any, unless said otherwise. Errors are negative errno; no error loses an acknowledged
 * operation. */
#pragma once

#include "commit/commit.h"
#include "commit/options.h"
#include "fetch/fetch.h"
#include "remote/remote.h"

/* Opens or creates the store and recovers. On failure *ret_text is the error and the remedy in one
 * line (caller frees). *ret_again: the store must be opened again, with another
 * options->remote.tier: its view is damaged, and is made anew then; or a node goes back (back.h).
 * The caller holds STORE/lock. */
CAIRN_MUST_CHECK int store_open(const struct store_options *options, struct store **ret,
                                bool *ret_again, char **ret_text);

/* Starts the background. `room` is called when a request that got -EAGAIN may succeed: in any
 * thread, perhaps under locks, so it may take leaf locks only. */
CAIRN_MUST_CHECK int store_start(struct store *store, void (*room)(void *arg), void *arg);

/* Stops the background and closes the store. Data that is not durable stays in the stage; if all is
 * durable, the stage is removed. */
void store_close(struct store *store);

/* As store_close(), if another daemon will continue the mount: the stage stays. It holds open
 * files, also files without a name, which are never durable. */
void store_leave(struct store *store);

/* Every wait for the remote, now or later, soon fails: the store is about to be closed. Any
 * thread. */
void store_interrupt(struct store *store);

/* Ends a wait of horizon_await() or remote_start_wait(). True: its function will not be called any
 * more. */
bool store_unwait(struct store *store, uint64_t ticket);

/* For several nodes: `fn` is called for each newer union head, in a thread of the store, without
 * locks. NULL: it is called no more, and no call is under way on return. */
void store_hear_union(struct store *store, void (*fn)(void *arg), void *arg);

/* Adopting: returns the number of inodes without a name that were found. The array is valid as long
 * as the store. */
size_t store_nameless(const struct store *store, const uint64_t **ret_inos);

/* For fs/ and above: the objects of commit/, valid as long as the store. */
struct commit *store_commit(struct store *store);
struct ns *store_ns(struct store *store);
struct stage *store_stage(struct store *store);
/* NULL: the mount is none of several nodes. */
struct node *store_node(struct store *store);
uint64_t store_new_ino(struct store *store);
/* If several nodes write the remote: returns whether this one created the inode. Any thread. */
bool store_owns_inode(struct store *store, uint64_t ino);

/* If several nodes write the remote: returns whether all others went back to an earlier state than
 * this store's. Then nothing is acknowledged here until the store is opened again (back.h). */
bool store_is_behind(struct store *store, uint64_t *ret_generation);
/* Returns how often all nodes had gone back when the store was opened. Any thread. */
uint64_t store_generation(const struct store *store);
/* As node_on_open(), between store_open() and store_start(). */
void store_on_open(struct store *store, void (*fn)(void *arg, int64_t opens), void *arg);

/* Makes the copy of a store, which the caller has locked and which is not mounted, a store of its
 * own: it gets a new random id, and packs that it wrote under the old one stay its own. History and
 * chunk key remain, so a remote treats it as another writer of that history. One durable write
 * decides. -EBUSY: its stage has data. *ret_text is the error (caller frees). Blocks. */
CAIRN_MUST_CHECK int store_new_id(const char *path, char ret_id[33], char **ret_text);

/* Returns the memory that an earlier session of the store at `path` left in its stage in
 * `stage_dir`, and that the next session takes over. No store: 0. */
uint64_t store_left_stage_bytes(const char *path, const char *stage_dir);

/* --- jobs --- */

enum job_kind {
    JOB_NONE,
    /* reads and verifies everything; damage in one tier is healed from another */
    JOB_SCRUB,
    JOB_GC, /* deletes unreferenced packs, now */
};

struct job_options {
    enum job_kind kind;
    bool local, remote; /* the tiers to work on */
    bool dry_run;       /* JOB_GC: only report, delete nothing */
    uint64_t rate;      /* JOB_SCRUB: bytes/s; 0: no limit */
};

struct job_counts {
    uint64_t bytes, bytes_total; /* already read, and to be read */
    uint64_t packs, chunks;      /* checked */
    /* JOB_SCRUB: chunks that are damaged or missing, in one tier or the other */
    uint64_t found, healed, unhealed;
    uint64_t files;                  /* JOB_SCRUB: files that need chunks which no tier can read */
    uint64_t objects, removed_bytes; /* JOB_GC: deleted, or to be deleted */
};

struct job_status {
    enum job_kind kind; /* of the last job; JOB_NONE: none since mount */
    uint64_t number;
    bool running, cancelled;
    int error; /* negative: the job is incomplete */
    struct job_counts counts;
    uint64_t lines; /* printed so far; only the first few thousand are kept */
};

/* For snapshots with names. With naming->is_local the store is asked, else the remote. Errors as of
 * snapshots_ask(); -EEXIST: the other of the two is known to have the name. */
struct naming;
struct naming_state;
CAIRN_MUST_CHECK int store_naming_start(struct store *store, const struct naming *naming,
                                        uint64_t *ret_number);
/* Is the request one for the store? Yes if there is no remote; else for `create` as requested, and
 * for others if the store has a snapshot of this name. */
bool store_naming_is_local(struct store *store, const struct naming *naming);
/* Calls `fn` with each earlier state of the remote that stays and each snapshot of the store, and
 * the bytes of packs that only this state needs. Any thread. */
void store_kept_each(struct store *store, void (*fn)(uint64_t head, uint64_t bytes, void *arg),
                     void *arg);
void store_naming_look(struct store *store, bool is_local, struct naming_state *ret);

/* Starts a job, one at a time: -EBUSY. *ret_number identifies it. */
CAIRN_MUST_CHECK int store_job_start(struct store *store, const struct job_options *options,
                                     uint64_t *ret_number);
/* Calls `fn` for the lines from number `from` on. */
void store_job_status(struct store *store, uint64_t from, void (*fn)(const char *line, void *arg),
                      void *arg, struct job_status *ret);
void store_job_cancel(struct store *store);

/* --- status --- */

struct store_status {
    uint8_t store_id[16];
    uint64_t epoch;
    uint64_t cap_bytes, used_bytes, reserved_bytes, available_bytes;
    /* part of the used bytes: can be evicted, as the published remote has it */
    uint64_t evictable_bytes;
    uint64_t newest_seq;
    /* store_peek(): the control file of a stage that was left; caller frees; NULL: none */
    char *staged_in;
    uint64_t staged_bytes; /* of writes that may be only there, at most */
    uint64_t behind_bytes, behind_files;
    double seconds_behind;        /* age of the oldest operation that is not durable */
    struct commit_status nvme;    /* writeback */
    uint64_t evicted_bytes_total; /* evicted from NVMe */
    struct view_state view;
    uint64_t memory_bound_bytes; /* of the whole store, including the stage */
    char memory_formula[256];
};
void store_status(struct store *store, struct store_status *ret);

/* Returns the bytes of the packs in the remote that its newest state does not need, but earlier
 * ones: states that stay by -o keep or by a name, and states within the grace. Counts packs of the
 * view for at most a fiftieth of the time, and else returns the last count. Any thread. */
uint64_t store_history_bytes(struct store *store);
/* The snapshot of the store in options->path that options->remote.at chooses. -ENOENT: there is
 * none, and *ret_text (to be freed) says so; another error: it cannot be read. Blocks. */
CAIRN_MUST_CHECK int store_choose_snapshot(const struct store_options *options, uint64_t *ret,
                                           char **ret_text);
/* Snapshots of a store: store/local_snapshots.h. */
struct local_snapshots_cost store_snapshots_cost(struct store *store);

/* Returns the bytes that are missing before the horizon can reach `seq`. */
uint64_t store_missing_bytes(struct store *store, uint64_t seq);

/* Returns whether the horizon of NVMe has reached the inode's last change. */
bool store_is_durable(struct store *store, uint64_t ino);

/* Returns the version of a regular file's content, if the view has all of it. -EAGAIN: newer
 * content is only in the stage, or may be any moment; -EREMOTE: another node has it; -ENOENT. */
CAIRN_MUST_CHECK int store_version_in_view(struct store *store, uint64_t ino, uint64_t *ret);

/* Finds where two regular files of a mount differ, each of which may be of an earlier state: as
 * reader_differ(), at one moment during the call. -EAGAIN: one of them changes, or its content is
 * not all in the view; -ESTALE: its state does not exist any more. Blocks while a state is
 * opened. */
struct reader_range;
struct store_differ {
    uint64_t inos[2];
    int64_t until; /* monotonic, ns: the rest then counts as different */
    int (*fn)(const struct reader_range *range, void *arg);
    void *arg;
};
CAIRN_MUST_CHECK int store_differ(struct store *store, const struct store_differ *want);

/* Returns when the view has all durable operations, or at `until_ns` (monotonic): after errors it
 * may follow late. Blocks. */
void store_await_view(struct store *store, int64_t until_ns);

/* Offline: verifies everything. Returns the number of problems or -errno. */
CAIRN_MUST_CHECK int store_fsck(const char *path,
                                void (*report)(const char *line, bool is_problem, void *arg),
                                void *arg);
/* Offline: truncates the journal at the damage, and sets aside the rest of it in STORE/lost+found.
 * Reports this. *ret_truncated: false if there was nothing to truncate. */
CAIRN_MUST_CHECK int store_repair(const char *path,
                                  void (*report)(const char *line, bool is_problem, void *arg),
                                  void *arg, bool *ret_truncated);
/* Offline: the status, without recovery. */
CAIRN_MUST_CHECK int store_peek(const char *path, struct store_status *ret);
/* Offline: durable changes that no published head has. */
CAIRN_MUST_CHECK int store_peek_unpublished(const char *path, struct remote_unpublished *ret);
/* Returns the control file of the stage whose session has not ended: a daemon uses it, or left it
 * (caller frees). NULL: everything that was acknowledged is on NVMe. Takes no lock. */
CAIRN_MUST_CHECK int store_open_session(const char *path, char **ret_stage);
