// SPDX-License-Identifier: Apache-2.0
#include "codec/rope.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include "format/le.h"

#define LOCAL_HEADER 0x04034b50u
#define CENTRAL_HEADER 0x02014b50u
#define FLAGS_STREAMED 0x0808u /* sizes follow the data; names are UTF-8 */
#define METHOD_STORED 0u
#define NAME_LEN_LIMIT 4096u

void rope_init(struct rope *c, const struct iovec *iov, size_t iov_count, uint64_t offset)
{
    *c = (struct rope){.iov = iov, .iov_count = iov_count, .start = offset, .at_offset = offset};
    c->end = offset;
    for (size_t i = 0; i < iov_count; i++)
        c->end += iov[i].iov_len;
}

/* Makes `at` the buffer that holds file offset `pos`, which lies in the content. */
static void rope_seek(struct rope *c, uint64_t pos)
{
    check(pos >= c->start && pos < c->end);
    while (pos < c->at_offset)
        c->at_offset -= c->iov[--c->at].iov_len;
    while (pos >= c->at_offset + c->iov[c->at].iov_len)
        c->at_offset += c->iov[c->at++].iov_len;
}

size_t rope_copy(struct rope *c, uint64_t from, void *buf, size_t len)
{
    size_t done = 0;
    while (done < len && from < c->end) {
        rope_seek(c, from);
        size_t skip = (size_t)(from - c->at_offset);
        size_t n = (size_t)min_u64(len - done, c->iov[c->at].iov_len - skip);
        memcpy((uint8_t *)buf + done, (const uint8_t *)c->iov[c->at].iov_base + skip, n);
        done += n;
        from += n;
    }
    return done;
}

const uint8_t *rope_bytes(struct rope *c, uint64_t from, size_t len, void *buf)
{
    check(from >= c->start && len <= c->end - from);
    if (len == 0)
        return buf;
    rope_seek(c, from);
    size_t skip = (size_t)(from - c->at_offset);
    if (len <= c->iov[c->at].iov_len - skip)
        return (const uint8_t *)c->iov[c->at].iov_base + skip;
    check(rope_copy(c, from, buf, len) == len);
    return buf;
}

/* `p` has MARKER_LEN bytes. */
static bool parse_zip_marker(const uint8_t *p, uint64_t offset, struct marker *ret_marker)
{
    uint32_t signature = get_le32(p);
    if (signature == LOCAL_HEADER && get_le16(p + 6) == FLAGS_STREAMED &&
        get_le16(p + 8) == METHOD_STORED && get_le16(p + 26) < NAME_LEN_LIMIT) {
        *ret_marker = (struct marker){offset, offset + 30 + get_le16(p + 26) + get_le16(p + 28)};
        return true;
    }
    if (signature == CENTRAL_HEADER && get_le16(p + 8) == FLAGS_STREAMED &&
        get_le16(p + 10) == METHOD_STORED) {
        *ret_marker = (struct marker){offset, 0};
        return true;
    }
    return false;
}

/* Returns the index of the first "PK" that begins in [i, n), where `p` has n + 1 bytes; n if there
 * is none. Every checkpointed byte passes this scan: 64 bytes a step. */
static size_t find_pk(const uint8_t *p, size_t i, size_t n)
{
#ifdef __SSE2__
    const __m128i first = _mm_set1_epi8('P'), second = _mm_set1_epi8('K');
    for (; i + 64 <= n; i += 64) {
        __m128i hit[4];
        for (size_t k = 0; k < 4; k++) {
            __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(p + i + 16 * k));
            __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(p + i + 16 * k + 1));
            hit[k] = _mm_and_si128(_mm_cmpeq_epi8(a, first), _mm_cmpeq_epi8(b, second));
        }
        __m128i any = _mm_or_si128(_mm_or_si128(hit[0], hit[1]), _mm_or_si128(hit[2], hit[3]));
        if (_mm_movemask_epi8(any) == 0)
            continue;
        uint64_t bits = 0;
        for (size_t k = 0; k < 4; k++)
            bits |= (uint64_t)(uint32_t)_mm_movemask_epi8(hit[k]) << (16 * k);
        return i + (size_t)__builtin_ctzll(bits);
    }
#endif
    while (i < n) {
        const uint8_t *q = memchr(p + i, 'P', n - i);
        if (!q)
            return n;
        i = (size_t)(q - p);
        if (q[1] == 'K')
            return i;
        i++;
    }
    return n;
}

/* Finds the first marker that begins in [i, n) of `p`, which has n + MARKER_LEN - 1 bytes; p[0] has
 * file offset `offset`. */
static bool scan_markers(const uint8_t *p, size_t i, size_t n, uint64_t offset,
                         struct marker *ret_marker)
{
    for (i = find_pk(p, i, n); i < n; i = find_pk(p, i + 1, n))
        if (parse_zip_marker(p + i, offset + i, ret_marker))
            return true;
    return false;
}

bool rope_find_marker(struct rope *c, uint64_t from, uint64_t limit, struct marker *ret_marker)
{
    from = max_u64(from, c->start);
    limit = min_u64(limit, c->end - c->start >= MARKER_LEN ? c->end - MARKER_LEN + 1 : 0);
    while (from < limit) {
        rope_seek(c, from);
        const uint8_t *p = c->iov[c->at].iov_base;
        size_t skip = (size_t)(from - c->at_offset), len = c->iov[c->at].iov_len;
        /* Within the buffer where a whole marker fits, then in a copy of the bytes around the
         * buffer's end. */
        if (len - skip >= MARKER_LEN) {
            size_t n = (size_t)min_u64(len - MARKER_LEN + 1, limit - c->at_offset);
            if (scan_markers(p, skip, n, c->at_offset, ret_marker))
                return true;
            from = c->at_offset + n;
            continue;
        }
        uint8_t seam[2 * MARKER_LEN];
        size_t have = rope_copy(c, from, seam, sizeof seam);
        size_t n = (size_t)min_u64(have - MARKER_LEN + 1, limit - from);
        if (scan_markers(seam, 0, n, from, ret_marker))
            return true;
        from += n;
    }
    return false;
}
