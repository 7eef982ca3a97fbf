// SPDX-License-Identifier: Apache-2.0
/* The table of rows: for each type of key its length, and how key and value are decoded. Used by
 * scans, checks and the loaders of runs. Pure; -EUCLEAN: not a row that a view wrote. */
#pragma once

#include "view/remote.h"
#include "view/values.h"

/* A decoded row. Only the members of its type are set. Pointers refer to the key or value. */
struct view_row {
    /* the key's numbers in order; for a page the plain version, not its complement */
    uint64_t id, id2, id3;
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

/* Decodes a row of the view's database into *row, whose lists are reused. */
CAIRN_MUST_CHECK int row_decode(const struct run_row *raw, struct view_row *row);
void row_done(struct view_row *row);
/* Copies the row's name as a string to `buf`, which has room for NAME_LEN_MAX + 1. */
char *row_name(const struct view_row *row, char *buf);

/* Are the entry's references consistent by themselves? */
bool entry_is_sane(const struct chunk_entry *entry);
bool entry_refers_to(const struct chunk_entry *entry, const struct chunk_name *base);
/* Is reference `i` the first one to its base? Several may refer to the same base. */
bool entry_ref_is_first(const struct chunk_entry *entry, size_t i);

int compare_listed(const void *a, const void *b);
/* Appends the value of a non-empty list to *value. Sorts the list and removes duplicates. */
void list_encode(struct listed_chunks *list, struct bytes *value);
/* -EUCLEAN: not an encoded list. */
CAIRN_MUST_CHECK int list_decode(const void *p, size_t len, struct listed_chunks *list);

/* Is the row of this type published unchanged? */
static inline bool is_published_type(uint8_t type)
{
    return type != '\0' && strchr("CDEIJLNOX", type) != NULL;
}

/* --- rows of runs, as received from a remote -------------------------------------------------- */

/* Are keys unique and in order? `last` is the key of the preceding row (length 0: none), and is set
 * to the key of this row. */
bool row_comes_next(struct key *last, const struct run_row *row);

/* Checks a row of the namespace, which is stored unchanged. For an inode, fills *ret_inode.
 * `scratch` belongs to the caller. */
CAIRN_MUST_CHECK int row_check_plain(const struct run_row *row, struct piece_list *scratch,
                                     struct inode_row *ret_inode);

/* Reads the row of a chunk: its references, and its place in the remote (pack 0: none). A chunk
 * without references must have a place, as a base of others. */
CAIRN_MUST_CHECK int row_read_chunk(const struct run_row *row, struct chunk_row *ret);
/* Reads the row of a remote pack: length, chunks, since when it is unreferenced. */
CAIRN_MUST_CHECK int row_read_pack(const struct run_row *row, struct remote_pack_row *ret);
/* Reads the name in the key of a chunk's row, also of one without a value. */
CAIRN_MUST_CHECK int row_chunk_name(const struct run_row *row, struct chunk_name *ret);

/* The largest numbers used in rows. A store that continues from the head assigns later numbers
 * again. */
struct row_numbers {
    uint64_t ino, pack, cookie;
};
/* Call for each valid row with a value. */
void row_numbers_note(struct row_numbers *numbers, const struct run_row *row);
/* -EUCLEAN: some are greater than the largest number that the head states. */
CAIRN_MUST_CHECK int row_numbers_check(const struct row_numbers *numbers,
                                       const struct view_state *state,
                                       const struct view_head *head);
