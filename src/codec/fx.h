// SPDX-License-Identifier: Apache-2.0
/* fx: a code for tensors. Elements of 1, 2, 4 or 8 bytes are split into planes, one a byte; planes
 * whose bytes are few and uneven (the exponents of floats) get a prefix code that vector
 * instructions can write and read, the others are stored as they are. The layout stands at the top
 * of fx.c. Lossless. Pure; any thread. Calls take up to 256 KiB of stack. */
#pragma once

#include "base/base.h"
#include "codec/rope.h"
#include "codec/fx_kernels.h"

#define FX_RAW_MIN 4096u /* what is shorter is not looked at */

/* The guess from a chunk's sample. */
struct fx_guess {
    uint8_t width; /* of an element: 1, 2, 4 or 8 */
    uint8_t phase; /* bytes before the first element, less than width */
    /* Bit p: plane p pays to be coded, of elements as they are [0], or rotated left by one bit [1],
     * so that a float's sign joins its mantissa. Which of the two is better, encoding decides; 0:
     * that one is not. */
    uint8_t coded[2];
    uint32_t permille; /* estimated stored bytes for 1,000 raw ones */
};

/* An encoding that saves less is not worth the decoding. */
#define FX_WORTH 970u /* permille */

/* False for a guess of zeros, too. */
static inline bool fx_pays(const struct fx_guess *guess)
{
    return (guess->coded[0] | guess->coded[1]) && guess->permille <= FX_WORTH;
}

/* Looks at 4 KiB of the chunk. `raw_len` is at least FX_RAW_MIN. */
void fx_look(const void *src, size_t raw_len, struct fx_guess *ret);
/* The same for one that lies in several buffers, from offset 0 on. */
void fx_look_rope(struct rope *src, struct fx_guess *ret);

/* Encodes into `dst`, of which `limit` bytes may be used. Returns the stored length; 0: it would be
 * more than `limit`. Never writes past it. The result is the same with all kernels. */
size_t fx_encode(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                 size_t raw_len, void *dst, size_t limit);
/* The same for a chunk that lies in several buffers, from offset 0 on; the bytes are the same. */
size_t fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                      struct rope *src, void *dst, size_t limit);

#define FX_MATRIX_SCRATCH_LEN (1536u * 1024)

/* The same for what may be a matrix of bf16 or fp32 numbers: looks for the length of its rows, and
 * says of the exponents only what rows and columns do not tell. Slower than fx_encode(), and denser
 * where it finds some. 0, too, where there are none, or `guess` is of something else. `scratch` has
 * FX_MATRIX_SCRATCH_LEN bytes, aligned as malloc does it. */
size_t fx_encode_matrix(const struct fx_kernels *kernels, const struct fx_guess *guess,
                        const void *src, size_t raw_len, void *scratch, void *dst, size_t limit);

/* Bytes of an element: 1, 2, 4 or 8, as the first stored byte says. */
static inline unsigned fx_width(uint8_t first)
{
    return 1u << (first & 3);
}

/* Decodes into exactly `raw_len` bytes; `src` and `dst` have no byte in common. -EBADMSG: `src` is
 * no fx of that length. Reads and writes nothing outside of the two, whatever `src` holds. */
CAIRN_MUST_CHECK int fx_decode(const struct fx_kernels *kernels, const void *src, size_t stored_len,
                               void *dst, size_t raw_len);

/* Does `stored` decode to just these bytes? Decodes all of it as fx_decode() does, but keeps no
 * more than a block, which the cache holds. */
CAIRN_MUST_CHECK bool fx_decodes_to(const struct fx_kernels *kernels, const void *stored,
                                    size_t stored_len, struct rope *raw);
