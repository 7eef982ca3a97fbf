// SPDX-License-Identifier: Apache-2.0
/* The view's part of the remote tier: which chunks are there, the changes of a cut since the newest
 * published head, and the rows that a run exchanges with it.
 *
 * A chunk in the remote may refer to other chunks, its bases, and depends on them. A chunk is
 * *needed* there if a file refers to it, or a needed chunk depends on it.
 *
 * While the view tracks (always, once a store has had a remote), every change of a published row
 * leaves a mark with the number of the change. A run for a cut is made from the marks in a snapshot
 * of the view at that cut; publishing it removes these marks. Needed chunks without a place in the
 * remote are *pending upload*.
 *
 * Threads: reads as in view.h. Functions that change the view must not run concurrently with
 * view_apply() or another change: the caller serializes them. Errors as in view.h. */
#pragma once

#include "format/head.h"
#include "format/run.h"
#include "view/view.h"

struct view_remote {
    bool tracks;
    bool is_whole; /* the next run must contain everything */
    uint64_t head; /* number of the newest published head that the view knows; 0: none */
    uint64_t cut;  /* of that head */
    /* known remote packs, published or not, without unreferenced ones */
    uint64_t packs, pack_bytes;
    uint64_t pending_chunks; /* chunks */
    /* stored bytes of these at their local places; 0 for a chunk without one */
    uint64_t pending_bytes;
    uint64_t held_bytes;     /* in the remote, of chunks that only needed dependents keep */
    uint64_t suspect_packs;  /* of `packs`: could not be read */
    uint64_t suspect_chunks; /* needed chunks whose only place is in one of these */
};
struct view_remote view_remote(struct view *view);

/* Starts to track: everything is pending upload, the next run is whole. Does nothing if the view
 * tracks already. */
CAIRN_MUST_CHECK int view_track(struct view *view);

/* The next run will be whole; places stay. Call when the newest head was published but could not be
 * noted in the view: the marks refer to older rows of packs and chunks. */
CAIRN_MUST_CHECK int view_report_all(struct view *view);

/* The next run will be whole, and all places in the remote are forgotten (its state was lost or
 * belongs to another store). */
CAIRN_MUST_CHECK int view_forget_remote(struct view *view);

/* Returns the place of a chunk in the remote. *ret_published: the newest head relies on this place,
 * and no head being published can doom it, so the local copy may be evicted. -ENOENT: not there. */
CAIRN_MUST_CHECK int view_remote_chunk(struct view *view, const struct chunk_name *name,
                                       struct chunk_entry *ret_entry, bool *ret_published);

/* As view_remote_chunk(), without the check. */
CAIRN_MUST_CHECK int view_remote_place(struct view *view, const struct chunk_name *name,
                                       struct chunk_entry *ret_entry);
/* The same of a chunk that is needed. -ENOENT: it is not needed, or has no place there. */
CAIRN_MUST_CHECK int view_remote_needed(struct view *view, const struct chunk_name *name,
                                        struct chunk_entry *ret_entry);

struct view_remote_pack {
    uint64_t pack, length;
    uint32_t count;
    uint64_t live_bytes; /* stored bytes of its chunks that are needed now */
    uint32_t live_count;
    uint64_t head; /* the first head that named it; 0: not published */
    /* medium's time, ns, at which a head without it was published; 0: needed */
    int64_t unreferenced;
    /* if unreferenced: the first head that does not need it; 0: not known, as another store
     * published it */
    uint64_t until;
    bool gone; /* the object was deleted; the next run removes its row */
    /* ns since 1970, when the pack could not be read (missing or damaged) and has not been found
     * whole since; 0: not suspect */
    int64_t suspect;
};
CAIRN_MUST_CHECK int view_remote_packs(struct view *view,
                                       int (*fn)(const struct view_remote_pack *pack, void *arg),
                                       void *arg);
CAIRN_MUST_CHECK int view_remote_pack(struct view *view, uint64_t pack,
                                      struct view_remote_pack *ret_pack);

