// SPDX-License-Identifier: Apache-2.0
#include "codec/encode.h"

#include <stdio.h>
#include <sys/wait.h>

#include "../expect.h"
#include "base/cpu.h"
#include "base/crc.h"
#include "base/io.h"
#include "codec/dx.h"
#include "codec/fx.h"
#include "codec/twin.h"
#include "format/le.h"
#include "numbers.h"

static uint8_t raw[CHUNK_SIZE_MAX], stored[CHUNK_SIZE_MAX], scratch[CHUNK_SCRATCH_LEN],
    decoded[CHUNK_SIZE_MAX];

/* What the encoder would do with a bug, or a processor with a broken unit. */
static bool fx_is_broken;
static size_t broken_at; /* permille of what is stored */
size_t __real_fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                             struct rope *src, void *dst, size_t limit);
size_t __wrap_fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                             struct rope *src, void *dst, size_t limit);
size_t __wrap_fx_encode_rope(const struct fx_kernels *kernels, const struct fx_guess *guess,
                             struct rope *src, void *dst, size_t limit)
{
    size_t len = __real_fx_encode_rope(kernels, guess, src, dst, limit);
    if (fx_is_broken && len > 0)
        ((uint8_t *)dst)[broken_at * (len - 1) / 1000] ^= 1;
    return len;
}

static void fill_text(size_t len)
{
    for (size_t i = 0; i < len; i += 16) {
        char line[32];
        int n = snprintf(line, sizeof line, "line %10zu\n", i / 160);
        memcpy(raw + i, line, min_u64((uint64_t)n, len - i));
    }
}

#define GAP 4096u
#define PARTS_MAX 64u
static uint8_t apart[CHUNK_SIZE_MAX + PARTS_MAX * GAP];

/* Encodes the first `len` bytes of raw in `parts` buffers, between which lies something else;
 * decodes, compares. */
static uint8_t round_trip(size_t len, size_t parts, size_t *ret_stored)
{
    struct iovec iov[PARTS_MAX];
    size_t done = 0;
    for (size_t i = 0; i < parts; i++) {
        size_t n = i + 1 == parts ? len - done : len / parts;
        iov[i] = (struct iovec){memcpy(apart + done + i * GAP, raw + done, n), n};
        memset(apart + done + i * GAP + n, 0xee, GAP);
        done += n;
    }
    struct chunk_encoded encoded = chunk_encode(REDUCE_FAST, iov, parts, len, scratch, stored);
    cr_assert_leq(encoded.len, len);
    assert_u64(encoded.was_wrong, fx_is_broken);
    if (encoded.encoding == ENCODING_RAW)
        memcpy(stored, raw, len);
    memset(decoded, 0xee, len);
    assert_i64(chunk_decode(encoded.encoding, stored, encoded.len, decoded, len), 0);
    cr_assert_arr_eq(decoded, raw, len);
    *ret_stored = encoded.len;
    return encoded.encoding;
}

/* What chunk_encode() makes of chunks of all kinds, encodings and bytes in one sum, in a process in
 * which CAIRN_CPU says `level`. */
static uint32_t sum_at(const char *level)
{
    struct seeded s = {21};
    uint32_t sum = 0;
    cr_assert(setenv("CAIRN_CPU", level, 1) == 0);
    assert_str(cpu_level_name(cpu_level()), level);
    for (size_t i = 0; i < 4 * NUMBERS_KINDS; i++) {
        size_t n, len = FX_RAW_MIN + seeded_below(&s, sizeof raw / 4), shift = seeded_below(&s, 8);
        numbers_fill((enum numbers)(i % NUMBERS_KINDS), &s, raw, len, shift);
        uint8_t encoding = round_trip(len, 1, &n);
        sum = crc32_of(crc32_of(sum, &encoding, 1), stored, n);
    }
    return sum;
}

/* The level is chosen once in a process. */
static uint32_t sum_of_process(const char *level)
{
    uint32_t sum = 0;
    int ends[2], status = -1;
    cr_assert(pipe(ends) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        sum = sum_at(level);
        _exit(io_write_full(ends[1], &sum, sizeof sum) == 0 ? 0 : 1);
    }
    close(ends[1]);
    cr_assert(read(ends[0], &sum, sizeof sum) == sizeof sum, "%s", level);
    close(ends[0]);
    cr_assert(waitpid(pid, &status, 0) == pid && status == 0, "%s", level);
    return sum;
}

