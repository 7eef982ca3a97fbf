// SPDX-License-Identifier: Apache-2.0
/* From the stage to NVMe, by objects: each has a header, and its functions get it as first
 * parameter. Here is the part of them for fs/ and above, which include store/store.h.
 *
 * Threads: any, unless said otherwise. Errors are negative errno; nothing acknowledged is lost by
 * any of them. */
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

/* The objects of commit/, which commit_init() makes. Each knows those that it needs, and none knows
 * this. The work of the writeback thread, which is with all of them, gets this. */
struct commit {
    struct local *local;
    struct store *store; /* only for the rounds of components above */
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
    /* Where other nodes write the remote's prefix; else NULL. */
    struct feed_log *feed_log;
    struct round_cut *round_cut;
};

/* Results of encoding chunks since the mount, by enum chunk_encoding. */
struct encode_counts {
    struct {
        uint64_t raw, stored;
    } bytes[CHUNK_ENCODINGS];
    double cpu_s;   /* with encodings that did not pay, and verification */
    uint64_t wrong; /* chunks that did not decode to the same bytes, and are not stored so */
};

/* --- history ---------------------------------------------------------------------------------- */

/* Performs `rec` (without seq and time): in the log, in the overlay, in the history. Inodes that it
 * names are held by the caller. cookie 0 becomes its sequence number. On a nascent file it happens
 * but is not history. Content of an inode that loses its last name is dropped, or kept with
 * RECORD_ORPHAN. -EAGAIN: no room in the log now, nothing happened. -ENOSPC: the store is full.
 * -ENOENT: the inode is gone. -ENODATA: the xattr to remove is. */
CAIRN_MUST_CHECK int history_commit(struct history *history, struct record *rec);
/* Two that are one: a look, after whatever end, finds both or neither. Neither is of a
 * nascent file. */
CAIRN_MUST_CHECK int history_commit_both(struct history *history, struct record *rec,
                                         struct record *rec2);

/* Where other nodes write the remote's prefix, changes wait with -EAGAIN while an instant is near
 * that all have in common (rounds.h), and while the lease has run out. How long from now, ns; 0:
 * they do not. */
int64_t history_hold_ns(struct history *history);
/* There, nothing is acknowledged before `from`, and nothing from `until` on; nor after an era of
 * the node's clock ended (node_clock.h) that `looked` is of: CLOCK_BOOTTIME, ns. Any thread. */
struct history_lease {
    int64_t from, until, looked;
};
void history_set_lease(struct history *history, const struct history_lease *lease);
/* Is something acknowledged now? Any thread. */
bool history_has_lease(struct history *history);
/* No process is answered any more: what it did is sealed without a lease. */
void history_end_lease(struct history *history);

/* Makes a nascent file, by REC_NASCENT as for history_commit(), together with its xattrs: SETXATTR
 * records. Also at the name of a file `ino2`, which is held, and is replaced when the new one is
 * sealed for the first time: nobody who looks at the history ever sees the name without content. So
 * what concerns that name alone seals it first. -EAGAIN as above; -ENOSPC: too many xattrs. */
CAIRN_MUST_CHECK int history_make(struct history *history, struct record *recs, size_t count);
/* Gives a nascent file that was made without a name (REC_NASCENT with RECORD_ORPHAN) its first:
 * parent, name; also that of a file `ino2`, which is replaced. They are held. -EAGAIN as above;
 * -ENOSPC: it has too many xattrs. */
CAIRN_MUST_CHECK int history_name(struct history *history, struct record *rec);
/* An inode that lost its last name when a file that covered it was sealed, and lives on as an
 * orphan; each is told of once. 0: there is none. */
uint64_t history_replaced(struct history *history);

/* Seals the draft of `ino`, if any, or a nascent file. Does nothing for orphans.
 * -EAGAIN as above. */
CAIRN_MUST_CHECK int history_seal(struct history *history, uint64_t ino);

/* The same, but it may wait until there is something else to enter, which then comes after it: any
 * operation of the history, or another seal; a change that takes content away (history_erase()); a
 * question for the horizon; or until writeback_delay has passed. For a file that others are still
 * writing: many such seals become one. */
CAIRN_MUST_CHECK int history_seal_later(struct history *history, uint64_t ino);
/* Enters the seals that wait. -EAGAIN as above. Before history_newest() where that is to include
 * all that was closed. */
CAIRN_MUST_CHECK int history_seal_due(struct history *history);

/* Seals every draft below `dir` (and of `dir` itself if it is a file). */
CAIRN_MUST_CHECK int history_seal_below(struct history *history, uint64_t dir);

/* Seals every draft and every nascent file: no file is written any more. */
CAIRN_MUST_CHECK int history_seal_all(struct history *history);

/* Sequence number of the last operation of the history. */
uint64_t history_newest(struct history *history);

/* --- horizon ---------------------------------------------------------------------------------- */

uint64_t horizon_reached(struct horizon *horizon);

/* Signalled whenever writeback got on: the horizon moved, or what found no room (-EAGAIN) may find
 * it. The store's. */
struct event *horizon_progress(struct horizon *horizon);

/* Can nothing be written to NVMe now, whatever is tried (no inode, a limit, read-only)? */
bool room_refuses(struct room *room);

/* Calls `fn` once: with 0 when the horizon is at `seq` or later (at once, if it is), with
 * -ESHUTDOWN when the store stops, with another error when nothing can be written to NVMe now.
 * While a caller waits, limits and low priority are lifted. *ret_ticket names the wait, for
 * store_unwait(). */
void horizon_await(struct horizon *horizon, uint64_t seq, waiter_fn *fn, void *arg,
                   uint64_t *ret_ticket);

