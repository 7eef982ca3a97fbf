// SPDX-License-Identifier: Apache-2.0
#include "codec/hash.h"

#include <blake3.h>

_Static_assert(HASH_LEN == BLAKE3_OUT_LEN, "whole BLAKE3 output");
_Static_assert(HASH_KEY_LEN == BLAKE3_KEY_LEN, "a key of tags is a BLAKE3 key");
_Static_assert(sizeof(struct chunk_key) == BLAKE3_KEY_LEN, "a chunk key is a BLAKE3 key");

static void hash_iov(blake3_hasher *h, const struct iovec *iov, size_t iov_count)
{
    for (size_t i = 0; i < iov_count; i++)
        blake3_hasher_update(h, iov[i].iov_base, iov[i].iov_len);
}

struct chunk_name hash_chunk(const struct chunk_key *key, const struct iovec *iov, size_t iov_count)
{
    struct chunk_name name;
    blake3_hasher h;
    blake3_hasher_init_keyed(&h, key->bytes);
    hash_iov(&h, iov, iov_count);
    blake3_hasher_finalize(&h, name.bytes, sizeof name.bytes);
    return name;
}

uint64_t hash_tag(const uint8_t key[HASH_KEY_LEN], const void *bytes, size_t len)
{
    uint64_t tag;
    blake3_hasher h;
    blake3_hasher_init_keyed(&h, key);
    blake3_hasher_update(&h, bytes, len);
    blake3_hasher_finalize(&h, (uint8_t *)&tag, sizeof tag);
    return tag;
}

void hash_parts(const struct iovec *iov, size_t iov_count, uint8_t ret_hash[HASH_LEN])
{
    blake3_hasher h;
    blake3_hasher_init(&h);
    hash_iov(&h, iov, iov_count);
    blake3_hasher_finalize(&h, ret_hash, HASH_LEN);
}

struct hash_stream {
    blake3_hasher hasher;
};

struct hash_stream *hash_stream_new(void)
{
    struct hash_stream *stream = xmalloc(sizeof *stream);
    blake3_hasher_init(&stream->hasher);
    return stream;
}

void hash_stream_add(struct hash_stream *stream, const void *bytes, size_t len)
{
    blake3_hasher_update(&stream->hasher, bytes, len);
}

void hash_stream_result(const struct hash_stream *stream, uint8_t ret_hash[HASH_LEN])
{
    blake3_hasher_finalize(&stream->hasher, ret_hash, HASH_LEN);
}

void hash_stream_free(struct hash_stream *stream)
{
    free(stream);
}
