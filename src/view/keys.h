// SPDX-License-Identifier: Apache-2.0
/* Keys of the view's database. Also documented in docs/on-disk-format.md, "The view".
 *
 * A key is one type byte and big-endian numbers, so that the database's byte order is the numeric
 * order. Values are in values.h. Pure; does not use the database. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"
#include "format/record.h"

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
    KEY_PLACED = 'K', /* pack -> list of its chunks (pack_list.h) */
    KEY_PACK = 'P',   /* pack -> pack_row */
    KEY_ORPHAN = 'O', /* ino -> nothing */
    /* ino of a missing directory -> view_stand_in */
    KEY_STAND_IN = 'J',

    /* Keys about the remote (remote.h). */
    KEY_REMOTE_STATE = 'W',  /* -> remote_state_row */
    KEY_REMOTE_CHUNK = 'R',  /* chunk name -> chunk_row: its place in the remote; refs is 0 */
    KEY_REMOTE_PLACED = 'S', /* remote pack -> list of its chunks */
    KEY_REMOTE_PACK = 'Q',   /* remote pack -> remote_pack_row */
    KEY_DEPENDENT = 'B',     /* base, need, dependent -> depth of the dependent's entry (bases.h) */
    KEY_PENDING_UPLOAD = 'U', /* chunk name -> stored bytes: needed, and not in the remote */
    KEY_TOUCHED = 'T',        /* a key -> touched_row: changed since it was published */

    /* remote pack, beginning of a name -> nothing: only during an adoption (adopt.c) */
    KEY_ADOPTED = 'A',
};

struct key {
    size_t len;
    uint8_t bytes[1 + 9 + NAME_LEN_MAX + 16];
};

/* A key in the enclosing block, for one of the functions below to fill and return. */
#define NEW_KEY (&(struct key){0})

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

/* Changes a prefix into the smallest key above all keys that begin with it. It exists, as type
 * bytes are letters. */
static inline void key_end(struct key *k)
{
    while (k->bytes[k->len - 1] == 0xff)
        k->len--;
    k->bytes[k->len - 1]++;
}

static inline const struct key *key_type(struct key *k, enum key_type type)
{
    k->bytes[0] = (uint8_t)type;
    k->len = 1;
    return k;
}

/* Keys of one number, and prefixes of longer keys. */
static inline const struct key *key_u64(struct key *k, enum key_type type, uint64_t a)
{
    key_type(k, type);
    key_add_u64(k, a);
    return k;
}

static inline const struct key *key_u64_u64(struct key *k, enum key_type type, uint64_t a,
                                            uint64_t b)
{
    key_u64(k, type, a);
    key_add_u64(k, b);
    return k;
}

static inline const struct key *key_named(struct key *k, enum key_type type, uint64_t ino,
                                          const char *name, size_t len)
{
    key_u64(k, type, ino);
    key_add_bytes(k, name, len);
    return k;
}

static inline const struct key *key_page(struct key *k, uint64_t ino, uint64_t page,
                                         uint64_t version)
{
    key_u64_u64(k, KEY_PAGE, ino, page);
    key_add_u64(k, ~version);
    return k;
}

static inline const struct key *key_blob(struct key *k, uint64_t ino, uint64_t version,
                                         uint64_t offset)
{
    key_u64_u64(k, KEY_BLOB, ino, version);
    key_add_u64(k, offset);
    return k;
}

static inline const struct key *key_of_name(struct key *k, enum key_type type,
                                            const struct chunk_name *name)
{
    key_type(k, type);
    key_add_bytes(k, name->bytes, sizeof name->bytes);
    return k;
}

static inline const struct key *key_chunk(struct key *k, const struct chunk_name *name)
{
    return key_of_name(k, KEY_CHUNK, name);
}

/* A prefix for the dependents of `base` with that need. Needed ones sort first. */
enum need { NEEDED = 0, UNNEEDED = 1, ABSENT = 2 /* no key exists */ };
static inline const struct key *key_dependents(struct key *k, const struct chunk_name *base,
                                               enum need need)
{
    check(need <= ABSENT);
    key_of_name(k, KEY_DEPENDENT, base);
    k->bytes[k->len++] = (uint8_t)need;
    return k;
}

static inline const struct key *key_dependent(struct key *k, const struct chunk_name *base,
                                              enum need need, const struct chunk_name *dependent)
{
    key_dependents(k, base, need);
    key_add_bytes(k, dependent->bytes, sizeof dependent->bytes);
    return k;
}

/* The key of the mark that the row `of` has changed. */
static inline const struct key *key_touched(struct key *k, const uint8_t *of, size_t len)
{
    key_type(k, KEY_TOUCHED);
    key_add_bytes(k, of, len);
    return k;
}

static inline const struct key *key_chunk_mark(struct key *k, const struct chunk_name *name)
{
    struct key of;
    key_chunk(&of, name);
    return key_touched(k, of.bytes, of.len);
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
#define DEPENDENT_KEY_LEN (2u + 2 * sizeof(struct chunk_name))
