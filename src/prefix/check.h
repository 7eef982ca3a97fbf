// SPDX-License-Identifier: Apache-2.0
/* Verifies the small objects of a prefix, for `cairn fsck`. Writes nothing. */
#pragma once

#include "base/base.h"

struct prefix;

struct prefix_check {
    /* Called for an object that is missing, truncated or damaged; by one thread at a time. */
    void (*problem)(const char *object, const char *what, void *arg);
    void (*note)(const char *line, void *arg);
    void *arg;
    unsigned threads;
    bool (*is_interrupted)(void);
    /* Results. */
    uint64_t heads, runs; /* numbers of objects that were checked */
};

/* Checks the heads (the newest PREFIX_CHECK_HEADS), and both objects of each run that they name:
 * the content of runs of the head that is shown, presence and length of the others. For heads of
 * several nodes also their feeds; the runs of nodes only as far as the shown head and newer ones
 * need them. Negative: the remote cannot be read now, or the check was interrupted (-EINTR).
 * Blocks. */
#define PREFIX_CHECK_HEADS 1000u
CAIRN_MUST_CHECK int prefix_check_heads(struct prefix *prefix, struct prefix_check *check);

/* For a prefix that several nodes write: checks the nodes' entries, the feeds that no head has yet,
 * and the markers and heads of the nodes. Errors as above. */
CAIRN_MUST_CHECK int prefix_check_of_nodes(struct prefix *prefix, struct prefix_check *check);
