// SPDX-License-Identifier: Apache-2.0
/* Packs: immutable files of encoded chunks.
 *
 *   header (PACK_HEADER_LEN) | frame | stored chunk | frame | stored chunk ... | index | zeros
 *   | trailer (PACK_TRAILER_LEN)
 *
 * A frame says of its chunk what the index says, so that a lost index can be made again. Packs of
 * version 1 have none: there, chunks lie one after the other. The whole file is a multiple of
 * PACK_ALIGN long; the trailer is its last bytes. Pure functions; any thread. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define PACK_VERSION 2u         /* of the header: 2 since there are frames */
#define PACK_TRAILER_VERSION 1u /* unchanged: a reader by the index need not know of frames */
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

/* A frame begins at a multiple of PACK_FRAME_ALIGN, and its chunk right behind it. */
static inline size_t pack_frame_len(const struct chunk_entry *entry)
{
    return PACK_FRAME_LEN_MAX - (CHUNK_REFS_MAX - entry->ref_count) * 32u;
}

/* Returns pack_frame_len(). The tag is made by the caller, of the entry as pack_encode_entry() has
 * it. */
size_t pack_encode_frame(const struct chunk_entry *entry, const uint8_t tag[PACK_TAG_LEN],
                         void *buf);

/* Where a frame is looked for: at `offset` of a pack of `file_len` bytes. */
struct pack_frame_place {
    uint64_t pack, file_len, offset;
};
/* Decodes the frame of which `len` bytes are in `buf`. -EUCLEAN: it is none. The tag is not
 * checked. */
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
 * negative result of `fn` ends it and is returned. */
CAIRN_MUST_CHECK int pack_decode_index(const struct pack_trailer *t, const void *buf, size_t len,
                                       int (*fn)(const struct chunk_entry *entry, void *arg),
                                       void *arg);
