// SPDX-License-Identifier: Apache-2.0
/* Numbers that look random and are the same in every run. */
#pragma once

#include <stdint.h>
#include <stddef.h>

struct seeded {
    uint64_t state;
};

static inline uint64_t seeded_u64(struct seeded *s)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static inline uint64_t seeded_below(struct seeded *s, uint64_t n)
{
    return seeded_u64(s) % n;
}

static inline void seeded_fill(struct seeded *s, void *buf, size_t len)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)buf)[i] = (uint8_t)seeded_u64(s);
}
