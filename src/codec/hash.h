/* BLAKE3: chunk names (keyed) and the chain of journal batches (plain). Pure; any thread. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/chunk.h"

#define HASH_LEN 32u

/* Name of the chunk whose raw bytes are those of `iov`, in order. */
struct chunk_name hash_chunk(const struct chunk_key *key, const struct iovec *iov, size_t iov_count);

/* Plain BLAKE3 over the parts in order. */
void hash_parts(const struct iovec *iov, size_t iov_count, uint8_t ret_hash[HASH_LEN]);
