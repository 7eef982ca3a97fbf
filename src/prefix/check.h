// SPDX-License-Identifier: Apache-2.0
/* Verifies the small objects of a prefix, for `cairn fsck`. Nothing is written. */
#pragma once

#include "base/base.h"

struct prefix;

struct prefix_check {
    /* An object is missing, truncated or damaged. Calls come from one thread at a time. */
    void (*problem)(const char *object, const char *what, void *arg);
    void (*note)(const char *line, void *arg);
    void *arg;
    unsigned threads;
    bool (*is_interrupted)(void);
    /* Results. */
    uint64_t heads, runs; /* looked at */
};

/* Heads (the newest PREFIX_CHECK_HEADS), and both objects of each run that they name: content of
 * those of the head that is shown, presence and length of the others. Of heads of several nodes
 * their feeds, too; the runs of nodes only as far as the shown head and newer ones need them.
 * Negative: the remote cannot be read now, or it was interrupted (-EINTR). Blocks. */
#define PREFIX_CHECK_HEADS 1000u
CAIRN_MUST_CHECK int prefix_check_heads(struct prefix *prefix, struct prefix_check *check);

/* Of a prefix that several nodes write: the nodes' entries, the feeds that no head has yet, and the
 * markers and heads of the nodes. Errors as above. */
CAIRN_MUST_CHECK int prefix_check_of_nodes(struct prefix *prefix, struct prefix_check *check);
