// SPDX-License-Identifier: Apache-2.0
/* Which files of a state need chunks that are damaged, for messages. */
#pragma once

#include "store/internal.h"

struct chunk_users {
    struct view *view;
    struct chunk_names *names;           /* get sorted; none is fine */
    bool (*is_cancelled)(void *arg);     /* NULL: never */
    void (*fn)(uint64_t ino, void *arg); /* gets each file once */
    void *arg;
};
/* One scan of all extents for all of them, and none without names. -ECANCELED. Blocks. */
CAIRN_MUST_CHECK int chunk_users_find(const struct chunk_users *want);
