// SPDX-License-Identifier: Apache-2.0
/* What no structure takes, whatever it holds. */
#include "../expect.h"
#include "../base/seeded.h"
#include "samples.h"

/* A copy of exactly its length, so that a read beyond it is seen. */
static int decode_exact(enum sample which, const uint8_t *buf, size_t len)
{
    _cleanup_free_ uint8_t *exact = xmalloc(len);
    memcpy(exact, buf, len);
    return sample_decode(which, exact, len);
}

static void expect_flips_found(enum sample which, uint32_t runs, size_t step)
{
    uint8_t buf[SAMPLE_LEN_MAX];
    size_t len = sample_encode(which, runs, buf);
    size_t magic_len = which == SAMPLE_TRAILER || which == SAMPLE_BATCH ? 4 : 8;
    for (size_t bit = 0; bit < 8 * len; bit += step) {
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_i64(sample_decode(which, buf, len), bit / 8 < magic_len ? -EUCLEAN : -EBADMSG,
                   "%s: bit %zu", sample_names[which], bit);
        buf[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
}

Test(damage, flipped_bits_are_found)
{
    for (enum sample which = 0; which < SAMPLES; which++)
        expect_flips_found(which, SAMPLE_RUNS, 1);
    for (uint32_t runs = 0; runs <= RUN_LIST_MAX; runs++)
        for (enum sample which = SAMPLE_HEAD; which < SAMPLES; which++)
            expect_flips_found(which, runs, 509);
}

/* A head's length says how many runs it has, so what is left of one may be as long as another. */
Test(damage, cut_anywhere)
{
    for (enum sample which = 0; which < SAMPLES; which++) {
        uint8_t buf[SAMPLE_LEN_MAX];
        size_t len = sample_encode(which, SAMPLE_RUNS, buf);
        for (size_t i = 0; i < len; i++) {
            int r = decode_exact(which, buf, i);
            if (which == SAMPLE_BATCH && i == 0)
                assert_i64(r, -ENODATA);
            else if (which < SAMPLE_HEAD || i < 8 || (which < SAMPLE_FEED && i % 8))
                assert_i64(r, -EUCLEAN, "%s cut to %zu", sample_names[which], i);
            else
                cr_assert(r == -EUCLEAN || r == -EBADMSG, "%s cut to %zu: %d", sample_names[which],
                          i, r);
        }
    }
}

Test(damage, hostile_bytes_never_reach_outside)
{
    struct seeded seeded = {22};
    for (int round = 0; round < 150000; round++) {
        uint8_t whole[SAMPLE_LEN_MAX];
        enum sample which = (enum sample)seeded_below(&seeded, SAMPLES);
        size_t len = sample_encode(which, (uint32_t)seeded_below(&seeded, RUN_LIST_MAX + 1), whole);
        for (uint64_t flips = 1 + seeded_below(&seeded, 3); flips > 0; flips--)
            whole[seeded_below(&seeded, seeded_below(&seeded, 2) ? min_u64(256, len) : len)] =
                (uint8_t)seeded_u64(&seeded);
        if (seeded_below(&seeded, 3) == 0)
            len = seeded_below(&seeded, SAMPLE_LEN_MAX + 1);
        if (len >= 4 && seeded_below(&seeded, 4))
            sample_change(whole, len, 0, whole[0], len > 4);
        int r = decode_exact(which, whole, len);
        cr_assert(r == 0 || r == -EUCLEAN || r == -EBADMSG || r == -EPROTONOSUPPORT ||
                      (which == SAMPLE_BATCH && r == -ENODATA),
                  "%s: %d", sample_names[which], r);
    }
}
