// SPDX-License-Identifier: Apache-2.0
/* Inside cli/history*.c. */
#pragma once

#include "cli/command.h"
#include "cli/json.h"
#include "daemon/offline.h"

struct history {
    const struct command *command;
    struct mount_options options;
    uint64_t limit;
    bool is_json;
    char *source, *path; /* path NULL: all */
    char *store;         /* of a mount with a remote, which has snapshots of its own; else NULL */
    struct offline *offline;
    struct past_heads heads; /* oldest first */
    bool has_older;
    struct past_names names;
    cJSON *kept;         /* the daemon's answer about heads that stay; NULL: no daemon was asked */
    size_t not_compared; /* the oldest states, of those that are listed */
};

/* Heads that follow each other and have the same state: one line. */
struct state {
    const struct past_head *first, *last;
    struct past_path_sum sum; /* of the path, or of all files; if it was looked at */
    uint64_t only;            /* bytes of packs that no other state needs, if has_only */
    char *trouble;            /* it cannot be read; NULL: it can */
    char *names;              /* "one, other"; NULL: none */
    bool is_compared;         /* without a path: `sum` counts the changes since the state before */
    bool has_only, is_shown;
};
DEFINE_VECTOR(states, struct state);

/* --- history_look.c --------------------------------------------------------------------------- */

/* All states, from the oldest. Those in which nothing of the path changed are not shown. */
void history_look_at_path(struct history *h, struct states *states);
/* Without a path: the newest states, as many as are read soon. */
void history_compare_newest(struct history *h, struct states *states);
