// SPDX-License-Identifier: Apache-2.0
/* From the stage to NVMe, by objects: each has a header, and its functions take it as first
 * parameter. This header is the part for fs/ and above, which include store/store.h.
 *
 * Threads: any, unless stated otherwise. Errors are negative errno; no error loses acknowledged
 * data. */
#pragma once

#include "base/cause.h"
#include "base/waiters.h"
#include "commit/local.h"
#include "format/record.h"
#include "overlay/ns.h"
#include "stage/stage.h"

struct store;
struct feed_log;
struct node_clock;
struct round_cut;
struct upkeep;

/* The objects of commit/, created by commit_init(). Each refers to the objects that it needs, and
 * none to this struct. Functions of the writeback thread, which use all of them, take this
 * struct. */
struct commit {
    struct local *local;
    struct store *store; /* only for the rounds of later components */
    struct history *history;
    struct change *change;
    struct horizon *horizon;
    struct priority *priority;
    struct packs *packs;
    struct journal *journal;
    struct room *room;
    struct snapshot *snapshot;
    struct damage *damage;
    struct heal *heal;
    struct lag *lag;
    struct lost_view *lost_view;
    struct own_stage *own_stage;
    struct upkeep_state *upkeep;
    struct writeback *writeback;
    /* if other nodes write the remote's prefix; else NULL */
    struct feed_log *feed_log;
    struct round_cut *round_cut;
};

/* Results of encoding chunks since the mount, by enum chunk_encoding. */
struct encode_counts {
    struct {
        uint64_t raw, stored;
    } bytes[CHUNK_ENCODINGS];
    double cpu_s;   /* including encodings that did not pay, and verification */
    uint64_t wrong; /* chunks that did not decode to the same bytes, and are stored otherwise */
};

/* --- history ---------------------------------------------------------------------------------- */

/* Performs `rec` (without seq and time): enters it into the log, the overlay and the history. The
 * caller holds the inodes that it names. cookie 0 is replaced by its sequence number. An operation
 * on a nascent file is performed but is not history. Content of an inode that loses its last name
 * is dropped, or kept with RECORD_ORPHAN. -EAGAIN: no room in the log now, nothing has changed.
 * -ENOSPC: the store is full. -ENOENT: the inode is gone. -ENODATA: the xattr to remove does not
 * exist. */
CAIRN_MUST_CHECK int history_commit(struct history *history, struct record *rec);
/* Two operations as one: after any crash, a recovery finds both or neither. Neither may be on a
 * nascent file. */
CAIRN_MUST_CHECK int history_commit_both(struct history *history, struct record *rec,
                                         struct record *rec2);

/* If other nodes write the remote's prefix, changes return -EAGAIN close to an instant common to
 * all nodes (rounds.h), and after the lease has run out. Returns how long from now, ns; 0: changes
 * are possible. */
int64_t history_hold_ns(struct history *history);
/* In that case, nothing is acknowledged before `from`, from `until` on, or in another era of the
 * node's clock (node_clock.h) than that of `looked`: CLOCK_BOOTTIME, ns. Any thread. */
struct history_lease {
    int64_t from, until, looked;
};
void history_set_lease(struct history *history, const struct history_lease *lease);
/* May operations be acknowledged now? Any thread. */
bool history_has_lease(struct history *history);
/* Call when no process gets answers any more: remaining drafts are sealed without a lease. */
void history_end_lease(struct history *history);

/* Creates a nascent file, by a REC_NASCENT as for history_commit(), together with its xattrs:
 * SETXATTR records. It may take the name of a file `ino2`, which the caller holds; that file is
 * replaced when the new one is first sealed, so the history never shows the name without content.
 * Other operations on that name therefore seal the new file first. -EAGAIN as above; -ENOSPC: too
 * many xattrs. */
CAIRN_MUST_CHECK int history_make(struct history *history, struct record *recs, size_t count);
/* Gives a nascent file that was created without a name (REC_NASCENT with RECORD_ORPHAN) its first
 * name: parent, name. This may be the name of a file `ino2`, which is replaced. The caller holds
 * both. -EAGAIN as above; -ENOSPC: it has too many xattrs. */
