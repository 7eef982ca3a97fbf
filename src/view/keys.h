// SPDX-License-Identifier: Apache-2.0
/* Keys and values of the view's database. docs/on-disk-format.md, "The view", has the same table.
 *
 * A key is one type byte and big-endian numbers, so that the database's byte order is the numeric
 * order. A value is a version byte and little-endian fields. Pure; no database here. */
#pragma once

#include "base/vector.h"
#include "format/le.h"
#include "view/remote.h"

#define VIEW_VALUE_VERSION 1u
#define VIEW_OFFSET_MAX INT64_MAX /* files end at or before it */

enum key_type {
    KEY_STATE = 'M',  /* -> counters and the applied sequence */
    KEY_INODE = 'I',  /* ino -> inode_row */
    KEY_NAME = 'D',   /* parent, name -> ino, cookie, type */
    KEY_COOKIE = 'C', /* parent, cookie -> ino, type, name */
    KEY_XATTR = 'X',  /* ino, name -> value */
    KEY_LINK = 'L',   /* ino -> target of the symbolic link */
    KEY_PAGE = 'E',   /* ino, page, ~version -> extents; the newest version comes first */
    KEY_BLOB = 'N',   /* ino, version, offset -> inline content; lies within one page */
    KEY_CHUNK = 'H',  /* name -> chunk_row */
    KEY_PLACED = 'K', /* pack, name -> nothing: which chunks have their place in a pack */
    KEY_PACK = 'P',   /* pack -> pack_row */
    KEY_ORPHAN = 'O', /* ino -> nothing */

    /* What concerns the remote (remote.h). */
    KEY_REMOTE_STATE = 'W',  /* -> remote_state_row */
    KEY_REMOTE_CHUNK = 'R',  /* chunk name -> chunk_row: its place in the remote; refs is 0 */
    KEY_REMOTE_PLACED = 'S', /* remote pack, name -> nothing */
    KEY_REMOTE_PACK = 'Q',   /* remote pack -> remote_pack_row */
    KEY_DEPENDENT = 'B',     /* base, need, dependent -> depth of the dependent's entry (bases.h) */
    KEY_PENDING_UPLOAD = 'U', /* chunk name -> stored bytes: needed, and not in the remote */
    KEY_TOUCHED = 'T',        /* a key -> touched_row: changed since it was published */
};

struct key {
    size_t len;
    uint8_t bytes[1 + 9 + NAME_LEN_MAX + 16];
};

static inline void key_add_u64(struct key *k, uint64_t v)
{
    v = htobe64(v);
    memcpy(k->bytes + k->len, &v, sizeof v);
    k->len += sizeof v;
}

static inline void key_add_bytes(struct key *k, const void *p, size_t len)
{
    check(k->len + len <= sizeof k->bytes);
    if (len)
        memcpy(k->bytes + k->len, p, len);
    k->len += len;
}

static inline void key_type(struct key *k, enum key_type type)
{
    k->bytes[0] = (uint8_t)type;
    k->len = 1;
}

/* Keys of one number, and prefixes of longer ones. */
static inline void key_u64(struct key *k, enum key_type type, uint64_t a)
{
    key_type(k, type);
    key_add_u64(k, a);
}

static inline void key_u64_u64(struct key *k, enum key_type type, uint64_t a, uint64_t b)
{
    key_u64(k, type, a);
    key_add_u64(k, b);
}

static inline void key_named(struct key *k, enum key_type type, uint64_t ino, const char *name,
                             size_t len)
{
    key_u64(k, type, ino);
    key_add_bytes(k, name, len);
}

static inline void key_page(struct key *k, uint64_t ino, uint64_t page, uint64_t version)
{
    key_u64_u64(k, KEY_PAGE, ino, page);
    key_add_u64(k, ~version);
}

static inline void key_blob(struct key *k, uint64_t ino, uint64_t version, uint64_t offset)
{
    key_u64_u64(k, KEY_BLOB, ino, version);
    key_add_u64(k, offset);
}

static inline void key_chunk(struct key *k, const struct chunk_name *name)
{
    key_type(k, KEY_CHUNK);
    key_add_bytes(k, name->bytes, sizeof name->bytes);
}

static inline void key_of_name(struct key *k, enum key_type type, const struct chunk_name *name)
{
    key_type(k, type);
    key_add_bytes(k, name->bytes, sizeof name->bytes);
}

static inline void key_of_placed(struct key *k, enum key_type type, uint64_t pack,
                                 const struct chunk_name *name)
{
    key_u64(k, type, pack);
    key_add_bytes(k, name->bytes, sizeof name->bytes);
}

static inline void key_placed(struct key *k, uint64_t pack, const struct chunk_name *name)
{
    key_of_placed(k, KEY_PLACED, pack, name);
}

/* A prefix: the dependents of `base` that are needed, or not. The needed ones come first. */
enum need { NEEDED = 0, UNNEEDED = 1, ABSENT = 2 /* no key says so */ };
static inline void key_dependents(struct key *k, const struct chunk_name *base, enum need need)
{
    check(need <= ABSENT);
    key_of_name(k, KEY_DEPENDENT, base);
    k->bytes[k->len++] = (uint8_t)need;
}

static inline void key_dependent(struct key *k, const struct chunk_name *base, enum need need,
                                 const struct chunk_name *dependent)
{
    key_dependents(k, base, need);
    key_add_bytes(k, dependent->bytes, sizeof dependent->bytes);
}

/* The mark that the row of `of` changed. */
static inline void key_touched(struct key *k, const uint8_t *of, size_t len)
{
    key_type(k, KEY_TOUCHED);
    key_add_bytes(k, of, len);
}

