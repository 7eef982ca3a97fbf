// SPDX-License-Identifier: Apache-2.0
/* Rounds in the history of a node: an operation acknowledged before a round has its number by then,
 * and none is acknowledged while the clocks of two nodes may be on either side of the round.
 *
 * Nothing runs at the time of a round. The next operation looks at the clock first: a round whose
 * window has begun gets the newest number, after the seals of files that were closed before it.
 * Then the operation waits for the end of the window, as it would for room. */
#include "base/clock.h"
#include "commit/history_internal.h"

/* Longest time from the look at the clock until the number is assigned. If it took longer, and a
 * window began meanwhile, that round is not published. */
#define NUMBERING_NS (5 * MS_NS)
#define LEASE_POLL_NS (50 * MS_NS)

int64_t history_look_locked(struct history *history, struct clock_look *ret)
{
    check_held(&history->lock);
    if (!history->clock) {
        *ret = (struct clock_look){.error = -1};
        return clock_realtime_ns();
    }
    node_clock_look(history->clock, ret);
    return ret->now;
}

void history_begin_rounds(struct history *history, int64_t length, struct node_clock *clock)
{
    LOCK_SCOPE(&history->lock);
    check(!history->rounds);
    history->rounds = rounds_new(length);
    history->clock = clock;
    struct clock_look look;
    (void)history_look_locked(history, &look);
    /* called for its side effect: it notes the look */
    (void)rounds_are_due(history->rounds, &look);
    history->touched = touched_new(history->newest);
    history->lease = (struct history_lease){.until = INT64_MAX, .looked = INT64_MAX};
}

void history_set_lease(struct history *history, const struct history_lease *lease)
{
    LOCK_SCOPE(&history->lock);
    history->lease = *lease;
}

void history_end_lease(struct history *history)
{
    history_set_lease(history, &(struct history_lease){.until = INT64_MAX, .looked = INT64_MAX});
}

/* A node that has not looked for so long may have been declared ended: others continue without
 * operations that it would acknowledge now. The same holds after it stood still, or its clock was
 * set: the time of its last look is then uncertain. */
bool history_has_lease_locked(const struct history *history, const struct clock_look *look)
{
    check_held(&history->lock);
    const struct history_lease *lease = &history->lease;
    return look->boottime >= lease->from && look->boottime < lease->until &&
           lease->looked > look->era_began;
}

bool history_has_lease(struct history *history)
{
    struct clock_look look;
    LOCK_SCOPE(&history->lock);
    (void)history_look_locked(history, &look);
    return history_has_lease_locked(history, &look);
}

struct touched *history_touched(struct history *history)
{
    return history->touched;
}

int64_t history_hold_locked(struct history *history, const struct clock_look *look)
{
    check_held(&history->lock);
    return rounds_hold(history->rounds, look, NUMBERING_NS);
}

void history_note_number_locked(struct history *history, const struct clock_look *look)
{
    check_held(&history->lock);
    if (history->rounds && !history->is_passing && rounds_are_due(history->rounds, look))
        rounds_lose(history->rounds, look);
    if (history->rounds)
        rounds_note_number(history->rounds, look);
}

int64_t history_hold_ns(struct history *history)
{
    struct clock_look look;
    LOCK_SCOPE(&history->lock);
    if (!history->rounds)
        return 0;
    (void)history_look_locked(history, &look);
    return history_has_lease_locked(history, &look) ? history_hold_locked(history, &look)
                                                    : LEASE_POLL_NS;
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

void history_begin_rounds_after(struct history *history, uint64_t round)
{
    LOCK_SCOPE(&history->lock);
    rounds_begin_after(history->rounds, round);
}

uint64_t history_dropped_rounds(struct history *history)
{
    LOCK_SCOPE(&history->lock);
    return rounds_dropped(history->rounds);
}
