// SPDX-License-Identifier: Apache-2.0
/* Vector instructions join the fields of neighbours into lanes of up to 62 bits; these functions
 * append lanes to a row of bits, and read lanes from it. */
#pragma once

#include "format/le.h"

#define LANES_MAX 32u /* lanes of one put_lanes() */

struct lane_writer {
    uint8_t *at;
    uint64_t sum;
    unsigned held; /* bits of `sum` */
};

static inline void put_long_lanes(struct lane_writer *w, const uint64_t *lanes,
                                  const uint64_t *bits, size_t count)
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

/* As put_long_lanes(), for lanes of up to SHORT_LANE bits. */
static inline void put_short_lanes(struct lane_writer *w, const uint64_t *lanes,
                                   const uint64_t *bits, size_t count)
{
    uint8_t *at = w->at + w->held / 8;
    uint64_t sum = w->sum >> (w->held & 56), held = w->held % 8;
    put_le64(w->at, w->sum);
    for (size_t i = 0; i < count; i++) {
        sum |= lanes[i] << held;
        put_le64(at, sum);
        held += bits[i];
        at += held / 8;
        sum >>= held & 56;
        held %= 8;
    }
    *w = (struct lane_writer){at, sum, (unsigned)held};
}

/* Appends `count` lanes, an even number. A lane is zero above its bits. Where all lanes have few
 * bits, pairs are joined first. */
static inline void put_lanes(struct lane_writer *w, const uint64_t *lanes, const uint64_t *bits,
                             size_t count)
{
    uint64_t joined[LANES_MAX / 2], joined_bits[LANES_MAX / 2], less = 0, joined_less = 0;
    for (size_t i = 0; i < count; i += 2) {
        uint64_t sum = bits[i] + bits[i + 1];
        joined[i / 2] = lanes[i] | lanes[i + 1] << bits[i];
        joined_bits[i / 2] = sum;
        joined_less |= SHORT_LANE - sum;
        less |= (SHORT_LANE - bits[i]) | (SHORT_LANE - bits[i + 1]);
    }
    if (!(joined_less >> 63))
        put_short_lanes(w, joined, joined_bits, count / 2);
    else if (!(less >> 63))
        put_short_lanes(w, lanes, bits, count);
    else
        put_long_lanes(w, lanes, bits, count);
}

/* Ends the row, which began at `first`. Returns its length in bits. */
static inline size_t end_lanes(struct lane_writer *w, const uint8_t *first)
{
    put_le64(w->at, w->sum);
    return 8 * (size_t)(w->at - first) + w->held;
}

/* Reads `count` lanes from bit `at` on. Above its own bits a lane holds the bits that follow in the
 * row. Returns where the next lane begins. */
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
