// SPDX-License-Identifier: Apache-2.0
#include "commit/rounds.h"

#define SPANS_MAX 64u

struct rounds {
    int64_t length, error;
    uint64_t passed; /* the newest round that was noted, or is not known */
    unsigned count;
    struct rounds_span spans[SPANS_MAX]; /* ascending; each with another number */
};

/* The newest round of which the window has begun by this clock: nothing is numbered any more that
 * could come before it. */
static uint64_t newest_begun(const struct rounds *rounds, int64_t now)
{
    return (uint64_t)((now + rounds->error) / rounds->length);
}

struct rounds *rounds_new(int64_t length, int64_t error, int64_t now)
{
    check(error >= 0 && length > 2 * error && now >= 0);
    struct rounds *rounds = xcalloc(1, sizeof *rounds);
    rounds->length = length;
    rounds->error = error;
    rounds->passed = newest_begun(rounds, now);
    return rounds;
}

void rounds_free(struct rounds *rounds)
{
    free(rounds);
}

int64_t rounds_hold_until(const struct rounds *rounds, int64_t now)
{
    int64_t nearest = (now + rounds->length / 2) / rounds->length * rounds->length;
    bool is_near = now >= nearest - rounds->error && now < nearest + rounds->error;
    return is_near ? nearest + rounds->error : 0;
}

/* How much a choice by all nodes prefers some round of a span: trailing zero bits of the best. */
static unsigned preference(uint64_t lo, uint64_t hi)
{
    unsigned bits = 0;
    while (bits < 63 && (hi >> (bits + 1)) << (bits + 1) >= lo && hi >> (bits + 1) > 0)
        bits++;
    return bits;
}

/* Room for one more: the span goes that would be chosen last, which is the oldest of those. */
static void drop_least(struct rounds *rounds)
{
    unsigned least = 0;
    for (unsigned i = 1; i < rounds->count; i++)
        if (preference(rounds->spans[i].lo, rounds->spans[i].hi) <
            preference(rounds->spans[least].lo, rounds->spans[least].hi))
            least = i;
    memmove(&rounds->spans[least], &rounds->spans[least + 1],
            (rounds->count - least - 1) * sizeof rounds->spans[0]);
    rounds->count--;
}

bool rounds_are_due(const struct rounds *rounds, int64_t now)
{
    return newest_begun(rounds, now) > rounds->passed;
}

void rounds_lose(struct rounds *rounds, int64_t now)
{
    rounds->passed = max_u64(rounds->passed, newest_begun(rounds, now));
}

void rounds_pass(struct rounds *rounds, int64_t now, uint64_t newest)
{
    uint64_t begun = newest_begun(rounds, now), first = rounds->passed + 1;
    if (begun < first)
        return;
    struct rounds_span *last = rounds->count ? &rounds->spans[rounds->count - 1] : NULL;
    rounds->passed = begun;
    if (last && last->number == newest && last->hi + 1 == first) {
        last->hi = begun;
        return;
    }
    check(!last || newest >= last->number);
    if (rounds->count == SPANS_MAX)
        drop_least(rounds);
    rounds->spans[rounds->count++] = (struct rounds_span){first, begun, newest};
}

/* The part of a span behind round `after`. False: there is none. */
static bool clip(const struct rounds_span *span, uint64_t after, struct rounds_span *ret)
{
    *ret = *span;
    ret->lo = max_u64(span->lo, after + 1);
    return ret->lo <= ret->hi;
}

/* All nodes that publish less often than every 2^bits rounds have a round with so many zero bits in
 * common. A number that stays is told for all rounds to come until there is another. */
static bool is_common(const struct rounds_span *span, unsigned bits)
{
    return span->hi > span->lo || preference(span->lo, span->hi) >= bits;
}

bool rounds_choose(const struct rounds *rounds, unsigned bits, uint64_t after, uint64_t least,
                   uint64_t most, struct rounds_span *ret)
{
    bool found = false;
    for (unsigned i = 0; i < rounds->count; i++) {
        struct rounds_span span;
        if (rounds->spans[i].number < least || rounds->spans[i].number > most ||
            !clip(&rounds->spans[i], after, &span) || !is_common(&span, bits))
            continue;
        if (!found || preference(span.lo, span.hi) >= preference(ret->lo, ret->hi))
            *ret = span;
        found = true;
    }
    return found;
}

void rounds_forget(struct rounds *rounds, uint64_t hi)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < rounds->count; i++)
        if (clip(&rounds->spans[i], hi, &rounds->spans[kept]))
            kept++;
    rounds->count = kept;
}