Test(encode, the_environment_chooses_the_processor_and_not_the_bytes)
{
    uint32_t wanted = sum_of_process("scalar");
    for (enum cpu_level level = CPU_SCALAR + 1; level <= cpu_level_of_machine(); level++)
        assert_u64(sum_of_process(cpu_level_name(level)), wanted, "%s", cpu_level_name(level));
}

Test(encode, text_is_compressed)
{
    size_t n;
    fill_text(sizeof raw);
    for (size_t parts = 1; parts <= 64; parts = parts * 3 + 1) {
        assert_u64(round_trip(sizeof raw, parts, &n), ENCODING_LZ4);
        cr_assert_lt(n, sizeof raw / 2);
    }
    assert_u64(round_trip(20000, 3, &n), ENCODING_LZ4);
    assert_u64(round_trip(1000, 1, &n), ENCODING_LZ4);
}

/* Words come again further apart than a sample is long. */
Test(encode, text_of_many_words_is_for_lz4)
{
    static char words[1200][8];
    struct seeded seeded = {1};
    size_t n, len = 0;
    for (size_t i = 0; i < ARRAY_LEN(words); i++)
        for (size_t k = 0; k < 7; k++)
            words[i][k] = (char)('a' + seeded_below(&seeded, 26));
    while (len + 8 <= sizeof raw) {
        memcpy(raw + len, words[seeded_below(&seeded, ARRAY_LEN(words))], 7);
        raw[len + 7] = ' ';
        len += 8;
    }
    struct fx_guess fx;
    fx_look(raw, len, &fx);
    assert_u64(round_trip(len, 1, &n), ENCODING_LZ4);
    cr_assert_lt(n * 1000, len * fx.permille);
}

Test(encode, noise_is_stored_raw)
{
    struct seeded seeded = {1};
    seeded_fill(&seeded, raw, sizeof raw);
    size_t n;
    for (size_t len = 1; len <= sizeof raw; len = len * 3 + 1)
        for (size_t parts = 1; parts <= 3; parts++) {
            assert_u64(round_trip(len, parts, &n), ENCODING_RAW);
            assert_u64(n, len);
        }
    assert_u64(round_trip(sizeof raw, 64, &n), ENCODING_RAW);
}

Test(encode, a_sample_that_misleads_costs_no_room)
{
    struct seeded seeded = {2};
    seeded_fill(&seeded, raw, sizeof raw);
    size_t step = (sizeof raw - 4096) / 3, n;
    for (size_t i = 0; i < 4; i++)
        memset(raw + i * step, 0, 4096);
    assert_u64(round_trip(sizeof raw, 1, &n), ENCODING_RAW);
    assert_u64(round_trip(sizeof raw, 5, &n), ENCODING_RAW);
}

Test(encode, tensors_are_coded_by_planes)
{
    struct seeded seeded = {4};
    size_t n;
    for (size_t parts = 1; parts <= 64; parts = parts * 3 + 1) {
        numbers_fill(NUMBERS_F32, &seeded, raw, sizeof raw, parts);
        assert_u64(round_trip(sizeof raw, parts, &n), ENCODING_FX);
        cr_assert_lt(n, sizeof raw * 83 / 100);
        numbers_fill(NUMBERS_BF16, &seeded, raw, sizeof raw, parts);
        assert_u64(round_trip(70001, parts, &n), ENCODING_FX);
        cr_assert_lt(n, 70001 * 65 / 100);
    }
    numbers_fill(NUMBERS_F32, &seeded, raw, 4095, 0);
    assert_u64(round_trip(4095, 1, &n), ENCODING_RAW);
}

/* Rows that were never used are zeros in the moments: long repetitions are lz4's. */
Test(encode, zeros_are_for_lz4)
{
    size_t n;
    memset(raw, 0, sizeof raw);
    assert_u64(round_trip(sizeof raw, 2, &n), ENCODING_LZ4);
    cr_assert_lt(n, sizeof raw / 100);
}

Test(encode, what_does_not_decode_to_the_same_is_stored_raw)
{
    struct seeded seeded = {5};
    size_t n;
    numbers_fill(NUMBERS_BF16, &seeded, raw, sizeof raw, 0);
    fx_is_broken = true;
    for (broken_at = 0; broken_at <= 1000; broken_at += 50) {
        assert_u64(round_trip(sizeof raw, 1, &n), ENCODING_RAW);
        assert_u64(round_trip(sizeof raw - 1, 7, &n), ENCODING_RAW);
    }
    fx_is_broken = false;
    assert_u64(round_trip(sizeof raw, 7, &n), ENCODING_FX);
}

