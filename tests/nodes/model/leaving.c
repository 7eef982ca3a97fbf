// SPDX-License-Identifier: Apache-2.0
/* The end of a stay, and a daemon that dies and goes on with its stay. */
#include "moves.h"
#include "rules.h"

/* The mount is gone: processes that were on it get errors. */
static void end_processes(struct state *state, unsigned number)
{
    for (unsigned j = 0; j < JOBS; j++)
        for (unsigned n = 0; n < bounds.nodes; n++)
            if (state->jobs[j].session[n] == number)
                state->jobs[j].is_old[n] = 1;
}

/* LEAVE, put_new feeds/ROUND_LAST-EPOCH: what feeds have told holds for all later rounds. */
static void send_leaves(const struct state *state, unsigned number, struct moves *moves)
{
    const struct session *session = &state->sessions[number];
    if (state->leaves == bounds.leaves || session->feed.state != FEED_NONE ||
        session->generation != state->head.generation ||
        (session->published != session->count && !rules.leave_early))
        return;
    struct state *next = move_add(moves, state, "session %u sends that it LEAVES", number);
    next->leaves++;
    next->sessions[number].feed =
        (struct feed){.state = FEED_SENT, .round = ROUND_LAST, .generation = session->generation};
    if (!rules.numbers_after_leave)
        end_processes(next, number);
}

/* The daemon dies. The next one has the journal, so it goes on with the stay: what was not told is
 * told then. What was on its way to the store is lost. Had it landed, the daemon died after that.
 * Planted: the next daemon does not see a LEAVES, or that lands when it has looked. */
static void restart(const struct state *state, unsigned number, struct moves *moves)
{
    struct state *next =
        move_add(moves, state, "the daemon of session %u dies, the next goes on", number);
    struct session *session = &next->sessions[number];
    move_is_fault(moves);
    next->restarts++;
    session->leave_is_late = rules.leave_unseen && feed_leaves(&session->feed);
    session->feed.state = FEED_NONE;
    end_processes(next, number);
}

/* Planted. The daemon goes on, and nobody counts what it tells. */
static void land_late(const struct state *state, unsigned number, struct moves *moves)
{
    struct state *next = move_add(moves, state, "a LEAVES of session %u lands late", number);
    next->sessions[number].leave_is_late = 0;
    next->sessions[number].published_round = ROUND_LAST;
}

/* Variant: who has left deletes its entry. */
static void delete_entry(const struct state *state, unsigned number, struct moves *moves)
{
    struct state *next = move_add(moves, state, "session %u deletes writers/%u", number, number);
    next->marks = without_member(next->marks, number);
}

void leaving_moves(const struct state *state, struct moves *moves)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        const struct session *session = &state->sessions[i];
        if (session->state == SESSION_LEFT && rules.entries_go && in_set(state->marks, i))
            delete_entry(state, i, moves);
        if (session->state != SESSION_ALIVE)
            continue;
        send_leaves(state, i, moves);
        if (state->restarts < bounds.restarts)
            restart(state, i, moves);
        if (session->leave_is_late)
            land_late(state, i, moves);
    }
}
