// SPDX-License-Identifier: Apache-2.0
#include "codec/twin.h"

#include "../base/campaign.h"
#include "../expect.h"
#include "codec/fx.h"
#include "coder.h"
#include "numbers.h"
#include "rounded.h"

static uint8_t raw[CHUNK_SIZE_MAX];
static uint8_t scratch[TWIN_SCRATCH_LEN];

/* Parts whose images are copies of exactly their length, at an odd or an even place. */
struct parts {
    struct twin_part of[CHUNK_REFS_MAX];
    struct iovec images[CHUNK_REFS_MAX];
    struct exact owned[CHUNK_REFS_MAX];
    size_t count;
};

static void parts_done(struct parts *parts)
{
    for (size_t i = 0; i < parts->count; i++)
        exact_done(&parts->owned[i]);
}

#define _cleanup_parts_ __attribute__((cleanup(parts_done)))

/* The part is what raw has there. */
static void add_part(struct parts *parts, size_t at, size_t count)
{
    size_t i = parts->count++, odd = i & 1;
    parts->owned[i] = exact_new(odd + 2 * count);
    uint8_t *image = parts->owned[i].bytes + odd;
    round_all(raw + at, count, image);
    parts->of[i] = (struct twin_part){image, (uint32_t)at, (uint32_t)count};
    parts->images[i] = (struct iovec){image, 2 * count};
}

/* As many elements as fit behind `at`. */
static struct parts one_part(size_t raw_len, size_t at)
{
    struct parts parts = {.count = 0};
    add_part(&parts, at, (raw_len - at) / 4);
    return parts;
}

/* twin with parts, and with images which may be others. */
struct parted {
    struct coder coder;
    const struct parts *parts;
    const struct iovec *images;
    size_t image_count;
};

static size_t encode(const struct coder *coder, enum cpu_level level, const uint8_t *src,
                     size_t raw_len, uint8_t *dst, size_t limit)
{
    const struct parts *parts = container_of(coder, const struct parted, coder)->parts;
    const struct twin_chunk chunk = {parts->of, parts->count, src, raw_len};
    return twin_encode(level, &chunk, scratch, dst, limit);
}

static int decode(const struct coder *coder, enum cpu_level level, const uint8_t *src, size_t len,
                  uint8_t *dst, size_t raw_len)
{
    const struct parted *twin = container_of(coder, const struct parted, coder);
    return twin_decode(level, src, len, twin->images, twin->image_count, dst, raw_len);
}

static struct parted twin_of(const struct parts *parts)
{
    return (struct parted){{encode, decode}, parts, parts->images, parts->count};
}

static int decode_with(const struct parts *parts, const struct exact *stored, size_t raw_len)
{
    struct parted twin = twin_of(parts);
    return coder_try(&twin.coder, stored->bytes, stored->len, raw_len);
}

/* Returns the stored length. */
static size_t round_trip(const struct parts *parts, size_t raw_len)
{
    struct parted twin = twin_of(parts);
    size_t stored = coder_round_trip(&twin.coder, raw, raw_len);
    cr_assert_gt(stored, 0);
    return stored;
}

static const size_t lengths[] = {
    4, 5, 64, 257, 258, 259, 4096, 8191, 8192, 65536, 300001, CHUNK_SIZE_MAX - 1, CHUNK_SIZE_MAX};

Test(twin, all_content_comes_back_the_same_at_all_levels, .timeout = 300)
{
    struct seeded s = {1};
    unsigned count = 0;
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++)
        for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
            for (size_t phase = 0; phase < 4 && phase + 4 <= lengths[i]; phase++) {
                if (!campaign_takes_here(&count))
                    continue;
                numbers_fill(kind, &s, raw, lengths[i], (4 - phase) % 4);
                _cleanup_parts_ struct parts parts = one_part(lengths[i], phase);
                (void)round_trip(&parts, lengths[i]);
            }
}

/* Up to four, with and without gaps between them, of 1 element and of many. */
static void random_parts(struct seeded *s, size_t raw_len, struct parts *ret)
{
    size_t wanted = 1 + seeded_below(s, CHUNK_REFS_MAX), done = 0;
    for (size_t i = 0; i < wanted && raw_len - done >= 4; i++) {
        size_t room = (raw_len - done) / (wanted - i);
        size_t gap = seeded_below(s, 2) ? seeded_below(s, room - min_u64(room, 4) + 1) : 0;
        size_t most = (raw_len - done - gap) / 4;
        size_t count = 1 + seeded_below(s, min_u64(most, room / 4 + 1));
        add_part(ret, done + gap, count);
        done += gap + 4 * count;
    }
}