/* Where the buffers end lies within blocks, groups and elements. */
Test(encode, what_is_stored_does_not_depend_on_where_a_chunk_lies)
{
    static uint8_t whole[CHUNK_SIZE_MAX];
    struct seeded seeded = {9};
    for (unsigned kind = 0; kind < NUMBERS_KINDS; kind++) {
        size_t len = 300000 + seeded_below(&seeded, 500000), whole_len, n;
        numbers_fill((enum numbers)kind, &seeded, raw, len, kind);
        uint8_t encoding = round_trip(len, 1, &whole_len);
        memcpy(whole, stored, whole_len);
        for (size_t parts = 2; parts <= 64; parts = parts * 3 + 1) {
            assert_u64(round_trip(len, parts, &n), encoding);
            assert_u64(n, whole_len);
            cr_assert_arr_eq(stored, whole, n);
        }
    }
}

Test(encode, without_reduction_all_is_raw)
{
    fill_text(5000);
    struct iovec iov[2] = {{raw, 2000}, {raw + 2000, 3000}};
    struct chunk_encoded encoded = chunk_encode(REDUCE_OFF, iov, 2, 5000, scratch, stored);
    assert_u64(encoded.encoding, ENCODING_RAW);
    assert_u64(encoded.len, 5000);
}

Test(encode, wrong_lengths_and_encodings)
{
    fill_text(5000);
    size_t n;
    assert_u64(round_trip(5000, 1, &n), ENCODING_LZ4);
    assert_i64(chunk_decode(ENCODING_LZ4, stored, n, decoded, 5001), -EBADMSG);
    assert_i64(chunk_decode(ENCODING_LZ4, stored, n, decoded, 4999), -EBADMSG);
    assert_i64(chunk_decode(ENCODING_LZ4, stored, n - 1, decoded, 5000), -EBADMSG);
    assert_i64(chunk_decode(ENCODING_LZ4, stored, 0, decoded, 5000), -EBADMSG);
    assert_i64(chunk_decode(ENCODING_LZ4, stored, n, decoded, CHUNK_SIZE_MAX + 1), -EBADMSG);
    assert_i64(chunk_decode(ENCODING_RAW, stored, n, decoded, 5000), -EBADMSG);
    assert_i64(chunk_decode(ENCODING_RAW, stored, n, decoded, n), 0);
    assert_i64(chunk_decode(77, stored, n, decoded, 5000), -EPROTONOSUPPORT);
}

Test(encode, hostile_bytes_never_reach_outside)
{
    struct seeded seeded = {3};
    fill_text(5000);
    size_t n;
    assert_u64(round_trip(5000, 1, &n), ENCODING_LZ4);
    for (int round = 0; round < 30000; round++) {
        size_t cut = seeded_below(&seeded, 4) ? n : 1 + seeded_below(&seeded, n);
        _cleanup_free_ uint8_t *src = xmalloc(cut);
        _cleanup_free_ uint8_t *dst = xmalloc(5000);
        memcpy(src, stored, cut);
        for (uint64_t flips = seeded_below(&seeded, 6); flips > 0; flips--)
            src[seeded_below(&seeded, cut)] = (uint8_t)seeded_u64(&seeded);
        int r = chunk_decode(ENCODING_LZ4, src, cut, dst, 5000);
        cr_assert(r == 0 || r == -EBADMSG);
    }
}

/* --- chunks that refer to others -------------------------------------------------------------- */

static uint8_t base[CHUNK_SIZE_MAX];

static struct chunk_entry dx_entry(size_t len)
{
    struct seeded seeded = {6};
    struct fx_guess guess;
    numbers_fill(NUMBERS_BF16, &seeded, base, len, 0);
    for (size_t i = 0; i < len; i += 2)
        put_le16(raw + i, (uint16_t)(get_le16(base + i) ^ seeded_below(&seeded, 4)));
    fx_look(raw, len, &guess);
    const struct dx_pair pair = {raw, base, len};
    size_t n = dx_encode(dx_kernels_of(cpu_level()), &guess, &pair, stored, len);
    cr_assert(n > 0 && n < len / 2, "%zu", n);
    return (struct chunk_entry){.stored_len = (uint32_t)n,
                                .raw_len = (uint32_t)len,
                                .encoding = ENCODING_DX,
                                .depth = 1,
                                .ref_count = 1,
                                .refs = {{.length = (uint32_t)len}}};
}