/* Calls `fn` for each chunk whose place is in this remote pack. */
CAIRN_MUST_CHECK int view_remote_pack_chunks(struct view *view, uint64_t pack,
                                             int (*fn)(const struct chunk_entry *entry,
                                                       bool is_needed, void *arg),
                                             void *arg);

/* Does any entry of the remote refer to the chunk, live or not? If so, it may be stored there again
 * only without bases, or in its current encoding: never deeper. Any thread. */
CAIRN_MUST_CHECK int view_has_dependents(struct view *view, const struct chunk_name *name,
                                         bool *ret);
/* Counts the entries of the remote that have this encoding and refer to the chunk, live or not, up
 * to `max`. Any thread. */
CAIRN_MUST_CHECK int view_dependents(struct view *view, const struct chunk_name *name,
                                     enum chunk_encoding encoding, uint64_t max,
                                     uint64_t *ret_count);
/* May a chunk of this pack on NVMe, of which nothing on NVMe needs any, still become a base, or
 * serve as one? True if a chunk of it has a place in the remote, and the newest head may call it
 * needed, or another chunk there depends on it. Any thread. */
CAIRN_MUST_CHECK int view_pack_may_serve(struct view *view, uint64_t pack, bool *ret);
/* Returns a base that is missing for the chunk's entry in the remote, or for one of its bases.
 * -ENOENT: none is missing, or the chunk is not in the remote. Any thread. */
CAIRN_MUST_CHECK int view_remote_lacks(struct view *view, const struct chunk_name *name,
                                       struct chunk_name *ret_base);

/* A pack was stored in the remote: its chunks now have their place there, also those that had
 * another. Entries are in order: a base precedes its dependents. -EUCLEAN, and nothing is noted:
 * the pack is already known, or a base of an entry has no place in the remote, or is not less deep
 * than the entry. */
CAIRN_MUST_CHECK int view_remote_placed(struct view *view, uint64_t pack, uint64_t length,
                                        const struct chunk_entry *entries, uint32_t count);

/* The pack cannot be read: it is missing or damaged, temporarily or permanently. Needed chunks of
 * it that are also on NVMe lose their place there and become pending upload, as do chunks on NVMe
 * that depend on any chunk of it. Chunks that are only in the remote keep their place, and heads
 * continue to name it: the object may come back. `now`: ns since 1970. -ENOENT: unknown, or
 * unreferenced. */
CAIRN_MUST_CHECK int view_remote_pack_suspect(struct view *view, uint64_t pack, int64_t now);
/* A suspect pack was found whole. -ENOENT: unknown. */
CAIRN_MUST_CHECK int view_remote_pack_trusted(struct view *view, uint64_t pack);

/* Walks the needed chunks without a place in the remote, by name, with whether they are on NVMe.
 * `fn` returns 0 to continue, 1 to stop. */
CAIRN_MUST_CHECK int
view_pending_chunks(struct view *view,
                    int (*fn)(const struct chunk_name *name, bool is_local, void *arg), void *arg);
/* An object was found that no published head needs, or that no head names any more: lost chunks
 * that it contains get their place there again, and the pack is known again. Entries in order, as
 * for view_remote_placed(). *ret_placed: the number of these chunks; 0: nothing was changed. */
CAIRN_MUST_CHECK int view_remote_pack_returned(struct view *view, uint64_t pack, uint64_t length,
                                               const struct chunk_entry *entries, uint32_t count,
                                               uint32_t *ret_placed);

/* Files may refer to chunks of this pack again: it counts as needed, until a head is published that
 * does not need it. Its chunks without a place in the remote get this one, in order of the entries,
 * as for view_remote_placed(), unless one of their bases has none. -ENOENT: unknown, gone or
 * suspect. */
CAIRN_MUST_CHECK int view_remote_pack_claimed(struct view *view, uint64_t pack,
                                              const struct chunk_entry *entries, uint32_t count);

