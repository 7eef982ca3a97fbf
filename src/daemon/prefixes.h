// SPDX-License-Identifier: Apache-2.0
/* Finds the remotes in a bucket or below a directory, by their markers. One thread; blocks. */
#pragma once

#include "daemon/options.h"

/* Calls `fn` with the address of each remote below `source` ("s3://BUCKET/PREFIX", "dir:/PATH"), at
 * most 4 levels deep, in no order. enum prefixes_found; or -errno if it cannot be listed. */
enum prefixes_found {
    PREFIXES_BELOW,  /* `source` was searched */
    PREFIXES_ITSELF, /* `source` is a remote itself, which is not searched */
};
CAIRN_MUST_CHECK int prefixes_find(const char *source, const struct mount_options *options,
                                   void (*fn)(const char *address, void *arg), void *arg);

/* Returns "there are A, B in C": remotes that may have been meant instead of `source`; NULL: none.
 * Caller frees. */
char *prefixes_beside(const char *source, const struct mount_options *options);
