// SPDX-License-Identifier: Apache-2.0
/* A plain model of chunks in the remote that rest on each other, which recounts need and
 * completeness from the entries alone. */
#pragma once

#include "helpers.h"
#include "view/remote.h"

#define IDS 40u

struct chunk {
    uint32_t refs;
    uint64_t local, remote; /* packs; 0: none */
    bool suspect;           /* the pack in the remote is */
    uint8_t depth, ref_count;
    uint32_t bases[CHUNK_REFS_MAX];
};

struct state {
    struct chunk chunks[IDS];
};

/* Has it an entry that refers to `base`? */
bool rests_on(const struct chunk *c, uint32_t base);
bool is_needed(const struct state *s, uint32_t id);
bool is_complete(const struct state *s, uint32_t id);
/* The chunk has no place in the remote any more. */
void unplace(struct chunk *c);
/* Needed chunks that lie here do not rest on what is lost or suspect: the deepest leave first. */
void leave_incomplete(struct state *s);
/* The view is as the model says. */
void compare(struct view *view, const struct state *s);