/* Newest cut that the remote has; 0: none. */
uint64_t horizon_published(struct horizon *horizon);

/* A client outside waits too, until `until_ns` (monotonic). */
void horizon_urge(struct horizon *horizon, int64_t until_ns);

/* --- content ---------------------------------------------------------------------------------- */

/* May `bytes` more be staged? Room on NVMe is reserved before a byte is acknowledged. -EAGAIN: wait
 * for room; -ENOSPC: there is none, and a search that began after the request began to wait found
 * none that comes free. */
CAIRN_MUST_CHECK int room_admit(struct room *room, uint64_t bytes);
/* The same for `bytes` of names and attributes, of which there is room beside content: they wait
 * only when that is used up, too. */
CAIRN_MUST_CHECK int room_admit_change(struct room *room, uint64_t bytes);
/* Tells room_admit() since when the request that the calling thread handles has waited, in
 * monotonic ns; 0: it has not waited. */
void room_waits_since(int64_t ns);

/* Stages a write (see stage_write(); what concerns opening a draft is filled in here). -EAGAIN. */
CAIRN_MUST_CHECK int history_write(struct history *history, struct stage_write *w);
/* Discards content and sets the size, see stage_erase(). -EAGAIN. */
CAIRN_MUST_CHECK int history_erase(struct history *history, uint64_t ino, uint64_t offset,
                                   uint64_t length, uint64_t new_size);
/* Makes a range of the file refer to a stored chunk; the packs of `chunk` are found here. With
 * `uses_remote` it may lie in the remote alone, and if it lies there, it stays there until the file
 * is durable. -EAGAIN; -ENOENT: it is stored no longer. */
struct stage_chunk_range;
CAIRN_MUST_CHECK int history_put_chunk(struct history *history, uint64_t ino,
                                       const struct stage_chunk_range *chunk, bool uses_remote);

/* A file as it is now, with its staged content. */
struct commit_now {
    struct ns_inode inode;
    struct stage_file_state staged;
    uint64_t size;
    int64_t mtime;
};
/* -ENOENT. May read the view. */
CAIRN_MUST_CHECK int commit_look(struct commit *commit, uint64_t ino, struct commit_now *ret);

/* Marks that requests wait for room, which makes writeback hurry. */
void horizon_note_waiting(struct horizon *horizon, unsigned waiting);

/* --- the shown state -------------------------------------------------------------------------- */

/* `fn` is called after each change of the shown state that its cache cannot know of, with the
 * inodes that it concerns, in a thread of the store's or of the caller that seals, and without
 * locks. `has_content`: content may differ too (a mount that follows has taken over a newer head);
 * else only attributes do (how much of it is stored, once it is sealed or durable). NULL: no more,
 * and none is under way on return. */
typedef void change_fn(const uint64_t *inos, size_t count, bool has_content, void *arg);
void change_subscribe(struct change *change, change_fn *fn, void *arg);

/* Another number after each such change; waits while one is being made. A caller that reads in
 * several steps, and finds another number at the end, may have seen parts of two states. */
uint64_t change_generation(struct change *change);

/* --- its health ------------------------------------------------------------------------------- */

/* Part of store_status(). */
struct commit_status {
    uint64_t horizon_seq;
    bool is_full; /* of data that may not be dropped: writers get -ENOSPC */
    /* the files of the stage were removed: its data does not outlive the daemon */
    bool stage_is_lost;
    bool view_is_lost; /* it takes no change, or gives damaged rows, and no opening mends it */
    uint64_t written_bytes_total, dedup_bytes_total;
    uint64_t healed_chunks_total;          /* stored anew from another tier */
    uint64_t nvme_busy_ns, remote_busy_ns; /* for which the tier lacked something, in all */
    struct encode_counts encoded;
    uint64_t errors;
    char last_error[CAUSE_MAX];
    int64_t last_error_ns; /* monotonic */
};

/* Calls `fn` for each damage seen since mount (bounded). */
void damage_list(struct damage *damage, void (*fn)(const char *path, const char *what, void *arg),
                 void *arg);

/* Is the view beyond what the live mount can mend? Then fsync goes on, reads of names may fail, and
 * writers wait in the end. *ret_stays: why a start could not make it anew, either; static; NULL: it
 * can. Any thread. */
bool commit_view_is_lost(const struct commit *commit, const char **ret_stays);
/* The next start makes the view anew, whatever it finds: durable on 0. Any thread; blocks for the
 * disk. */
CAIRN_MUST_CHECK int new_view_ask(struct local *local);

/* To be called about once a second: what is staged is carried to NVMe at once, as for a caller that
 * waits, when the files of the stage were removed and would not outlive this process. */
void commit_watch_stage(struct commit *commit);
/* The directory that the stage is in. */
const char *commit_stage_directory(const struct commit *commit);

/* --- commit.c, for store/ --------------------------------------------------------------------- */

/* Makes the objects; the parts of `local` that they need may be opened later. */
void commit_init(struct commit *commit, struct store *store, struct local *local,
                 const struct upkeep *upkeep);
void commit_done(struct commit *commit);
/* The threads. writeback_stop() and room_stop() end them, also where it fails. `room`: see
 * store_start(). */
CAIRN_MUST_CHECK int commit_start(struct commit *commit, void (*room)(void *arg), void *arg);
/* Other nodes write the remote's prefix, too: from now on cuts can be made at rounds that all have
 * in common (rounds.h, round_cut.h). After recovery, before commit_start(). */
void commit_join_nodes(struct commit *commit, int64_t round_ns, struct node_clock *clock);
struct commit_status commit_status(struct commit *commit);
