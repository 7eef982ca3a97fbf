// SPDX-License-Identifier: Apache-2.0
/* Logarithms in integers, so that every machine computes the same result. Pure. */
#pragma once

#include "base/base.h"

/* Returns the logarithm of n, which is not 0, to base 2: the lowest 16 bits are the fraction. */
static inline uint32_t log2_of(uint32_t n)
{
    uint32_t whole = 31u - (uint32_t)__builtin_clz(n), ret = whole;
    uint64_t x = ((uint64_t)n << 31) >> whole; /* in [1, 2), 31 bits of fraction */
    for (unsigned i = 0; i < 16; i++) {
        x = (x * x) >> 31;
        unsigned bit = (unsigned)(x >> 32);
        ret = ret << 1 | bit;
        x >>= bit;
    }
    return ret;
}
