// SPDX-License-Identifier: Apache-2.0
/* fx: a code for tensors. Elements of 1, 2, 4 or 8 bytes are split into planes, one for each byte.
 * A plane whose bytes have few and uneven values (the exponents of floats) gets a prefix code that
 * vector instructions can write and read; the other planes are stored as they are. The layout is at
 * the top of fx.c. Lossless. Pure; any thread. Calls use up to 256 KiB of stack. */
#pragma once

#include "base/base.h"
#include "codec/rope.h"
#include "codec/fx_kernels.h"

#define FX_RAW_MIN 4096u /* shorter chunks are not tried */

/* The guess from a chunk's sample. */
struct fx_guess {
    uint8_t width; /* of an element: 1, 2, 4 or 8 */
    uint8_t phase; /* bytes before the first element, less than width */
    /* Bit p: it saves bytes to code plane p; [0]: of the elements as they are, [1]: rotated left by
     * one bit, so that a float's sign joins its mantissa. fx_encode() decides which of the two is
     * better; 0: that form saves nothing. */
    uint8_t coded[2];
    uint32_t permille; /* estimated stored bytes for 1,000 raw ones */
};

/* An encoding that saves less is not worth the decoding. */
#define FX_WORTH 970u /* permille */

/* Returns false also for a guess of zeros. */
static inline bool fx_pays(const struct fx_guess *guess)
{
    return (guess->coded[0] | guess->coded[1]) && guess->permille <= FX_WORTH;
}

/* Makes the guess from 4 KiB of the chunk. `raw_len` is at least FX_RAW_MIN. */
void fx_look(const void *src, size_t raw_len, struct fx_guess *ret);
/* As fx_look(), for a chunk in several buffers, from offset 0 on. */
void fx_look_rope(struct rope *src, struct fx_guess *ret);

/* Encodes into `dst`, of which `limit` bytes may be used. Returns the stored length; 0: it would be
 * more than `limit`. Never writes past `limit` bytes. All kernels store the same bytes. */
size_t fx_encode(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                 size_t raw_len, void *dst, size_t limit);
/* As fx_encode(), for a chunk in several buffers, from offset 0 on; the stored bytes are the
 * same. */
size_t fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                      struct rope *src, void *dst, size_t limit);

#define FX_MATRIX_SCRATCH_LEN (1536u * 1024)

/* As fx_encode(), for content that may be a matrix of bf16 or fp32 numbers: looks for the length of
 * its rows, and stores of each exponent only the difference to the estimate by row and column.
 * Slower than fx_encode(), and stores fewer bytes where it finds rows. Also returns 0 where there
 * are no rows, or `guess` is for other elements. `scratch` has FX_MATRIX_SCRATCH_LEN bytes, aligned
 * as by malloc. */
size_t fx_encode_matrix(const struct fx_kernels *kernels, const struct fx_guess *guess,
                        const void *src, size_t raw_len, void *scratch, void *dst, size_t limit);

/* Returns the bytes of an element, 1, 2, 4 or 8, from the first stored byte. */
static inline unsigned fx_width(uint8_t first)
{
    return 1u << (first & 3);
}

/* Decodes into exactly `raw_len` bytes; `src` and `dst` do not overlap. -EBADMSG: `src` is no fx of
 * that length. Reads and writes only within the two buffers, whatever `src` contains. */
CAIRN_MUST_CHECK int fx_decode(const struct fx_kernels *kernels, const void *src, size_t stored_len,
                               void *dst, size_t raw_len);

/* Returns whether `stored` decodes to exactly these bytes. Decodes all of it as fx_decode() does,
 * but keeps only one block at a time, which fits into the cache. */
CAIRN_MUST_CHECK bool fx_decodes_to(const struct fx_kernels *kernels, const void *stored,
                                    size_t stored_len, struct rope *raw);
