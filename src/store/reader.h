// SPDX-License-Identifier: Apache-2.0
/* Reading a store or a remote that is not mounted: no stage, no threads of its own, nothing is
 * written but a view. What the namespace is, store_ns() tells; content is read here, in groups of
 * chunks that lie together, by as many threads as the caller has. Errors are negative errno;
 * -EBADMSG and -EUCLEAN: damage; -ENOENT: the bytes are nowhere. */
#pragma once

#include "store/store.h"

/* With options->remote: what its newest head says, in options->path, an empty private directory
 * that the caller removes later. Without: what is durable in the store options->path, of which the
 * caller holds STORE/lock; a stage is left as it is. On failure *ret_text says in one line what is
 * wrong (caller frees). */
CAIRN_MUST_CHECK int reader_open(const struct store_options *options, struct store **ret,
                                 char **ret_text);
void reader_close(struct store *store);

/* Reads that are under way, and all later ones, end soon with an error. Any thread. */
void reader_interrupt(struct store *store);

/* Why the newest head of the remote is not what is shown, and which one is; NULL: it is. Lent, as
 * long as the store. */
const char *reader_shown_instead(const struct store *store);

/* The directory of the stage that a dead daemon of this store left, with data that is nowhere else
 * perhaps; NULL: none. Caller frees. */
char *reader_left_stage(const struct store *store);

/* Content of a file that is one read: chunks that lie together in a pack, or bytes that are here
 * already. */
struct reader_group;

/* Calls `fn` with the groups of a file, in order; holes are in none. `fn` owns the group; negative
 * results end the call. */
CAIRN_MUST_CHECK int reader_plan(struct store *store, uint64_t ino,
                                 int (*fn)(struct reader_group *group, void *arg), void *arg);
void reader_group_free(struct reader_group *group);

/* Reads and verifies a group; gives the parts of the file. Any thread; blocks. */
CAIRN_MUST_CHECK int
reader_fetch(struct store *store, const struct reader_group *group,
             int (*fn)(uint64_t offset, const void *bytes, size_t length, void *arg), void *arg);
