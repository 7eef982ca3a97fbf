// SPDX-License-Identifier: Apache-2.0
/* Breadth-first search of all states that can be reached. */
#pragma once

#include <stddef.h>

#include "state.h"
#include "table.h"

enum search_end { SEARCH_HOLDS, SEARCH_BROKEN, SEARCH_LIMIT /* not all states were searched */ };

/* One step of the shortest way to a state. */
struct step {
    uint32_t from;
    uint16_t move; /* index in struct moves */
} __attribute__((packed));

/* A move that is no fault. */
struct edge {
    uint32_t to, from;
};

struct search {
    size_t states_max;
    bool keeps_edges;

    struct table table;
    struct step *steps; /* by the state's number */
    size_t steps_size;
    struct edge *edges; /* with keeps_edges */
    size_t edges_count, edges_size;
    uint8_t *is_goal; /* by number, with keeps_edges: all_is_merged() */
    unsigned depth;   /* steps to the states that were found last */
    uint32_t broken;  /* SEARCH_BROKEN: number of the state */
    uint8_t how;      /* set of enum broken */
};

void search_init(struct search *search, size_t states_max, bool keeps_edges);
enum search_end search_run(struct search *search);
/* Prints the way to the state. */
void search_print(const struct search *search, uint32_t number);
void search_free(struct search *search);

/* After SEARCH_HOLDS with keeps_edges: the number of states from which all_is_merged() cannot be
 * reached without further faults. `ret_first`: one of them. */
size_t search_stuck(struct search *search, uint32_t *ret_first);
