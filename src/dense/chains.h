// SPDX-License-Identifier: Apache-2.0
/* By which base a chunk is stored that replaces another chunk, its partner, in a newer file: plans
 * of a lineage, which take the chunks in the remote into account.
 *
 * star    the base is the keyframe of the partner's chain, which has no base itself: a chunk is
 *         read with one other. For bf16 weights of training states: twins may depend on them
 * nested  the base is the head of a small star, whose base is the keyframe: the distance is half as
 *         long, and a chunk is read with two others. For fp32 numbers of training states
 * chain   the base is the partner itself, which is nearest, up to CHAIN_DEPTH_MAX in a row. Then
 *         another chain begins at a base of the partner: mostly the head of its chain, so heads
 * form a chain, too. If a keyframe costs less, the chunk becomes one. Only for weights
 *
 * If a chunk is the image of twins, it belongs to a training state, wherever it is: its successor
 * is in a star. A chunk to be sent with the same cut may be a base, too: a level determines the
 * order.
 *
 * The bytes that a new base keeps in the remote, although no file refers to them any more, are
 * limited to the length of the chunk stored by it: otherwise the base is the keyframe, or there is
 * none, and the chunk becomes a keyframe. */
#pragma once

#include "format/chunk.h"

#define KEYFRAME_EVERY 10u /* a keyframe and the other members of its star */
#define NESTED_STARS 3u    /* per keyframe */
#define NESTED_MEMBERS 2u  /* per head of a nested star */
#define CHAIN_DEPTH_MAX CHUNK_DEPTH_MAX

enum chain_form { FORM_STAR, FORM_NESTED, FORM_CHAIN };

struct view;
struct chains;

/* At most 131,072 links, 9 MiB. Used by one thread until it is complete. */
struct chains *chains_new(void);
void chains_free(struct chains *chains); /* NULL is fine */

/* The base by which a chunk is to be stored. */
struct chain_base {
    struct chunk_name name;
    unsigned depth; /* of the chunk with this base; 0: no base, it is a keyframe */
    /* one more than the base's level, if the base is sent before it with the same cut; else 1: the
     * base is in the remote, or is sent without a base */
    unsigned level;
    uint32_t length; /* likely stored length of the chunk */
    bool is_placed;  /* the base is in the remote */
    bool is_dead;    /* and no file refers to it: only differences keep it there */
};

/* A chunk of `raw_len` bytes, and its predecessor in the earlier version. */
struct chain_place {
    const struct chunk_name *name, *partner;
    uint32_t raw_len;
    enum chain_form form;
};
/* Finds a base. Errors of the view. */
CAIRN_MUST_CHECK int chains_find_base(const struct chains *chains, struct view *view,
                                      const struct chain_place *place, struct chain_base *ret);

/* Plans the base of a chunk; does nothing if there is no room, or the chunk is planned already. A
 * base that is planned without a base itself stays a keyframe. */
void chains_add(struct chains *chains, const struct chunk_name *name,
                const struct chain_base *base);

/* Is the chunk planned, with or without a base? */
bool chains_know(const struct chains *chains, const struct chunk_name *name);
/* Returns the planned base, and its level; 0: none. */
unsigned chains_planned(const struct chains *chains, const struct chunk_name *name,
                        struct chunk_name *ret_base);
