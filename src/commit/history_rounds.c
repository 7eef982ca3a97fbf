// SPDX-License-Identifier: Apache-2.0
/* Rounds in the history of a node: what is acknowledged before one has a number by then, and
 * nothing is acknowledged while the clocks of two nodes may lie on either side of it.
 *
 * Nothing runs at the time of a round. Whatever is acknowledged next looks at the clock first: a
 * round whose window has begun gets the newest number, after seals of files that were closed before
 * it. Then it waits for the end of the window, as for room. */
#include "base/clock.h"
#include "base/log.h"
#include "commit/history_internal.h"

/* From the look at the clock until the number is given out. Where it took longer, and a window has
 * begun meanwhile, that round is not told of. */
#define NUMBERING_NS (5 * MS_NS)
#define LEASE_POLL_NS (50 * MS_NS)

void history_begin_rounds(struct history *history, int64_t length, int64_t error)
{
    LOCK_SCOPE(&history->lock);
    check(!history->rounds);
    history->rounds = rounds_new(length, error, clock_realtime_ns());
    history->touched = touched_new(history->newest);
    history->open_until = INT64_MAX;
}

void history_set_lease(struct history *history, int64_t from, int64_t until)
{
    LOCK_SCOPE(&history->lock);
    history->open_from = from;
    history->open_until = until;
}

void history_end_lease(struct history *history)
{
    history_set_lease(history, 0, INT64_MAX);
}

/* A node that has not looked for so long may have been ended: others go on without what it would
 * acknowledge now. */
bool history_has_lease_locked(const struct history *history)
{
    check_held(&history->lock);
    int64_t now = clock_boottime_ns();
    return now >= history->open_from && now < history->open_until;
}

bool history_has_lease(struct history *history)
{
    LOCK_SCOPE(&history->lock);
    return history_has_lease_locked(history);
}

struct touched *history_touched(struct history *history)
{
    return history->touched;
}

int64_t history_hold_until_locked(struct history *history, int64_t now)
{
    check_held(&history->lock);
    int64_t until = rounds_hold_until(history->rounds, now);
    return until ? until : rounds_hold_until(history->rounds, now + NUMBERING_NS);
}

void history_note_number_locked(struct history *history, int64_t now)
{
    check_held(&history->lock);
    if (history->rounds && !history->is_passing && rounds_are_due(history->rounds, now))
        rounds_lose(history->rounds, now);
}

int64_t history_hold_ns(struct history *history)
{
    LOCK_SCOPE(&history->lock);
    int64_t now = clock_realtime_ns();
    if (history->rounds && !history_has_lease_locked(history))
        return LEASE_POLL_NS;
    int64_t until = history->rounds ? history_hold_until_locked(history, now) : 0;
    return until ? until - now : 0;
}

void history_want_round(struct history *history, bool wants, unsigned bits)
{
    LOCK_SCOPE(&history->lock);
    check(history->rounds);
    history->wants_round = wants;
    history->wanted_bits = bits;
}

uint64_t history_wanted_cut_locked(struct history *history, uint64_t least, uint64_t most)
{
    check_held(&history->lock);
    struct rounds_span span;
    if (!history->wants_round || least > most)
        return 0;
    return rounds_choose(history->rounds, history->wanted_bits, 0, least, most, &span) ? span.number
                                                                                       : 0;
}

bool history_wanted_round_of(struct history *history, uint64_t number, uint64_t after,
                             struct rounds_span *ret)
{
    LOCK_SCOPE(&history->lock);
    if (!history->wants_round)
        return false;
    return rounds_choose(history->rounds, history->wanted_bits, after, number, number, ret);
}

bool history_rounds_of(struct history *history, uint64_t number, uint64_t after,
                       struct rounds_span *ret)
{
    LOCK_SCOPE(&history->lock);
    return rounds_choose(history->rounds, 0, after, number, number, ret);
}

void history_forget_rounds(struct history *history, uint64_t hi)
{
    LOCK_SCOPE(&history->lock);
    rounds_forget(history->rounds, hi);
}