Test(twin, parts_with_gaps_between_them, .timeout = 300)
{
    struct seeded s = {2};
    for (unsigned round = 0; round < 400; round++) {
        size_t len = 4 + seeded_below(&s, round % 10 ? 30000 : CHUNK_SIZE_MAX - 3);
        numbers_fill((enum numbers)(round % NUMBERS_KINDS), &s, raw, len, seeded_below(&s, 4));
        _cleanup_parts_ struct parts parts = {.count = 0};
        random_parts(&s, len, &parts);
        (void)round_trip(&parts, len);
    }
}

/* Whatever the image is, it only costs room. */
Test(twin, an_image_of_something_else)
{
    struct seeded s = {3};
    for (size_t len = 4; len <= CHUNK_SIZE_MAX; len *= 4) {
        numbers_fill(NUMBERS_F32, &s, raw, len, 0);
        _cleanup_parts_ struct parts parts = one_part(len, 0);
        seeded_fill(&s, parts.images[0].iov_base, parts.images[0].iov_len);
        size_t stored = round_trip(&parts, len);
        cr_assert_gt(stored, len, "%zu of %zu", stored, len);
    }
}

Test(twin, master_weights_take_half)
{
    struct seeded s = {4};
    numbers_fill(NUMBERS_F32, &s, raw, sizeof raw, 0);
    _cleanup_parts_ struct parts parts = one_part(sizeof raw, 0);
    size_t ties = 0, stored = round_trip(&parts, sizeof raw);
    for (size_t i = 0; i < sizeof raw; i += 4)
        ties += (get_le32(raw + i) & 0x1ffff) == 0x18000;
    assert_u64(stored, 4 + 12 + 4 + sizeof raw / 2 + 6 * ties);
}

/* Only a tie below an odd number has another higher half than its image tells, and a NaN. */
Test(twin, exceptions)
{
    static const struct {
        uint32_t element;
        bool is_exception;
    } cases[] = {
        {0x3f800000, false}, {0x3f808000, false}, {0x3f818000, true},  {0x3f807fff, false},
        {0x3f808001, false}, {0x3f818001, false}, {0xbf818000, true},  {0x00000001, false},
        {0x80000000, false}, {0x00008001, false}, {0x00018000, true},  {0x007fffff, false},
        {0x7f7fffff, false}, {0x7f800000, false}, {0xff800000, false}, {0x7fc00000, false},
        {0x7fc00001, false}, {0x7f800001, true},  {0xffffffff, true},  {0xffc00000, true},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put_le32(raw, cases[i].element);
        _cleanup_parts_ struct parts parts = one_part(4, 0);
        assert_u64(round_trip(&parts, 4), 4 + 12 + 4 + 2 + (cases[i].is_exception ? 6 : 0), "%#x",
                   cases[i].element);
    }
}

static void widen_bf16(struct seeded *s, size_t len)
{
    numbers_fill(NUMBERS_BF16, s, raw, len / 2, 0);
    for (size_t i = len / 4; i-- > 0;)
        put_le32(raw + 4 * i, (uint32_t)get_le16(raw + 2 * i) << 16);
}

/* As at the beginning of a fine-tuning: the master is what was loaded. */
Test(twin, lower_halves_that_are_few_are_coded)
{
    struct seeded s = {5};
    for (size_t len = 8192; len <= CHUNK_SIZE_MAX; len *= 2) {
        widen_bf16(&s, len);
        _cleanup_parts_ struct parts parts = one_part(len, 0);
        size_t stored = round_trip(&parts, len);
        cr_assert_leq(stored, len * 70 / 1000 + 64, "%zu of %zu", stored, len);
    }
}

Test(twin, what_no_part_covers_is_coded)
{
    struct seeded s = {6};
    numbers_fill(NUMBERS_F32, &s, raw, sizeof raw, 0);
    _cleanup_parts_ struct parts parts = {.count = 0};
    add_part(&parts, sizeof raw / 4, sizeof raw / 8);
    size_t permille = round_trip(&parts, sizeof raw) * 1000 / sizeof raw;
    cr_assert_leq(permille, (500 + 820) / 2, "%zu", permille);
}

/* --- what is no twin -------------------------------------------------------------------------- */

/* Bytes of raw, 6001 of them, with two parts, exceptions, lower halves of the first as fx, and
 * a gap as fx between them. */
#define SOME_LEN 24001u

