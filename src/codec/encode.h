// SPDX-License-Identifier: Apache-2.0
/* Encodings of one chunk, lossless. Pure; any thread. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/chunk.h"

/* Room that `dst` of chunk_encode() must have for a chunk of `raw_len` bytes (encodings that do not shrink are not
 * used, so raw_len is enough). */
static inline size_t chunk_encode_bound(size_t raw_len)
{
    return raw_len;
}

/* Encodes the chunk made of `iov` (raw_len bytes in all, 1 to CHUNK_SIZE_MAX) into `dst`: lz4 where a sample says
 * that it pays (saves at least 1/16) and the result does. Otherwise ENCODING_RAW: nothing of use is in `dst`, and what is stored are the
 * bytes of `iov`, which the caller copies to where they stay, once. `scratch` is CHUNK_SIZE_MAX bytes of the caller, used
 * when the chunk has several parts. Returns the stored length and the encoding. */
size_t chunk_encode(const struct iovec *iov, size_t iov_count, size_t raw_len, void *scratch, void *dst,
                    uint8_t *ret_encoding);

/* Decodes into exactly raw_len bytes. -EPROTONOSUPPORT: unknown encoding. -EBADMSG: does not decode to raw_len. Never
 * writes outside of dst, whatever src holds. */
CAIRN_MUST_CHECK int chunk_decode(uint8_t encoding, const void *src, size_t stored_len, void *dst, size_t raw_len);
