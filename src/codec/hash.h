// SPDX-License-Identifier: Apache-2.0
/* BLAKE3: chunk names and tags (keyed), and the chain of journal batches (plain). Pure; any
 * thread. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/chunk.h"

#define HASH_LEN 32u

/* Returns the name of the chunk whose raw bytes are those of `iov`, in order. */
struct chunk_name hash_chunk(const struct chunk_key *key, const struct iovec *iov,
                             size_t iov_count);

#define HASH_KEY_LEN 32u

/* Returns the first 8 bytes of keyed BLAKE3 over `len` bytes, as a number of the machine's byte
 * order: without the key nobody can make a valid tag. */
uint64_t hash_tag(const uint8_t key[HASH_KEY_LEN], const void *bytes, size_t len);

/* Plain BLAKE3 over the parts in order. */
void hash_parts(const struct iovec *iov, size_t iov_count, uint8_t ret_hash[HASH_LEN]);

/* Plain BLAKE3 over bytes that are added piece by piece. Used by one thread at a time. */
struct hash_stream;
struct hash_stream *hash_stream_new(void);
void hash_stream_add(struct hash_stream *stream, const void *bytes, size_t len);
/* Returns the hash of the bytes added so far. */
void hash_stream_result(const struct hash_stream *stream, uint8_t ret_hash[HASH_LEN]);
void hash_stream_free(struct hash_stream *stream); /* NULL: no effect */
