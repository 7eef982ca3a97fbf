// SPDX-License-Identifier: Apache-2.0
/* Resolves the path of a file to be written, like open(2) with O_CREAT. Any thread; blocks as long
 * as the filesystem does. */
#pragma once

#include <sys/stat.h>
#include <sys/types.h>

#include "base/base.h"

struct place {
    char *path;       /* with symbolic links followed; of a special file: as given */
    char *directory;  /* of path */
    const char *name; /* in path */
    bool exists;
    struct stat st; /* if it exists */
};

/* -EISDIR, -ELOOP, -ENOENT, -ENAMETOOLONG, ...: as open(2). */
CAIRN_MUST_CHECK int place_find(const char *path, struct place *ret);
void place_done(struct place *place);
