// SPDX-License-Identifier: Apache-2.0
#include "commit/rounds.h"

#define SPANS_MAX 64u

struct rounds {
    int64_t length;
    uint64_t passed; /* the newest round that is noted or skipped */
    /* as of the last look */
    bool is_bound;
    uint64_t era;
    int64_t error, offset; /* the time minus CLOCK_BOOTTIME */
    uint64_t dropped;
    int64_t numbered_at; /* ns since 1970: when the newest number was assigned; 0: none yet */
    int64_t hold_until;  /* CLOCK_BOOTTIME: end of the windows that have begun */
    unsigned count;
    struct rounds_span spans[SPANS_MAX]; /* ascending; adjacent spans have different numbers */
};

/* The newest round whose window has begun by this clock: no operation numbered from now on can
 * precede that round. */
static uint64_t newest_begun(const struct rounds *rounds, int64_t now, int64_t error)
{
    return (uint64_t)((now + error) / rounds->length);
}

struct rounds *rounds_new(int64_t length)
{
    struct rounds *rounds = xcalloc(1, sizeof *rounds);
    rounds->length = length;
    return rounds;
}

void rounds_free(struct rounds *rounds)
{
    free(rounds);
}

static void lose_up_to(struct rounds *rounds, uint64_t last)
{
    rounds->passed = max_u64(rounds->passed, last);
}

/* Other nodes that share the changed clock notice the change within half a round of this one: by
 * the old clock, no node has noted a round after these. */
static void end_era(struct rounds *rounds, const struct clock_look *look)
{
    int64_t last = look->boottime + rounds->offset + rounds->error + rounds->length / 2;
    if (rounds->error > 0 || rounds->offset != 0)
        lose_up_to(rounds, (uint64_t)(last / rounds->length));
    rounds->dropped = rounds->passed;
    rounds->count = 0;
    rounds->is_bound = false;
}

/* A window that has begun lasts as long as computed then, or longer if the error has grown. */
static void begin_hold(struct rounds *rounds, const struct clock_look *look)
{
    int64_t begun = (int64_t)newest_begun(rounds, look->now, look->error);
    int64_t left = begun * rounds->length + look->error - look->now;
    if (left > 0 && look->boottime + left > rounds->hold_until)
        rounds->hold_until = look->boottime + left;
}

static void see(struct rounds *rounds, const struct clock_look *look)
{
    if (look->era != rounds->era)
        end_era(rounds, look);
    rounds->era = look->era;
    if (look->error < 0) {
        rounds->is_bound = false;
        return;
    }
    check(look->now >= 0 && rounds->length > 2 * look->error);
    if (!rounds->is_bound)
        lose_up_to(rounds, newest_begun(rounds, look->now, look->error));
    rounds->is_bound = true;
    rounds->error = look->error;
    rounds->offset = look->now - look->boottime;
    begin_hold(rounds, look);
}

/* A window that is about to begin counts as begun. */
int64_t rounds_hold(struct rounds *rounds, const struct clock_look *look, int64_t ahead)
{
    see(rounds, look);
    int64_t left = rounds->hold_until - look->boottime;
    if (left > 0)
        return left;
    if (!rounds->is_bound)
        return 0;
    uint64_t then = newest_begun(rounds, look->now + ahead, look->error);
    left = (int64_t)then * rounds->length + look->error - look->now;
    return then > newest_begun(rounds, look->now, look->error) ? left : 0;
}

/* How strongly all nodes prefer a round of this span: trailing zero bits of its best round. */
static unsigned preference(uint64_t lo, uint64_t hi)
{
    unsigned bits = 0;
    while (bits < 63 && (hi >> (bits + 1)) << (bits + 1) >= lo && hi >> (bits + 1) > 0)
        bits++;
    return bits;
}

/* Makes room for one more span: removes the one with the lowest preference, the oldest of
 * equals. */
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

bool rounds_are_due(struct rounds *rounds, const struct clock_look *look)
{
    see(rounds, look);
    return rounds->is_bound && newest_begun(rounds, look->now, look->error) > rounds->passed;
}

void rounds_lose(struct rounds *rounds, const struct clock_look *look)
{
    see(rounds, look);
    if (rounds->is_bound)
        lose_up_to(rounds, newest_begun(rounds, look->now, look->error));
}

void rounds_note_number(struct rounds *rounds, const struct clock_look *look)
{
    rounds->numbered_at = look->now;
    struct rounds_span *last = rounds->count ? &rounds->spans[rounds->count - 1] : NULL;
    if (last && !last->next)
        last->next = look->now;
}

uint64_t rounds_dropped(const struct rounds *rounds)
{
    return rounds->dropped;
}

void rounds_pass(struct rounds *rounds, const struct clock_look *look, uint64_t newest)
{
    if (!rounds_are_due(rounds, look))
        return;
    uint64_t begun = newest_begun(rounds, look->now, look->error), first = rounds->passed + 1;
    struct rounds_span *last = rounds->count ? &rounds->spans[rounds->count - 1] : NULL;
    rounds->passed = begun;
    if (last && last->number == newest && last->hi + 1 == first) {
        last->hi = begun;
        return;
    }
    check(!last || newest >= last->number);
    if (rounds->count == SPANS_MAX)
        drop_least(rounds);
    rounds->spans[rounds->count++] =
        (struct rounds_span){first, begun, newest, rounds->numbered_at, 0};
}

/* Clips a span to the rounds after `after`. False: none. */
static bool clip(const struct rounds_span *span, uint64_t after, struct rounds_span *ret)
{
    *ret = *span;
    ret->lo = max_u64(span->lo, after + 1);
    return ret->lo <= ret->hi;
}

/* All nodes that publish less often than every 2^bits rounds have a round with so many zero bits in
 * common. A span of several rounds is common, too: its number stays valid at later rounds until the
 * next number. */
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

void rounds_begin_after(struct rounds *rounds, uint64_t last)
{
    lose_up_to(rounds, last);
    rounds_forget(rounds, last);
    rounds->dropped = max_u64(rounds->dropped, last);
}

void rounds_forget(struct rounds *rounds, uint64_t hi)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < rounds->count; i++)
        if (clip(&rounds->spans[i], hi, &rounds->spans[kept]))
            kept++;
    rounds->count = kept;
}
