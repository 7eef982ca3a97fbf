// SPDX-License-Identifier: Apache-2.0
/* The merger, steps 1 to 7. Heads are exclusive, so readings of winners never overlap and one
 * merger is enough; two-mergers has the losers as well. */
#include <string.h>

#include "invariants.h"
#include "moves.h"
#include "rules.h"

/* 3: may the session be given up? What crashed is silent; verdicts on others are counted, but for
 * those that carry on another merger's. */
static bool may_be_ended(const struct state *state, unsigned number)
{
    const struct session *session = &state->sessions[number];
    if (!has_joined(session) || session->state == SESSION_LEFT || is_ended(state, number) ||
        state->head.generation >= GENERATIONS_MAX)
        return false;
    return session->state == SESSION_CRASHED || in_set(state->claims, number) ||
           state->zombies < bounds.zombies;
}

static struct merger *begin(const struct state *state, struct state *next, unsigned which)
{
    next->mergers[which] =
        (struct merger){.step = MERGER_HAS_HEAD, .clock = state->now, .base = state->head_number};
    return &next->mergers[which];
}

/* 3 verdict: put_new ended/EPOCH, the CLAIM, before marks are listed. A verdict on a session that
 * lives is given after a lease of silence. */
static void give_verdict(const struct state *state, unsigned which, unsigned number,
                         struct moves *moves)
{
    struct state *next = move_add(
        moves, state, "merger reads the head, clock %u: VERDICT on session %u", state->now, number);
    struct session *session = &next->sessions[number];
    begin(state, next, which)->verdict = (uint8_t)(number + 1);
    if (session->state != SESSION_CRASHED && !in_set(state->claims, number)) {
        next->zombies++;
        move_is_fault(moves);
    }
    if (rules_claim())
        next->claims = with_member(next->claims, number);
    if (session->state == SESSION_ALIVE)
        session->lease_ran_out = 1;
}

/* 1 head, 2 clock, 3 verdict. */
static void read_head(const struct state *state, unsigned which, struct moves *moves)
{
    begin(state, move_add(moves, state, "merger reads the head, clock %u", state->now), which);
    for (unsigned i = 0; i < SESSIONS_MAX; i++)
        if (may_be_ended(state, i))
            give_verdict(state, which, i, moves);
}

/* Feeds of older generations count nowhere: such a session has what the cut has. */
static bool feeds_count(const struct state *state, unsigned number)
{
    return state->sessions[number].feed_generation == state->head.generation;
}

/* Planted (feeds-first): the listing of feeds comes before that of sessions. */
static void list_feeds_early(struct state *state, unsigned which)
{
    struct merger *merger = &state->mergers[which];
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        bool counts = feeds_count(state, i);
        merger->early_published[i] = counts ? state->sessions[i].published : state->head.merged[i];
        merger->early_round[i] = counts ? state->sessions[i].published_round : 0;
    }
}

/* 4 sessions: LIST writers/, marks/. */
static void list_sessions(const struct state *state, unsigned which, struct moves *moves)
{
    struct state *next =
        move_add(moves, state, rules.feeds_first ? "merger lists feeds" : "merger lists sessions");
    next->mergers[which].step = MERGER_HAS_SESSIONS;
    if (rules.feeds_first)
        list_feeds_early(next, which);
    else
        next->mergers[which].marks = next->marks;
}

/* 6: must the session determine the round of the cut? */
static bool holds_back(const struct state *state, const struct merger *merger, unsigned number)
{
    const struct session *session = &state->sessions[number];
    if (!has_joined(session) || is_ended(state, number) || !in_set(merger->marks, number))
        return false;
    if (!rules.old_marks_hold && session->generation != state->head.generation)
        return false;
    return !(rules.dead_left_out && merger->verdict == number + 1);
}

/* 6: r, the newest round that every session determines. */
static uint8_t choose_round(const struct state *state, const struct merger *merger)
{
    uint8_t least = merger->clock;
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        uint8_t round = feeds_count(state, i) ? state->sessions[i].published_round : 0;
        if (rules.feeds_first)
            round = merger->early_round[i];
        if (holds_back(state, merger, i) && round < least)
            least = round;
    }
    return least > state->head.round ? least : state->head.round;
}

