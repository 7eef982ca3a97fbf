// SPDX-License-Identifier: Apache-2.0
/* Snapshots of a store: all earlier states of one without a remote; with a remote, those that
 * `cairn snapshot create --local` made.
 *
 * STORE/snapshots/NUMBER contains a copy of the view of one cut (view_copy()), and a file that
 * lists the packs which that state needs (format/local_snapshot.h). Chunks are not copied: the
 * packs are pinned as long as the snapshot exists, so neither gc nor compaction touches them, and
 * the newest state's view still knows their chunks.
 *
 *    taken:    NUMBER.new/view, NUMBER.new/snapshot -> NUMBER, durable
 *    given up: NUMBER -> NUMBER.gone, durable; its files are removed; its packs are unpinned; gc
 *    deleted while it is read: NUMBER.deleted, durable; given up when its last reader has left
 *
 * The writeback thread takes snapshots and gives them up, between two cuts: meanwhile no pack is
 * dropped. Other threads list them, read them and request names. Errors are negative errno. */
#pragma once

#include "base/vector.h"
#include "commit/options.h"
#include "format/local_snapshot.h"

struct local_snapshots;
struct naming;
struct naming_state;
struct store;
struct view;

/* Called after recovery, before any thread: reads the existing snapshots, and pins their packs. A
 * damaged one is set aside in STORE/lost+found, and logged. With a remote none are taken without a
 * request, and existing ones stay until their room is needed. */
CAIRN_MUST_CHECK int local_snapshots_open(struct store *store, struct local_snapshots **ret);
void local_snapshots_close(struct local_snapshots *snapshots); /* NULL: no effect */

struct local_snapshot_info {
    uint64_t number;
    int64_t taken; /* ns since 1970 */
    uint64_t cut, files, logical_bytes;
    char name[SNAPSHOT_NAME_MAX]; /* "": none */
    /* why it cannot be read: then only its number is known; 0: it can */
    int error;
};
DEFINE_VECTOR(local_snapshot_list, struct local_snapshot_info);

/* Adds all of them, ascending. Any thread. */
void local_snapshots_list(struct local_snapshots *snapshots, struct local_snapshot_list *ret);
bool local_snapshots_have(struct local_snapshots *snapshots, const char *name); /* any thread */
/* Opens its view for reading; the snapshot is not given up until local_snapshots_leave(). -ENOENT:
 * there is no such snapshot. Otherwise errors of view_open(). Any thread; blocks. */
CAIRN_MUST_CHECK int local_snapshots_enter(struct local_snapshots *snapshots, uint64_t number,
                                           struct view **ret);
void local_snapshots_leave(struct local_snapshots *snapshots, uint64_t number);

/* Number of snapshots, and the bytes on NVMe that only they need, as far as is known. `snapshots`
 * may be NULL. Any thread. */
struct local_snapshots_cost {
    uint64_t count, bytes;
};
struct local_snapshots_cost local_snapshots_cost(struct local_snapshots *snapshots);

/* Calls `fn` with each, ascending, and the bytes of packs that only this one needs. Any thread. */
void local_snapshots_each(struct local_snapshots *snapshots,
                          void (*fn)(uint64_t number, uint64_t bytes, void *arg), void *arg);

/* Adds the packs that they need, ascending. Any thread. */
void local_snapshots_packs(struct local_snapshots *snapshots, struct pack_ids *ret);
/* Returns those that need the pack, by name or number, for a message; NULL: none. Caller frees. Any
 * thread. */
char *local_snapshots_that_need(struct local_snapshots *snapshots, uint64_t pack);
/* Adds one of them to such a list. `name` "": it has none. */
struct text_list;
void local_snapshots_add_text(struct text_list *list, const char *name, uint64_t number);

/* As snapshots_ask() and snapshots_look(). With a remote one is created only if all content of the
 * files is on NVMe. Any thread. */
CAIRN_MUST_CHECK int local_snapshots_ask(struct local_snapshots *snapshots,
                                         const struct naming *naming, uint64_t *ret_number);
void local_snapshots_look(struct local_snapshots *snapshots, struct naming_state *ret);

/* --- on the disk (local_snapshots_read.c) ----------------------------------------------------- */

/* Adds those of the store in directory `store`, ascending, also while it is mounted. Any thread;
 * blocks. */
CAIRN_MUST_CHECK int local_snapshots_read(const char *store, struct local_snapshot_list *ret);
/* Returns the one of a list that `at` selects, or the newest that is not later than its time. NULL:
 * none. */
const struct local_snapshot_info *local_snapshots_choose(const struct local_snapshot_list *list,
                                                         const struct head_choice *at);

/* --- rounds of the writeback thread (commit/upkeep.h) ----------------------------------------- */

/* As heal_round(); snapshots that need a chunk which it moved also need the chunk's new pack. */
bool local_snapshots_heal_round(struct store *store, bool now);
/* Takes a snapshot that is due, and carries out a request for a name. */
bool local_snapshots_take_round(struct store *store, bool now);
/* Gives one up if they use more than options.history_space, or a writer waits for room. */
bool local_snapshots_give_round(struct store *store, bool now);
/* Returns whether giving up some may free room. */
bool local_snapshots_may_free(struct store *store);
