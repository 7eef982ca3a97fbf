// SPDX-License-Identifier: Apache-2.0
/* Nodes that do what a mount may do, each in a view of its own: files, links, renames, open files,
 * in few names. */
#pragma once

#include "../base/seeded.h"
#include "merge_fixture.h"

enum { PEER_INOS_MAX = 4000 };

struct peer {
    struct fixture own;
    struct node node;
    uint64_t inos[PEER_INOS_MAX]; /* all that it ever made, or took */
    size_t count;
    uint64_t cookies; /* places that it gave out besides */
    bool takes;       /* what is not of its epoch is another node's */
    void (*tell)(struct peer *peer, const struct record *rec); /* gets each operation */
    void *arg;
};

void peer_open(struct peer *peer, uint64_t epoch);
/* An operation, which fits what the node has. */
void peer_op(struct peer *peer, struct record rec);
/* The same, taken from the union: nobody is told. */
void peer_adopt(struct peer *peer, struct record rec);
/* One that is chosen at random, or none. */
void peer_step(struct peer *peer, struct seeded *seeded);
/* The node removes all that it has, but its directories. */
void peer_end(struct peer *peer);
bool peer_owns(const struct peer *peer, uint64_t ino);
bool peer_has(struct peer *peer, uint64_t ino, struct view_inode *ret);
/* A directory of the node's, often the root. */
uint64_t peer_dir(struct peer *peer, struct seeded *seeded);
/* One that is no directory; 0: none was found. */
uint64_t peer_file(struct peer *peer, struct seeded *seeded, struct view_inode *ret);
void peer_make(struct peer *peer, uint64_t parent, const char *name, unsigned kind);
