// SPDX-License-Identifier: Apache-2.0
#include "codec/twin_find.h"

#include "../expect.h"
#include "codec/twin.h"
#include "codec/twin_kernels.h"
#include "exact.h"
#include "numbers.h"
#include "rounded.h"

#define MODEL_LEN (8 * MIB) /* of fp32; half of it of bf16 */

static uint8_t master[MODEL_LEN], weights[MODEL_LEN / 2];

static void make_model(uint64_t seed)
{
    struct seeded s = {seed};
    numbers_fill(NUMBERS_F32, &s, master, sizeof master, 0);
    round_all(master, sizeof master / 4, weights);
}

/* Chunks that were added; the tag is which. Each call of get() hands out a copy of exactly its
 * length, and takes the last one back. */
static struct images {
    struct iovec of[1024];
    size_t count, gets;
    struct exact last;
} images;

static struct twin_index *twins; /* of them */

static const uint8_t *get_image(void *arg, uint64_t tag, size_t *ret_len)
{
    (void)arg;
    images.gets++;
    if (tag >= images.count)
        return NULL;
    exact_done(&images.last);
    images.last = exact_of(images.of[tag].iov_base, images.of[tag].iov_len);
    *ret_len = images.last.len;
    return images.last.bytes;
}

static const struct twin_images how = {get_image, NULL};

static void end_twins(void)
{
    exact_done(&images.last);
    images = (struct images){.count = 0};
    twin_index_free(twins);
    twins = NULL;
}

static void begin_twins(size_t bytes_max)
{
    end_twins();
    twins = twin_index_new(bytes_max);
}

static void begin_twins_of_mib(void)
{
    begin_twins(MIB);
}

TestSuite(twin_find, .init = begin_twins_of_mib, .fini = end_twins);

static void add(const uint8_t *bytes, size_t len)
{
    struct fx_guess guess = {0};
    _cleanup_exact_ struct exact copy = exact_of(bytes, len);
    fx_look(bytes, len, &guess);
    images.of[images.count] = (struct iovec){(uint8_t *)(uintptr_t)bytes, len};
    twin_index_add(twins, cpu_level(), &guess, copy.bytes, len, images.count++);
}

/* The weights, in chunks of 1 MiB. */
static void add_weights(void)
{
    for (size_t at = 0; at < sizeof weights; at += MIB)
        add(weights + at, MIB);
}

/* At all levels that the machine has; they must agree. */
static size_t find(const uint8_t *bytes, size_t len, struct twin_match ret[CHUNK_REFS_MAX])
{
    struct fx_guess guess;
    _cleanup_exact_ struct exact copy = exact_of(bytes, len);
    fx_look(bytes, len, &guess);
    size_t count = twin_find(twins, CPU_SCALAR, &guess, copy.bytes, len, &how, ret);
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++) {
        struct twin_match other[CHUNK_REFS_MAX];
        assert_u64(twin_find(twins, level, &guess, copy.bytes, len, &how, other), count, "%s",
                   cpu_level_name(level));
        for (size_t i = 0; i < count; i++)
            cr_assert(other[i].tag == ret[i].tag && other[i].offset == ret[i].offset &&
                          other[i].at == ret[i].at && other[i].count == ret[i].count,
                      "%s: match %zu", cpu_level_name(level), i);
    }
    return count;
}

/* They are in order, lie in both chunks, and the elements fit but for a few; returns how many bytes
 * of the probed chunk they cover. */
static size_t check_matches(const uint8_t *bytes, size_t len, const struct twin_match *matches,
                            size_t count)
{
    size_t covered = 0, end = 0;
    for (size_t i = 0; i < count; i++) {
        const struct twin_match *m = &matches[i];
        cr_assert_geq(m->at, end);
        cr_assert_geq(m->count, TWIN_STRETCH_MIN);
        end = m->at + 4 * (size_t)m->count;
        cr_assert_leq(end, len);
        cr_assert_lt(m->tag, images.count);
        cr_assert_leq(m->offset + 2 * (size_t)m->count, images.of[m->tag].iov_len);
        const uint8_t *image = (const uint8_t *)images.of[m->tag].iov_base + m->offset;
        size_t others = 0;
        for (size_t k = 0; k < m->count; k++)
            others += rounded(get_le32(bytes + m->at + 4 * k)) != get_le16(image + 2 * k);
        cr_assert_leq(others, m->count / 100, "%zu of %u", others, m->count);
        covered += 4 * (size_t)m->count;
    }
    return covered;
}

