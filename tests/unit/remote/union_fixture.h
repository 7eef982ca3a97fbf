// SPDX-License-Identifier: Apache-2.0
/* A prefix that several nodes write. The nodes are stores, each with a prefix of its own below
 * nodes/; the union over them is made here by the formats: its names are the rows of names of all
 * nodes, and feeds name their runs. */
#pragma once

#include "codec/hash.h"
#include "remote_fixture.h"

#define NODES 2u

struct row {
    uint8_t key[RUN_KEY_MAX], *value; /* NULL: removed */
    size_t key_len, value_len;
};
DEFINE_VECTOR(rows, struct row);
struct row *rows_add(struct rows *rows, const struct run_row *from);
void rows_done(struct rows *rows);

struct node {
    struct store_fixture fixture;
    uint32_t number; /* and the epoch of its stay */
    char *prefix;
    uint64_t merged, round; /* of its newest feed */
    uint8_t hash[HASH_LEN];
    struct run_info runs[RUN_LIST_MAX]; /* instead of those of its head, if there are some */
    uint32_t run_count;
    uint32_t told_number; /* that it says in its feeds, instead; 0: its own */
};
extern struct node union_nodes[NODES];

struct union_prefix {
    char *path;
    struct rows rows; /* names of the newest head */
    struct head head;
    struct rows fresh; /* names now */
    struct row root;   /* as it is now */
};
extern struct union_prefix union_prefix;

void several_begin(void);
void several_end(void);
/* From the next feed on, the rows of the node lie in as many runs. */
void several_split_runs(struct node *node, unsigned runs);
void several_put_file(unsigned node, const char *name, unsigned number);
/* The state of all nodes as they have published it, as the next head. */
void several_publish(void);
/* The head that the node published last; the caller's. */
struct head *several_head_of(struct node *node);
/* Puts it in both places. `directory`: "" or "nodes/NODE/". */
struct run_info several_put_run(const char *directory, struct run_info info,
                                const struct rows *rows);