/* 6: the operations of a session that a cut at the round has. */
static uint8_t merged_at(const struct state *state, const struct merger *merger, unsigned number,
                         uint8_t round)
{
    const struct session *session = &state->sessions[number];
    uint8_t merged = state->head.merged[number];
    if (!has_joined(session) || (!feeds_count(state, number) && !rules.old_feeds_count))
        return merged;
    if (rules.ended_dropped && (is_ended(state, number) || merger->verdict == number + 1))
        return merged;
    uint8_t published = rules.feeds_first ? merger->early_published[number] : session->published;
    uint8_t at_round = number_at(session, published, round);
    return at_round > merged ? at_round : merged;
}

/* 7: a verdict on a session with a mark of this generation ends the generation. A clean one only
 * leaves. */
static bool ends_generation(const struct state *state, const struct merger *merger)
{
    unsigned number = merger->verdict - 1u;
    return in_set(merger->marks, number) && !rules.dead_left_out &&
           (rules.old_marks_hold || state->sessions[number].generation == state->head.generation);
}

static struct head next_head(const struct state *state, const struct merger *merger)
{
    struct head next = state->head;
    next.round = choose_round(state, merger);
    for (unsigned i = 0; i < SESSIONS_MAX; i++)
        next.merged[i] = merged_at(state, merger, i, next.round);
    if (merger->verdict) {
        next.ended = with_member(next.ended, merger->verdict - 1u);
        next.generation = (uint8_t)(next.generation + ends_generation(state, merger));
    }
    return next;
}

/* 5 feeds: LIST feeds/. 6 and 7: the next head, if there is news. */
static void list_feeds(const struct state *state, unsigned which, struct moves *moves)
{
    struct state *next =
        move_add(moves, state, rules.feeds_first ? "merger lists sessions" : "merger lists feeds");
    struct merger *merger = &next->mergers[which];
    if (rules.feeds_first)
        merger->marks = state->marks;
    if (rules.late_clock)
        merger->clock = state->now;
    merger->next = next_head(state, merger);
    merger->step = MERGER_HAS_FEEDS;
    merger->marks = merger->clock = 0;
    if (memcmp(&merger->next, &state->head, sizeof(state->head)) == 0)
        *merger = (struct merger){0};
}

/* END: feeds of the generation before count no more, whenever they land. */
static void end_generation(struct state *state)
{
    for (unsigned i = 0; i < SESSIONS_MAX && !rules.old_feeds_count; i++) {
        state->sessions[i].published = state->head.merged[i];
        state->sessions[i].published_round = 0;
    }
}

/* 7: put_new heads/N+1. */
static void put_head(const struct state *state, unsigned which, struct moves *moves)
{
    const struct head *head = &state->mergers[which].next;
    struct state *next =
        move_add(moves, state, "HEAD: round %u, generation %u, ended %x, merged %u %u %u %u",
                 head->round, head->generation, head->ended, head->merged[0], head->merged[1],
                 head->merged[2], head->merged[3]);
    bool is_end = head->generation != state->head.generation;
    next->broken |= broken_by_zombie(state, head);
    next->head = *head;
    next->mergers[which] = (struct merger){0};
    next->head_number = (uint8_t)(next->head_number + rules.two_mergers);
    if (is_end)
        end_generation(next);
    for (unsigned i = 0; i < SESSIONS_MAX; i++)
        if (is_ended(next, i) && !is_ended(state, i))
            next->ended_generation[i] = (uint8_t)(head->generation + !is_end);
    next->broken |= broken_in_head(next);
}

static void give_up(const struct state *state, unsigned which, const char *text,
                    struct moves *moves)
{
    move_add(moves, state, "%s", text)->mergers[which] = (struct merger){0};
}

static void one_merger(const struct state *state, unsigned which, struct moves *moves)
{
    const struct merger *merger = &state->mergers[which];
    if (merger->step != MERGER_IDLE && merger->base != state->head_number) {
        give_up(state, which, "merger: the next head is taken, begins anew", moves);
        return;
    }
    if (merger->step > MERGER_HAS_HEAD) {
        give_up(state, which, "merger dies, another takes over", moves);
        move_is_fault(moves);
    }
    if (merger->step == MERGER_IDLE)
        read_head(state, which, moves);
    else if (merger->step == MERGER_HAS_HEAD)
        list_sessions(state, which, moves);
    else if (merger->step == MERGER_HAS_SESSIONS)
        list_feeds(state, which, moves);
    else
        put_head(state, which, moves);
}

void merger_moves(const struct state *state, struct moves *moves)
{
    for (unsigned i = 0; i <= rules.two_mergers; i++)
        one_merger(state, i, moves);
}
