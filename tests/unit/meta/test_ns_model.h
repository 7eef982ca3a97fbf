// SPDX-License-Identifier: Apache-2.0
/* The model that random histories of the overlay are compared with: a tree of names in memory. */
#pragma once

#include "../base/seeded.h"
#include "helpers.h"
#include "meta/ns.h"

#define NODES 40u
#define ENTRIES 60u
#define NAMES 8u
#define XATTRS 3u

struct model_node {
    uint64_t ino; /* 0: free */
    uint32_t mode;
    uint32_t names;
    uint64_t version, size;
    struct model_node *parent; /* NULL: it lost the name that was there, and has others */
    bool nascent, open;
    uint8_t xattrs[XATTRS]; /* length of the value; 0: none */
    char target[8];
    uint64_t changed; /* sequence number that the view lacks, 0 */
};

struct model_entry {
    struct model_node *dir, *node; /* node NULL: free */
    char name[4];
    uint64_t cookie;
};

extern struct ns *ns;
extern struct seeded seed;
extern struct model_node nodes[NODES]; /* the first is the root */
extern struct model_entry entries[ENTRIES];

uint64_t rnd(uint64_t below);
bool is_dir(const struct model_node *n);
struct model_node *random_node(bool (*fits)(const struct model_node *n));
bool fits_dir(const struct model_node *n);
bool fits_file(const struct model_node *n);
bool fits_any(const struct model_node *n);
struct model_entry *find_entry(const struct model_node *dir, const char *name);
/* As ns_may_be_below() climbs. */
bool may_be_below(const struct model_node *n, const struct model_node *dir);
/* Everything that the overlay says is what the model says. */
void check_all(void);
