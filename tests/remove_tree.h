// SPDX-License-Identifier: Apache-2.0
/* A directory that a test has made goes, with all below it. */
#pragma once

#include <ftw.h>
#include <stdio.h>

static inline int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void remove_tree(const char *path)
{
    (void)nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}
