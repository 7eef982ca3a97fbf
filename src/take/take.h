// SPDX-License-Identifier: Apache-2.0
/* What other nodes wrote, on the mount of a node.
 *
 * The node's own store has its files and their content. A second store follows the union of all
 * nodes, as a mount with -o ro does. Whenever it shows a newer head, the names that differ become
 * operations of the own store, marked as taken: so lookups, listings and recovery know of nothing
 * new. Content of other nodes' files is read from the second store.
 *
 * What this node did since then is newer than the union: such names and inodes stay as they are
 * until a head has these operations (commit/touched.h). Nothing is compared with an earlier head:
 * what is taken depends on the two states alone, so it can be done again at any time.
 *
 * Threads: one of its own, cairn-take. */
#pragma once

#include "fs/fs.h"

struct take;

struct take_options {
    struct store *store; /* the node's own */
    struct fs *fs;       /* over it */
    /* Opens the store that follows, started; take closes it. Called again a while after it failed.
     * -ENOENT: there is no union yet. *ret_text: why (caller frees). Blocks. */
    int (*open)(void *arg, struct store **ret, char **ret_text);
    /* Changes that waited for the union may go on. */
    void (*room)(void *arg);
    void *arg;
};

struct take *take_new(const struct take_options *options);
CAIRN_MUST_CHECK int take_start(struct take *take);
/* Waits until what the union has is shown, or until_ns (monotonic). False: the remote, which says
 * what it has, could not be read. */
bool take_await(struct take *take, int64_t until_ns);
/* The same, until content of other nodes' files can be read. */
bool take_await_content(struct take *take, int64_t until_ns);
/* Ends the thread; `fs` reads no other node's file any more. NULL is fine. */
void take_free(struct take *take);

struct take_status {
    uint64_t head;               /* the union head whose names are shown; 0: none yet */
    uint64_t waiting;            /* directories and files that are newer here */
    uint64_t not_merged;         /* operations of this node that the union does not have */
    uint64_t memory_bound_bytes; /* of the second store */
    char trouble[256];           /* why nothing is taken; "": nothing stands in the way */
};
void take_status(struct take *take, struct take_status *ret);