/* Bytes of the chunk that have a twin. */
static size_t covered(const uint8_t *bytes, size_t len)
{
    struct twin_match matches[CHUNK_REFS_MAX];
    size_t count = find(bytes, len, matches);
    return check_matches(bytes, len, matches, count);
}

Test(twin_find, chunks_that_are_one_image)
{
    make_model(1);
    add_weights();
    for (size_t at = 0; at < sizeof master; at += MIB) {
        struct twin_match matches[CHUNK_REFS_MAX];
        assert_u64(find(master + at, MIB, matches), 1);
        assert_u64(matches[0].tag, at / 2 / MIB);
        assert_u64(matches[0].offset, at / 2 % MIB);
        assert_u64(matches[0].at, 0);
        assert_u64(matches[0].count, MIB / 4);
    }
}

/* Slices of a flat master: chunks that begin anywhere, at any byte, and reach over borders of
 * images. A border's both sides have a landmark near it, but not always near enough. */
Test(twin_find, slices_that_begin_anywhere)
{
    struct seeded s = {2};
    make_model(2);
    add_weights();
    size_t of = 0, all = 0;
    for (unsigned round = 0; round < 64; round++) {
        size_t at = seeded_below(&s, sizeof master - MIB);
        all += MIB;
        of += covered(master + at, MIB);
    }
    cr_assert_gt(of, all * 99 / 100, "%zu of %zu", of, all);
}

/* Images whose elements begin at an odd byte. */
Test(twin_find, images_that_begin_anywhere)
{
    make_model(3);
    for (size_t at = 77777; at < sizeof weights; at += 777777)
        add(weights + at, min_u64(777777, sizeof weights - at));
    size_t of = 0;
    for (size_t at = MIB; at < sizeof master; at += MIB)
        of += covered(master + at, MIB);
    cr_assert_gt(of, (sizeof master - MIB) * 97 / 100, "%zu", of);
}

/* A tensor of `len` bytes of fp32 after the other, to the end; `lens` of them. */
static void add_tensors(const size_t *lens, size_t count)
{
    for (size_t i = 0, at = 0; i < count; at += lens[i++])
        add(weights + at / 2, lens[i] / 2);
}

static void expect_twins(const size_t *lens, size_t count)
{
    for (size_t i = 0, at = 0; i < count; at += lens[i++])
        expect_u64(covered(master + at, lens[i]), lens[i], "tensor %zu", i);
}

/* As adapters are: most have no landmark but for their first element. */
Test(twin_find, short_tensors)
{
    struct seeded s = {17};
    size_t lens[512], count = 0;
    make_model(17);
    for (size_t at = 0; at < sizeof master - 49152; at += lens[count++])
        lens[count] = 2 * FX_RAW_MIN + 4 * seeded_below(&s, 8192);
    add_tensors(lens, count);
    expect_twins(lens, count);
}

/* Checkpoint after checkpoint: what comes beside the images counts for what the index takes. */
Test(twin_find, short_tensors_again_and_again, .timeout = 120)
{
    size_t lens[sizeof master / 24576], passed = 0;
    size_t at_first = twin_index_bytes(twins);
    for (size_t i = 0; i < ARRAY_LEN(lens); i++)
        lens[i] = 24576;
    for (unsigned checkpoint = 0; checkpoint < 3; checkpoint++) {
        make_model(18 + checkpoint);
        add_tensors(lens, ARRAY_LEN(lens));
        twin_index_allow(twins, 3 * sizeof master);
        expect_twins(lens, ARRAY_LEN(lens));
        passed += sizeof weights + 3 * sizeof master;
    }
    cr_assert_leq(twin_index_bytes(twins) - at_first, passed / 1000 + 32768);
}

/* What lies between two runs, or is not rounded in the usual way, ends no match where it is short.
 */
Test(twin_find, elements_that_do_not_fit)
{
    struct seeded s = {4};
    make_model(4);
    add_weights();
    for (size_t i = 0; i < sizeof master / 4; i += 1 + seeded_below(&s, 1000))
        put_le32(master + 4 * i, (uint32_t)seeded_u64(&s));
    size_t of = covered(master, MIB);
    cr_assert_geq(of, MIB - 100, "1 of 500: %zu", of);
    make_model(4);
    seeded_fill(&s, master + 400000, 400);
    put_le32(master + 12, 5);
    struct twin_match matches[CHUNK_REFS_MAX];
    assert_u64(find(master, MIB, matches), 2, "100 together");
    assert_u64(matches[0].at, 16, "3 elements are not worth one that does not fit");
    assert_u64(matches[0].at + 4 * matches[0].count, 400000);
    assert_u64(matches[1].at, 400400);
    assert_u64(matches[1].at + 4 * matches[1].count, MIB);
}

