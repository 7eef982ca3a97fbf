// SPDX-License-Identifier: Apache-2.0
/* Content of a put that is not in memory. */
#pragma once

#include "base/base.h"

#define TIER_SOURCE_STEP (256 * KIB) /* what is read at once, at most */

struct tier_source {
    uint64_t len;
    /* Exactly `len` bytes at `offset`, the same each time; called from one thread at a time,
     * whichever, while the put goes on. */
    int (*read)(uint64_t offset, void *buf, size_t len, void *arg);
    void *arg;
    int error; /* set by the put: what `read` said, which ends the put. 0: what failed is the
                * tier */
};

/* Notes the error. */
CAIRN_MUST_CHECK int tier_source_read(struct tier_source *source, uint64_t offset, void *buf,
                                      size_t len);
/* All of it in order, piece by piece. */
CAIRN_MUST_CHECK int tier_source_each(struct tier_source *source,
                                      void (*fn)(const void *bytes, size_t len, void *arg),
                                      void *arg);
