// SPDX-License-Identifier: Apache-2.0
#include "steps.h"

/* An element that is a little more or less as a number. */
static void nudge(struct seeded *s, uint8_t *p, unsigned width)
{
    uint64_t x = 0, by = seeded_u64(s);
    by >>= 64 - 8 * width + width + seeded_below(s, 7 * width);
    memcpy(&x, p, width);
    x = seeded_below(s, 2) ? x + by : x - by;
    memcpy(p, &x, width);
}

/* A change of one, as most are where hardly anything changes. */
static void tick(struct seeded *s, uint8_t *p, unsigned width)
{
    uint64_t x = 0;
    memcpy(&x, p, width);
    x += seeded_below(s, 2) ? 1 : UINT64_MAX;
    memcpy(p, &x, width);
}

void step_take(enum step step, struct seeded *s, uint8_t *raw, size_t len,
               const struct fx_guess *guess)
{
    unsigned width = guess->width;
    size_t count = (len - guess->phase) / width;
    uint8_t *elements = raw + guess->phase;
    if (step == STEP_ONE)
        tick(s, elements + seeded_below(s, count) * width, width);
    for (size_t i = 0; step == STEP_FEW && i < count; i++)
        if (seeded_below(s, 50) == 0)
            tick(s, elements + i * width, width);
    for (size_t i = 0; step == STEP_SMALL && i < count; i++)
        nudge(s, elements + i * width, width);
    if (step == STEP_PATCH)
        seeded_fill(s, raw + len / 3, len / 5);
    if (step == STEP_NOISE)
        numbers_fill((enum numbers)seeded_below(s, NUMBERS_KINDS), s, raw, len, 0);
}