/* A match does not reach back over the one before it. */
Test(twin_find, images_that_overlap)
{
    make_model(14);
    add(weights, 300000);
    add(weights + 200000, 324288);
    struct twin_match matches[CHUNK_REFS_MAX];
    assert_u64(find(master, MIB, matches), 2);
    assert_u64(check_matches(master, MIB, matches, 2), MIB);
}

/* Makes the four bf16 at `values` a landmark. */
static void force_landmark(uint8_t *values)
{
    static const uint32_t factors[4] = TWIN_FACTORS;
    uint16_t inverse = 1, rest = TWIN_ADDEND;
    for (unsigned i = 0; i < 16; i++)
        inverse = (uint16_t)(inverse * (2 - factors[3] * inverse));
    for (size_t k = 0; k < 3; k++)
        rest = (uint16_t)(rest + get_le16(values + 2 * k) * factors[k]);
    put_le16(values + 6, (uint16_t)(-(uint32_t)rest * inverse));
}

/* Those at `values` have no landmark. */
static bool is_unmarked(const uint8_t *values, size_t count)
{
    uint16_t marks[8192];
    check(count <= ARRAY_LEN(marks));
    return twin_scalar.landmarks(values, count - 3, marks) == 0;
}

/* A slice of a flat master has the end of a tensor, then short ones, whose images are in no chunk,
 * and the beginning of the next tensor. One of the two has landmarks, which the other lacks. */
static void expect_both_sides(size_t end, size_t begin)
{
    const size_t image_len = MIB / 2, between = 1500;
    static uint8_t slice[CHUNK_SIZE_MAX];
    struct seeded s = {end};
    uint64_t seed = 16;
    begin_twins(MIB);
    do
        make_model(seed++);
    while (!is_unmarked(end < begin ? weights + image_len - 2 * end : weights + image_len,
                        min_u64(end, begin)));
    add(weights, image_len);
    add(weights + image_len, image_len);
    memcpy(slice, master + MIB - 4 * end, 4 * end);
    numbers_fill(NUMBERS_F32, &s, slice + 4 * end, 4 * between, 0);
    memcpy(slice + 4 * (end + between), master + MIB, 4 * begin);
    size_t of = covered(slice, 4 * (end + between + begin));
    cr_assert_geq(of, 4 * (end + begin), "%zu, %zu: %zu", end, begin, of);
    cr_assert_leq(of, 4 * (end + begin) + 64, "%zu, %zu: %zu", end, begin, of);
}

Test(twin_find, the_end_of_a_tensor_and_the_beginning_of_the_next)
{
    expect_both_sides(8000, 150000);
    expect_both_sides(150000, 8000);
    expect_both_sides(2000, 150000);
}

/* Its key begins in one stretch of the search and ends in the next one. */
Test(twin_find, a_landmark_at_any_place)
{
    for (size_t at = 4000; at < 4200; at++) {
        static uint8_t chunk[4 * 5000], image[2 * 5000];
        uint16_t marks[5000];
        begin_twins(TWIN_INDEX_MIN);
        struct seeded s = {at};
        do {
            numbers_fill(NUMBERS_F32, &s, chunk, sizeof chunk, 0);
            round_all(chunk, 5000, image);
            force_landmark(image + 2 * at);
            put_le32(chunk + 4 * (at + 3), (uint32_t)get_le16(image + 2 * (at + 3)) << 16);
        } while (twin_scalar.landmarks(image, 4997, marks) != 1);
        add(image, sizeof image);
        assert_u64(covered(chunk, sizeof chunk), sizeof chunk, "%zu", at);
    }
}

/* Landmarks that are known, of images that are gone: they are not asked for without end. */
Test(twin_find, images_are_asked_for_a_few_times)
{
    struct twin_match matches[CHUNK_REFS_MAX];
    struct fx_guess guess;
    make_model(15);
    add_weights();
    images.count = 0;
    fx_look(master, MIB, &guess);
    assert_u64(twin_find(twins, cpu_level(), &guess, master, MIB, &how, matches), 0);
    assert_u64(images.gets, TWIN_GETS_MAX);
}

/* Of six tensors in a chunk, the four longest. */
Test(twin_find, the_longest_are_kept)
{
    static const size_t lens[6] = {150000, 250000, 120000, 200000, 100000, 180000};
    static uint8_t mixed[CHUNK_SIZE_MAX];
    make_model(5);
    size_t at = 0;
    for (size_t i = 0; i < 6; at += lens[i], i++) {
        memcpy(mixed + at, master + i * MIB, lens[i]);
        add(weights + i * MIB / 2, MIB / 2);
    }
    struct twin_match matches[CHUNK_REFS_MAX];
    assert_u64(find(mixed, at, matches), 4);
    (void)check_matches(mixed, at, matches, 4);
    static const uint64_t tags[] = {0, 1, 3, 5};
    for (size_t i = 0; i < 4; i++)
        expect_u64(matches[i].tag, tags[i]);
}

