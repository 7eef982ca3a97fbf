// SPDX-License-Identifier: Apache-2.0
/* A set of states that remembers their hashes of 64 bits only: two states of 10 million with one
 * hash are a chance of 3 in a million. A state's number says when it was found. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "state.h"

struct table {
    uint64_t *hashes; /* 0: free */
    uint32_t *numbers;
    size_t size; /* a power of two */
    size_t count;
};

void table_init(struct table *table);
void table_free(struct table *table);
/* The state's number. A new one has the number that table->count was. */
uint32_t table_add(struct table *table, const struct state *state);
