// SPDX-License-Identifier: Apache-2.0
/* Numbers as training makes them. */
#pragma once

#include "../base/seeded.h"
#include "format/le.h"

/* Weights of bf16, of a run of training, after some steps of it: each is as near to the others. */
static inline void make_weights(uint8_t *p, size_t len, unsigned run, unsigned steps)
{
    struct seeded s = {run};
    for (size_t i = 0; i + 2 <= len; i += 2) {
        uint64_t z = seeded_u64(&s);
        unsigned moved = (unsigned)(z >> (20 + 2 * steps)) % 3;
        put_le16(p + i, (uint16_t)(((z & 1) << 15 | 0x3c00) + ((z >> 1) & 0x1ff) + moved));
    }
}

/* fp32 numbers, twice as many bytes, which the weights are rounded from. */
static inline void make_masters(uint8_t *p, const uint8_t *weights, size_t len, unsigned seed)
{
    struct seeded s = {seed};
    for (size_t i = 0; i + 2 <= len; i += 2) {
        uint32_t low = (uint32_t)seeded_below(&s, 0xfffe) + 1; /* no tie */
        put_le32(p + 2 * i, ((uint32_t)get_le16(weights + i) << 16) + low - 0x7fff);
    }
}
