// SPDX-License-Identifier: Apache-2.0
/* Values of the view's database, and the rows that they encode. Also documented in
 * docs/on-disk-format.md, "The view".
 *
 * A value is a version byte and little-endian fields. Rows of chunks, the most numerous by far,
 * have a short encoding instead; in runs they have the long one. Pure; does not use the
 * database. */
#pragma once

#include "base/vector.h"
#include "format/le.h"
#include "view/keys.h"
#include "view/remote.h"

#define VIEW_VALUE_VERSION 1u
/* of the whole database, stored in the state; version 1 had other rows of chunks */
#define VIEW_VERSION 2u
#define VIEW_OFFSET_MAX INT64_MAX /* largest file size */

struct inode_row {
    struct view_inode pub;
    uint64_t pages;   /* page keys: removal and search stop before other inodes' keys */
    uint64_t entries; /* names in a directory */
};
/* `pages` of a file of another node, taken over from the union of several nodes: its content is not
 * in this view. */
#define PAGES_ELSEWHERE VIEW_COUNT_ELSEWHERE
static inline bool inode_row_is_elsewhere(const struct inode_row *row)
{
    return row->pages == PAGES_ELSEWHERE;
}

/* KEY_CHUNK. On NVMe a chunk is live, so its pack stays, while extents name it or entries of other
 * chunks there refer to it. Entries keep their bases whether they are live or not: while a
 * dependent has its place, so have its bases, and a thread that pins the dependent has both. */
struct chunk_row {
    struct chunk_entry entry;
    uint64_t refs;       /* extent parts that name the chunk */
    uint32_t dependents; /* chunks with a place on NVMe whose entry refers to it */
};

static inline bool chunk_row_is_live(const struct chunk_row *row)
{
    return row->refs > 0 || row->dependents > 0;
}

/* The chunk is no longer on NVMe; its length stays known. */
static inline void chunk_row_forget_place(struct chunk_row *row)
{
    row->entry.pack = row->entry.offset = 0;
    row->entry.depth = row->entry.ref_count = 0;
}

struct pack_row {
    struct view_pack pub;
    uint64_t placed; /* chunks that have their place in the pack */
};

struct remote_pack_row {
    struct view_remote_pack pub;
    uint64_t placed; /* as of a pack on NVMe */
};

/* The length of a chunk name's prefix in the list of a pack (pack_list.h). With 10^9 chunks, one in
 * a thousand shares its prefix with another. */
#define LISTED_LEN 5u
struct listed {
    uint8_t bytes[LISTED_LEN];
};
DEFINE_VECTOR(listed_chunks, struct listed);

static inline struct listed listed_of(const struct chunk_name *name)
{
    struct listed listed;
    memcpy(listed.bytes, name->bytes, sizeof listed.bytes);
    return listed;
}

struct remote_state_row {
    struct view_remote pub;
    uint64_t changes; /* number of the last change */
};

struct touched_row {
    uint64_t change; /* number of the change that marked it last */
    uint64_t cut;    /* the cut of that change */
};

/* A part of a file's content. Within a page value the offset is relative to the page, in memory to
 * the file. */
struct piece {
    uint64_t offset;
    uint64_t length;
    enum extent_kind kind;
    uint32_t within;         /* where it begins in the chunk or in the inline blob */
    struct chunk_name chunk; /* EXTENT_CHUNK */
    uint64_t blob_version;   /* EXTENT_INLINE: key of the blob */
    uint64_t blob_offset;
    const uint8_t *bytes; /* new EXTENT_INLINE: its content, not yet in a blob */
    /* used while the page is being changed: 1 + index of the old piece; 0: new */
    uint32_t origin;
};

DEFINE_VECTOR(piece_list, struct piece);
DEFINE_VECTOR(names, struct chunk_name);

#define INODE_VALUE_LEN 113u
#define NAME_VALUE_LEN 21u
#define COOKIE_VALUE_HEADER_LEN 13u
#define CHUNK_VALUE_LEN_MAX (56u + CHUNK_REFS_MAX * 34u)
#define CHUNK_RUN_VALUE_LEN_MAX (36u + CHUNK_REFS_MAX * 32u)
#define PACK_VALUE_LEN 33u
#define STATE_VALUE_LEN_MAX 105u
#define REMOTE_PACK_VALUE_LEN 66u /* at most */
#define REMOTE_PACK_RUN_VALUE_LEN 21u
#define REMOTE_STATE_VALUE_LEN_MAX 67u
#define TOUCHED_VALUE_LEN 17u
#define PENDING_UPLOAD_VALUE_LEN 9u
#define DEPENDENT_VALUE_LEN 2u

