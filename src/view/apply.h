// SPDX-License-Identifier: Apache-2.0
/* The parts of an apply. All of them change the transaction only; -EUCLEAN where the record does
 * not fit the state. */
#pragma once

#include "view/db.h"

/* extents.c */

/* Keeps the extents of an EXTENTS record, or of a SEAL, until pending_take() for the same inode and
 * version.
 */
CAIRN_MUST_CHECK int pending_add(struct txn *txn, const struct record *rec);
/* Takes the kept pieces, in order of arrival, now the caller's; empty if there were none. */
struct piece_list pending_take(struct txn *txn, const struct record *rec);
/* Frees all that is kept; returns whether there was any. */
bool pending_drop(struct txn *txn);

/* Content becomes: its first `keep` bytes, then `pieces` over it in their order,
 * truncated to `size`. Updates blocks_bytes and pages of `row`; the caller stores the row. */
CAIRN_MUST_CHECK int content_replace(struct txn *txn, struct inode_row *row, uint64_t version,
                                     uint64_t keep, uint64_t size, struct piece_list *pieces);
/* Removes all content and its references. */
CAIRN_MUST_CHECK int content_clear(struct txn *txn, struct inode_row *row);

/* pieces.c: pure */

/* `newer` over `older`, both ascending and disjoint; holes of both stay in the result, which is so
 * too. */
void pieces_overlay(const struct piece_list *older, const struct piece_list *newer,
                    struct piece_list *ret_list);
/* Makes a list ascending and disjoint; a later piece lies over an earlier one. */
void pieces_flatten(struct piece_list *list);
/* Removes the first bytes of a piece, so that it begins at `offset` (within it). */
void piece_trim_front(struct piece *piece, uint64_t offset);

static inline uint64_t piece_end(const struct piece *piece)
{
    return piece->offset + piece->length;
}

/* chunks.c */

/* The chunk that `piece` names gains (+) or loses (-) references. */
CAIRN_MUST_CHECK int chunk_refs_change(struct txn *txn, const struct piece *piece, int64_t delta);
CAIRN_MUST_CHECK int apply_pack(struct txn *txn, const struct record *rec,
                                const struct view_batch *batch);
CAIRN_MUST_CHECK int apply_drop(struct txn *txn, const struct record *rec);
/* Writes the pack account that is still held in the transaction. */
void pack_account_store(struct txn *txn);

/* names.c */

/* A name in `parent` changes: counts of the directory by these, its mtime and ctime to `time`;
 * `later_only`: unless its ctime is later already, though not later than `now`, the time of the
 * operation: it is of a clock that was ahead. */
struct dir_change {
    int64_t time, now;
    bool later_only;
    int entries, subdirs;
};
CAIRN_MUST_CHECK int dir_change(struct txn *txn, uint64_t parent, const struct dir_change *change);
/* The pair of keys of a name; the directory itself is dir_change()'s. */
CAIRN_MUST_CHECK int name_add(struct txn *txn, uint64_t parent, const char *name, size_t name_len,
                              const struct view_entry *entry);

CAIRN_MUST_CHECK int apply_make(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_link(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_unlink(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_rename(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_reap(struct txn *txn, const struct record *rec);

/* An inode that has no names yet comes to be: its row with nlink as `row` says, and
 * the counters. */
CAIRN_MUST_CHECK int inode_create(struct txn *txn, const struct inode_row *row);
/* Adds (+1) a file to the counters or takes it out (-1). Other inodes are not counted. */
void count_file(struct txn *txn, const struct inode_row *row, int sign);

/* places.c: where chunks lie in the remote, while the view tracks */

/* The first reference to the chunk came (+1), or the last one went (-1). */
CAIRN_MUST_CHECK int remote_chunk_refs_changed(struct txn *txn, const struct chunk_row *row,
                                               int sign);
/* The chunk has another local place than before, or none: pending uploads are counted by its
 * stored bytes. */
CAIRN_MUST_CHECK int remote_chunk_moved_locally(struct txn *txn, const struct chunk_row *row);
/* Notes that a chunk has its place in the remote as the entry says, in a pack that is known. */
CAIRN_MUST_CHECK int remote_chunk_place(struct txn *txn, const struct chunk_entry *entry);
/* Notes that the chunk has no place in the remote any more, if it had one. */
CAIRN_MUST_CHECK int remote_chunk_forget(struct txn *txn, const struct chunk_name *name);
/* After a head told its rows of this chunk and of all others: dependents of lost chunks are
 * sent anew if they lie here. */
CAIRN_MUST_CHECK int remote_chunk_settle(struct txn *txn, const struct chunk_name *name);
/* Adds a chunk that is needed in the remote, and has no place there; `entry` is the local one. */
void add_pending_upload(struct txn *txn, const struct chunk_entry *entry);
/* Makes txn->remote_pack the account of `pack`; -ENOENT. */
CAIRN_MUST_CHECK int remote_pack_load(struct txn *txn, uint64_t pack);
void remote_pack_store(struct txn *txn);
/* The loaded pack became suspect: view_remote_pack_suspect(). */
CAIRN_MUST_CHECK int remote_pack_leave_suspect(struct txn *txn, uint64_t pack);
/* 1: the chunk is needed and has no place in the remote, nor here; 0: it is not so. */
CAIRN_MUST_CHECK int remote_chunk_is_lost(struct txn *txn, const struct chunk_name *name);
/* All chunks whose place is in this pack have none there any more; those that are needed are
 * pending upload. The pack is loaded then. */
CAIRN_MUST_CHECK int remote_pack_forget_placed(struct txn *txn, uint64_t pack);

/* remote.c */

/* The loaded pack is not needed any more: takes it out of the counters, if it still is in them. */
void remote_pack_leave_count(struct txn *txn);
/* The loaded pack is not suspect any more, if it was. */
void remote_pack_trust(struct txn *txn);
