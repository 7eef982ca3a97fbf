// SPDX-License-Identifier: Apache-2.0
#include "search.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"
#include "invariants.h"
#include "moves.h"
#include "rules.h"

enum { FIRST_STATES = 1 << 16 };

/* States found in as many steps, whose moves are to be tried. */
struct frontier {
    struct found {
        uint32_t number;
        struct state state;
    } * states;
    size_t count, size;
};

static void frontier_add(struct frontier *frontier, uint32_t number, const struct state *state)
{
    if (frontier->count == frontier->size) {
        frontier->size = frontier->size ? frontier->size * 2 : FIRST_STATES;
        frontier->states = grow(frontier->states, frontier->size, sizeof(*frontier->states));
    }
    frontier->states[frontier->count].number = number;
    frontier->states[frontier->count++].state = *state;
}

/* All nodes have a session, and job 0 has begun on them. */
static struct state first_state(void)
{
    struct state state = {0};
    for (unsigned n = 0; n < bounds.nodes; n++) {
        state.sessions[n] = (struct session){
            .state = SESSION_ALIVE, .node = (uint8_t)n, .is_open = 1, .is_dirty = !rules.marks};
        if (!rules.marks)
            state.marks = with_member(state.marks, n);
        state.jobs[0].session[n] = (uint8_t)n;
        state.jobs[1].session[n] = NO_SESSION;
    }
    state.jobs[0].runs = 1;
    return state;
}

void search_init(struct search *search, size_t states_max, bool keeps_edges)
{
    *search = (struct search){.states_max = states_max, .keeps_edges = keeps_edges};
    table_init(&search->table);
}

void search_free(struct search *search)
{
    table_free(&search->table);
    free(search->steps);
    free(search->edges);
    free(search->is_goal);
}

static void note_step(struct search *search, uint32_t number, struct step step)
{
    if (number >= search->steps_size) {
        search->steps_size = search->steps_size ? search->steps_size * 2 : FIRST_STATES;
        search->steps = grow(search->steps, search->steps_size, sizeof(*search->steps));
        if (search->keeps_edges)
            search->is_goal = grow(search->is_goal, search->steps_size, 1);
    }
    search->steps[number] = step;
    if (search->keeps_edges)
        search->is_goal[number] = 0;
}

static void note_edge(struct search *search, struct edge edge)
{
    if (search->edges_count == search->edges_size) {
        search->edges_size = search->edges_size ? search->edges_size * 2 : FIRST_STATES;
        search->edges = grow(search->edges, search->edges_size, sizeof(*search->edges));
    }
    search->edges[search->edges_count++] = edge;
}

/* Adds the states that come after one. False: one of them is broken. */
static bool expand(struct search *search, const struct found *found, struct moves *moves,
                   struct frontier *next)
{
    if (search->keeps_edges)
        search->is_goal[found->number] = all_is_merged(&found->state);
    moves_of(&found->state, moves);
    for (unsigned i = 0; i < moves->count; i++) {
        size_t known = search->table.count;
        uint32_t number = table_add(&search->table, &moves->states[i]);
        if (search->keeps_edges && !moves->are_faults[i])
            note_edge(search, (struct edge){number, found->number});
        if (number < known)
            continue;
        note_step(search, number, (struct step){found->number, (uint16_t)i});
        search->broken = number;
        search->how = moves->states[i].broken;
        if (search->how)
            return false;
        frontier_add(next, number, &moves->states[i]);
    }
    return true;
}

/* All that is one step further. */
static enum search_end expand_all(struct search *search, const struct frontier *frontier,
                                  struct frontier *next)
{
    static struct moves moves;
    for (size_t i = 0; i < frontier->count; i++) {
        if (!expand(search, &frontier->states[i], &moves, next))
            return SEARCH_BROKEN;
        if (search->table.count >= search->states_max)
            return SEARCH_LIMIT;
    }
    return SEARCH_HOLDS;
}

enum search_end search_run(struct search *search)
{
    struct frontier frontier = {0}, next = {0};
    struct state first = first_state();
    note_step(search, table_add(&search->table, &first), (struct step){0});
    frontier_add(&frontier, 0, &first);
    enum search_end end = SEARCH_HOLDS;
    while (end == SEARCH_HOLDS && frontier.count) {
        next.count = 0;
        end = expand_all(search, &frontier, &next);
        struct frontier old = frontier;
        frontier = next;
        next = old;
        search->depth += end != SEARCH_HOLDS || frontier.count > 0;
    }
    free(frontier.states);
    free(next.states);
    return end;
}

/* The moves that lead to the state, last first. Returns how many. */
static unsigned way_back(const struct search *search, uint32_t number, uint16_t *way)
{
    unsigned count = 0;
    for (; number; number = search->steps[number].from)
        way[count++] = search->steps[number].move;
    return count;
}

void search_print(const struct search *search, uint32_t number)
{
    static struct moves moves = {.has_texts = true};
    uint16_t *way = grow(NULL, search->depth + 1, sizeof(*way));
    struct state state = first_state();
    unsigned count = way_back(search, number, way);
    for (unsigned i = 0; i < count; i++) {
        moves_of(&state, &moves);
        unsigned move = way[count - 1 - i];
        printf("  %2u %s\n", i + 1, moves.texts[move]);
        state = moves.states[move];
    }
    free(way);
}

static int compare_edges(const void *a, const void *b)
{
    const struct edge *one = a, *other = b;
    return one->to < other->to ? -1 : one->to > other->to;
}

/* The first edge that leads to the state or to a later one. */
static size_t first_edge_to(const struct search *search, uint32_t number)
{
    size_t low = 0, high = search->edges_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (search->edges[middle].to < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Marks the states from which a goal is reached, backwards from the goals. */
static void mark_what_leads_to_goals(struct search *search)
{
    uint32_t *todo = grow(NULL, search->table.count, sizeof(*todo));
    size_t count = 0;
    for (uint32_t i = 0; i < search->table.count; i++)
        if (search->is_goal[i])
            todo[count++] = i;
    while (count) {
        uint32_t number = todo[--count];
        for (size_t i = first_edge_to(search, number);
             i < search->edges_count && search->edges[i].to == number; i++) {
            uint32_t from = search->edges[i].from;
            if (!search->is_goal[from]) {
                search->is_goal[from] = 1;
                todo[count++] = from;
            }
        }
    }
    free(todo);
}

size_t search_stuck(struct search *search, uint32_t *ret_first)
{
    size_t stuck = 0;
    qsort(search->edges, search->edges_count, sizeof(*search->edges), compare_edges);
    mark_what_leads_to_goals(search);
    for (uint32_t i = 0; i < search->table.count; i++)
        if (!search->is_goal[i] && stuck++ == 0)
            *ret_first = i;
    return stuck;
}
