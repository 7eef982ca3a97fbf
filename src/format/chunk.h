// SPDX-License-Identifier: Apache-2.0
/* The name of a chunk, and its place. Shared by packs, records and the view. */
#pragma once

#include "base/base.h"

#define CHUNK_SIZE_MAX (1024u * 1024u) /* raw bytes of one chunk */
#define CHUNK_REFS_MAX 4u              /* references to other chunks in one encoding */
#define CHUNK_DEPTH_MAX 8u             /* longest chain of references that a reader follows */

/* Keyed BLAKE3 of the raw bytes, truncated to 24 bytes. The key lives in the superblock. */
struct chunk_name {
    uint8_t bytes[24];
};

struct chunk_key {
    uint8_t bytes[32];
};

static inline bool chunk_name_equal(const struct chunk_name *a, const struct chunk_name *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

enum chunk_encoding {
    ENCODING_RAW = 0, /* stored as it is */
    ENCODING_LZ4 = 1, /* one lz4 block */
    ENCODING_FX = 2,  /* element planes: codec/fx.c */
    /* The encodings below refer to other chunks, their bases. They occur in the remote, and in
     * condensed packs on NVMe. */
    ENCODING_TWIN = 3, /* lower halves of fp32, beside a bf16 image: codec/twin.c */
    ENCODING_DX = 4,   /* difference to an earlier version: codec/dx.c */
    CHUNK_ENCODINGS,
};

/* Part of another chunk that an encoding needs. */
struct chunk_ref {
    struct chunk_name name;
    uint32_t offset;
    uint32_t length;
};

/* One entry of a pack's index; also the place of a chunk in a tier, as the view stores it. */
struct chunk_entry {
    struct chunk_name name;
    uint64_t pack;       /* pack id; 0: the chunk has no place in this tier (packs are never 0) */
    uint64_t offset;     /* of the stored bytes, from the start of the pack */
    uint32_t stored_len; /* bytes in the pack */
    uint32_t raw_len;    /* bytes after decoding, 1 to CHUNK_SIZE_MAX */
    uint8_t encoding; /* enum chunk_encoding; unknown values are kept and reported, never guessed */
    uint8_t depth;    /* longest chain of references below it; 0: none */
    uint8_t ref_count;
    struct chunk_ref refs[CHUNK_REFS_MAX];
};

/* Does the raw length lie in the allowed range? */
static inline bool chunk_is_readable(const struct chunk_entry *entry)
{
    return entry->raw_len > 0 && entry->raw_len <= CHUNK_SIZE_MAX && entry->stored_len > 0 &&
           entry->stored_len <= CHUNK_SIZE_MAX && entry->ref_count <= CHUNK_REFS_MAX;
}
