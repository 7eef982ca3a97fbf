// SPDX-License-Identifier: Apache-2.0
#include "client/sample.h"

#include <string.h>

#include "client/jobs.h"

#define LINE 64u
#define STRIDE (64 * KIB)
#define AHEAD 6 /* how many strides ahead lines are prefetched */

static uint64_t mixed_line(uint64_t sum, const char *bytes, size_t length)
{
    for (size_t at = 0; at < length; at += sizeof sum) {
        uint64_t word = 0;
        memcpy(&word, bytes + at, min_u64(sizeof word, length - at));
        sum = (sum ^ word) * 0x9e3779b97f4a7c15u;
        sum ^= sum >> 29;
    }
    return sum;
}

/* The line's position within a stride: over 1024 consecutive strides each position occurs once. */
static size_t line_of(size_t stride)
{
    return (stride + 1) * 0x9e3779b97f4a7c15u % (STRIDE / LINE) * LINE;
}

uint64_t sample_of(const void *bytes, size_t length, size_t piece)
{
    const char *from = bytes;
    size_t first = piece * (PIECE_BYTES / STRIDE); /* index of the first stride in the source */
    uint64_t sum = length;
    for (size_t stride = 0; stride * STRIDE < length; stride++) {
        size_t at = stride * STRIDE, size = min_u64(STRIDE, length - at);
        size_t line = size < STRIDE ? 0 : line_of(first + stride);
        __builtin_prefetch(from +
                           min_u64(at + AHEAD * STRIDE + line_of(first + stride + AHEAD), length));
        sum = mixed_line(sum, from + at + line, min_u64(LINE, size - line));
    }
    return mixed_line(sum, from + length - min_u64(LINE, length), min_u64(LINE, length));
}
