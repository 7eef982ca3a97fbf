// SPDX-License-Identifier: Apache-2.0
/* Encodings of one chunk, lossless. Pure; any thread. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "format/chunk.h"

/* How much effort is spent to store fewer bytes. */
enum reduce {
    REDUCE_OFF, /* chunks are stored as they are */
    /* only encodings of a single chunk, fast enough to keep up with a disk: fx, lz4 */
    REDUCE_FAST,
    REDUCE_DENSE, /* and, for the remote, encodings of a chunk beside other chunks: twin, dx */
};

struct chunk_encoded {
    size_t len;       /* of the stored bytes: at most the raw length */
    uint8_t encoding; /* enum chunk_encoding */
    /* an encoding did not decode to the same bytes, so the chunk must be stored raw */
    bool was_wrong;
};

/* Working memory that the caller passes to chunk_encode(). */
#define CHUNK_SCRATCH_LEN (2 * (size_t)CHUNK_SIZE_MAX)

/* Encodes the chunk made of `iov` (raw_len bytes in all, 1 to CHUNK_SIZE_MAX) into `dst`, which
 * holds raw_len bytes, in the encoding that saves most according to a sample. Encoded bytes were
 * decoded and compared before the call returns. Where no encoding saves enough, returns
 * ENCODING_RAW: the content of `dst` is undefined, and the stored bytes are those of `iov`, which
 * the caller copies to their final place, once. `scratch` has CHUNK_SCRATCH_LEN bytes. */
struct chunk_encoded chunk_encode(enum reduce reduce, const struct iovec *iov, size_t iov_count,
                                  size_t raw_len, void *scratch, void *dst);

/* Decodes a chunk that refers to no other into exactly raw_len bytes; `src` and `dst` do not
 * overlap. -EPROTONOSUPPORT: unknown encoding. -EBADMSG: does not decode to raw_len. Never writes
 * outside of `dst`, whatever `src` contains. */
CAIRN_MUST_CHECK int chunk_decode(uint8_t encoding, const void *src, size_t stored_len, void *dst,
                                  size_t raw_len);

/* As chunk_decode(), for a chunk that may refer to other chunks: `bases` are the bytes that each
 * reference of the entry names, verified, in the entry's order and of exactly the named length;
 * NULL: there are no references. Also -EUCLEAN: the references are not the ones that the encoding
 * needs, or their bytes are not passed, or they are nested too deep. */
CAIRN_MUST_CHECK int chunk_decode_entry(const struct chunk_entry *entry, const void *stored,
                                        const struct iovec *bases, void *dst);

/* Returns "raw", "lz4", "fx", "twin", "dx"; "unknown" for others. */
const char *chunk_encoding_name(uint8_t encoding);
