// SPDX-License-Identifier: Apache-2.0
/* The writes of other nodes, on the mount of a node.
 *
 * The node's own store has the node's own files with their content. A second store follows the
 * union of all nodes, as a mount with -o ro does. Whenever it shows a newer head, the names that
 * differ become operations of the own store, marked as taken: so lookups, listings and recovery
 * need no special case. Content of other nodes' files is read from the second store.
 *
 * Changes that this node made after that head are newer than the union: such names and inodes stay
 * as they are until a head has the changes (commit/touched.h). No earlier head is needed for the
 * comparison: the result depends on the two states alone, so a turn can be repeated at any time.
 *
 * Threads: one of its own, cairn-take. */
#pragma once

#include "fs/fs.h"

struct take;

struct take_options {
    struct store *store; /* the node's own */
    struct fs *fs;       /* over that store */
    /* Opens and starts the store that follows; take closes it. Called again a while after a
     * failure. -ENOENT: there is no union yet. *ret_text: the reason (caller frees). Blocks. */
    int (*open)(void *arg, struct store **ret, char **ret_text);
    /* Changes that waited for the union may continue. */
    void (*room)(void *arg);
    void *arg;
};

struct take *take_new(const struct take_options *options);
CAIRN_MUST_CHECK int take_start(struct take *take);
/* Waits until the present state of the union is shown, or until until_ns (monotonic). False: the
 * remote could not be read, so the state of the union is not known. */
bool take_await(struct take *take, int64_t until_ns);
/* As take_await(), until content of other nodes' files can be read. */
bool take_await_content(struct take *take, int64_t until_ns);
/* Ends the thread; `fs` reads no other node's file any more. NULL: no effect. */
void take_free(struct take *take);

struct take_status {
    uint64_t head;               /* the union head whose names are shown; 0: none yet */
    uint64_t waiting;            /* directories and files that are newer here */
    uint64_t not_merged;         /* operations of this node that the union does not have */
    uint64_t memory_bound_bytes; /* of the second store */
    char trouble[256];           /* why the union cannot be taken over; "": no obstacle */
};
void take_status(struct take *take, struct take_status *ret);