/* The object of an unreferenced pack is about to be deleted: it cannot be claimed any more.
 * -ENOENT: unknown; -EINVAL: not unreferenced (it was claimed, or came back). */
CAIRN_MUST_CHECK int view_remote_pack_gone(struct view *view, uint64_t pack);

/* *ret_cut: the cut of the newest unpublished change to the inode's row; 0: none, or no such inode.
 * If nothing is published yet, the view's own cut. */
CAIRN_MUST_CHECK int view_unpublished(struct view *view, uint64_t ino, uint64_t *ret_cut);
/* The part of the view's state that the newest published head lacks. Counts at most `max` marks. */
struct view_unpublished_total {
    uint64_t inodes; /* created, changed or removed since */
    uint64_t files;  /* existing regular files among these */
    uint64_t bytes;  /* their sizes, though only part of each may have changed */
    bool has_more;   /* there are more marks */
};
CAIRN_MUST_CHECK int view_unpublished_total(struct view *view, uint64_t max,
                                            struct view_unpublished_total *ret);

/* Are there marks? Changes made by no operation leave marks too, and so does a crash just after a
 * head was noted. */
CAIRN_MUST_CHECK int view_has_marks(struct view *view, bool *ret);

/* --- a cut to publish ------------------------------------------------------------------------- */

struct view_cut;

/* Opens a cut of the view's current state. -EINVAL: the view does not track. Only one cut at a time
 * is published; a published cut may stay open, for reading its files (cut_files.h). */
CAIRN_MUST_CHECK int view_cut_open(struct view *view, struct view_cut **ret_cut);
/* As view_cut_open(), for rows that describe everything except a remote, which need not exist: no
 * chunk has a place, and there are no packs. Not to be published; may exist beside other cuts. */
CAIRN_MUST_CHECK int view_cut_open_alone(struct view *view, struct view_cut **ret_cut);
void view_cut_close(struct view_cut *cut);
/* Of a file at the cut: its number of page rows, and its bytes that are not holes. -ENOENT: it does
 * not exist. */
CAIRN_MUST_CHECK int view_cut_counts(struct view_cut *cut, uint64_t ino, uint32_t *ret_pages,
                                     uint64_t *ret_bytes);
struct view_state view_cut_state(const struct view_cut *cut);
bool view_cut_is_whole(const struct view_cut *cut);

/* Walks the chunks pending upload at the cut whose names are greater than `after` (NULL: all), in
 * order of name, with their local places at that time (pack 0: none; raw_len 0: known only as a
 * base of others). `fn` returns 0 to continue, 1 to stop. */
CAIRN_MUST_CHECK int view_cut_pending(struct view_cut *cut, const struct chunk_name *after,
                                      int (*fn)(const struct chunk_entry *entry, void *arg),
                                      void *arg);

/* May chunks that are sent for the cut refer to this chunk? 0, and its entry in the remote: all its
 * bases are there, and the cut's rows will name it, so that the head that names a dependent also
 * names its base. The rows name it if the cut needs it; or if nothing does, but the newest head may
 * name it: a chunk of a deleted file. -ENOENT: no (perhaps it is needed again only since the cut).
 * Any thread, several at once. */
CAIRN_MUST_CHECK int view_cut_base(struct view_cut *cut, const struct chunk_name *name,
                                   struct chunk_entry *ret_entry);

/* As view_has_dependents(), at the cut: a head may still say so, whatever has changed since. Any
 * thread, several at once. */
CAIRN_MUST_CHECK int view_cut_has_dependents(struct view_cut *cut, const struct chunk_name *name,
                                             bool *ret);

/* Makes the rows of the cut's run, in key order. Everything pending must have its place by now;
 * chunks without one get a row without a place and are counted in *ret_missing: their bytes cannot
 * be read from the remote, and each run says so until they have a place. `now` is the medium's
 * time. Remembers which packs the run names first and which it dooms, for view_published(). */
