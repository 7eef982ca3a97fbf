// SPDX-License-Identifier: Apache-2.0
/* Resolves the path of a file that is to be written, as open(2) with O_CREAT does. Any thread;
 * blocks as the filesystem does. */
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"

struct place {
    char *path;       /* symbolic links followed; of a special file: as given */
    char *directory;  /* of path */
    const char *name; /* in path */
    bool exists;
    struct stat st; /* if it exists */
};

/* -EISDIR, -ELOOP, -ENOENT, -ENAMETOOLONG, ...: as open(2). */
CAIRN_MUST_CHECK int place_find(const char *path, struct place *ret);
void place_done(struct place *place);
