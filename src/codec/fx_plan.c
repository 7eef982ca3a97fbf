// SPDX-License-Identifier: Apache-2.0
#include "codec/fx_plan.h"

#define SAMPLE_GROUPS 32u /* of each plane, to make its code from */
#define SAMPLE_LEN (SAMPLE_GROUPS * FX_GROUP)

size_t fx_code_ranks(const struct fx_code *code)
{
    size_t ranks = 0;
    for (unsigned i = 0; i < code->levels; i++)
        ranks += (1u << code->bits[i]) - 1;
    return ranks;
}

bool fx_code_complete(struct fx_code *code, const uint8_t *first, size_t count)
{
    bool used[256] = {false};
    for (size_t i = 0; i < count; i++) {
        if (used[first[i]])
            return false;
        used[first[i]] = true;
        code->symbols[i] = first[i];
    }
    for (unsigned value = 0; value < 256; value++)
        if (!used[value])
            code->symbols[count++] = (uint8_t)value;
    return true;
}

/* The values that occur, by how often, then by value. */
struct ranking {
    uint8_t values[256];
    unsigned distinct;
};

static void rank_values(const uint16_t counts[256], struct ranking *ret)
{
    ret->distinct = 0;
    for (unsigned value = 0; value < 256; value++) {
        if (counts[value] == 0)
            continue;
        unsigned at = ret->distinct++;
        for (; at > 0 && counts[ret->values[at - 1]] < counts[value]; at--)
            ret->values[at] = ret->values[at - 1];
        ret->values[at] = (uint8_t)value;
    }
}

/* Least bits of all values from a rank on with some levels left, and the bits of the first of
 * these; 0: none. */
struct choice {
    uint32_t cost;
    uint8_t bits;
};

/* `behind`: how many values have a rank or one behind it. */
static void choose_level(const uint32_t *behind, unsigned distinct, uint32_t each_level,
                         const struct choice *next, struct choice *ret)
{
    for (unsigned s = 0; s < distinct; s++) {
        ret[s] = (struct choice){8 * behind[s], 0};
        for (uint8_t bits = 1; bits <= FX_BITS_MAX; bits++) {
            unsigned rest = s + (1u << bits) - 1;
            uint32_t cost = bits * behind[s] + (rest < distinct ? next[rest].cost : 0) + each_level;
            if (cost < ret[s].cost)
                ret[s] = (struct choice){cost, bits};
        }
    }
}

uint64_t fx_code_make(const uint16_t counts[256], size_t len, struct fx_code *ret)
{
    struct ranking ranking;
    struct choice choices[FX_LEVELS_MAX + 1][256];
    uint32_t behind[256], sum = 0;
    rank_values(counts, &ranking);
    for (unsigned s = ranking.distinct; s-- > 0;) {
        sum += counts[ranking.values[s]];
        behind[s] = sum;
        choices[0][s] = (struct choice){8 * sum, 0};
    }
    for (unsigned l = 1; l <= FX_LEVELS_MAX; l++)
        choose_level(behind, ranking.distinct, (uint32_t)(len / 512 + 1), choices[l - 1],
                     choices[l]);
    ret->levels = 0;
    size_t ranks = 0;
    for (unsigned l = FX_LEVELS_MAX; l > 0 && ranks < ranking.distinct && choices[l][ranks].bits;
         l--) {
        ret->bits[ret->levels++] = choices[l][ranks].bits;
        ranks += (1u << choices[l][ranks].bits) - 1;
    }
    /* Levels may cover more than occurs. Behind them the values ascend: so the reader
     * knows them. */
    check(fx_code_complete(ret, ranking.values, ranking.distinct));
    if (ranks < ranking.distinct)
        check(fx_code_complete(ret, ranking.values, ranks));
    return choices[FX_LEVELS_MAX][0].cost;
}

static void count(const uint8_t *bytes, size_t len, uint16_t ret[256])
{
    memset(ret, 0, 256 * sizeof *ret);
    for (size_t i = 0; i < len; i++)
        ret[bytes[i]]++;
}

/* Decides how plane p is written, of which `sample` has `len` bytes; these are changed. Returns the
 * bits that they take. */
static uint64_t plan_plane(const struct fx_kernels *kernels, unsigned p, uint8_t *sample,
                           size_t len, struct fx_plan *plan)
{
    uint8_t means[SAMPLE_GROUPS];
    uint16_t counts[256];
    struct fx_code levelled;
    count(sample, len, counts);
    uint64_t cost = fx_code_make(counts, len, &plan->codes[p]);
    kernels->level(sample, len, means);
    count(sample, len, counts);
    uint64_t levelled_cost = fx_code_make(counts, len, &levelled) + 8 * (len / FX_GROUP);
    if (levelled.levels > 0 && levelled_cost + len / 20 < cost) {
        plan->codes[p] = levelled;
        plan->levelled |= (uint8_t)(1u << p);
        cost = levelled_cost;
    }
    if (plan->codes[p].levels == 0)
        plan->coded &= (uint8_t) ~(1u << p);
    return plan->codes[p].levels ? cost : 8 * len;
}

/* `plan` says which elements, how they are turned and which planes may be coded. Returns the bits
 * that the sample takes. */
static uint64_t plan_all(const struct fx_kernels *kernels, const uint8_t *src, size_t raw_len,
                         uint8_t *scratch, struct fx_plan *plan)
{
    const uint8_t *elements = src + plan->phase;
    size_t groups = fx_elements(plan, raw_len) / FX_GROUP,
           taken = (size_t)min_u64(groups, SAMPLE_GROUPS), step = groups / taken;
    for (size_t i = 0; i < taken; i++) {
        size_t at = i * step + i * 2654435761u % step; /* not in step with rows */
        uint8_t *planes[8];
        for (unsigned p = 0; p < plan->width; p++)
            planes[p] = scratch + p * SAMPLE_LEN + i * FX_GROUP;
        kernels->split(elements + at * FX_GROUP * plan->width, FX_GROUP, plan->width, plan->rotated,
                       planes);
    }
    uint64_t cost = 0;
    for (unsigned p = 0; p < plan->width; p++)
        cost += plan->coded & 1u << p
                    ? plan_plane(kernels, p, scratch + p * SAMPLE_LEN, taken * FX_GROUP, plan)
                    : 8 * taken * FX_GROUP;
    return cost;
}

void fx_plan_make(const struct fx_kernels *kernels, const struct fx_guess *guess, const void *src,
                  size_t raw_len, uint8_t *scratch, struct fx_plan *ret)
{
    uint64_t best = UINT64_MAX;
    ret->coded = 0;
    for (unsigned rotated = 0; rotated < 2; rotated++) {
        struct fx_plan plan;
        plan.width = guess->width;
        plan.phase = guess->phase;
        plan.rotated = rotated;
        plan.coded = guess->coded[rotated];
        plan.levelled = 0;
        uint64_t cost = plan.coded ? plan_all(kernels, src, raw_len, scratch, &plan) : UINT64_MAX;
        if (cost < best && plan.coded) {
            best = cost;
            *ret = plan;
        }
    }
    for (unsigned p = 0; ret->coded && p < ret->width; p++)
        for (unsigned rank = 0; (ret->coded & 1u << p) && rank < 256; rank++)
            ret->codes[p].ranks[ret->codes[p].symbols[rank]] = (uint8_t)rank;
}