/* The master of what was loaded from bf16 has no lower halves, so the exponent's plane is not the
 * least of all. */
Test(twin_find, numbers_that_came_from_bf16)
{
    make_model(6);
    for (size_t i = 0; i < sizeof master / 4; i++)
        put_le32(master + 4 * i, (uint32_t)get_le16(weights + 2 * i) << 16);
    add_weights();
    for (size_t phase = 0; phase < 4; phase++)
        cr_assert_geq(covered(master + MIB + phase, MIB), MIB - 7);
}

Test(twin_find, the_newest_image_of_several)
{
    make_model(7);
    for (unsigned i = 0; i < 10; i++)
        add(weights, MIB);
    struct twin_match matches[CHUNK_REFS_MAX];
    assert_u64(find(master, MIB, matches), 1);
    assert_u64(matches[0].tag, 9);
}

/* An image that is gone, or is not what it was, costs the matches in it. */
Test(twin_find, images_that_changed)
{
    make_model(8);
    add_weights();
    images.of[0].iov_len = 300000;
    memset(weights + MIB, 7, MIB);
    images.count = 3;
    assert_u64(covered(master, MIB), 600000);
    assert_u64(covered(master + 2 * MIB, MIB), 0);
    assert_u64(covered(master + 4 * MIB, MIB), MIB);
    assert_u64(covered(master + 6 * MIB, MIB), 0);
}

/* Moments, and weights of another model: no image is asked for. */
Test(twin_find, nothing_is_found_where_nothing_is)
{
    struct seeded s = {9};
    static uint8_t other[CHUNK_SIZE_MAX];
    make_model(9);
    add_weights();
    for (enum numbers kind = 0; kind < NUMBERS_KINDS; kind++) {
        numbers_fill(kind, &s, other, sizeof other, 0);
        assert_u64(covered(other, sizeof other), 0);
    }
    assert_u64(images.gets, 0);
}

/* All of it is landmarks, or none; the same one again and again. It must not push out others, nor
 * cost more than its share. */
Test(twin_find, content_that_repeats, .timeout = 120)
{
    static uint8_t constant[CHUNK_SIZE_MAX];
    begin_twins(TWIN_INDEX_MIN);
    make_model(10);
    add(weights, MIB);
    struct fx_guess bf16 = {.width = 2}, fp32 = {.width = 4};
    for (uint32_t value = 0; value < 65536; value += 16) {
        for (size_t i = 0; i < 4096; i += 2)
            put_le16(constant + i, (uint16_t)(value + i / 2 % 16));
        twin_index_add(twins, cpu_level(), &bf16, constant, 4096, 1000 + value);
    }
    cr_assert_geq(covered(master, MIB), MIB - 8192);
    for (unsigned period = 1; period < 70; period++) {
        struct twin_match matches[CHUNK_REFS_MAX];
        struct seeded s = {period};
        for (size_t i = 0; i < sizeof constant; i += 4)
            put_le32(constant + i, i < 4 * period ? (uint32_t)seeded_u64(&s)
                                                  : get_le32(constant + i - 4 * period));
        images.gets = 0;
        assert_u64(twin_find(twins, cpu_level(), &fp32, constant, sizeof constant, &how, matches),
                   0);
        cr_assert_leq(images.gets, TWIN_GETS_MAX);
    }
}

/* 1 MB for each GB, and the least that it takes at all. */
Test(twin_find, memory_is_a_share_of_what_was_added, .timeout = 300)
{
    begin_twins(64 * MIB);
    struct fx_guess guess = {.width = 2};
    struct seeded s = {11};
    static uint64_t chunk[CHUNK_SIZE_MAX / 8];
    size_t at_first = twin_index_bytes(twins);
    for (size_t added = MIB; added <= 512 * MIB; added += MIB) {
        for (size_t i = 0; i < ARRAY_LEN(chunk); i++)
            chunk[i] = seeded_u64(&s);
        twin_index_add(twins, cpu_level(), &guess, chunk, sizeof chunk, added);
        if (added % (64 * MIB) == 0) {
            size_t bytes = twin_index_bytes(twins) - at_first;
            cr_assert_leq(bytes, added / 1000 + 32768, "%zu of %zu", bytes, added);
            cr_assert_geq(bytes, added / 2000, "%zu of %zu: few landmarks", bytes, added);
        }
    }
}