/* Number at byte `at` of a key of the database. */
static inline uint64_t key_get_u64(const uint8_t *key, size_t at)
{
    uint64_t v;
    memcpy(&v, key + at, sizeof v);
    return be64toh(v);
}

#define PAGE_KEY_LEN 25u
#define KEY_U64_LEN 9u
#define KEY_U64_U64_LEN 17u
#define CHUNK_KEY_LEN (1u + sizeof(struct chunk_name))
#define PLACED_KEY_LEN (9u + sizeof(struct chunk_name))
#define DEPENDENT_KEY_LEN (2u + 2 * sizeof(struct chunk_name))

struct inode_row {
    struct view_inode pub;
    uint64_t
        pages; /* page keys; lets removal and search stop without running into other inodes' keys */
    uint64_t entries; /* names in a directory */
};

struct chunk_row {
    struct chunk_entry entry;
    uint64_t refs; /* extent parts that name the chunk */
};

/* The chunk lies elsewhere alone: what is known of it is how long it is. */
static inline void chunk_row_forget_place(struct chunk_row *row)
{
    row->entry.pack = row->entry.offset = 0;
    row->entry.depth = row->entry.ref_count = 0;
}

struct pack_row {
    struct view_pack pub;
    uint64_t placed; /* KEY_PLACED keys */
};

struct remote_pack_row {
    struct view_remote_pack pub;
    uint64_t placed; /* KEY_REMOTE_PLACED keys */
};

struct remote_state_row {
    struct view_remote pub;
    uint64_t changes; /* number of the last change */
};

struct touched_row {
    uint64_t change; /* number of the change that touched it last */
    uint64_t cut;    /* with which that came */
};

/* A part of a file's content. Within a page value the offset is relative to the page, in memory to
 * the
 * file. */
struct piece {
    uint64_t offset;
    uint64_t length;
    enum extent_kind kind;
    uint32_t within;         /* where in the chunk or in the inline blob it begins */
    struct chunk_name chunk; /* EXTENT_CHUNK */
    uint64_t blob_version;   /* EXTENT_INLINE: key of the blob */
    uint64_t blob_offset;
    const uint8_t *bytes; /* EXTENT_INLINE that is new: its content; it has no blob yet */
    uint32_t
        origin; /* used by the page that is being changed: 1 + index of the old piece; 0: new */
};

DEFINE_VECTOR(piece_list, struct piece);

#define INODE_VALUE_LEN 113u
#define NAME_VALUE_LEN 21u
#define COOKIE_VALUE_HEADER_LEN 13u
#define CHUNK_VALUE_LEN_MAX (36u + CHUNK_REFS_MAX * 32u)
#define PACK_VALUE_LEN 33u
#define STATE_VALUE_LEN 97u
#define REMOTE_PACK_VALUE_LEN 58u
#define REMOTE_PACK_RUN_VALUE_LEN 21u
#define REMOTE_STATE_VALUE_LEN 59u
#define TOUCHED_VALUE_LEN 17u
#define PENDING_UPLOAD_VALUE_LEN 9u
#define DEPENDENT_VALUE_LEN 2u

/* Encoders return the length; decoders -EUCLEAN on anything that an encoder would not
 * have written. */
size_t inode_encode(const struct inode_row *row, uint8_t *p);
CAIRN_MUST_CHECK int inode_decode(uint64_t ino, const void *p, size_t len, struct inode_row *row);

size_t name_encode(const struct view_entry *entry, uint8_t *p);
CAIRN_MUST_CHECK int name_decode(const void *p, size_t len, struct view_entry *entry);

/* `p` has room for COOKIE_VALUE_HEADER_LEN + name_len. */
size_t cookie_encode(const struct view_entry *entry, const char *name, size_t name_len, uint8_t *p);
CAIRN_MUST_CHECK int cookie_decode(uint64_t cookie, const void *p, size_t len,
                                   struct view_entry *entry, const char **ret_name,
                                   size_t *ret_name_len);

size_t chunk_row_encode(const struct chunk_row *row, uint8_t *p);
CAIRN_MUST_CHECK int chunk_row_decode(const struct chunk_name *name, const void *p, size_t len,
                                      struct chunk_row *row);

size_t pack_row_encode(const struct pack_row *row, uint8_t *p);
CAIRN_MUST_CHECK int pack_row_decode(uint64_t pack, const void *p, size_t len,
                                     struct pack_row *row);

size_t state_encode(const struct view_state *state, uint8_t *p);
CAIRN_MUST_CHECK int state_decode(const void *p, size_t len, struct view_state *state);

size_t remote_pack_row_encode(const struct remote_pack_row *row, uint8_t *p);
CAIRN_MUST_CHECK int remote_pack_row_decode(uint64_t pack, const void *p, size_t len,
                                            struct remote_pack_row *row);

/* What a run says of a pack: its length, its chunks, since when it is unreferenced. */
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

/* A page's extents: ascending, disjoint, no holes; offsets in `list` are in the file. Caller frees
 * *ret_value. */
void page_encode(uint64_t page, const struct piece_list *list, uint8_t **ret_value,
                 size_t *ret_len);
CAIRN_MUST_CHECK int page_decode(uint64_t page, const void *p, size_t len, struct piece_list *list);

/* Values that are bytes after the version byte (xattr, link target, inline content). */
CAIRN_MUST_CHECK int bytes_decode(const void *p, size_t len, const uint8_t **ret_bytes,
                                  size_t *ret_len);
