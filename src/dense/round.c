// SPDX-License-Identifier: Apache-2.0
#include "dense/round.h"

#include "base/log.h"
#include "dense/changed.h"
#include "dense/internal.h"
#include "dense/lineage.h"

#define PASS_CHUNKS 32768u             /* listed at a time */
#define SORTED_MAX (16u * 1024 * 1024) /* chunks with a known phase, one byte each */
#define WIDTHS_STEP 32u

/* fp32 numbers may come without a base, too: as twins. Weights are separate, a seventh of a state:
 * their packs are small, and get merged. So the weights of many checkpoints, which depend on each
 * other, are in one pack. */
const struct dense_phase dense_phases[DENSE_PHASES] = {
    {.kind = PHASE_FIRST, .shrinks = 1},
    {.kind = PHASE_BF16, .level = 1, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 2, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 3, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 4, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 5, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 6, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 7, .shrinks = 4},
    {.kind = PHASE_BF16, .level = 8, .shrinks = 4},
    {.kind = PHASE_FP32, .level = 0, .shrinks = 2, .begins_anew = true},
    {.kind = PHASE_FP32, .level = 1, .shrinks = 2},
    {.kind = PHASE_FP32, .level = 2, .shrinks = 2},
};
_Static_assert(CHAIN_DEPTH_MAX == 8, "each level of bf16 has its phase");

/* --- the newest head -------------------------------------------------------------------------- */

void dense_keep_published(struct dense *dense, struct view_cut *cut)
{
    view_cut_close(dense->encodes ? dense->published : cut);
    dense->published = dense->encodes ? cut : NULL;
}

void dense_find_published(struct dense *dense)
{
    struct view_remote now = view_remote(dense->store->local.view);
    struct view_cut *cut;
    if (!dense->encodes || dense->published || !now.tracks || now.is_whole || now.head == 0 ||
        view_cut_open(dense->store->local.view, &cut) < 0)
        return;
    if (view_cut_state(cut).applied_seq == now.cut)
        dense->published = cut;
    else
        view_cut_close(cut);
}

/* --- phases of a cut -------------------------------------------------------------------------- */

/* The cut's pending chunks, in order of name, while they are being sorted. */
struct sorting {
    struct dense_round *round;
    struct chunk_entry *list; /* the current portion */
    size_t count;
    uint8_t *widths; /* of these chunks */
    _Atomic size_t next;
};

/* Reads from the pack of each chunk, perhaps from the disk, so several threads do this
 * concurrently. */
static void find_widths(void *arg)
{
    struct sorting *s = arg;
    struct dense *dense = s->round->dense;
    for (;;) {
        size_t i = atomic_fetch_add(&s->next, WIDTHS_STEP), end = i + WIDTHS_STEP;
        if (i >= s->count || dense_is_stopping(dense))
            return;
        for (; i < end && i < s->count; i++)
            s->widths[i] = (uint8_t)dense_width(dense->store, &s->list[i]);
    }
}

static uint8_t phase_of(unsigned width, unsigned level)
{
    uint8_t phase = 0;
    for (unsigned i = 1; i < DENSE_PHASES; i++)
        if (dense_phases[i].kind == (width == 2 ? PHASE_BF16 : PHASE_FP32) &&
            dense_phases[i].level <= level)
            phase = (uint8_t)i;
    return phase;
}

/* A lost chunk on which others still depend, according to heads, gets no base. */
static int choose_phase(const struct dense_round *round, const struct chunk_entry *entry,
                        unsigned width, uint8_t *ret)
{
    struct chunk_name base;
    bool has_dependents = false;
    *ret = 0;
    if (width != 2 && width != 4)
        return 0;
    int r = view_cut_has_dependents(round->cut, &entry->name, &has_dependents);
    if (r < 0 || has_dependents)
        return r;
    *ret = phase_of(width, lineage_base(round->lineage, &entry->name, &base));
    return 0;
}

static int sort_listed(struct sorting *s, struct pool *pool, unsigned threads)
{
    struct dense_round *round = s->round;
    vector_reserve(&round->phases, s->count);
    s->widths = round->phases.at + round->phases.count;
    atomic_store(&s->next, 0);
    for (unsigned n = 0; n < threads; n++)
        pool_submit(pool, find_widths, s);
    pool_drain(pool);
    if (dense_is_stopping(round->dense))
        return -ECANCELED;
    for (size_t i = 0; i < s->count; i++) {
        TRY(choose_phase(round, &s->list[i], s->widths[i], &s->widths[i]));
        round->has_phase[s->widths[i]] = true;
    }
    round->phases.count += s->count;
    return 0;
}

static int note_pending(const struct chunk_entry *entry, void *arg)
{
    struct sorting *s = arg;
    s->list[s->count++] = *entry;
    return s->count == PASS_CHUNKS;
}

static int sort_pending(struct dense_round *round, struct pool *pool, unsigned threads)
{
    _cleanup_free_ struct chunk_entry *list = xcalloc(PASS_CHUNKS, sizeof *list);
    struct sorting s = {.round = round, .list = list};
    do {
        struct chunk_name after = list[PASS_CHUNKS - 1].name;
        s.count = 0;
        int r = view_cut_pending(round->cut, round->phases.count ? &after : NULL, note_pending, &s);
        if (r == 0 && s.count)
            r = sort_listed(&s, pool, threads);
        if (r < 0)
            return r;
    } while (s.count == PASS_CHUNKS && round->phases.count < SORTED_MAX);
    return 0;
}

int dense_round_new(struct dense *dense, struct view_cut *cut, struct pool *pool, unsigned threads,
                    struct dense_round **ret)
{
    *ret = NULL;
    if (!dense->encodes)
        return 0;
    struct dense_round *round = xcalloc(1, sizeof *round);
    round->dense = dense;
    round->cut = cut;
    int r = lineage_build(dense, cut, dense->published, &round->lineage);
    if (r == 0)
        r = sort_pending(round, pool, threads);
    if (r == 0) {
        *ret = round;
        return 0;
    }
    dense_round_free(round);
    if (r == -ECANCELED)
        return r;
    log_warn("looking for earlier versions failed, so this upload is not dense: %s", strerror(-r));
    return 0;
}

void dense_round_free(struct dense_round *round)
{
    if (!round)
        return;
    lineage_free(round->lineage);
    vector_free(&round->phases);
    free(round);
}

unsigned dense_round_phase(const struct dense_round *round, size_t number)
{
    return round && number < round->phases.count ? round->phases.at[number] : 0;
}

bool dense_round_has(const struct dense_round *round, unsigned phase)
{
    return phase == 0 || (round && round->has_phase[phase]);
}