static struct exact some(struct parts *ret)
{
    struct seeded s = {7};
    widen_bf16(&s, SOME_LEN);
    numbers_fill(NUMBERS_F32, &s, raw + 8200, SOME_LEN - 8200, 0);
    add_part(ret, 0, 2049);
    add_part(ret, 8200 + 6000, 2000);
    for (size_t i = 0; i < ret->count; i++)
        for (size_t k = 10; k < 2000; k += 500)
            ((uint8_t *)ret->images[i].iov_base)[2 * k] ^= 5;
    struct parted twin = twin_of(ret);
    return coder_encode(&twin.coder, raw, SOME_LEN, 2 * SOME_LEN);
}

Test(twin, some_has_all_that_there_is)
{
    _cleanup_parts_ struct parts parts = {.count = 0};
    _cleanup_exact_ struct exact stored = some(&parts);
    const uint8_t *p = stored.bytes + 4;
    cr_assert_geq(get_le32(p + 8), 4, "exceptions");
    cr_assert_geq(get_le32(p + 12 + 8), 4, "exceptions");
    cr_assert_lt(get_le32(p + 24), 2 * 2049, "lower halves as fx");
    p += 24 + 4 + get_le32(p + 24) + 6 * (size_t)get_le32(p + 8);
    cr_assert_lt(get_le32(p), 8200 + 6000 - 4 * 2049, "a gap as fx");
    assert_i64(decode_with(&parts, &stored, SOME_LEN), 0);
}

Test(twin, truncated_and_longer)
{
    _cleanup_parts_ struct parts parts = {.count = 0};
    _cleanup_exact_ struct exact stored = some(&parts);
    struct parted twin = twin_of(&parts);
    coder_expect_whole(&twin.coder, &stored, SOME_LEN);
    _cleanup_exact_ struct exact longer = exact_new(stored.len + 1);
    memcpy(longer.bytes, stored.bytes, stored.len);
    longer.bytes[stored.len] = 0;
    assert_i64(decode_with(&parts, &longer, SOME_LEN), -EBADMSG);
    for (size_t len = 0; len < 2 * SOME_LEN; len += len < SOME_LEN - 50 ? 499 : 1)
        if (len != SOME_LEN)
            assert_i64(decode_with(&parts, &stored, len), -EBADMSG, "%zu", len);
}

Test(twin, images_of_another_length_or_number)
{
    _cleanup_parts_ struct parts parts = {.count = 0};
    _cleanup_exact_ struct exact stored = some(&parts);
    for (size_t i = 0; i < 2; i++)
        for (size_t less = 1; less < 4; less++) {
            struct parts other = parts;
            other.images[i].iov_len -= less;
            assert_i64(decode_with(&other, &stored, SOME_LEN), -EBADMSG);
            other.images[i].iov_len += 2 * less;
            assert_i64(decode_with(&other, &stored, SOME_LEN), -EBADMSG);
        }
    struct iovec images[5] = {parts.images[0], parts.images[1], {raw, 0}, {raw, 0}, {raw, 0}};
    for (size_t count = 0; count <= ARRAY_LEN(images); count++) {
        struct parted twin = {{encode, decode}, NULL, images, count};
        assert_i64(coder_try(&twin.coder, stored.bytes, stored.len, SOME_LEN),
                   count == 2 ? 0 : -EBADMSG, "%zu", count);
    }
}

/* Sets 4 bytes of `some` and decodes. */
static int decode_changed(size_t at, uint32_t value)
{
    _cleanup_parts_ struct parts parts = {.count = 0};
    _cleanup_exact_ struct exact stored = some(&parts);
    put_le32(stored.bytes + at, value);
    return decode_with(&parts, &stored, SOME_LEN);
}

