// SPDX-License-Identifier: Apache-2.0
/* The entropies of a sample, taken modulo 1, 2, 4 and 8 bytes, show how wide the elements are and
 * where they begin: the exponents of floats have few values, and lie in the highest byte of each
 * float. Integers only (16 bits of fraction), so every machine computes the same result. */
#include <pthread.h>

#include "codec/fx_plan.h"
#include "codec/log2.h"
#include "format/le.h"

#define BLOCKS 64u
#define BLOCK_LEN 64u
#define SAMPLE_LEN (BLOCKS * BLOCK_LEN)
#define ONE 65536u
#define BYTE (8u * ONE)
#define HUNDREDTHS(n) ((n)*ONE / 100u)
#define CODED_BELOW HUNDREDTHS(760) /* a plane with less entropy is worth a code */
#define INVERSE_LN2 94548u          /* 1 / ln 2 */

static uint32_t n_log2[SAMPLE_LEN + 1]; /* n times its logarithm; 0 for 0 */

static void fill_table(void)
{
    for (uint32_t n = 1; n <= SAMPLE_LEN; n++)
        n_log2[n] = n * log2_of(n);
}

_Static_assert(SAMPLE_LEN * 12ull * ONE <= UINT32_MAX && SAMPLE_LEN <= 1u << 12, "they fit");

struct histogram {
    uint32_t counts[256];
};

/* Returns bits a byte, plus the amount that a small sample is expected to miss (Miller, Madow). */
static uint32_t entropy_of(const struct histogram *h, uint32_t n)
{
    uint64_t sum = 0;
    uint32_t distinct = 0;
    for (unsigned v = 0; v < 256; v++) {
        sum += n_log2[h->counts[v]];
        distinct += h->counts[v] > 0;
    }
    uint64_t bits = log2_of(n) - sum / n + (uint64_t)(distinct - 1) * INVERSE_LN2 / (2 * n);
    return (uint32_t)min_u64(bits, BYTE);
}

/* Returns where block i of the sample lies: spread evenly, but irregularly, so that the sample is
 * not in step with any pattern. */
static size_t block_at(size_t i, size_t raw_len)
{
    size_t step = align_down(raw_len / BLOCKS, BLOCK_LEN);
    return i * step + i * 2654435761u % (step / BLOCK_LEN) * BLOCK_LEN;
}

/* Copies the sample, so that its cache lines are loaded in parallel. */
static void take_sample(struct rope *src, uint8_t *ret)
{
    for (size_t i = 0; i < BLOCKS; i++, ret += BLOCK_LEN) {
        const uint8_t *p = rope_bytes(src, block_at(i, src->end), BLOCK_LEN, ret);
        if (p != ret)
            memcpy(ret, p, BLOCK_LEN);
    }
}

/* `len` is a multiple of 8. */
static void count_residues(const uint8_t *sample, size_t len, struct histogram h[8])
{
    for (size_t k = 0; k < len; k += 8)
        for (size_t r = 0; r < 8; r++)
            h[r].counts[sample[k + r]]++;
}

/* Halves the number of residues. */
static void fold_residues(const struct histogram *h, unsigned width, struct histogram *ret)
{
    for (unsigned r = 0; r < width; r++)
        for (unsigned v = 0; v < 256; v++)
            ret[r].counts[v] = h[r].counts[v] + h[r + width].counts[v];
}

/* Returns the mean entropy over the residues, and the residue with the least entropy. */
static uint32_t mean_entropy(const struct histogram *h, unsigned width, uint32_t n,
                             unsigned *ret_lowest)
{
    uint32_t sum = 0, least = UINT32_MAX;
    for (unsigned r = 0; r < width; r++) {
        uint32_t one = entropy_of(&h[r], n);
        sum += one;
        if (one < least) {
            least = one;
            *ret_lowest = r;
        }
    }
    return sum / width;
}

static inline __attribute__((always_inline)) size_t rotate_block(const uint8_t *block, size_t len,
                                                                 const unsigned width, uint8_t *ret)
{
    size_t done = 0;
    for (; done + width <= len; done += width) {
        if (width == 8)
            put_le64(ret + done, get_le64(block + done) << 1 | get_le64(block + done) >> 63);
        else if (width == 4)
            put_le32(ret + done, get_le32(block + done) << 1 | get_le32(block + done) >> 31);
        else
            put_le16(ret + done,
                     (uint16_t)(get_le16(block + done) << 1 | get_le16(block + done) >> 15));
    }
    return done;
}

/* Stores the elements of the sample that lie wholly in one block, rotated. Returns their bytes, a
 * multiple of 64, as the number of blocks is. */