CAIRN_MUST_CHECK int view_cut_rows(struct view_cut *cut, int64_t now,
                                   int (*fn)(const struct run_row *row, void *arg), void *arg,
                                   uint64_t *ret_missing);

/* A head was published that differs from the newest known one only in its number. */
CAIRN_MUST_CHECK int view_note_head(struct view *view, uint64_t head);

/* Call after view_cut_rows(), before view_published(). Of the packs that the run leaves
 * unreferenced, the view keeps those for which `fn` returns false, and those that have been needed
 * again since the cut; the next run names these again. `fn` is called without locks. */
void view_cut_spare(struct view_cut *cut, bool (*fn)(uint64_t pack, void *arg), void *arg);

/* The head with that run was published: notes it in one atomic write. */
CAIRN_MUST_CHECK int view_published(struct view *view, struct view_cut *cut, uint64_t head);

/* --- taking over the state of a head ---------------------------------------------------------- */

/* Types of rows of the namespace, and of rows about the content of files. A head of several nodes
 * has the first in its own runs, and each node has the second, for its files, in its runs. */
#define VIEW_ROWS_OF_NAMES "CDIJLOX"
#define VIEW_ROWS_OF_CONTENT "EHNQ"

/* The data against which rows of a state are checked, besides the state. */
struct view_head {
    uint64_t number;
    uint64_t max_id; /* largest pack id assigned so far */
    /* The head is of several nodes: its cut is not a sequence number, so cookies of directory
     * entries cannot be compared with it. */
    bool has_nodes;
};

/* Fills *ret_state from the head. Its counters are 0: adoption and following count them. */
void view_state_of_head(const struct head *head, struct view_state *ret_state,
                        struct view_head *ret_head);

struct view_adoption;

/* Fills a new `view`, which only ever contained the root, with the merged rows of a head's runs, in
 * key order; the end adds the head's state. A crash before the end leaves a view that cannot be
 * opened, and is built again. -EUCLEAN: rows that no view wrote, or in another order, or of another
 * state than `state`, or that name an inode, an entry or a pack later than that state. Each row is
 * checked by itself; view_check() finds other errors. */
CAIRN_MUST_CHECK int view_adopt_begin(struct view *view, struct view_adoption **ret);
CAIRN_MUST_CHECK int view_adopt_row(struct view_adoption *adoption, const struct run_row *row);
CAIRN_MUST_CHECK int view_adopt_end(struct view_adoption *adoption, const struct view_state *state,
                                    const struct view_head *head);
void view_adopt_done(struct view_adoption *adoption); /* frees it, finished or not */

/* --- following newer heads -------------------------------------------------------------------- */

struct view_follow;

/* Updates `view`, which has the state of some head, by adoption or following, and no changes of its
 * own, to a newer head. The rows come in key order: with `is_whole` all rows of that head, else
 * those of the new runs, in which a row without a value removes its key. Nothing changes until the
 * end, which writes everything at once: readers see one state or the other. Local packs and their
 * chunks stay. Calls `changed` for each inode whose row differs.
 *
 * From begin to done no other change of the view is possible; one thread. Rows that differ are held
 * in memory: -EFBIG above 256 MiB. -EUCLEAN as for an adoption: the view is unchanged. */
CAIRN_MUST_CHECK int view_follow_begin(struct view *view, bool is_whole,
                                       void (*changed)(uint64_t ino, void *arg), void *arg,
                                       struct view_follow **ret);
CAIRN_MUST_CHECK int view_follow_row(struct view_follow *follow, const struct run_row *row);
CAIRN_MUST_CHECK int view_follow_end(struct view_follow *follow, const struct view_state *state,
                                     const struct view_head *head);
void view_follow_done(struct view_follow *follow); /* frees it, finished or not */

/* Does the view have changes of the namespace that no head contains? */
CAIRN_MUST_CHECK int view_has_own_changes(struct view *view, bool *ret);
