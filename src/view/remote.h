// SPDX-License-Identifier: Apache-2.0
/* The view's part of the remote tier: which chunks lie there, the changes of a cut since the newest
 * published head, and the rows that a run carries there and back.
 *
 * What lies there may refer to other chunks, its bases, and rest on them. A chunk is *needed* there
 * if a file refers to it, or something that is needed rests on it.
 *
 * While the view tracks (from the first time a store has a remote, for ever), every change of a row
 * that is published leaves a mark with the number of the change. A run for a cut is made from the
 * marks in a snapshot of the view at that cut; publishing it forgets the marks up to there. Chunks
 * that are needed and have no place in the remote are *pending upload*.
 *
 * Threads: reads as in view.h. Everything that changes the view must not run beside view_apply() or
 * another change: the caller serializes them. Errors as in view.h. */
#pragma once

#include "format/head.h"
#include "format/run.h"
#include "view/view.h"

struct view_remote {
    bool tracks;
    bool is_whole; /* the next run has to hold everything */
    uint64_t head; /* number of the newest head that the view knows to be published; 0: none */
    uint64_t cut;  /* of that head */
    /* remote packs that are known, published or not, and not unreferenced */
    uint64_t packs, pack_bytes;
    uint64_t pending_chunks; /* chunks */
    uint64_t pending_bytes;  /* stored bytes of these at their local places; a chunk without one
                               counts 0 */
    uint64_t held_bytes;     /* there, of chunks that only needed dependents keep */
    uint64_t suspect_packs;  /* of `packs`: that could not be read */
    uint64_t suspect_chunks; /* needed chunks whose place is in one of these, and nowhere else */
};
struct view_remote view_remote(struct view *view);

/* Begins to track: everything is pending upload, the next run is whole. Nothing if it does already.
 */
CAIRN_MUST_CHECK int view_track(struct view *view);

/* The next run is whole; places stay. For a newest head that was published and could not be noted
 * here: the marks were made against other rows of packs and chunks. */
CAIRN_MUST_CHECK int view_report_all(struct view *view);

/* The next run is whole, and nothing is known to be in the remote (its state was lost or is not
 * ours). */
CAIRN_MUST_CHECK int view_forget_remote(struct view *view);

/* Place of a chunk in the remote. *ret_published: the newest head relies on it, and no head that is
 * being published can doom it: the local copy is not needed. -ENOENT: not there. */
CAIRN_MUST_CHECK int view_remote_chunk(struct view *view, const struct chunk_name *name,
                                       struct chunk_entry *ret_entry, bool *ret_published);

/* The place alone. */
CAIRN_MUST_CHECK int view_remote_place(struct view *view, const struct chunk_name *name,
                                       struct chunk_entry *ret_entry);

struct view_remote_pack {
    uint64_t pack, length;
    uint32_t count;
    uint64_t live_bytes; /* stored bytes of its chunks that are needed now */
    uint32_t live_count;
    uint64_t head;        /* the first that relied on it; 0: not published */
    int64_t unreferenced; /* medium's time, ns, at which a head was published that does not need it;
                       0: needed */
    uint64_t until;       /* unreferenced: the first head that does not need it; 0: not known, for
                             another store published it */
    bool gone;            /* the object was deleted; the next run says so */
    int64_t suspect;      /* ns since 1970, when it could not be read (missing or damaged), and was
                             not found whole since; 0: not suspect */
};
CAIRN_MUST_CHECK int view_remote_packs(struct view *view,
                                       int (*fn)(const struct view_remote_pack *pack, void *arg),
                                       void *arg);
CAIRN_MUST_CHECK int view_remote_pack(struct view *view, uint64_t pack,
                                      struct view_remote_pack *ret_pack);

/* Names of the chunks whose place is in this remote pack. */
CAIRN_MUST_CHECK int view_remote_pack_chunks(struct view *view, uint64_t pack,
                                             int (*fn)(const struct chunk_entry *entry,
                                                       bool is_needed, void *arg),
                                             void *arg);

/* Does an entry of the remote refer to the chunk, alive or not? Then it is stored there again only
 * self-contained, or as it was: never deeper. Any thread. */
CAIRN_MUST_CHECK int view_has_dependents(struct view *view, const struct chunk_name *name,
                                         bool *ret);
/* The number of entries of the remote that have this encoding and refer to the chunk, alive or not;
 * counts up to `max`. Any thread. */
CAIRN_MUST_CHECK int view_dependents(struct view *view, const struct chunk_name *name,
                                     enum chunk_encoding encoding, uint64_t max,
                                     uint64_t *ret_count);
/* May a chunk become a base, or serve as one again, that lies in this pack on NVMe and that nothing
 * needs here? It has a place in the remote, and the newest head may say that it is needed, or
 * something there rests on it. Any thread. */
CAIRN_MUST_CHECK int view_pack_may_serve(struct view *view, uint64_t pack, bool *ret);
/* A base that the chunk's entry in the remote lacks, or that one of its bases lacks. -ENOENT: it
 * lacks none, or the chunk has no place there. Any thread. */