Test(encode, dx_is_decoded_beside_its_base)
{
    struct chunk_entry entry = dx_entry(300000);
    struct iovec iov[2] = {{base, 300000}, {base, 300000}};
    assert_i64(chunk_decode_entry(&entry, stored, iov, decoded), 0);
    cr_assert_arr_eq(decoded, raw, 300000);
    assert_i64(chunk_decode_entry(&entry, stored, NULL, decoded), -EUCLEAN);
    assert_i64(chunk_decode(entry.encoding, stored, entry.stored_len, decoded, 300000),
               -EPROTONOSUPPORT);
    struct chunk_entry bad = entry;
    bad.refs[1].length = 300000;
    bad.ref_count = 2;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EUCLEAN);
    bad.ref_count = CHUNK_REFS_MAX + 1;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EUCLEAN);
    bad.ref_count = 0;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EUCLEAN);
    bad = entry;
    bad.depth = 0;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EUCLEAN);
    bad.depth = CHUNK_DEPTH_MAX;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), 0);
    bad.depth = CHUNK_DEPTH_MAX + 1;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EUCLEAN);
    bad = entry;
    bad.encoding = ENCODING_FX;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EUCLEAN);
    bad.encoding = 77;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EPROTONOSUPPORT);
    iov[0].iov_len--;
    assert_i64(chunk_decode_entry(&entry, stored, iov, decoded), -EUCLEAN);
    bad = entry;
    bad.refs[0].length--;
    assert_i64(chunk_decode_entry(&bad, stored, iov, decoded), -EBADMSG, "a shorter base");
}

Test(encode, twin_is_decoded_beside_its_images)
{
    struct seeded seeded = {7};
    static uint8_t work[TWIN_SCRATCH_LEN];
    numbers_fill(NUMBERS_F32, &seeded, raw, 400000, 0);
    for (size_t i = 0; i < 100000; i++)
        put_le16(base + 2 * i, (uint16_t)((get_le32(raw + 4 * i) + 0x8000) >> 16));
    struct twin_part parts[2] = {{base, 0, 40000}, {base + 80000, 160000, 60000}};
    const struct twin_chunk chunk = {parts, 2, raw, 400000};
    size_t n = twin_encode(cpu_level(), &chunk, work, stored, 400000);
    cr_assert(n > 0 && n < 250000, "%zu", n);
    struct chunk_entry entry = {.stored_len = (uint32_t)n,
                                .raw_len = 400000,
                                .encoding = ENCODING_TWIN,
                                .depth = 2,
                                .ref_count = 2,
                                .refs = {{.length = 80000}, {.length = 120000}}};
    struct iovec iov[2] = {{base, 80000}, {base + 80000, 120000}};
    assert_i64(chunk_decode_entry(&entry, stored, iov, decoded), 0);
    cr_assert_arr_eq(decoded, raw, 400000);
    entry.ref_count = 1;
    assert_i64(chunk_decode_entry(&entry, stored, iov, decoded), -EBADMSG);
    entry.ref_count = 2;
    entry.raw_len = CHUNK_SIZE_MAX + 1;
    assert_i64(chunk_decode_entry(&entry, stored, iov, decoded), -EBADMSG);
}

Test(encode, what_stands_by_itself_has_no_base)
{
    struct seeded seeded = {8};
    struct iovec iov = {base, 1000};
    size_t n;
    numbers_fill(NUMBERS_BF16, &seeded, raw, sizeof raw, 0);
    uint8_t encoding = round_trip(sizeof raw, 1, &n);
    struct chunk_entry entry = {
        .stored_len = (uint32_t)n, .raw_len = sizeof raw, .encoding = encoding};
    memset(decoded, 0, sizeof decoded);
    assert_i64(chunk_decode_entry(&entry, stored, NULL, decoded), 0);
    cr_assert_arr_eq(decoded, raw, sizeof raw);
    entry.depth = entry.ref_count = 1;
    entry.refs[0].length = 1000;
    assert_i64(chunk_decode_entry(&entry, stored, &iov, decoded), -EUCLEAN);
}
