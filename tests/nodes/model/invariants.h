// SPDX-License-Identifier: Apache-2.0
/* The promise: every head is the state that all nodes together had at one instant, as a job can
 * tell. */
#pragma once

#include "state.h"

enum broken {
    BROKEN_MARKER = 1,   /* a marker without all of its shards */
    BROKEN_DELETION = 2, /* a deletion before the marker of the step after */
    BROKEN_LOST = 4,     /* a session has less than a head says of it */
    BROKEN_ZOMBIE = 8,   /* operations of an ended session in a later generation */
};

/* Of the state's head. */
uint8_t broken_in_head(const struct state *state);
/* Of the head that is to follow. */
uint8_t broken_by_zombie(const struct state *state, const struct head *next);
const char *broken_text(uint8_t broken);

/* Has all got merged that sessions numbered which live, and has time passed to its end? */
bool all_is_merged(const struct state *state);
