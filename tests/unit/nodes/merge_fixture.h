// SPDX-License-Identifier: Apache-2.0
/* A union of names, and nodes whose operations are merged into it. */
#pragma once

#include "../checked_test.h"
#include "../view/helpers.h"
#include "nodes/merge.h"

extern struct fixture f; /* its view is the union */
extern struct merge *merge;
extern uint64_t impossible; /* changes that a test asks for */

struct node {
    uint64_t epoch, ops, inos;
};
extern struct node one, two, three;

#define NAMED(text) .name = text, .name_len = (uint16_t)strlen(text)
#define EXPECT_COUNT(member, wanted) assert_u64(merge_counts(merge).member, wanted)

void merge_setup(void);
void merge_teardown(void);
/* The union is, and nothing was told that no node may tell, but for what the test says. */
void merge_expect_whole(void);
uint64_t new_ino(struct node *node);
uint64_t merge_op(struct node *node, struct record rec);
uint64_t make_dir(struct node *node, uint64_t parent, const char *name);
uint64_t make_file(struct node *node, uint64_t parent, const char *name);
void write_file(struct node *node, uint64_t ino, uint64_t version, uint64_t size);
void remove_name(struct node *node, uint64_t ino, uint64_t parent, const char *name);
void move(struct node *node, uint64_t ino, uint64_t ino2, uint64_t parent, const char *name,
          uint64_t parent2, const char *name2);
/* The same, over the last name of ino2, which is not open. */
void move_over(struct node *node, uint64_t ino, uint64_t ino2, uint64_t parent, const char *name,
               uint64_t parent2, const char *name2);
uint64_t at(const char *path);
void expect_absent(uint64_t ino);
void reap(struct node *node, uint64_t ino);
/* As a mount tells the removal of the last name: the file may be open. */
void remove_last(struct node *node, uint64_t ino, uint64_t parent, const char *name);
/* The same of a file that is not open. */
void remove_file(struct node *node, uint64_t ino, uint64_t parent, const char *name);
void link_to(struct node *node, uint64_t ino, uint64_t parent, const char *name);
/* For what lists inodes: `count` is an unsigned. */
int count_one(uint64_t ino, void *count);
