// SPDX-License-Identifier: Apache-2.0
/* dx: a chunk as its difference to another chunk of the same length, its base: the same place of
 * the same tensor some steps of training before. Elements of 2, 4 or 8 bytes are taken as floats,
 * put in their order as integers and subtracted. The layout stands at the top of dx.c. Lossless for
 * all content. Pure; any thread. Calls take up to 256 KiB of stack. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"
#include "codec/dx_kernels.h"
#include "codec/fx.h"

/* A chunk and its base: both have `raw_len` bytes, at least FX_RAW_MIN. */
struct dx_pair {
    const uint8_t *src, *base;
    size_t raw_len;
};

/* Estimates, from 2,048 elements, how many bytes dx stores for 1,000 raw ones; 1000 where
 * it is not for such elements (of one byte). `guess` is that of fx_look() for the chunk. The result
 * is the same with all kernels. */
uint32_t dx_gate(const struct dx_kernels *kernels, const struct fx_guess *guess,
                 const struct dx_pair *pair);

/* Encodes into `dst`, of which `limit` bytes may be used. Returns the stored length; 0: it would be
 * more than `limit`, or dx is not for such elements. Never writes past it. The result is the same
 * with all kernels. */
size_t dx_encode(const struct dx_kernels *kernels, const struct fx_guess *guess,
                 const struct dx_pair *pair, void *dst, size_t limit);

/* Decodes into exactly `raw_len` bytes; `dst` has no byte in common with the others. -EBADMSG:
 * `src` is no dx of that length, or the base has another length. A base of other content gives
 * other content, which the chunk's name tells, or -EBADMSG too: by exponent the base says which
 * codes were used. Reads and writes nothing outside of the three, whatever they hold. */
CAIRN_MUST_CHECK int dx_decode(const struct dx_kernels *kernels, const void *src, size_t stored_len,
                               const struct iovec *base, void *dst, size_t raw_len);
