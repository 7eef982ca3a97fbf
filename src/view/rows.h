// SPDX-License-Identifier: Apache-2.0
/* Rows of runs as a remote gives them: each is looked at before it is believed. Pure; -EUCLEAN: no
 * view wrote this. */
#pragma once

#include "view/values.h"

/* Each key once, in order: `last` is the key of the row before (length 0: there was none) and
 * becomes this one's. */
bool row_comes_next(struct key *last, const struct run_row *row);

/* A row of the namespace, which is stored as it is. Of an inode *ret_inode is filled. `scratch` is
 * used, and the caller's. */
CAIRN_MUST_CHECK int row_check_plain(const struct run_row *row, struct piece_list *scratch,
                                     struct inode_row *ret_inode);

/* A chunk: its references, and its place in the remote (pack 0: it has none). Without references
 * it has one, and others rest on it. */
CAIRN_MUST_CHECK int row_read_chunk(const struct run_row *row, struct chunk_row *ret);
/* A remote pack: length, chunks, since when it is unreferenced. */
CAIRN_MUST_CHECK int row_read_pack(const struct run_row *row, struct remote_pack_row *ret);
/* The name in the key of a chunk's row, which may be one without a value. */
CAIRN_MUST_CHECK int row_chunk_name(const struct run_row *row, struct chunk_name *ret);

/* The largest numbers that rows name. Later ones will be given out again by a store that goes on
 * from the head. */
struct row_numbers {
    uint64_t ino, pack, cookie;
};
/* A row that was found good, and has a value. */
void row_numbers_note(struct row_numbers *numbers, const struct run_row *row);
/* -EUCLEAN: some come after what the head says was the last. */
CAIRN_MUST_CHECK int row_numbers_check(const struct row_numbers *numbers,
                                       const struct view_state *state, uint64_t max_id);
