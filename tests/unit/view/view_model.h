// SPDX-License-Identifier: Apache-2.0
/* A model of a random history in memory, and the random operations that write it: a tree of names,
 * and files as arrays of units, each of which says which unit of which chunk, or which inline byte,
 * it shows. */
#pragma once

#include "../base/seeded.h"
#include "helpers.h"

#define NODES 40
#define ENTRIES 80
#define CHUNKS 4000

struct node {
    uint64_t ino; /* 0: free */
    uint32_t type;
    uint32_t nlink; /* names */
    bool orphan;
    uint32_t xattrs; /* bit i: "user.i" is there */
    uint64_t version;
    uint64_t size; /* units */
    uint64_t *units;
};

struct entry {
    struct node *parent, *node; /* node NULL: free */
    char name[8];
    uint64_t cookie;
};

#define INLINE_UNIT (1ull << 63)

extern struct model {
    struct fixture f;
    struct node nodes[NODES];
    struct entry entries[ENTRIES];
    uint64_t unit;      /* bytes of a unit */
    uint64_t units_max; /* of a file */
    uint64_t base;      /* all content lies at or after it */
    uint64_t next_ino;
    uint32_t next_chunk;
    uint64_t next_pack;
    bool placed[CHUNKS]; /* in a pack of the view */
    struct seeded random;
} m;

void model_begin(uint64_t seed, uint64_t unit, uint64_t units_max, uint64_t base);
void model_end(void);
uint64_t rnd(uint64_t below);
uint64_t to_bytes(uint64_t units);
struct entry *find_entry(const struct node *parent, const char *name);
/* Adds records to the batch of the fixture. */
void random_op(void);
/* Moves what a pack holds that is live to a new one and drops it, in a batch of its own. */
void compact(void);
/* Some chunks get a new place, where they rest on others, in a batch of its own. */
void condense(void);
