// SPDX-License-Identifier: Apache-2.0
/* Nodes that take the union's names into their own namespace: a small model of what a mount does.
 *
 * Operations are told later: world_merge() merges all that were not. Before that a node may take
 * the union, in which its own newest operations are not: an inode that these speak of stays as the
 * node has it. Its own file that loses its last name is an orphan then, as any file that may be
 * open, and its end is told. */
#pragma once

#include "base/vector.h"
#include "peers.h"

enum { TAKERS = 3 };

struct untold {
    struct peer *peer;
    uint64_t ino, ino2;
    uint8_t *bytes;
};

struct takers {
    struct peer peers[TAKERS];
    struct seeded seeded;
    VECTOR(struct untold) untold; /* in the order in which they were done */
    int64_t time;
    unsigned taken, taken_early, skipped; /* early: with untold operations */
};

void takers_begin(struct takers *t, uint64_t seed);
void takers_end(struct takers *t);
void takers_merge(struct takers *t);
/* It does so only where that is simple: the directories are the same, or it has told all. */
void taker_take(struct takers *t, struct peer *peer);
/* All have what the union has, and nothing else. */
void takers_expect_equal(struct takers *t);
