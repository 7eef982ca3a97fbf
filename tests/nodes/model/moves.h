// SPDX-License-Identifier: Apache-2.0
/* The states that can come next. */
#pragma once

#include "state.h"

enum { MOVES_MAX = 256, MOVE_TEXT_MAX = 160 };

struct moves {
    bool has_texts; /* to be printed: else texts are not made */
    unsigned count;
    bool are_faults[MOVES_MAX]; /* without them, too, all gets merged */
    struct state states[MOVES_MAX];
    char texts[MOVES_MAX][MOVE_TEXT_MAX];
};

/* All that can happen next. */
void moves_of(const struct state *state, struct moves *moves);

/* Adds a copy of the state, which the caller changes, and what happened. */
struct state *move_add(struct moves *moves, const struct state *from, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* The move that was added last is a fault. */
void move_is_fault(struct moves *moves);

/* Of each part of the system. */
void writer_moves(const struct state *state, struct moves *moves);
void leaving_moves(const struct state *state, struct moves *moves);
void store_moves(const struct state *state, struct moves *moves);
void job_moves(const struct state *state, struct moves *moves);
void merger_moves(const struct state *state, struct moves *moves);
