// SPDX-License-Identifier: Apache-2.0
#include "moves.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "rules.h"

struct state *move_add(struct moves *moves, const struct state *from, const char *format, ...)
{
    if (moves->count == MOVES_MAX)
        abort();
    unsigned number = moves->count++;
    moves->states[number] = *from;
    moves->are_faults[number] = false;
    if (moves->has_texts) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(moves->texts[number], MOVE_TEXT_MAX, format, arguments);
        va_end(arguments);
    }
    return &moves->states[number];
}

void move_is_fault(struct moves *moves)
{
    moves->are_faults[moves->count - 1] = true;
}

/* Clears values that nothing reads any more, so that states that differ by them alone are one. */
static void forget(struct state *state)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        struct session *session = &state->sessions[i];
        memset(&session->operations[session->count], 0,
               (OPERATIONS_MAX - session->count) * sizeof(session->operations[0]));
        if (session->feed.state == FEED_NONE)
            session->feed = (struct feed){0};
    }
}

/* Which merger is which makes no difference. */
static void order_mergers(struct state *state)
{
    struct merger *mergers = state->mergers;
    if (memcmp(&mergers[0], &mergers[1], sizeof(mergers[0])) < 0) {
        struct merger first = mergers[0];
        mergers[0] = mergers[1];
        mergers[1] = first;
    }
}

void moves_of(const struct state *state, struct moves *moves)
{
    moves->count = 0;
    if (state->now < bounds.rounds)
        move_add(moves, state, "instant %d passes", state->now + 1)->now++;
    writer_moves(state, moves);
    leaving_moves(state, moves);
    store_moves(state, moves);
    job_moves(state, moves);
    merger_moves(state, moves);
    for (unsigned i = 0; i < moves->count; i++) {
        if (!rules.keep_all)
            forget(&moves->states[i]);
        order_mergers(&moves->states[i]);
    }
}
