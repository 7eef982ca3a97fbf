// SPDX-License-Identifier: Apache-2.0
/* The entries of struct fx_kernels that choose a loop by width or by bits, written once for all
 * instruction sets. A file includes this behind its loops: pack_by() and unpack_by(), and
 * split_4(), split_2(), join_4(), join_2() or, if it defines SPLITS_ALL_WIDTHS, split_by() and
 * join_by(). */
#pragma once

#include "codec/fx_kernels.h"

static void split_elements(const uint8_t *src, size_t count, unsigned width, bool rotate,
                           uint8_t *const planes[8])
{
#ifdef SPLITS_ALL_WIDTHS
    if (width > 1)
        FX_BY_WIDTH(split_by, width, src, count, rotate, planes);
    else
        memcpy(planes[0], src, count);
#else
    if (width == 4)
        split_4(src, count, rotate, planes);
    else if (width == 2)
        split_2(src, count, rotate, planes);
    else
        fx_scalar.split(src, count, width, rotate, planes);
#endif
}

static void join_elements(const uint8_t *const planes[8], size_t count, unsigned width, bool rotate,
                          uint8_t *dst)
{
#ifdef SPLITS_ALL_WIDTHS
    if (width > 1)
        FX_BY_WIDTH(join_by, width, planes, count, rotate, dst);
    else
        memcpy(dst, planes[0], count);
#else
    if (width == 4)
        join_4(planes, count, rotate, dst);
    else if (width == 2)
        join_2(planes, count, rotate, dst);
    else
        fx_scalar.join(planes, count, width, rotate, dst);
#endif
}

static size_t pack_values(const uint8_t *values, size_t count, unsigned bits, uint8_t *masks,
                          uint8_t *escaped)
{
    return FX_BY_BITS(pack_by, bits, values, count, masks, escaped);
}

static size_t unpack_values(const uint8_t *masks, size_t count, unsigned bits,
                            const uint8_t *escaped, uint8_t *values)
{
    return FX_BY_BITS(unpack_by, bits, masks, count, escaped, values);
}
