// SPDX-License-Identifier: Apache-2.0
/* A writer: looks, the lease, generations, marks, feeds; and the crash of its node. */
#include "moves.h"
#include "rules.h"

/* look() reads ended/EPOCH and the newest head. */
static bool finds_end(const struct state *state, unsigned number)
{
    return is_ended(state, number) || (!rules.claims_unseen && in_set(state->claims, number));
}

/* look(), EPOCH ended: fenced. It numbers nothing any more. Its mark stays until a head says so. */
static void fence(struct state *state, unsigned number)
{
    struct session *session = &state->sessions[number];
    session->state = SESSION_FENCED;
    session->mark = MARK_NONE;
    session->is_dirty = 0;
    session->feed.state = FEED_NONE;
    if (is_ended(state, number))
        state->marks = without_member(state->marks, number);
}

/* look(), a newer generation: SET ASIDE. The journal begins anew at what the head has. */
static void set_aside(struct state *state, unsigned number)
{
    struct session *session = &state->sessions[number];
    session->generation = state->head.generation;
    session->is_open = 0;
    session->count = session->published = state->head.merged[number];
    session->published_round = 0;
    session->feed_generation = session->generation;
    session->feed.state = FEED_NONE;
    session->mark = MARK_NONE;
    session->is_dirty = !rules.marks;
    if (rules.marks)
        state->marks = without_member(state->marks, number);
}

/* Whoever has not seen the END a lease after it was seen here has not looked for a lease. */
static void leases_run_out(struct state *state)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        struct session *session = &state->sessions[i];
        if (session->state == SESSION_ALIVE &&
            (session->generation != state->head.generation || is_ended(state, i)))
            session->lease_ran_out = 1;
    }
}

/* SET ASIDE, after `opens`: a lease after it saw the END the node goes on by itself. Processes that
 * began before get EIO. */
static void open_generation(struct state *state, unsigned number)
{
    state->sessions[number].is_open = 1;
    if (!rules.no_lease)
        leases_run_out(state);
    for (unsigned j = 0; j < JOBS; j++)
        for (unsigned n = 0; n < bounds.nodes; n++)
            if (state->jobs[j].session[n] == number)
                state->jobs[j].is_old[n] = 1;
}

/* WRITER, look(). A feed on its way is waited for, unless the session is ended. */
static void look(const struct state *state, unsigned number, struct moves *moves)
{
    const struct session *session = &state->sessions[number];
    bool is_over = finds_end(state, number);
    bool is_behind = session->generation != state->head.generation;
    if (!is_over && (session->feed.state == FEED_SENT ||
                     (!is_behind && session->is_open && !session->lease_ran_out)))
        return;
    const char *text = is_over             ? "session %u sees that it is ended: fenced"
                       : is_behind         ? "session %u sees a new generation: set aside"
                       : !session->is_open ? "session %u opens in its generation"
                                           : "session %u looks: its lease is renewed";
    struct state *next = move_add(moves, state, text, number);
    next->sessions[number].lease_ran_out = 0;
    if (is_over)
        fence(next, number);
    else if (is_behind)
        set_aside(next, number);
    else if (!session->is_open)
        open_generation(next, number);
}

/* mark(), after the PUT: GET ended/EPOCH. There: a verdict has claimed the session before it could
 * see the mark. */
static void look_for_claim(const struct state *state, unsigned number, struct moves *moves)
{
    if (state->sessions[number].mark != MARK_LANDED)
        return;
    bool is_claimed = in_set(state->claims, number);
    struct state *next = move_add(moves, state, "session %u looks for ended/%u: %s", number, number,
                                  is_claimed ? "there, fenced" : "none");
    struct session *session = &next->sessions[number];
    session->mark = MARK_NONE;
    session->is_dirty = !is_claimed;
    if (is_claimed)
        session->state = SESSION_FENCED;
}

