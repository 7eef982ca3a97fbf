// SPDX-License-Identifier: Apache-2.0
/* All figures of a mount, in one table. `cairn status --json`, the metrics, `cairn status -v` and
 * the lists in the man pages are made from it: a new figure is one line in figures.def. Constant.
 */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"

enum figure_unit { /* in the JSON */
                   FIGURE_BYTES,
                   FIGURE_COUNT,
                   FIGURE_SECONDS,
                   FIGURE_MILLISECONDS,
                   FIGURE_FLAG,
                   FIGURE_WORDS,
};
extern const char *const figure_unit_names[];

/* How a value lies in its struct. */
enum figure_kind {
    FIGURE_ELSEWHERE, /* in none: other code puts it into the JSON; of an array the length counts */
    FIGURE_U64,
    FIGURE_UNSIGNED,
    FIGURE_BOOL,
    FIGURE_DOUBLE,      /* negative: there is none */
    FIGURE_NANOSECONDS, /* uint64_t, shown as seconds */
};

/* What a status has; a figure is in it if it has all that the figure is of. */
enum {
    OF_MOUNT = 1 << 0,
    OF_REMOTE = 1 << 1,
    OF_WRITER = 1 << 2, /* of the remote: not fenced */
    OF_FENCED = 1 << 3,
    OF_ADOPTED = 1 << 4, /* a mount whose daemon died, or was replaced */
    OF_ERROR = 1 << 5,   /* of NVMe */
    OF_NODES = 1 << 6,   /* one of several nodes that write the remote */
};

struct figure {
    /* object in the JSON, "nvme.reduction"; "": the outermost. One that ends in "[]" is an array
     * with an object for each program, or encoding */
    const char *group;
    const char *json;
    const char *metric; /* without "cairnfs_"; ends in "_total" if it only grows. NULL: none */
    enum figure_unit unit;
    enum figure_kind kind;
    size_t offset; /* in struct snapshot; in an array: in the struct of an item */
    unsigned of;
    const char *text; /* label of `cairn status -v`; NULL: not shown there */
    const char *help;
};

/* Ends with a figure without a name. Those of a group stand together. */
extern const struct figure figure_table[];

bool figure_is_of_array(const struct figure *figure);
/* Of one with a metric: does it only grow? */
bool figure_grows(const struct figure *figure);

/* The part of `status` that the figures of a group lie in. NULL: there is none, and it is not to be
 * made. */
cJSON *figure_group(cJSON *status, const char *group, bool make);
