/* Packs: immutable files of encoded chunks.
 *
 *   header (PACK_HEADER_LEN) | stored chunks, one after the other | index | zeros | trailer (PACK_TRAILER_LEN)
 *
 * The whole file is a multiple of PACK_ALIGN long; the trailer is its last bytes. Pure functions; any thread. */
#pragma once

#include "base/base.h"
#include "format/chunk.h"

#define PACK_VERSION 1u
#define PACK_ALIGN 4096u
#define PACK_HEADER_LEN 64u
#define PACK_TRAILER_LEN 64u
#define PACK_ENTRY_LEN_MAX (48u + CHUNK_REFS_MAX * 32u) /* encoded index entry */
#define PACK_CHUNKS_MAX (1u << 20)

struct pack_trailer {
    uint64_t pack;         /* id, also in the header */
    uint64_t index_offset; /* from the start of the file */
    uint32_t index_len;
    uint32_t count;     /* chunks */
    uint64_t file_len;  /* whole file */
    uint8_t store[16];  /* store id */
    uint32_t index_crc; /* crc32 of the encoded index */
};

void pack_encode_header(uint64_t pack, const uint8_t store[16], void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT (newer version). */
CAIRN_MUST_CHECK int pack_decode_header(const void *buf, size_t len, uint64_t *ret_pack, uint8_t ret_store[16]);

void pack_encode_trailer(const struct pack_trailer *t, void *buf);
CAIRN_MUST_CHECK int pack_decode_trailer(const void *buf, size_t len, struct pack_trailer *ret_t);

/* Index entries lie one after the other; each is self-delimiting (its ref_count). Returns the bytes written, at most
 * PACK_ENTRY_LEN_MAX. entry.pack is not stored. */
size_t pack_encode_entry(const struct chunk_entry *entry, void *buf);

/* Decodes a whole index whose crc was checked: exactly t->count entries within [header, index_offset), each with sane
 * lengths (offset + stored_len <= index_offset, 0 < raw_len <= CHUNK_SIZE_MAX, ref_count <= CHUNK_REFS_MAX).
 * Calls `fn` for each with entry.pack = t->pack; a negative result of `fn` ends it and is returned. */
CAIRN_MUST_CHECK int pack_decode_index(const struct pack_trailer *t, const void *buf, size_t len,
                                       int (*fn)(const struct chunk_entry *entry, void *arg), void *arg);