Test(twin, fields_that_cannot_be)
{
    assert_i64(decode_changed(0, 2), 0, "nothing was changed");
    static const uint32_t counts[] = {0, 1, 3, 5, 255, 0x102, 0x80000002, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(counts); i++)
        assert_i64(decode_changed(0, counts[i]), -EBADMSG, "%u parts", counts[i]);
    static const uint32_t places[] = {0, 8195, SOME_LEN - 7999, SOME_LEN, 0x80000000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        assert_i64(decode_changed(4 + 12, places[i]), -EBADMSG, "a part at %u", places[i]);
    static const uint32_t elements[] = {0, 1999, 2001, 0x3fffffff, 0x40000000 + 2000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(elements); i++)
        assert_i64(decode_changed(4 + 12 + 4, elements[i]), -EBADMSG, "%u elements", elements[i]);
    static const uint32_t exceptions[] = {0, 1, 2000, 2001, 0x40000000, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(exceptions); i++)
        assert_i64(decode_changed(4 + 12 + 8, exceptions[i]), -EBADMSG, "%u exceptions",
                   exceptions[i]);
    static const uint32_t stored[] = {0, 1, 2 * 2049, 2 * 2049 + 1, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(stored); i++)
        assert_i64(decode_changed(4 + 24, stored[i]), -EBADMSG, "%u stored", stored[i]);
}

/* The gap before the second part would be longer than memory, and its bytes say that they go on. */
Test(twin, parts_that_overlap)
{
    struct fx_guess guess;
    memset(raw, 0, sizeof raw);
    fx_look(raw, sizeof raw, &guess);
    _cleanup_exact_ struct exact bad = exact_new(sizeof raw);
    put_le32(bad.bytes, 2);
    put_le32(bad.bytes + 4, 0);
    put_le32(bad.bytes + 16, 8); /* where the second part begins: 8 bytes too early */
    for (size_t i = 0; i < 2; i++) {
        put_le32(bad.bytes + 8 + 12 * i, 4);
        put_le32(bad.bytes + 12 + 12 * i, 0);
    }
    put_le32(bad.bytes + 28, 8);
    uint8_t *gap = bad.bytes + 28 + 4 + 8;
    size_t len = fx_encode(&fx_scalar, &guess, raw, sizeof raw, gap + 4, sizeof raw - 100);
    cr_assert_gt(len, 0);
    put_le32(gap, (uint32_t)len);
    struct iovec images[2] = {{raw, 8}, {raw, 8}};
    struct parted twin = {{encode, decode}, NULL, images, 2};
    assert_i64(coder_try(&twin.coder, bad.bytes, (size_t)(gap + 4 + len - bad.bytes), 24 + 8),
               -EBADMSG);
}

/* Exceptions that do not ascend, or are behind the part. */
Test(twin, exceptions_that_cannot_be)
{
    put_le32(raw, 0x3f818000);
    put_le32(raw + 4, 0x3f818000);
    _cleanup_parts_ struct parts parts = one_part(8, 0);
    struct parted twin = twin_of(&parts);
    _cleanup_exact_ struct exact stored = coder_encode(&twin.coder, raw, 8, 100);
    uint8_t *first = stored.bytes + 4 + 12 + 4 + 4, *second = first + 6;
    assert_i64(decode_with(&parts, &stored, 8), 0);
    static const uint32_t of_second[] = {0, 2, UINT32_MAX};
    for (size_t i = 0; i < ARRAY_LEN(of_second); i++) {
        put_le32(second, of_second[i]);
        assert_i64(decode_with(&parts, &stored, 8), -EBADMSG, "%u", of_second[i]);
    }
    put_le32(second, 1);
    put_le32(first, 1);
    assert_i64(decode_with(&parts, &stored, 8), -EBADMSG);
    put_le32(first, 0);
    put_le32(stored.bytes + 16, 5);
    assert_i64(decode_with(&parts, &stored, 8), -EBADMSG, "more stored than there is");
}

Test(twin, flipped_bits_reach_nothing_outside, .timeout = 300)
{
    struct seeded s = {8};
    _cleanup_parts_ struct parts parts = {.count = 0};
    _cleanup_exact_ struct exact stored = some(&parts);
    for (unsigned round = 0; round < 6000; round++) {
        _cleanup_exact_ struct exact bad = coder_flip(&s, &stored, round, 100);
        (void)decode_with(&parts, &bad, SOME_LEN);
    }
}

static void expect_golden(const char *name, const struct parts *parts, size_t raw_len)
{
    struct parted twin = twin_of(parts);
    _cleanup_exact_ struct exact stored = coder_encode(&twin.coder, raw, raw_len, 2 * raw_len);
    coder_expect_golden(&twin.coder, name, &stored, raw, raw_len);
}

Test(twin, golden)
{
    struct seeded s = {9};
    numbers_fill(NUMBERS_F32, &s, raw, 5003, 1);
    put_le32(raw + 3 + 400, 0x3f818000);
    _cleanup_parts_ struct parts whole = one_part(5003, 3), four = {.count = 0};
    expect_golden("twin_whole", &whole, 5003);
    numbers_fill(NUMBERS_NANS, &s, raw, 400, 0);
    numbers_fill(NUMBERS_F32, &s, raw + 400, 8200, 0);
    for (size_t i = 0; i < CHUNK_REFS_MAX; i++)
        add_part(&four, 300 + i * 601, 150);
    expect_golden("twin_four", &four, 8600);
    widen_bf16(&s, 16000);
    _cleanup_parts_ struct parts widened = one_part(16000, 0);
    expect_golden("twin_widened", &widened, 16000);
}
