// SPDX-License-Identifier: Apache-2.0
/* Two jobs, one after the other. Each writes a shard on every node; when all are acknowledged, the
 * marker on node 0; after it, it deletes the old step on every node. */
#include "moves.h"
#include "rules.h"

enum { TIMES_MAX = 4 };

static bool all_nodes(const uint8_t *flags)
{
    for (unsigned n = 0; n < bounds.nodes; n++)
        if (!flags[n])
            return false;
    return true;
}

static bool all_started(const struct job *job)
{
    for (unsigned n = 0; n < bounds.nodes; n++)
        if (job->session[n] == NO_SESSION)
            return false;
    return true;
}

/* WRITER, the first operation after idleness starts mark(), whose look() finds nothing new. */
static void begin_mark(const struct state *state, unsigned number, struct moves *moves)
{
    const struct session *session = &state->sessions[number];
    if (session->mark != MARK_NONE || session->generation != state->head.generation ||
        is_ended(state, number))
        return;
    struct state *next =
        move_add(moves, state, "session %u looks: nothing new, and sends its mark", number);
    next->sessions[number].mark = MARK_SENT;
    next->sessions[number].is_dirty = rules.no_mark;
}

/* WRITER, the hold window: an operation is numbered strictly between two instants. Planted: a clock
 * that is wrong by up to a round. Rounds that the writer has passed by its own clock stay passed.
 */
static unsigned possible_times(const struct state *state, const struct session *session,
                               uint8_t *times)
{
    unsigned first = state->now + 1u, last = state->now + 1u, count = 0;
    if (rules.no_window) {
        first = state->now ? state->now : 1;
        last = state->now + 2u < bounds.rounds ? state->now + 2u : bounds.rounds;
    }
    uint8_t newest = session->count ? session->operations[session->count - 1].time : 0;
    for (unsigned time = first; time <= last; time++) {
        bool is_passed = time <= session->published_round ||
                         (session->feed.state != FEED_NONE && time <= session->feed.round);
        if (time >= newest && !(rules.no_window && is_passed))
            times[count++] = (uint8_t)time;
    }
    return count;
}

static void acknowledge(struct job *job, unsigned node, enum operation_kind kind)
{
    if (kind == OP_SHARD)
        job->has_shard[node] = 1;
    else if (kind == OP_MARKER)
        job->has_marker = 1;
    else
        job->has_deleted[node] = 1;
}

static void number_it(const struct state *state, unsigned j, unsigned node,
                      enum operation_kind kind, struct moves *moves)
{
    static const char *const names[] = {"shard", "MARKER", "deletion"};
    uint8_t number = state->jobs[j].session[node], times[TIMES_MAX];
    unsigned count = possible_times(state, &state->sessions[number], times);
    for (unsigned i = 0; i < count; i++) {
        struct state *next =
            move_add(moves, state, "job %u, node %u: %s acknowledged (session %u, round %u)", j,
                     node, names[kind], number, times[i]);
        struct session *session = &next->sessions[number];
        session->operations[session->count++] =
            (struct operation){operation_name(j, kind), times[i]};
        acknowledge(&next->jobs[j], node, kind);
    }
}

/* Is its store mounted? Planted: it is before it has joined, or after it has left. */
static bool is_mounted(const struct session *session)
{
    return (session->state == SESSION_ALIVE &&
            (!feed_leaves(&session->feed) || rules.numbers_after_leave)) ||
           (session->state == SESSION_JOINING && rules.join_unlisted) ||
           (session->state == SESSION_LEFT && rules.numbers_after_leave);
}

/* WRITER, before an operation gets a number: it parks, starts mark(), or may have one. */
static bool parks(const struct state *state, const struct session *session)
{
    return !is_mounted(session) || state->now >= bounds.rounds ||
           session->count == OPERATIONS_MAX || !session->is_open ||
           (session->lease_ran_out && !rules.no_lease) || /* LEASE */
           (session->feed.state != FEED_NONE && session->feed.clean);
}

static bool gets_eio(const struct state *state, unsigned j, unsigned node)
{
    const struct job *job = &state->jobs[j];
    return state->sessions[job->session[node]].state == SESSION_FENCED ||
           (job->is_old[node] && !rules.no_eio);
}

static void operate(const struct state *state, unsigned j, unsigned node, enum operation_kind kind,
                    struct moves *moves)
{
    uint8_t number = state->jobs[j].session[node];
    const struct session *session = &state->sessions[number];
    if (gets_eio(state, j, node))
        move_add(moves, state, "job %u gets EIO on node %u: ends", j, node)->jobs[j].runs = 0;
    else if (parks(state, session))
        return;
    else if (!session->is_dirty)
        begin_mark(state, number, moves);
    else
        number_it(state, j, node, kind, moves);
}

/* Planted (SETTLE): a process looks at the store once, when it starts, instead of the lease. */
static bool is_settled(const struct state *state, unsigned number)
{
    const struct session *session = &state->sessions[number];
    return session->generation == state->head.generation && session->is_open &&
           !is_ended(state, number);
}

static void start_process(const struct state *state, unsigned j, unsigned node, struct moves *moves)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        const struct session *session = &state->sessions[i];
        if (!is_mounted(session) || session->node != node ||
            (rules.settle && !is_settled(state, i)))
            continue;
        move_add(moves, state, "job %u starts on node %u (session %u)", j, node, i)
            ->jobs[j]
            .session[node] = (uint8_t)i;
    }
}

/* The next step of the job's process on the node. */
static void process_moves(const struct state *state, unsigned j, unsigned node, struct moves *moves)
{
    const struct job *job = &state->jobs[j];
    if (job->session[node] == NO_SESSION)
        start_process(state, j, node, moves);
    else if (!rules.no_rendezvous && !all_started(job))
        return;
    else if (!job->has_shard[node])
        operate(state, j, node, OP_SHARD, moves);
    else if (node == 0 && !job->has_marker && all_nodes(job->has_shard))
        operate(state, j, node, OP_MARKER, moves);
    else if (job->has_marker && !job->has_deleted[node] && !rules.no_deletions)
        operate(state, j, node, OP_DELETE, moves);
    else if (gets_eio(state, j, node))
        operate(state, j, node, OP_SHARD, moves); /* of the next step */
}

static bool sees_death(const struct state *state, const struct job *job)
{
    for (unsigned n = 0; n < bounds.nodes; n++)
        if (job->session[n] != NO_SESSION &&
            state->sessions[job->session[n]].state >= SESSION_CRASHED)
            return true;
    return false;
}

static bool has_begun(const struct job *job)
{
    for (unsigned n = 0; n < bounds.nodes; n++)
        if (job->session[n] != NO_SESSION)
            return true;
    return false;
}

void job_moves(const struct state *state, struct moves *moves)
{
    const struct job *jobs = state->jobs;
    for (unsigned j = 0; j < JOBS; j++) {
        for (unsigned n = 0; jobs[j].runs && n < bounds.nodes; n++)
            process_moves(state, j, n, moves);
        if (jobs[j].runs && sees_death(state, &jobs[j]))
            move_add(moves, state, "job %u sees a dead node: ends", j)->jobs[j].runs = 0;
    }
    if (rules.start_skew && jobs[0].runs)
        move_add(moves, state, "job 0 ends by itself")->jobs[0].runs = 0;
    if (!jobs[0].runs && !jobs[1].runs && !has_begun(&jobs[1]))
        move_add(moves, state, "the trainer starts again: job 1")->jobs[1].runs = 1;
}
