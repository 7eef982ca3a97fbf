// SPDX-License-Identifier: Apache-2.0
/* Lists the objects in a directory of a directory remote, in ascending byte order of their whole
 * names, and removes leftovers of puts that did not end. */
#pragma once

#include "tier/tier.h"

/* Prefix of the names of temporary files that puts write. */
#define DIR_TEMPORARY ".put-"

struct dir_listing {
    int root_fd;
    const char *after; /* NULL: from the beginning */
    /* the last object passed to fn: a retry continues after it; NULL: none yet */
    char *last;
    int (*fn)(const struct tier_object *object, void *arg);
    int (*now)(void *arg, int64_t *ret_ns); /* called only if there is a leftover */
    void *arg;
};

/* 0, 1 if fn ended the list, or -errno. A directory that does not exist is empty. */
CAIRN_MUST_CHECK int dir_list_directory(struct dir_listing *listing, const char *directory);
void dir_listing_done(struct dir_listing *listing);
