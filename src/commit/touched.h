// SPDX-License-Identifier: Apache-2.0
/* What this node changed lately, where several write the prefix: names and inodes, each with the
 * number of its last operation. The union of all nodes does not have these operations yet, so what
 * it says of the name or inode is older than what is here. Any thread. */
#pragma once

#include "format/record.h"

struct touched;

struct touched *touched_new(void);
void touched_free(struct touched *touched); /* NULL is fine */

/* An operation happened here; none that was taken from the union. */
void touched_add(struct touched *touched, const struct record *rec);
/* The union has all up to `seq`. */
void touched_forget(struct touched *touched, uint64_t seq);
/* Operations that it does not have. */
size_t touched_count(struct touched *touched);
/* May say yes of what was not touched, for two names with one hash. */
bool touched_has_name(struct touched *touched, uint64_t dir, const char *name, size_t name_len);
bool touched_has_inode(struct touched *touched, uint64_t ino);
