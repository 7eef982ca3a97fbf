// SPDX-License-Identifier: Apache-2.0
/* What this node changed lately, where several write the prefix: names and inodes, each with the
 * number of its last operation. The union of all nodes does not have these operations yet, so what
 * it says of the name or inode is older than what is here. Any thread. */
#pragma once

#include "format/record.h"

struct touched;

/* `floor`: the newest operation of earlier daemons, which are not known here one by one. */
struct touched *touched_new(uint64_t floor);
void touched_free(struct touched *touched); /* NULL is fine */

/* An operation happened here; none that was taken from the union. */
void touched_add(struct touched *touched, const struct record *rec);
/* The union that is shown here has all up to `seq`. */
void touched_forget(struct touched *touched, uint64_t seq);
/* A union head has all up to `seq`; it may not be shown here yet. */
void touched_merged(struct touched *touched, uint64_t seq);
/* A union head has all operations that this node did itself, up to this number; those that were
 * taken count as had. UINT64_MAX: it has all that there are. */
uint64_t touched_merged_up_to(struct touched *touched);
/* The last operation on the inode that no union head has, as far as it is known; 0: none. */
uint64_t touched_last(struct touched *touched, uint64_t ino);
/* Operations that it does not have. */
size_t touched_count(struct touched *touched);
/* May say yes of what was not touched, for two names with one hash. */
bool touched_has_name(struct touched *touched, uint64_t dir, const char *name, size_t name_len);
bool touched_has_inode(struct touched *touched, uint64_t ino);
