// SPDX-License-Identifier: Apache-2.0
/* Parts of commit/'s state that the tests of other components look at. */
#pragma once

#include "base/base.h"

struct store;

/* Seals that wait, at most STAGE_DUE_MAX. */
unsigned seals_due(struct store *store);
/* Bytes that may be staged. */
uint64_t room_granted(struct store *store);
