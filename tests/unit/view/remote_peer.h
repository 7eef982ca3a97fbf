// SPDX-License-Identifier: Apache-2.0
/* A view that tracks, and what its remote must hold: for test_view_remote_random.c. */
#pragma once

#include "test_remote.h"
#include "view_model.h"

#define PEER_PACKS 2000
#define PEERS 2

struct place {
    uint64_t pack, offset; /* pack 0: none */
};

struct peer_pack {
    uint64_t id, length;
    uint32_t count;
    bool published, unreferenced, gone;
    bool is_new; /* stored after the cut was opened */
};

/* A view that tracks, its remote, and what the remote must hold. */
struct peer {
    struct view *view; /* NULL: none */
    char *path;
    size_t applied; /* batches */
    struct test_remote remote;
    struct place places[CHUNKS];
    struct peer_pack packs[PEER_PACKS];
    size_t pack_count;

    struct view_cut *cut; /* NULL: none */
    char *expected;       /* the view at the cut */
    size_t cut_batch;
    struct place places_then[CHUNKS];
    uint64_t refs_then[CHUNKS];
    struct view_pack local[CHUNKS]; /* packs of the view at the cut */
    size_t local_count;
};

extern struct peer peers[PEERS];
extern struct view *reference;    /* does not track */
extern uint64_t next_remote_pack; /* pack */

uint64_t refs_in(struct view *view, uint32_t id);
struct peer_pack *pack_of(struct peer *p, uint64_t id);
/* What must hold at any time. */
void check_peer(struct peer *p);
/* What is pending at the cut and has no place yet, a few packs at a time. */
void place_pending(struct peer *p, bool all);
/* Some chunks of an old pack move to a new one. */
void relocate(struct peer *p);
void lose(struct peer *p);
void delete_unreferenced(struct peer *p);
void open_cut(struct peer *p);
void close_cut(struct peer *p);
/* What publishing does to the packs. */
void note_all_published(struct peer *p);
