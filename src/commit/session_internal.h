// SPDX-License-Identifier: Apache-2.0
/* The stage that the store has open. */
#pragma once

#include <stdatomic.h>

#include "commit/session.h"

struct own_stage {
    struct local *local; /* borrowed, as is the next */
    struct journal *journal;
    char *dir; /* its directory */
    uint8_t name[16];
    _Atomic bool is_lost; /* its files were removed */
};
