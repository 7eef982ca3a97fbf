// SPDX-License-Identifier: Apache-2.0
/* dx: a chunk stored as its difference to another chunk of the same length, its base: the same
 * place of the same tensor some training steps earlier. Elements of 2, 4 or 8 bytes are taken as
 * floats, mapped to integers in the same order and subtracted. The layout is at the top of dx.c.
 * Lossless for all content. Pure; any thread. Calls use up to 256 KiB of stack. */
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

/* Estimates, from 2,048 elements, how many bytes dx stores for 1,000 raw ones; 1000 if dx does not
 * apply to these elements (of one byte). `guess` is the one from fx_look() for the chunk. All
 * kernels return the same result. */
uint32_t dx_gate(const struct dx_kernels *kernels, const struct fx_guess *guess,
                 const struct dx_pair *pair);

/* Encodes into `dst`, of which `limit` bytes may be used. Returns the stored length; 0: it would be
 * more than `limit`, or dx does not apply to these elements. Never writes past `limit` bytes. All
 * kernels store the same bytes. */
size_t dx_encode(const struct dx_kernels *kernels, const struct fx_guess *guess,
                 const struct dx_pair *pair, void *dst, size_t limit);

/* Decodes into exactly `raw_len` bytes; `dst` overlaps neither `src` nor the base. -EBADMSG: `src`
 * is no dx of that length, or the base has another length. A base of other content results in other
 * content, which the caller detects by the chunk's name, or in -EBADMSG too: in the form by
 * exponent the base selects the codes. Reads and writes only within the three buffers, whatever
 * they contain. */
CAIRN_MUST_CHECK int dx_decode(const struct dx_kernels *kernels, const void *src, size_t stored_len,
                               const struct iovec *base, void *dst, size_t raw_len);
