// SPDX-License-Identifier: Apache-2.0
/* Encodings of one chunk, lossless. Pure; any thread. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/chunk.h"

/* The effort to store fewer bytes. */
enum reduce {
    REDUCE_OFF,   /* chunks are stored as they are */
    REDUCE_FAST,  /* what one chunk alone gives, at a speed at which a disk is not kept waiting: fx,
                     lz4 */
    REDUCE_DENSE, /* and for the remote what chunks give beside others: twin, dx */
};

struct chunk_encoded {
    size_t len;       /* of what is stored: at most the raw length */
    uint8_t encoding; /* enum chunk_encoding */
    bool was_wrong;   /* an encoding did not decode to the same bytes, so the chunk is to be stored
                         raw */
};

/* Bytes of the caller that chunk_encode() works with. */
#define CHUNK_SCRATCH_LEN (2 * (size_t)CHUNK_SIZE_MAX)

/* Encodes the chunk made of `iov` (raw_len bytes in all, 1 to CHUNK_SIZE_MAX) into `dst`, which
 * holds raw_len bytes, in the encoding of which a sample says that it saves most. What is encoded
 * was decoded and compared. Where none saves enough, ENCODING_RAW: nothing of use is in `dst`, and
 * what is stored are the bytes of `iov`, which the caller copies to where they stay, once.
 * `scratch` has CHUNK_SCRATCH_LEN bytes. */
struct chunk_encoded chunk_encode(enum reduce reduce, const struct iovec *iov, size_t iov_count,
                                  size_t raw_len, void *scratch, void *dst);

/* Decodes a chunk that stands by itself into exactly raw_len bytes; `src` and `dst` have no byte in
 * common. -EPROTONOSUPPORT: unknown encoding. -EBADMSG: does not decode to raw_len. Never writes
 * outside of dst, whatever src holds. */
CAIRN_MUST_CHECK int chunk_decode(uint8_t encoding, const void *src, size_t stored_len, void *dst,
                                  size_t raw_len);

/* The same for a chunk that may refer to others: `bases` are the bytes that each reference of the
 * entry names, verified, in its order and of exactly its length; NULL: there are none. -EUCLEAN
 * too: what the entry refers to is not what its encoding needs, or not here, or lies too deep. */
CAIRN_MUST_CHECK int chunk_decode_entry(const struct chunk_entry *entry, const void *stored,
                                        const struct iovec *bases, void *dst);

/* "raw", "lz4", "fx", "twin", "dx"; "unknown" for others. */
const char *chunk_encoding_name(uint8_t encoding);
