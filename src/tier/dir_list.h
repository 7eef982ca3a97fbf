// SPDX-License-Identifier: Apache-2.0
/* The objects in a directory of a directory remote, in ascending byte order of their whole names,
 * and the removal of what puts that never ended left behind. */
#pragma once

#include "tier/tier.h"

/* The beginning of the names of files that are being written. */
#define DIR_TEMPORARY ".put-"

struct dir_listing {
    int root_fd;
    const char *after; /* NULL: from the beginning */
    char *last;        /* what was given last: a repetition goes on behind it; NULL: nothing yet */
    int (*fn)(const struct tier_object *object, void *arg);
    int (*now)(void *arg, int64_t *ret_ns); /* asked only where there is something left behind */
    void *arg;
};

/* 0, 1 where fn ended it, or -errno. A directory that is not there is empty. */
CAIRN_MUST_CHECK int dir_list_directory(struct dir_listing *listing, const char *directory);
void dir_listing_done(struct dir_listing *listing);
