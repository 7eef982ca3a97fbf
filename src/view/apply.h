// SPDX-License-Identifier: Apache-2.0
/* The parts of an apply. They change only the transaction. -EUCLEAN: the record does not fit the
 * state. */
#pragma once

#include "view/db.h"

/* extents.c */

/* Stores the extents of an EXTENTS record, or of a SEAL, until pending_take() for the same inode
 * and version. */
CAIRN_MUST_CHECK int pending_add(struct txn *txn, const struct record *rec);
/* Returns the stored pieces, in order of arrival; the caller owns them. Empty if there were
 * none. */
struct piece_list pending_take(struct txn *txn, const struct record *rec);
/* Frees all stored pieces; returns whether there were any. */
bool pending_drop(struct txn *txn);

/* Replaces the content: its first `keep` bytes stay, `pieces` are laid over them in order, the
 * result is truncated to `size`. Updates blocks_bytes and pages of `row`; the caller stores the
 * row. */
CAIRN_MUST_CHECK int content_replace(struct txn *txn, struct inode_row *row, uint64_t version,
                                     uint64_t keep, uint64_t size, struct piece_list *pieces);
/* Removes all content and its references. */
CAIRN_MUST_CHECK int content_clear(struct txn *txn, struct inode_row *row);

/* pieces.c: pure */

/* Lays `newer` over `older`, both ascending and disjoint, and so is the result. Holes of both stay
 * in the result. */
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

/* Adds (+) or removes (-) references to the chunk that `piece` names. */
CAIRN_MUST_CHECK int chunk_refs_change(struct txn *txn, const struct piece *piece, int64_t delta);
CAIRN_MUST_CHECK int apply_pack(struct txn *txn, const struct record *rec,
                                const struct view_batch *batch);
CAIRN_MUST_CHECK int apply_drop(struct txn *txn, const struct record *rec);
/* Writes the cached pack account to the transaction. */
void pack_account_store(struct txn *txn);

/* names.c */

/* A name in `parent` changes: adds these numbers to the counts of the directory, and sets its mtime
 * and ctime to `time`. `later_only`: leaves the times if its ctime is already later, but not later
 * than `now`, the time of the operation: such a ctime comes from a clock that was ahead. */
struct dir_change {
    int64_t time, now;
    bool later_only;
    int entries, subdirs;
};
CAIRN_MUST_CHECK int dir_change(struct txn *txn, uint64_t parent, const struct dir_change *change);
/* Adds the pair of keys of a name; the directory itself is changed by dir_change(). */
CAIRN_MUST_CHECK int name_add(struct txn *txn, uint64_t parent, const char *name, size_t name_len,
                              const struct view_entry *entry);

CAIRN_MUST_CHECK int apply_make(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_link(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_unlink(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_rename(struct txn *txn, const struct record *rec);
CAIRN_MUST_CHECK int apply_reap(struct txn *txn, const struct record *rec);

/* Creates an inode without names: its row, with the nlink of `row`, and the counters. */
CAIRN_MUST_CHECK int inode_create(struct txn *txn, const struct inode_row *row);
/* Adds (+1) a file to the counters or subtracts it (-1). Other inodes are not counted. */
void count_file(struct txn *txn, const struct inode_row *row, int sign);

/* places.c: where chunks lie in the remote, while the view tracks */

/* Call when the chunk gained its first reference (+1), or lost its last one (-1). */
CAIRN_MUST_CHECK int remote_chunk_refs_changed(struct txn *txn, const struct chunk_row *row,
                                               int sign);
/* Call when the chunk's local place has changed or is gone: the size of pending uploads counts its
 * stored bytes. */
CAIRN_MUST_CHECK int remote_chunk_moved_locally(struct txn *txn, const struct chunk_row *row);
/* Notes the entry as the place of its chunk in the remote; its pack must be known. */
CAIRN_MUST_CHECK int remote_chunk_place(struct txn *txn, const struct chunk_entry *entry);
/* Notes that the chunk is no longer in the remote, if it was. */
CAIRN_MUST_CHECK int remote_chunk_forget(struct txn *txn, const struct chunk_name *name);
/* Call after all rows of a head were applied: chunks that depend on lost ones are pending upload
 * again if they also are on NVMe. */
CAIRN_MUST_CHECK int remote_chunk_settle(struct txn *txn, const struct chunk_name *name);
/* Adds a chunk that is needed but missing in the remote; `entry` is the local one. */
void add_pending_upload(struct txn *txn, const struct chunk_entry *entry);
/* Loads the account of `pack` into txn->remote_pack; -ENOENT. */
CAIRN_MUST_CHECK int remote_pack_load(struct txn *txn, uint64_t pack);
void remote_pack_store(struct txn *txn);
/* Call when the loaded pack has become suspect: view_remote_pack_suspect(). */
CAIRN_MUST_CHECK int remote_pack_leave_suspect(struct txn *txn, uint64_t pack);
/* 1: the chunk is needed and is neither in the remote nor on NVMe; 0: otherwise. */
CAIRN_MUST_CHECK int remote_chunk_is_lost(struct txn *txn, const struct chunk_name *name);
/* Removes the places of all chunks in this pack; needed ones become pending upload. Afterwards the
 * pack is loaded. */
CAIRN_MUST_CHECK int remote_pack_forget_placed(struct txn *txn, uint64_t pack);

/* remote.c */

/* The loaded pack is no longer needed: subtracts it from the counters, if it is counted. */
void remote_pack_leave_count(struct txn *txn);
/* Clears the suspect mark of the loaded pack, if any. */
void remote_pack_trust(struct txn *txn);