/* Says CLEAN what has all operations. */
static bool may_say_clean(const struct session *session, uint8_t round)
{
    return rules.marks && session->mark == MARK_NONE &&
           number_at(session, session->count, round) == session->count;
}

/* publish: put_new feeds/ROUND-EPOCH, that ends at any of the rounds that have passed. */
static void send_feed(const struct state *state, unsigned number, struct moves *moves)
{
    const struct session *session = &state->sessions[number];
    if (!session->is_dirty || session->feed.state != FEED_NONE ||
        session->published_round == ROUND_LAST || session->generation != state->head.generation)
        return;
    for (uint8_t round = (uint8_t)(session->published_round + 1); round <= state->now; round++)
        for (uint8_t clean = 0; clean <= may_say_clean(session, round); clean++) {
            struct state *next = move_add(moves, state, "session %u sends its feed to round %u%s",
                                          number, round, clean ? ", CLEAN" : "");
            next->sessions[number].feed =
                (struct feed){FEED_SENT, round, clean, session->generation};
        }
}

/* The node dies. POWER LOSS, planted: a session whose stage is gone goes on with what its feeds
 * have, instead of ending. */
static void crash(const struct state *state, unsigned number, struct moves *moves)
{
    for (unsigned resumes = 0; resumes <= rules.lost_goes_on; resumes++) {
        struct state *next = move_add(moves, state, "session %u crashes%s", number,
                                      resumes ? ", and goes on without its stage" : "");
        struct session *session = &next->sessions[number];
        move_is_fault(moves);
        next->crashes++;
        session->mark = MARK_NONE;
        session->feed.state = FEED_NONE;
        if (resumes)
            session->count = session->published;
        else
            session->state = SESSION_CRASHED;
    }
}

/* JOIN, end: put_new writers/NUMBER, look() once more. */
static void finish_join(const struct state *state, unsigned number, struct moves *moves)
{
    struct state *next = move_add(moves, state, "session %u creates writers/%u", number, number);
    struct session *session = &next->sessions[number];
    session->state = SESSION_ALIVE;
    session->lease_ran_out = !rules.no_second_look;
    if (!rules.marks) {
        session->is_dirty = 1;
        next->marks = with_member(next->marks, number);
    }
}

static unsigned last_session_of(const struct state *state, unsigned node)
{
    unsigned last = node;
    for (unsigned i = 0; i < SESSIONS_MAX; i++)
        if (state->sessions[i].state != SESSION_NONE && state->sessions[i].node == node)
            last = i;
    return last;
}

static bool is_replaceable(const struct state *state, unsigned number)
{
    uint8_t how = state->sessions[number].state;
    return how == SESSION_CRASHED || how == SESSION_LEFT || is_ended(state, number);
}

/* JOIN, begin: another store takes the place of a session that crashed or is ended; a store that
 * left begins another stay. It reads the newest head. */
static void begin_join(const struct state *state, unsigned node, struct moves *moves)
{
    unsigned last = last_session_of(state, node), number = bounds.nodes + state->joins;
    if (state->joins == bounds.joins || !is_replaceable(state, last))
        return;
    struct state *next =
        move_add(moves, state, "session %u begins to join on node %u: reads head", number, node);
    uint8_t generation = state->head.generation;
    next->joins++;
    next->sessions[number] = (struct session){.state = SESSION_JOINING,
                                              .node = (uint8_t)node,
                                              .generation = generation,
                                              .feed_generation = generation,
                                              .is_open = generation == 0,
                                              .is_dirty = rules.join_unlisted};
}

void writer_moves(const struct state *state, struct moves *moves)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        if (state->sessions[i].state == SESSION_JOINING)
            finish_join(state, i, moves);
        if (state->sessions[i].state != SESSION_ALIVE)
            continue;
        look(state, i, moves);
        look_for_claim(state, i, moves);
        send_feed(state, i, moves);
        if (state->crashes < bounds.crashes)
            crash(state, i, moves);
    }
    for (unsigned n = 0; n < bounds.nodes; n++)
        begin_join(state, n, moves);
}
