// SPDX-License-Identifier: Apache-2.0
/* Recent changes of this node, if several nodes write the prefix: names and inodes, each with the
 * number of its last operation. The union of all nodes does not contain these operations yet, so
 * its state of the name or inode is older than the local one. Any thread. */
#pragma once

#include "format/record.h"

struct touched;

/* `floor`: the newest operation of earlier daemons, whose changes are not listed here. */
struct touched *touched_new(uint64_t floor);
void touched_free(struct touched *touched); /* NULL is fine */

/* Adds an operation of this node; not one that was taken from the union. */
void touched_add(struct touched *touched, const struct record *rec);
/* The union shown here contains everything up to `seq`: removes older entries. */
void touched_forget(struct touched *touched, uint64_t seq);
/* A union head contains everything up to `seq`; it may not be shown here yet. */
void touched_merged(struct touched *touched, uint64_t seq);
/* A union head contains all of this node's own operations up to the returned number; operations
 * taken from the union count as contained. UINT64_MAX: it contains all of them. */
uint64_t touched_merged_up_to(struct touched *touched);
/* The last operation on the inode that no union head contains, as far as known; 0: none. */
uint64_t touched_last(struct touched *touched, uint64_t ino);
/* Number of operations that the union head lacks. */
size_t touched_count(struct touched *touched);
/* May return true for a name that was not changed, if two names have the same hash. */
bool touched_has_name(struct touched *touched, uint64_t dir, const char *name, size_t name_len);
bool touched_has_inode(struct touched *touched, uint64_t ino);
