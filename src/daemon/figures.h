// SPDX-License-Identifier: Apache-2.0
/* All figures of a mount, in one table. `cairn status --json`, the metrics, `cairn status -v` and
 * the lists in the man pages are made from it: a new figure is one line in figures.def.
 * Constant. */
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

/* How a value is stored in its struct. */
enum figure_kind {
    /* in no struct: other code writes it into the JSON; for an array the figure is its length */
    FIGURE_ELSEWHERE,
    FIGURE_U64,
    FIGURE_UNSIGNED,
    FIGURE_BOOL,
    FIGURE_DOUBLE,      /* negative: there is no value */
    FIGURE_NANOSECONDS, /* uint64_t, shown as seconds */
};

/* Conditions of figures: a figure is in a status that meets all of the figure's conditions. */
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
    /* object in the JSON, "nvme.reduction"; "": the outermost. A name that ends in "[]" is an array
     * with an object for each program, or encoding */
    const char *group;
    const char *json;
    const char *metric; /* without "cairnfs_"; ends in "_total" if it only grows. NULL: no metric */
    enum figure_unit unit;
    enum figure_kind kind;
    size_t offset; /* in struct snapshot; in an array: in the struct of an item */
    unsigned of;
    const char *text; /* label of `cairn status -v`; NULL: not shown there */
    const char *help;
};

/* Ends with a figure without a name. The figures of a group are adjacent. */
extern const struct figure figure_table[];

bool figure_is_of_array(const struct figure *figure);
/* For a figure with a metric: returns whether it only grows. */
bool figure_grows(const struct figure *figure);

/* Returns the part of `status` that contains the figures of a group. NULL: there is none, and it is
 * not to be created. */
cJSON *figure_group(cJSON *status, const char *group, bool make);
