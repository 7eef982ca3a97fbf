// SPDX-License-Identifier: Apache-2.0
/* Content of a put that is not in memory as a whole. */
#pragma once

#include "base/base.h"

#define TIER_SOURCE_STEP (256 * KIB) /* largest read at once */

struct tier_source {
    uint64_t len;
    /* Reads exactly `len` bytes at `offset`, the same bytes each time; called during the put, by
     * any thread, but by one at a time. */
    int (*read)(uint64_t offset, void *buf, size_t len, void *arg);
    void *arg;
    int error; /* set by the put: the error of `read` that ended it. 0: `read` did not fail */
};

/* Calls `read` and notes its error. */
CAIRN_MUST_CHECK int tier_source_read(struct tier_source *source, uint64_t offset, void *buf,
                                      size_t len);
/* Reads the whole content in order, in pieces. */
CAIRN_MUST_CHECK int tier_source_each(struct tier_source *source,
                                      void (*fn)(const void *bytes, size_t len, void *arg),
                                      void *arg);