CAIRN_MUST_CHECK int view_remote_lacks(struct view *view, const struct chunk_name *name,
                                       struct chunk_name *ret_base);

/* A pack was stored in the remote: its chunks have their place there now, also those that had
 * another. In the order of the entries: a base comes before its dependents. -EUCLEAN, and
 * nothing is noted: the pack is known already; or an entry has a base without a place
 * there, or one that is as deep as it is. */
CAIRN_MUST_CHECK int view_remote_placed(struct view *view, uint64_t pack, uint64_t length,
                                        const struct chunk_entry *entries, uint32_t count);

/* The pack cannot be read: it is missing or damaged, for now or for good. Needed chunks of it that
 * lie here, too, lose their place there and are pending upload, and so do chunks that rest on any
 * of it and lie here. Chunks that lie there alone keep their place, and heads go on to name it: the
 * object may come back. `now`: ns since 1970. -ENOENT: unknown, or unreferenced. */
CAIRN_MUST_CHECK int view_remote_pack_suspect(struct view *view, uint64_t pack, int64_t now);
/* A suspect pack was found whole. -ENOENT: unknown. */
CAIRN_MUST_CHECK int view_remote_pack_trusted(struct view *view, uint64_t pack);

/* Needed chunks that have no place in the remote now, by name, and whether they have one here.
 * `fn` returns 0 to go on, 1 to stop. */
CAIRN_MUST_CHECK int
view_pending_chunks(struct view *view,
                    int (*fn)(const struct chunk_name *name, bool is_local, void *arg), void *arg);
/* An object was found that no published head needs, or that no head names any more: lost chunks
 * that it holds have their place there again, and so has the pack. In the order of the entries, as
 * view_remote_placed(). *ret_placed: how many; 0: nothing was changed. */
CAIRN_MUST_CHECK int view_remote_pack_returned(struct view *view, uint64_t pack, uint64_t length,
                                               const struct chunk_entry *entries, uint32_t count,
                                               uint32_t *ret_placed);

/* Files may refer to chunks of this pack again: it counts as one that is needed, until a head is
 * published that does not need it. Chunks that have no place there get this one, in the order of
 * the entries, as view_remote_placed(); not one whose bases have none. -ENOENT: unknown, gone or
 * suspect. */
CAIRN_MUST_CHECK int view_remote_pack_claimed(struct view *view, uint64_t pack,
                                              const struct chunk_entry *entries, uint32_t count);

/* The object of an unreferenced pack is about to be deleted: no more can be made of it. -ENOENT:
 * unknown; -EINVAL: not unreferenced (it was claimed, or came back). */
CAIRN_MUST_CHECK int view_remote_pack_gone(struct view *view, uint64_t pack);

/* *ret_cut: the cut with which the newest change of the inode's row came that is not published; 0:
 * none, or no such inode. Where nothing is published yet, the view's own cut. */
CAIRN_MUST_CHECK int view_unpublished(struct view *view, uint64_t ino, uint64_t *ret_cut);
/* The view's state that the newest published head lacks. Looks at `max` marks at most. */
struct view_unpublished_total {
    uint64_t inodes; /* made, changed or removed since */
    uint64_t files;  /* regular ones of these that are there */
    uint64_t bytes;  /* their sizes, though not all of each changed */
    bool has_more;   /* there were more marks */
};
CAIRN_MUST_CHECK int view_unpublished_total(struct view *view, uint64_t max,
                                            struct view_unpublished_total *ret);

/* Are there marks? Changes made by no operation leave some, too, and so does a crash just after a
 * head was noted. */
CAIRN_MUST_CHECK int view_has_marks(struct view *view, bool *ret);

/* --- a cut to publish ------------------------------------------------------------------------- */

struct view_cut;

/* The view as it is now: a whole cut. -EINVAL: it does not track. One at a time is published; a
 * published one may stay open, to look at its files (cut_files.h). */
CAIRN_MUST_CHECK int view_cut_open(struct view *view, struct view_cut **ret_cut);
/* The same for rows that say all and nothing of a remote, which there need not be: no chunk has a
 * place, and there are no packs. Not to be published; beside others. */
CAIRN_MUST_CHECK int view_cut_open_alone(struct view *view, struct view_cut **ret_cut);
void view_cut_close(struct view_cut *cut);
/* Of a file at the cut: how many page rows it has, and its bytes that are not holes. -ENOENT: it is
 * not there. */
CAIRN_MUST_CHECK int view_cut_counts(struct view_cut *cut, uint64_t ino, uint32_t *ret_pages,
                                     uint64_t *ret_bytes);
struct view_state view_cut_state(const struct view_cut *cut);
bool view_cut_is_whole(const struct view_cut *cut);

/* The chunks pending upload at the cut whose names are greater than `after` (NULL: all), in order
 * of name, with their local places at that time (pack 0: none; raw_len 0: nothing is known of it
 * but that others rest on it). `fn` returns 0 to go on, 1 to stop.
 */
