// SPDX-License-Identifier: Apache-2.0
/* Vector instructions join the fields of neighbours into lanes of up to 62 bits, which go to the
 * row of bits one after the other, and come from there. */
#pragma once

#include "format/le.h"

struct lane_writer {
    uint8_t *at;
    uint64_t sum;
    unsigned held; /* bits of `sum` */
};

/* A lane is zero above its bits. */
static inline void put_lanes(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                             size_t count)
{
    uint8_t *at = w->at;
    uint64_t sum = w->sum;
    unsigned held = w->held;
    for (size_t i = 0; i < count; i++) {
        sum |= lanes[i] << held;
        put_le64(at, sum);
        held += (unsigned)bits[i];
        bool is_full = held >= 64;
        held &= 63;
        at += is_full ? 8 : 0;
        sum = is_full ? lanes[i] >> ((bits[i] - held) & 63) : sum;
    }
    *w = (struct lane_writer){at, sum, held};
}

#define SHORT_LANE 56u

/* The same with lanes of up to SHORT_LANE bits, each `step`th one. */
static inline void put_short_lanes(struct lane_writer *w, const uint64_t *lanes,
                                   const uint64_t *bits, size_t count, size_t step)
{
    uint8_t *at = w->at + w->held / 8;
    uint64_t sum = w->sum >> (w->held & 56), held = w->held % 8;
    put_le64(w->at, w->sum);
    for (size_t i = 0; i < count; i += step) {
        sum |= lanes[i] << held;
        put_le64(at, sum);
        held += bits[i];
        at += held / 8;
        sum >>= held & 56;
        held %= 8;
    }
    *w = (struct lane_writer){at, sum, (unsigned)held};
}

/* Ends the row, which began at `first`. Returns its bits. */
static inline size_t end_lanes(struct lane_writer *w, const uint8_t *first)
{
    put_le64(w->at, w->sum);
    return 8 * (size_t)(w->at - first) + w->held;
}

/* A lane holds above its bits those that follow. Returns where the next lane begins. */
static inline size_t take_lanes(const uint8_t *fields, size_t at, const uint64_t *bits,
                                uint64_t *ret_lanes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const uint8_t *word = fields + at / 64 * 8;
        unsigned shift = at % 64;
        ret_lanes[i] = get_le64(word) >> shift | get_le64(word + 8) << 1 << (63 - shift);
        at += bits[i];
    }
    return at;
}
