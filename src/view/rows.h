// SPDX-License-Identifier: Apache-2.0
/* The table of rows: for each type of key how long it is, and how key and value are decoded. Scans,
 * checks and the loaders of runs read rows by it. Pure; -EUCLEAN: no view wrote this. */
#pragma once

#include "view/remote.h"
#include "view/values.h"

/* A decoded row. Set are the members that belong to its type. Pointers lie in the key or value. */
struct view_row {
    uint64_t id, id2, id3;   /* the key's numbers in order; of a page the version as it is */
    struct chunk_name chunk; /* in the key; KEY_DEPENDENT: the base */
    const char *name;        /* KEY_NAME, KEY_COOKIE, KEY_XATTR; KEY_TOUCHED: the row's key */
    size_t name_len;
    const uint8_t *bytes; /* KEY_XATTR, KEY_LINK, KEY_BLOB */
    size_t bytes_len;
    struct view_entry entry;            /* KEY_NAME, KEY_COOKIE */
    struct chunk_name dependent;        /* KEY_DEPENDENT */
    enum need need;                     /* of the dependent */
    unsigned depth;                     /* of the dependent's entry */
    uint64_t pending_bytes;             /* KEY_PENDING_UPLOAD */
    struct touched_row touched;         /* KEY_TOUCHED */
    struct inode_row inode;             /* KEY_INODE */
    struct chunk_row placed;            /* KEY_CHUNK, KEY_REMOTE_CHUNK */
    struct pack_row pack;               /* KEY_PACK */
    struct remote_pack_row remote_pack; /* KEY_REMOTE_PACK */
    struct view_stand_in stand_in;      /* KEY_STAND_IN */
    struct piece_list pieces;           /* KEY_PAGE */
    struct listed_chunks listed;        /* KEY_PLACED, KEY_REMOTE_PLACED */
};

/* Decodes a row of the view's database into *row, whose lists are used again. */
CAIRN_MUST_CHECK int row_decode(const struct run_row *raw, struct view_row *row);
void row_done(struct view_row *row);
/* The row's name as a string in `buf`, which has room for NAME_LEN_MAX + 1. */
char *row_name(const struct view_row *row, char *buf);

/* Do its references make sense by themselves? */
bool entry_is_sane(const struct chunk_entry *entry);
bool entry_refers_to(const struct chunk_entry *entry, const struct chunk_name *base);
/* Is reference `i` the first one to its base? Several may be to one. */
bool entry_ref_is_first(const struct chunk_entry *entry, size_t i);

int compare_listed(const void *a, const void *b);
/* The value of a list, which is not empty. Sorts it, and leaves each beginning once. Adds to
 * *value. */
void list_encode(struct listed_chunks *list, struct bytes *value);
/* -EUCLEAN: no list that was encoded. */
CAIRN_MUST_CHECK int list_decode(const void *p, size_t len, struct listed_chunks *list);

/* Is a row of this type published as it is? */
static inline bool is_published_type(uint8_t type)
{
    return type != '\0' && strchr("CDEIJLNOX", type) != NULL;
}

/* --- rows of runs, as a remote gives them ----------------------------------------------------- */

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
/* -EUCLEAN: some come after the last one that the head names. */
CAIRN_MUST_CHECK int row_numbers_check(const struct row_numbers *numbers,
                                       const struct view_state *state,
                                       const struct view_head *head);
