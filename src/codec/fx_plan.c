// SPDX-License-Identifier: Apache-2.0
#include "codec/fx_plan.h"

#define SAMPLE_GROUPS 32u /* of each plane, from which its code is made */
#define SAMPLE_LEN (SAMPLE_GROUPS * FX_GROUP)

/* Decides how plane p is written; `sample` holds `len` bytes of it, which are changed. Returns the
 * bits that they take. */
static uint64_t plan_plane(const struct fx_kernels *kernels, unsigned p, uint8_t *sample,
                           size_t len, struct fx_plan *plan)
{
    uint8_t means[SAMPLE_GROUPS];
    uint32_t counts[256];
    struct lx_code levelled;
    lx_count(sample, len, counts);
    uint64_t cost = lx_code_make(counts, len, &plan->codes[p]);
    kernels->level(sample, len, means);
    lx_count(sample, len, counts);
    uint64_t levelled_cost = lx_code_make(counts, len, &levelled) + 8 * (len / FX_GROUP);
    if (levelled.levels > 0 && levelled_cost + len / 20 < cost) {
        plan->codes[p] = levelled;
        plan->levelled |= (uint8_t)(1u << p);
        cost = levelled_cost;
    }
    if (plan->codes[p].levels == 0)
        plan->coded &= (uint8_t) ~(1u << p);
    return plan->codes[p].levels ? cost : 8 * len;
}

/* `plan` says which elements, whether they are rotated and which planes may be coded. Returns the
 * bits that the sample takes. */
static uint64_t plan_all(const struct fx_kernels *kernels, struct rope *src, uint8_t *scratch,
                         struct fx_plan *plan)
{
    uint8_t seam[8 * FX_GROUP];
    size_t groups = fx_elements(plan->width, plan->phase, src->end) / FX_GROUP,
           taken = (size_t)min_u64(groups, SAMPLE_GROUPS), step = groups / taken,
           len = FX_GROUP * (size_t)plan->width;
    for (size_t i = 0; i < taken; i++) {
        size_t at = i * step + i * 2654435761u % step; /* not in step with rows */
        uint8_t *planes[8];
        for (unsigned p = 0; p < plan->width; p++)
            planes[p] = scratch + p * SAMPLE_LEN + i * FX_GROUP;
        kernels->split(rope_bytes(src, plan->phase + at * len, len, seam), FX_GROUP, plan->width,
                       plan->rotated, planes);
    }
    uint64_t cost = 0;
    for (unsigned p = 0; p < plan->width; p++)
        cost += plan->coded & 1u << p
                    ? plan_plane(kernels, p, scratch + p * SAMPLE_LEN, taken * FX_GROUP, plan)
                    : 8 * taken * FX_GROUP;
    return cost;
}

void fx_plan_make(const struct fx_kernels *kernels, const struct fx_guess *guess, struct rope *src,
                  uint8_t *scratch, struct fx_plan *ret)
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
        plan.is_signless = false;
        plan.columns = NULL;
        uint64_t cost = plan.coded ? plan_all(kernels, src, scratch, &plan) : UINT64_MAX;
        if (cost < best && plan.coded) {
            best = cost;
            *ret = plan;
        }
    }
    for (unsigned p = 0; ret->coded && p < ret->width; p++)
        if (ret->coded & 1u << p)
            lx_code_rank(&ret->codes[p]);
}
