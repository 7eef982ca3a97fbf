// SPDX-License-Identifier: Apache-2.0
/* By which chunk one is stored that takes the place of another, its partner, in a newer file: what
 * a lineage plans, after what the remote has already.
 *
 *   star    the base is the keyframe that the partner rests on, which has none itself: a chunk is
 *           read beside one other. For bf16 weights of training states: twins may rest on them
 *   nested  the base is the head of a small star, and its base the keyframe: that is half as far
 *           away, and a chunk is read beside two others. For fp32 numbers of training states
 *   chain   the base is the partner itself, which is nearest, up to CHAIN_DEPTH_MAX in a row. Then
 *           another chain begins at one that the partner rests on: mostly the head of its chain, so
 *           heads form a chain, too. When a keyframe costs less, the chunk becomes one. For weights
 *           alone
 *
 * A chunk that is the image of twins is of a training state, wherever it stands: its successor is
 * of a star. What is to be sent with the cut may be a base, too: a level says in which order.
 *
 * What a new base keeps in the remote though no file refers to it any more is at most as long as
 * the chunk that is stored by it: else the base is the keyframe, or there is none, and the chunk
 * becomes a keyframe. */
#pragma once

#include "format/chunk.h"

#define KEYFRAME_EVERY 10u /* a keyframe and the other members of its star */
#define NESTED_STARS 3u    /* that hang on a keyframe */
#define NESTED_MEMBERS 2u  /* that hang on the head of one */
#define CHAIN_DEPTH_MAX CHUNK_DEPTH_MAX

enum chain_form { FORM_STAR, FORM_NESTED, FORM_CHAIN };

struct view;
struct chains;

/* At most 131,072 links, of 9 MiB. One thread until it is complete. */
struct chains *chains_new(void);
void chains_free(struct chains *chains); /* NULL is fine */

/* The base that a chunk is to be stored by. */
struct chain_base {
    struct chunk_name name;
    unsigned depth; /* of the chunk, if it is; 0: none, it is a keyframe */
    /* 1 more than the base's, which is to be sent before it with the same cut, or 1: the base is
     * there, or is sent as it is. */
    unsigned level;
    uint32_t length; /* bytes that the chunk is then likely to take */
    bool is_placed;  /* the base is in the remote */
    bool is_dead;    /* and no file refers to it: differences alone keep it there */
};

/* A chunk of `raw_len` bytes, and the one of the earlier version in whose place it is. */
struct chain_place {
    const struct chunk_name *name, *partner;
    uint32_t raw_len;
    enum chain_form form;
};
/* Errors of the view. */
CAIRN_MUST_CHECK int chains_find_base(const struct chains *chains, struct view *view,
                                      const struct chain_place *place, struct chain_base *ret);

/* Plans the base of a chunk; nothing if there is no room, or something is planned for the chunk
 * already. A base that is to be sent without one itself stays so. */
void chains_add(struct chains *chains, const struct chunk_name *name,
                const struct chain_base *base);

/* Is something planned for the chunk, be it that it has no base? */
bool chains_know(const struct chains *chains, const struct chunk_name *name);
/* The planned base. Returns the level; 0: none. */
unsigned chains_planned(const struct chains *chains, const struct chunk_name *name,
                        struct chunk_name *ret_base);