CAIRN_MUST_CHECK int view_cut_pending(struct view_cut *cut, const struct chunk_name *after,
                                      int (*fn)(const struct chunk_entry *entry, void *arg),
                                      void *arg);

/* May chunks that are sent for the cut refer to this one? 0, and its entry in the remote: all that
 * it rests on is there, and the cut's rows tell of it. They do if the cut needs it; or if nothing
 * does, but the newest head may say so: of a deleted file. -ENOENT: not to this one (it
 * may be that it is needed again only since the cut). So the head that names the one names the
 * other. Any thread, several at once. */
CAIRN_MUST_CHECK int view_cut_base(struct view_cut *cut, const struct chunk_name *name,
                                   struct chunk_entry *ret_entry);

/* As view_has_dependents(), at the cut: a head may go on to say so, whatever happened since. Any
 * thread, several at once. */
CAIRN_MUST_CHECK int view_cut_has_dependents(struct view_cut *cut, const struct chunk_name *name,
                                             bool *ret);

/* The rows of the cut's run, in key order. Everything pending must have its place now; chunks that
 * have none are told without one and counted in *ret_missing: their bytes cannot be read from the
 * remote, and each run says so until they have one. `now` is the medium's time. Remembers which
 * packs it names first and which it dooms, for view_published(). */
CAIRN_MUST_CHECK int view_cut_rows(struct view_cut *cut, int64_t now,
                                   int (*fn)(const struct run_row *row, void *arg), void *arg,
                                   uint64_t *ret_missing);

/* A head was published that differs from the newest known one by its number alone. */
CAIRN_MUST_CHECK int view_note_head(struct view *view, uint64_t head);

/* After view_cut_rows(), before view_published(): of the packs that the run leaves unreferenced,
 * the view keeps as they are those for which `fn` returns false, and those that came to be needed
 * since the cut. The next run says so. `fn` is called without locks. */
void view_cut_spare(struct view_cut *cut, bool (*fn)(uint64_t pack, void *arg), void *arg);

/* The head with that run was published: one atomic write. */
CAIRN_MUST_CHECK int view_published(struct view *view, struct view_cut *cut, uint64_t head);

/* --- taking over the state of a head ---------------------------------------------------------- */

/* Rows of the namespace, and rows that belong to the content of files. A head of several nodes has
 * the first in its own runs, and each node has the second of its files. */
#define VIEW_ROWS_OF_NAMES "CDIJLOX"
#define VIEW_ROWS_OF_CONTENT "EHNQ"

/* What a state's rows are checked by, beside the state. */
struct view_head {
    uint64_t number;
    uint64_t max_id; /* largest id of a pack given out so far */
    /* Several nodes wrote it: its cut is no operation's number, so that places of entries in their
     * directories say nothing of it. */
    bool has_nodes;
};

/* The counters of a state are 0: adoption and following find them. */
void view_state_of_head(const struct head *head, struct view_state *ret_state,
                        struct view_head *ret_head);

struct view_adoption;

/* `view` is new: nothing but the root was ever in it. The rows of the head's runs, merged, in key
 * order; then the end with the head's state. Until then a crash leaves a view that cannot be
 * opened, and is made anew. -EUCLEAN: rows that no view wrote, in another order, or of another
 * state than `state`, or that name an inode, an entry or a pack that comes after it;
 * each row is looked at by itself, view_check() finds the rest. */
CAIRN_MUST_CHECK int view_adopt_begin(struct view *view, struct view_adoption **ret);
CAIRN_MUST_CHECK int view_adopt_row(struct view_adoption *adoption, const struct run_row *row);
CAIRN_MUST_CHECK int view_adopt_end(struct view_adoption *adoption, const struct view_state *state,
                                    const struct view_head *head);
void view_adopt_done(struct view_adoption *adoption); /* frees it, ended or not */

/* --- following newer heads -------------------------------------------------------------------- */

struct view_follow;

/* `view` is as some head said, by adoption or by following, and has no changes of its own; now it
 * takes the state of a newer head. The rows come in key order: with `is_whole` all rows of that
 * head, else those of the runs that are new, in which a row without a value removes its key.
 * Nothing changes until the end, which changes all in one write: readers see the one state or the
 * other. Local packs and their chunks stay. `changed` is told each inode whose row differs.
 *
 * From begin to done no other change of the view can be made; one thread. Rows that differ are held
 * in memory: -EFBIG where it is more than 256 MiB. -EUCLEAN as for an adoption: the view is as it
 * was. */
CAIRN_MUST_CHECK int view_follow_begin(struct view *view, bool is_whole,
                                       void (*changed)(uint64_t ino, void *arg), void *arg,
                                       struct view_follow **ret);
CAIRN_MUST_CHECK int view_follow_row(struct view_follow *follow, const struct run_row *row);
CAIRN_MUST_CHECK int view_follow_end(struct view_follow *follow, const struct view_state *state,
                                     const struct view_head *head);
void view_follow_done(struct view_follow *follow); /* frees it, ended or not */

/* Has the view changes of the namespace that no head says? */
CAIRN_MUST_CHECK int view_has_own_changes(struct view *view, bool *ret);