/* Content that is nothing but landmarks, all different, or always the same one. */
Test(twin_find, landmarks_have_a_share_of_memory)
{
    struct fx_guess guess = {.width = 2};
    struct seeded s = {16};
    size_t taken[2];
    for (unsigned same = 0; same < 2; same++) {
        begin_twins(MIB);
        static uint8_t chunk[CHUNK_SIZE_MAX];
        size_t at_first = twin_index_bytes(twins);
        for (size_t added = 0; added < 64 * MIB; added += MIB) {
            for (size_t i = 0; i < sizeof chunk; i += 64) {
                if (same && i > 0)
                    memcpy(chunk + i, chunk, 64);
                else
                    seeded_fill(&s, chunk + i, 64);
                force_landmark(chunk + i);
            }
            twin_index_add(twins, cpu_level(), &guess, chunk, sizeof chunk, added);
        }
        taken[same] = twin_index_bytes(twins) - at_first;
    }
    cr_assert_leq(taken[0], 64 * MIB / 1000 + 32768, "%zu", taken[0]);
    cr_assert_leq(taken[1], 16384, "%zu: one a chunk", taken[1]);
}

/* The oldest go: after twice what it holds the newest half is found, and it takes no more. */
Test(twin_find, memory_has_a_limit, .timeout = 300)
{
    begin_twins(TWIN_INDEX_MIN);
    struct fx_guess guess = {.width = 2};
    struct seeded s = {12};
    static uint64_t chunk[CHUNK_SIZE_MAX / 8];
    make_model(12);
    add_weights();
    for (size_t added = 0; added < 400 * MIB; added += MIB) {
        for (size_t i = 0; i < ARRAY_LEN(chunk); i++)
            chunk[i] = seeded_u64(&s);
        twin_index_add(twins, cpu_level(), &guess, chunk, sizeof chunk, 1000);
        cr_assert_leq(twin_index_bytes(twins), TWIN_INDEX_MIN);
        if (added == 64 * MIB)
            assert_u64(covered(master, MIB), MIB);
        if (added == 300 * MIB)
            add(weights, MIB);
    }
    assert_u64(covered(master, MIB), MIB, "added late");
    assert_u64(covered(master + 4 * MIB, MIB), 0, "too old");
}

/* Ties, and numbers that overflow: rare, so that a search hardly ever meets one in a landmark. */
Test(twin_find, rounding_is_the_same_at_all_levels)
{
    static const uint32_t some[] = {0x3f808000, 0x3f818000, 0x3f807fff, 0x3f818001, 0x7f7fffff,
                                    0x7f800000, 0xff7f8000, 0x00008000, 0x80018000, 0};
    uint8_t src[4 * 200], image[2 * 200], other[2 * 200];
    for (size_t i = 0; i < 200; i++)
        put_le32(src + 4 * i, some[i * i % ARRAY_LEN(some)] + (uint32_t)(i / 10 << 17));
    for (size_t count = 0; count <= 200; count++) {
        round_all(src, count, image);
        for (enum cpu_level level = CPU_SCALAR; level <= cpu_level_of_machine(); level++) {
            twin_kernels_of(level)->round(src, count, other);
            for (size_t i = 0; i < count; i++)
                if ((get_le32(src + 4 * i) & 0x7fffffff) <= 0x7f800000)
                    assert_u64(get_le16(other + 2 * i), get_le16(image + 2 * i), "%s: %#x",
                               cpu_level_name(level), get_le32(src + 4 * i));
        }
    }
}

/* What is found is what the codec takes. */
Test(twin_find, and_encoded)
{
    static uint8_t scratch[TWIN_SCRATCH_LEN], stored[CHUNK_SIZE_MAX];
    make_model(13);
    add_weights();
    const uint8_t *chunk = master + MIB + 1234567;
    struct twin_match matches[CHUNK_REFS_MAX];
    struct twin_part parts[CHUNK_REFS_MAX];
    size_t count = find(chunk, MIB, matches);
    for (size_t i = 0; i < count; i++)
        parts[i] = (struct twin_part){(const uint8_t *)images.of[matches[i].tag].iov_base +
                                          matches[i].offset,
                                      matches[i].at, matches[i].count};
    const struct twin_chunk twin = {parts, count, chunk, MIB};
    size_t len = twin_encode(cpu_level(), &twin, scratch, stored, sizeof stored);
    cr_assert_gt(len, 0);
    cr_assert_leq(len, MIB * 505 / 1000, "%zu", len);
}
