// SPDX-License-Identifier: Apache-2.0
#include "coder.h"

#include "../base/golden.h"
#include "../expect.h"

struct exact coder_encode(const struct coder *coder, const uint8_t *raw, size_t raw_len,
                          size_t limit)
{
    _cleanup_exact_ struct exact src = exact_of(raw, raw_len);
    struct exact first = exact_new(limit);
    first.len = coder->encode(coder, CPU_SCALAR, src.bytes, raw_len, first.bytes, limit);
    cr_assert_leq(first.len, limit);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++) {
        _cleanup_exact_ struct exact other = exact_new(limit);
        size_t len = coder->encode(coder, level, src.bytes, raw_len, other.bytes, limit);
        assert_u64(len, first.len, "%s: %zu, scalar: %zu", cpu_level_name(level), len, first.len);
        cr_assert_arr_eq(other.bytes, first.bytes, len, "%s", cpu_level_name(level));
    }
    return first;
}

int coder_decode(const struct coder *coder, const void *stored, size_t len, struct exact *ret,
                 size_t raw_len)
{
    _cleanup_exact_ struct exact src = exact_of(stored, len);
    *ret = exact_new(raw_len);
    int r = coder->decode(coder, CPU_SCALAR, src.bytes, len, ret->bytes, raw_len);
    cr_assert(r == 0 || r == -EBADMSG);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++) {
        _cleanup_exact_ struct exact other = exact_new(raw_len);
        assert_i64(coder->decode(coder, level, src.bytes, len, other.bytes, raw_len), r, "%s",
                   cpu_level_name(level));
        if (r == 0)
            cr_assert_arr_eq(other.bytes, ret->bytes, raw_len, "%s", cpu_level_name(level));
    }
    return r;
}

int coder_try(const struct coder *coder, const void *stored, size_t len, size_t raw_len)
{
    _cleanup_exact_ struct exact again = {0};
    return coder_decode(coder, stored, len, &again, raw_len);
}

size_t coder_round_trip(const struct coder *coder, const uint8_t *raw, size_t raw_len)
{
    _cleanup_exact_ struct exact stored = coder_encode(coder, raw, raw_len, 3 * raw_len + 100);
    if (stored.len == 0)
        return 0;
    _cleanup_exact_ struct exact again = {0};
    assert_i64(coder_decode(coder, stored.bytes, stored.len, &again, raw_len), 0);
    cr_assert_arr_eq(again.bytes, raw, raw_len);
    _cleanup_exact_ struct exact tight = coder_encode(coder, raw, raw_len, stored.len);
    assert_u64(tight.len, stored.len);
    _cleanup_exact_ struct exact too_tight = coder_encode(coder, raw, raw_len, stored.len - 1);
    assert_u64(too_tight.len, 0);
    return stored.len;
}

size_t coder_permille(const struct coder *coder, const uint8_t *raw, size_t raw_len)
{
    size_t stored = coder_round_trip(coder, raw, raw_len);
    return stored ? stored * 1000 / raw_len : 1000;
}

void coder_expect_whole(const struct coder *coder, const struct exact *stored, size_t raw_len)
{
    cr_assert_gt(stored->len, 0);
    for (size_t len = 0; len < stored->len; len++)
        assert_i64(coder_try(coder, stored->bytes, len, raw_len), -EBADMSG, "%zu of %zu", len,
                   stored->len);
    assert_i64(coder_try(coder, stored->bytes, stored->len, raw_len - 1), -EBADMSG);
    assert_i64(coder_try(coder, stored->bytes, stored->len, raw_len + 1), -EBADMSG);
    assert_i64(coder_try(coder, stored->bytes, stored->len, 1), -EBADMSG);
}

struct exact coder_flip(struct seeded *s, const struct exact *stored, unsigned round, size_t head)
{
    struct exact bad = exact_of(stored->bytes, stored->len);
    size_t among = round % 2 ? min_u64(stored->len, head) : stored->len;
    for (uint64_t flips = 1 + seeded_below(s, 4); flips > 0; flips--)
        bad.bytes[seeded_below(s, among)] ^= (uint8_t)(1u << seeded_below(s, 8));
    return bad;
}

void coder_expect_golden(const struct coder *coder, const char *name, const struct exact *stored,
                         const uint8_t *raw, size_t raw_len)
{
    size_t len;
    golden_compare(name, stored->bytes, stored->len);
    _cleanup_free_ char *golden = golden_read(name, &len);
    _cleanup_exact_ struct exact again = {0};
    assert_i64(coder_decode(coder, golden, len, &again, raw_len), 0);
    cr_assert_arr_eq(again.bytes, raw, raw_len);
}