CAIRN_MUST_CHECK int history_name(struct history *history, struct record *rec);
/* Returns an inode that lost its last name when a file that took the name was sealed, and that
 * lives on as an orphan; each is returned once. 0: none. */
uint64_t history_replaced(struct history *history);

/* Seals the draft of `ino`, if any, or a nascent file. Does nothing for orphans. -EAGAIN as
 * above. */
CAIRN_MUST_CHECK int history_seal(struct history *history, uint64_t ino);

/* As history_seal(), but the seal may be delayed until another operation or seal is entered, which
 * then follows it; or a change that removes content (history_erase()); or a query of the horizon;
 * or until writeback_delay has passed. For a file that other processes are still writing: many such
 * seals become one. */
CAIRN_MUST_CHECK int history_seal_later(struct history *history, uint64_t ino);
/* Enters delayed seals. -EAGAIN as above. Call it before history_newest() if that is to include all
 * closed files. */
CAIRN_MUST_CHECK int history_seal_due(struct history *history);

/* Seals every draft below `dir` (and of `dir` itself if it is a file). */
CAIRN_MUST_CHECK int history_seal_below(struct history *history, uint64_t dir);

/* Seals every draft and every nascent file: call when no file is written any more. */
CAIRN_MUST_CHECK int history_seal_all(struct history *history);

/* Sequence number of the last operation of the history. */
uint64_t history_newest(struct history *history);

/* --- horizon ---------------------------------------------------------------------------------- */

uint64_t horizon_reached(struct horizon *horizon);

/* The store's event for progress of writeback: the horizon moved, or an operation that found no
 * room (-EAGAIN) may find some now. */
struct event *horizon_progress(struct horizon *horizon);

/* Is it impossible to write to NVMe now, whatever is tried (no inode, a limit, read-only)? */
bool room_refuses(struct room *room);

/* Calls `fn` once: with 0 when the horizon is at `seq` or later (at once, if it is already), with
 * -ESHUTDOWN when the store stops, with another error if nothing can be written to NVMe now. While
 * a caller waits, limits and low priority are lifted. *ret_ticket identifies the wait for
 * store_unwait(). */
void horizon_await(struct horizon *horizon, uint64_t seq, waiter_fn *fn, void *arg,
                   uint64_t *ret_ticket);

/* Newest cut in the remote; 0: none. */
uint64_t horizon_published(struct horizon *horizon);

/* Writeback hurries until `until_ns` (monotonic), as for a waiting caller: a client outside
 * waits. */
void horizon_urge(struct horizon *horizon, int64_t until_ns);

/* --- content ---------------------------------------------------------------------------------- */

/* May `bytes` more be staged? Room on NVMe is reserved before a byte is acknowledged. -EAGAIN: wait
 * for room; -ENOSPC: a search for room that began after the request began to wait found none. */
CAIRN_MUST_CHECK int room_admit(struct room *room, uint64_t bytes);
/* As room_admit(), for `bytes` of names and attributes. They have a reserve beside content, and
 * wait only if that is used up, too. */
CAIRN_MUST_CHECK int room_admit_change(struct room *room, uint64_t bytes);
/* Tells room_admit() since when the calling thread's request has been waiting, monotonic ns; 0: it
 * has not waited. */
void room_waits_since(int64_t ns);

/* Stages a write (see stage_write(); fills in the fields for opening a draft). -EAGAIN. */
CAIRN_MUST_CHECK int history_write(struct history *history, struct stage_write *w);
/* Discards content and sets the size, see stage_erase(). -EAGAIN. */
CAIRN_MUST_CHECK int history_erase(struct history *history, uint64_t ino, uint64_t offset,
                                   uint64_t length, uint64_t new_size);
/* Makes a range of the file refer to a stored chunk; finds the packs of `chunk`. With `uses_remote`
 * the chunk may be in the remote only; if it is there, it stays there until the file is durable.
 * -EAGAIN; -ENOENT: it is no longer stored. */
