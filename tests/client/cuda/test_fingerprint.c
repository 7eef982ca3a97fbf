// SPDX-License-Identifier: Apache-2.0
/* Fingerprints of the host: against a second implementation, and what they must tell apart. Those
 * of the kernel: test_device. */

#include "../../unit/expect.h"
#include "base/base.h"
#include "client/fingerprint.h"

static struct fingerprint_key *key;
static uint8_t *data;
#define DATA_SIZE (3 * 2048 * 65536ull / 1024) /* 384 KiB */

static uint64_t next_random(uint64_t *rng)
{
    *rng = *rng * 6364136223846793005ull + 1442695040888963407ull;
    return *rng ^ *rng >> 29;
}

static void setup(void)
{
    uint64_t rng = 7;
    key = malloc(sizeof *key);
    data = malloc(DATA_SIZE);
    for (unsigned level = 0; level < FINGERPRINT_LEVELS; level++)
        for (size_t i = 0; i < FINGERPRINT_KEY_WORDS; i++)
            key->words[level][i] = next_random(&rng);
    for (size_t i = 0; i < DATA_SIZE; i++)
        data[i] = (uint8_t)(next_random(&rng) >> 40);
}

static void done(void)
{
    free(key);
    free(data);
}

TestSuite(fingerprint, .init = setup, .fini = done);

/* NH as its definition says, in numbers of 32 bits and school multiplication. */
static void add_at(uint32_t sum[4], unsigned place, uint64_t what)
{
    for (uint64_t carry = what; place < 4 && carry; place++) {
        carry += sum[place];
        sum[place] = (uint32_t)carry;
        carry >>= 32;
    }
}

static void add_product(uint32_t sum[4], uint64_t a, uint64_t b)
{
    for (unsigned i = 0; i < 2; i++)
        for (unsigned j = 0; j < 2; j++)
            add_at(sum, i + j, (uint64_t)(uint32_t)(a >> 32 * i) * (uint32_t)(b >> 32 * j));
}

static uint64_t word_at(const uint8_t *bytes, size_t length, size_t at)
{
    uint64_t word = 0;
    for (size_t i = 8; i-- > 0;)
        word = word << 8 | (at + i < length ? bytes[at + i] : 0);
    return word;
}

static size_t reference_level(const uint64_t *k, const uint8_t *bytes, size_t length, uint8_t *out)
{
    size_t count = 0;
    for (size_t block = 0; block < length; block += 65536, count++) {
        uint32_t sums[2][4] = {{0}};
        size_t here = length - block < 65536 ? length - block : 65536;
        for (size_t at = 0; at < here; at += 16)
            for (unsigned i = 0; i < 2; i++)
                add_product(sums[i], word_at(bytes + block, here, at) + k[at / 8 + 2 * i],
                            word_at(bytes + block, here, at + 8) + k[at / 8 + 2 * i + 1]);
        for (unsigned i = 0; i < 32; i++)
            out[count * 32 + i] = (uint8_t)(sums[i / 16][i % 16 / 4] >> i % 4 * 8);
    }
    return count;
}

static void check_reference(const uint8_t *bytes, size_t length)
{
    uint8_t *sums = calloc(length / 65536 + 1, 32);
    size_t count = reference_level(key->words[0], bytes, length, sums);
    for (unsigned level = 1; count > 1; level++)
        count = reference_level(key->words[level], sums, count * 32, sums);
    struct fingerprint ours;
    assert_i64(fingerprint_of(key, bytes, length, &ours), 0);
    assert_u64(ours.length, length);
    assert_i64(memcmp(ours.sum.word, sums, 32), 0, "%zu bytes", length);
    free(sums);
}

Test(fingerprint, is_what_its_definition_says)
{
    static const size_t lengths[] = {0,    1,     7,     8,     15,     16,     17,           100,
                                     4096, 65535, 65536, 65537, 131072, 200001, DATA_SIZE - 3};
    for (size_t i = 0; i < ARRAY_LEN(lengths); i++)
        for (size_t shift = 0; shift < 3; shift++)
            check_reference(data + shift, lengths[i]);
}

/* More than 2048 blocks: two levels above the data. */
Test(fingerprint, has_three_levels_above_128_MiB)
{
    size_t length = 2049 * 65536ull + 5;
    uint8_t *zeros = calloc(1, length);
    struct fingerprint before, after;
    memcpy(zeros + length - 4, "tail", 4);
    check_reference(zeros, length);
    assert_i64(fingerprint_of(key, zeros, length, &before), 0);
    zeros[length - 1] ^= 1;
    assert_i64(fingerprint_of(key, zeros, length, &after), 0);
    cr_assert_neq(memcmp(&before, &after, sizeof before), 0);
    free(zeros);
}

Test(fingerprint, tells_every_bit)
{
    size_t length = 1000;
    struct fingerprint whole, other;
    assert_i64(fingerprint_of(key, data, length, &whole), 0);
    for (size_t bit = 0; bit < length * 8; bit++) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_i64(fingerprint_of(key, data, length, &other), 0);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        cr_assert(memcmp(whole.sum.word, other.sum.word, 16) != 0,
                  "the first half does not see bit %zu", bit);
        cr_assert(memcmp(whole.sum.word + 2, other.sum.word + 2, 16) != 0,
                  "the second half does not see bit %zu", bit);
    }
}

Test(fingerprint, tells_order_and_length)
{
    static uint8_t zeros[200000], swapped[131072];
    struct fingerprint a, b;
    assert_i64(fingerprint_of(key, zeros, 100000, &a), 0);
    assert_i64(fingerprint_of(key, zeros, 100001, &b), 0);
    cr_assert_neq(memcmp(&a, &b, sizeof a), 0);
    memcpy(swapped, data + 65536, 65536);
    memcpy(swapped + 65536, data, 65536);
    assert_i64(fingerprint_of(key, data, sizeof swapped, &a), 0);
    assert_i64(fingerprint_of(key, swapped, sizeof swapped, &b), 0);
    cr_assert_neq(memcmp(&a, &b, sizeof a), 0);
}

Test(fingerprint, parts_and_keys)
{
    size_t length = 5 * 65536 + 77;
    struct fingerprint whole, other;
    struct fingerprint_sum sums[6];
    assert_i64(fingerprint_of(key, data, length, &whole), 0);
    fingerprint_blocks(key, data + 131072, length - 131072, sums + 2); /* another thread, say */
    fingerprint_blocks(key, data, 131072, sums);
    other = fingerprint_combine(key, sums, length);
    assert_i64(memcmp(&whole, &other, sizeof whole), 0);
    assert_i64(fingerprint_key_make(key), 0);
    assert_i64(fingerprint_of(key, data, length, &other), 0);
    cr_assert_neq(memcmp(&whole, &other, sizeof whole), 0);
}