/* Encoders return the length; decoders return -EUCLEAN for anything that an encoder would not
 * write. */
size_t inode_encode(const struct inode_row *row, uint8_t *p);
CAIRN_MUST_CHECK int inode_decode(uint64_t ino, const void *p, size_t len, struct inode_row *row);

size_t name_encode(const struct view_entry *entry, uint8_t *p);
CAIRN_MUST_CHECK int name_decode(const void *p, size_t len, struct view_entry *entry);

#define STAND_IN_VALUE_LEN_MAX (1u + 8 + 8 + 4 + 4 + 4 + NAME_LEN_MAX)
size_t stand_in_encode(const struct view_stand_in *row, uint8_t *p);
CAIRN_MUST_CHECK int stand_in_decode(const void *p, size_t len, struct view_stand_in *row);
/* `p` has room for COOKIE_VALUE_HEADER_LEN + name_len. */
size_t cookie_encode(const struct view_entry *entry, const char *name, size_t name_len, uint8_t *p);
CAIRN_MUST_CHECK int cookie_decode(uint64_t cookie, const void *p, size_t len,
                                   struct view_entry *entry, const char **ret_name,
                                   size_t *ret_name_len);

size_t chunk_row_encode(const struct chunk_row *row, uint8_t *p);
CAIRN_MUST_CHECK int chunk_row_decode(const struct chunk_name *name, const void *p, size_t len,
                                      struct chunk_row *row);

/* A run's value for a chunk. */
size_t chunk_run_encode(const struct chunk_row *row, uint8_t *p);
CAIRN_MUST_CHECK int chunk_run_decode(const struct chunk_name *name, const void *p, size_t len,
                                      struct chunk_row *row);

size_t pack_row_encode(const struct pack_row *row, uint8_t *p);
CAIRN_MUST_CHECK int pack_row_decode(uint64_t pack, const void *p, size_t len,
                                     struct pack_row *row);

size_t state_encode(const struct view_state *state, uint8_t *p);
/* -ESTALE: from an earlier version of the view. */
CAIRN_MUST_CHECK int state_decode(const void *p, size_t len, struct view_state *state);

size_t remote_pack_row_encode(const struct remote_pack_row *row, uint8_t *p);
CAIRN_MUST_CHECK int remote_pack_row_decode(uint64_t pack, const void *p, size_t len,
                                            struct remote_pack_row *row);

/* A run's value for a pack: length, number of chunks, since when it is unreferenced. */
size_t remote_pack_run_encode(const struct view_remote_pack *pack, uint8_t *p);
CAIRN_MUST_CHECK int remote_pack_run_decode(uint64_t pack, const void *p, size_t len,
                                            struct remote_pack_row *row);

size_t remote_state_row_encode(const struct remote_state_row *row, uint8_t *p);
CAIRN_MUST_CHECK int remote_state_row_decode(const void *p, size_t len,
                                             struct remote_state_row *row);

size_t touched_encode(const struct touched_row *row, uint8_t *p);
CAIRN_MUST_CHECK int touched_decode(const void *p, size_t len, struct touched_row *row);

size_t pending_upload_encode(uint64_t stored_bytes, uint8_t *p);
CAIRN_MUST_CHECK int pending_upload_decode(const void *p, size_t len, uint64_t *ret_stored_bytes);

size_t dependent_encode(unsigned depth, uint8_t *p);
CAIRN_MUST_CHECK int dependent_decode(const void *p, size_t len, unsigned *ret_depth);

/* Encodes a page's extents: ascending, disjoint, no holes; offsets in `list` are relative to the
 * file. Caller frees *ret_value. */
void page_encode(uint64_t page, const struct piece_list *list, uint8_t **ret_value,
                 size_t *ret_len);
CAIRN_MUST_CHECK int page_decode(uint64_t page, const void *p, size_t len, struct piece_list *list);
/* Calls `fn` for the pieces with a byte in [from, to), unclipped and in order, until it returns
 * nonzero; returns that value. The cost is that of these pieces plus the logarithm of their total
 * number; others are not validated. */
struct page_value {
    uint64_t number;
    const void *bytes;
    size_t len;
};
CAIRN_MUST_CHECK int page_walk(const struct page_value *page, uint64_t from, uint64_t to,
                               int (*fn)(const struct piece *piece, void *arg), void *arg);

/* Decodes values that consist of bytes after the version byte (xattr, link target, inline
 * content). */
CAIRN_MUST_CHECK int bytes_decode(const void *p, size_t len, const uint8_t **ret_bytes,
                                  size_t *ret_len);
