// SPDX-License-Identifier: Apache-2.0
/* Packs: immutable files of encoded chunks.
 *
 *   header (PACK_HEADER_LEN) | frame | stored chunk | frame | stored chunk ... | index | zeros
 *   | trailer (PACK_TRAILER_LEN)
 *
 * A frame repeats the index entry of its chunk, so that a lost index can be rebuilt. Packs of
 * version 1 have no frames: their chunks are adjacent. The length of the file is a multiple of
 * PACK_ALIGN; the trailer is its last bytes. Pure functions; any thread. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define PACK_VERSION 2u         /* of the header: 2 since frames exist */
#define PACK_TRAILER_VERSION 1u /* unchanged: a reader that uses the index need not know frames */
#define PACK_ALIGN 4096u
#define PACK_HEADER_LEN 64u
#define PACK_TRAILER_LEN 64u
#define PACK_ENTRY_LEN_MAX (48u + CHUNK_REFS_MAX * 32u) /* encoded index entry */
#define PACK_CHUNKS_MAX (1u << 20)
#define PACK_FRAME_ALIGN 8u
#define PACK_FRAME_LEN_MAX (32u + PACK_ENTRY_LEN_MAX)
#define PACK_TAG_LEN 24u

struct pack_trailer {
    uint64_t pack;         /* id, also in the header */
    uint64_t index_offset; /* from the start of the file */
    uint32_t index_len;
    uint32_t count;     /* chunks */
    uint64_t file_len;  /* whole file */
    uint8_t store[16];  /* store id */
    uint32_t index_crc; /* crc32 of the encoded index */
};

struct pack_header {
    uint64_t pack;
    uint8_t store[16];
    uint32_t version; /* 0: the newest */
};

void pack_encode_header(const struct pack_header *h, void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT (newer version). */
CAIRN_MUST_CHECK int pack_decode_header(const void *buf, size_t len, struct pack_header *ret_h);

/* A frame begins at a multiple of PACK_FRAME_ALIGN; its chunk follows directly. */
static inline size_t pack_frame_len(const struct chunk_entry *entry)
{
    return PACK_FRAME_LEN_MAX - (CHUNK_REFS_MAX - entry->ref_count) * 32u;
}

/* Returns pack_frame_len(). The caller computes the tag, over the entry as encoded by
 * pack_encode_entry(). */
size_t pack_encode_frame(const struct chunk_entry *entry, const uint8_t tag[PACK_TAG_LEN],
                         void *buf);

/* Where to look for a frame: at `offset` of a pack of `file_len` bytes. */
struct pack_frame_place {
    uint64_t pack, file_len, offset;
};
/* Decodes a frame from the first `len` bytes of it in `buf`. -EUCLEAN: not a frame. Does not check
 * the tag. */
CAIRN_MUST_CHECK int pack_decode_frame(const struct pack_frame_place *place, const void *buf,
                                       size_t len, struct chunk_entry *ret_entry,
                                       uint8_t ret_tag[PACK_TAG_LEN]);

void pack_encode_trailer(const struct pack_trailer *t, void *buf);
CAIRN_MUST_CHECK int pack_decode_trailer(const void *buf, size_t len, struct pack_trailer *ret_t);

/* Index entries lie one after the other; each is self-delimiting (its ref_count). Returns the bytes
 * written, at most PACK_ENTRY_LEN_MAX. entry.pack is not stored. */
size_t pack_encode_entry(const struct chunk_entry *entry, void *buf);

/* Decodes a whole index whose crc was checked: exactly t->count entries within [header,
 * index_offset), each with sane lengths (offset + stored_len <= index_offset, 0 < raw_len <=
 * CHUNK_SIZE_MAX, ref_count <= CHUNK_REFS_MAX). Calls `fn` for each with entry.pack = t->pack; a
 * negative result of `fn` ends the decoding and is returned. */
CAIRN_MUST_CHECK int pack_decode_index(const struct pack_trailer *t, const void *buf, size_t len,
                                       int (*fn)(const struct chunk_entry *entry, void *arg),
                                       void *arg);