struct stage_chunk_range;
CAIRN_MUST_CHECK int history_put_chunk(struct history *history, uint64_t ino,
                                       const struct stage_chunk_range *chunk, bool uses_remote);

/* The current state of a file, with its staged content. */
struct commit_now {
    struct ns_inode inode;
    struct stage_file_state staged;
    uint64_t size;
    int64_t mtime;
};
/* -ENOENT. May read the view. */
CAIRN_MUST_CHECK int commit_look(struct commit *commit, uint64_t ino, struct commit_now *ret);

/* Reports the number of requests that wait for room; writeback hurries for them. */
void horizon_note_waiting(struct horizon *horizon, unsigned waiting);

/* --- the shown state -------------------------------------------------------------------------- */

/* `fn` is called after each change of the visible state that the kernel's cache cannot know of,
 * with the changed inodes, by a thread of the store or by the caller that seals, and without locks.
 * `has_content`: content may have changed, too (a mount that follows has switched to a newer head);
 * otherwise only attributes (the stored size, once a file is sealed or durable). NULL: no further
 * calls, and none is in progress on return. */
typedef void change_fn(const uint64_t *inos, size_t count, bool has_content, void *arg);
void change_subscribe(struct change *change, change_fn *fn, void *arg);

/* Changes with each such change; blocks while one is in progress. A caller that reads in several
 * steps, and finds another number at the end, may have read parts of two states. */
uint64_t change_generation(struct change *change);

/* --- its health ------------------------------------------------------------------------------- */

/* Part of store_status(). */
struct commit_status {
    uint64_t horizon_seq;
    bool is_full; /* of data that may not be dropped: writers get -ENOSPC */
    /* the files of the stage were removed: its data will not outlive the daemon */
    bool stage_is_lost;
    /* the view takes no change, or has damaged rows, and opening it again does not help */
    bool view_is_lost;
    uint64_t written_bytes_total, dedup_bytes_total;
    uint64_t healed_chunks_total;          /* stored again from a copy in another tier */
    uint64_t nvme_busy_ns, remote_busy_ns; /* total time during which the tier lacked data */
    struct encode_counts encoded;
    uint64_t errors;
    char last_error[CAUSE_MAX];
    int64_t last_error_ns; /* monotonic */
};

/* Calls `fn` for each damage seen since mount (bounded). */
void damage_list(struct damage *damage, void (*fn)(const char *path, const char *what, void *arg),
                 void *arg);

/* Is the view damaged beyond repair by the live mount? Then fsync still works, reads of names may
 * fail, and writers wait in the end. *ret_stays: why even the next start could not rebuild it;
 * static; NULL: it can. Any thread. */
bool commit_view_is_lost(const struct commit *commit, const char **ret_stays);
/* Makes the next start rebuild the view, whatever it finds: durable when it returns 0. Any thread;
 * blocks for the disk. */
CAIRN_MUST_CHECK int new_view_ask(struct local *local);

/* Call about once a second: if the files of the stage were removed, so that staged data would not
 * outlive this process, writes it to NVMe at once, as for a waiting caller. */
void commit_watch_stage(struct commit *commit);
/* The directory of the stage. */
const char *commit_stage_directory(const struct commit *commit);

/* --- commit.c, for store/ --------------------------------------------------------------------- */

/* Creates the objects; the parts of `local` that they need may be opened later. */
void commit_init(struct commit *commit, struct store *store, struct local *local,
                 const struct upkeep *upkeep);
void commit_done(struct commit *commit);
/* Starts the threads. writeback_stop() and room_stop() end them, also after an error. `room`: see
 * store_start(). */
CAIRN_MUST_CHECK int commit_start(struct commit *commit, void (*room)(void *arg), void *arg);
/* Other nodes write the remote's prefix, too: from now on cuts can be made at rounds common to all
 * nodes (rounds.h, round_cut.h). Call after recovery, before commit_start(). */
void commit_join_nodes(struct commit *commit, int64_t round_ns, struct node_clock *clock);
struct commit_status commit_status(struct commit *commit);
