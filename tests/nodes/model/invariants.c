// SPDX-License-Identifier: Apache-2.0
#include "invariants.h"

#include "rules.h"

/* Of a job's operations, those that a head shows. */
struct shown {
    unsigned shards, deletions;
    bool has_marker;
};

static void show(struct shown *jobs, const struct operation *operation)
{
    struct shown *job = &jobs[operation_job(operation)];
    enum operation_kind kind = operation_kind(operation);
    if (kind == OP_MARKER)
        job->has_marker = true;
    else
        (*(kind == OP_SHARD ? &job->shards : &job->deletions))++;
}

uint8_t broken_in_head(const struct state *state)
{
    struct shown jobs[JOBS] = {0};
    uint8_t broken = 0;
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        for (unsigned k = 0; k < state->head.merged[i] && k < state->sessions[i].count; k++)
            show(jobs, &state->sessions[i].operations[k]);
        if (state->head.merged[i] > state->sessions[i].count)
            broken |= BROKEN_LOST;
    }
    for (unsigned j = 0; j < JOBS; j++) {
        if (jobs[j].has_marker && jobs[j].shards < bounds.nodes)
            broken |= BROKEN_MARKER;
        if (jobs[j].deletions > 0 && !jobs[j].has_marker)
            broken |= BROKEN_DELETION;
    }
    return broken;
}

uint8_t broken_by_zombie(const struct state *state, const struct head *next)
{
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        uint8_t last = state->ended_generation[i];
        if (last && last - 1 < state->head.generation && next->merged[i] != state->head.merged[i])
            return BROKEN_ZOMBIE;
    }
    return 0;
}

const char *broken_text(uint8_t broken)
{
    return broken & BROKEN_MARKER     ? "a marker without its shards"
           : broken & BROKEN_DELETION ? "a deletion before its marker"
           : broken & BROKEN_LOST     ? "a session lost what a head has"
                                      : "an ended session in a later generation";
}

bool all_is_merged(const struct state *state)
{
    if (state->now < bounds.rounds)
        return false;
    for (unsigned i = 0; i < SESSIONS_MAX; i++) {
        const struct session *session = &state->sessions[i];
        if (session->state == SESSION_JOINING)
            return false;
        bool tells = session->state == SESSION_ALIVE || session->state == SESSION_LEFT;
        if (tells && !is_ended(state, i) &&
            (session->generation != state->head.generation ||
             state->head.merged[i] != session->count))
            return false;
    }
    return true;
}