static size_t rotate_sample(const uint8_t *sample, const struct fx_guess *guess, uint8_t *ret)
{
    size_t done = 0, len = BLOCK_LEN - guess->phase;
    for (const uint8_t *block = sample; block < sample + SAMPLE_LEN; block += BLOCK_LEN) {
        const uint8_t *first = block + guess->phase;
        done += guess->width == 8   ? rotate_block(first, len, 8, ret + done)
                : guess->width == 4 ? rotate_block(first, len, 4, ret + done)
                                    : rotate_block(first, len, 2, ret + done);
    }
    return done;
}

/* Returns the bits of an element, with 16 bits of fraction. Entropy finds cheaply which planes are
 * noise; the cost of the other planes is that of the code itself. */
static uint32_t planes_cost(const struct histogram *const *planes, unsigned width, uint32_t n,
                            uint8_t *ret_coded)
{
    uint32_t sum = 0;
    *ret_coded = 0;
    for (unsigned p = 0; p < width; p++) {
        struct lx_code code = {.levels = 0};
        uint64_t bits =
            entropy_of(planes[p], n) < CODED_BELOW ? lx_code_make(planes[p]->counts, n, &code) : 0;
        sum += code.levels ? (uint32_t)(bits * ONE / n) : BYTE;
        *ret_coded |= (uint8_t)((code.levels > 0) << p);
    }
    return sum;
}

struct counts {
    struct histogram of_8[8], of_4[4], of_2[2], of_1[1]; /* by residue */
};

static void count_by_residue(const uint8_t *sample, size_t len, struct counts *c)
{
    count_residues(sample, len, c->of_8);
    fold_residues(c->of_8, 4, c->of_4);
    fold_residues(c->of_4, 2, c->of_2);
    fold_residues(c->of_2, 1, c->of_1);
}

static const struct histogram *histogram_of_width(const struct counts *c, unsigned width)
{
    return width == 8 ? c->of_8 : width == 4 ? c->of_4 : width == 2 ? c->of_2 : c->of_1;
}

static void find_width(const struct counts *c, struct fx_guess *ret)
{
    /* By how much more bytes must differ between residues than within all, since wider elements
     * have smaller samples. */
    static const uint32_t margin[9] = {
        [2] = HUNDREDTHS(15), [4] = HUNDREDTHS(12), [8] = HUNDREDTHS(25)};
    uint32_t best = UINT32_MAX;
    for (unsigned width = 1; width <= 8; width *= 2) {
        unsigned lowest = 0;
        uint32_t mean =
            mean_entropy(histogram_of_width(c, width), width, SAMPLE_LEN / width, &lowest);
        if (width > 1 && mean + margin[width] >= best)
            continue;
        best = mean;
        ret->width = (uint8_t)width;
        ret->phase = (uint8_t)((lowest + 1) % width);
    }
}

static uint32_t cost_as_it_is(const struct counts *c, struct fx_guess *guess)
{
    const struct histogram *planes[8], *residues = histogram_of_width(c, guess->width);
    for (unsigned p = 0; p < guess->width; p++)
        planes[p] = &residues[(guess->phase + p) % guess->width];
    return planes_cost(planes, guess->width, SAMPLE_LEN / guess->width, &guess->coded[0]);
}

static uint32_t cost_rotated(const uint8_t *sample, struct fx_guess *guess)
{
    uint8_t rotated[SAMPLE_LEN];
    struct counts c = {.of_8 = {{{0}}}};
    const struct histogram *planes[8], *residues = histogram_of_width(&c, guess->width);
    size_t len = rotate_sample(sample, guess, rotated);
    count_by_residue(rotated, len, &c);
    for (unsigned p = 0; p < guess->width; p++)
        planes[p] = &residues[p];
    return planes_cost(planes, guess->width, (uint32_t)(len / guess->width), &guess->coded[1]);
}

void fx_look_rope(struct rope *src, struct fx_guess *ret)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct counts c = {.of_8 = {{{0}}}};
    uint8_t sample[SAMPLE_LEN];
    (void)pthread_once(&once, fill_table);
    check(src->start == 0 && src->end >= FX_RAW_MIN);
    *ret = (struct fx_guess){.width = 1};
    take_sample(src, sample);
    count_by_residue(sample, SAMPLE_LEN, &c);
    find_width(&c, ret);
    uint32_t cost = cost_as_it_is(&c, ret);
    if (ret->width > 1)
        cost = (uint32_t)min_u64(cost, cost_rotated(sample, ret));
    ret->permille = (uint32_t)((uint64_t)cost * 1000 / (BYTE * ret->width));
}

void fx_look(const void *src, size_t raw_len, struct fx_guess *ret)
{
    struct iovec iov = {(void *)(uintptr_t)src, raw_len};
    struct rope rope;
    rope_init(&rope, &iov, 1, 0);
    fx_look_rope(&rope, ret);
}
