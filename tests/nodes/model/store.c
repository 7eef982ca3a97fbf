// SPDX-License-Identifier: Apache-2.0
/* Requests of writers that land in the store. */
#include "moves.h"
#include "rules.h"

/* mark(): put marks/EPOCH-... Then the writer looks for ended/EPOCH. */
static void land_mark(const struct state *state, unsigned number, struct moves *moves)
{
    if (state->sessions[number].mark != MARK_SENT)
        return;
    struct state *next = move_add(moves, state, "the mark of session %u lands", number);
    struct session *session = &next->sessions[number];
    next->marks = with_member(next->marks, number);
    session->mark = rules_claim() ? MARK_LANDED : MARK_NONE;
    if (!rules_claim())
        session->is_dirty = 1;
}

/* publish: a feed whose generation is not the newest head's counts nowhere. */
static void land_feed(const struct state *state, unsigned number, struct moves *moves)
{
    const struct feed *feed = &state->sessions[number].feed;
    if (feed->state != FEED_SENT)
        return;
    bool leaves = feed_leaves(feed);
    struct state *next = move_add(moves, state, "the feed of session %u to round %u lands%s",
                                  number, feed->round, leaves ? ": it has LEFT" : "");
    struct session *session = &next->sessions[number];
    if (feed->generation == state->head.generation || rules.old_feeds_count) {
        uint8_t count = number_at(session, session->count, feed->round);
        if (count > session->published && !leaves)
            session->published = count;
        session->published_round = feed->round;
        session->feed_generation = feed->generation;
    }
    session->feed.state = feed->clean ? FEED_CLEAN_LANDED : FEED_NONE;
    if (leaves) {
        session->state = SESSION_LEFT;
        session->lease_ran_out = 0;
    }
}

/* publish, a CLEAN feed has landed: DELETE the mark. Until then operations park. */
static void land_delete(const struct state *state, unsigned number, struct moves *moves)
{
    if (state->sessions[number].feed.state != FEED_CLEAN_LANDED)
        return;
    struct state *next = move_add(moves, state, "session %u deletes its mark: clean", number);
    struct session *session = &next->sessions[number];
    next->marks = without_member(next->marks, number);
    session->feed.state = FEED_NONE;
    session->is_dirty = 0;
    session->repeats_delete = rules.late_delete;
}

/* A repeated request may land at any time. By PERIOD and GENERATION it names a mark that is gone;
 * planted: by EPOCH alone it names the next one, too. */
static void land_late_delete(const struct state *state, unsigned number, struct moves *moves)
{
    if (!state->sessions[number].repeats_delete)
        return;
    struct state *next = move_add(moves, state, "a repeated DELETE of marks/%u lands", number);
    next->marks = without_member(next->marks, number);
    next->sessions[number].repeats_delete = 0;
}

void store_moves(const struct state *state, struct moves *moves)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        if (state->sessions[i].state != SESSION_ALIVE)
            continue;
        land_mark(state, i, moves);
        land_feed(state, i, moves);
        land_delete(state, i, moves);
        land_late_delete(state, i, moves);
    }
}
