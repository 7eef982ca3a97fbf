// SPDX-License-Identifier: Apache-2.0
#include "codec/stream.h"

#ifdef __SSE2__
#include <emmintrin.h>

#define LINE 64u
#define WORTH 4096u /* fewer bytes are soon overwritten in the caches */

/* `dst` is at the start of a cache line, and `len` a multiple of lines. */
static void copy_lines(uint8_t *dst, const uint8_t *src, size_t len)
{
    for (size_t at = 0; at < len; at += LINE) {
        __m128i v[4];
        for (size_t i = 0; i < 4; i++)
            v[i] = _mm_loadu_si128((const __m128i *)(const void *)(src + at + 16 * i));
        for (size_t i = 0; i < 4; i++)
            _mm_stream_si128((__m128i *)(void *)(dst + at + 16 * i), v[i]);
    }
    _mm_sfence(); /* these stores are not ordered with others */
}
#endif

void stream_copy(void *dst, const void *src, size_t len)
{
    uint8_t *to = dst;
    const uint8_t *from = src;
#ifdef __SSE2__
    if (len >= WORTH) {
        size_t head = -(uintptr_t)to % LINE, lines = align_down(len - head, LINE);
        memcpy(to, from, head);
        copy_lines(to + head, from + head, lines);
        to += head + lines;
        from += head + lines;
        len -= head + lines;
    }
#endif
    if (len)
        memcpy(to, from, len);
}
