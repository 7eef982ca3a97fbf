// SPDX-License-Identifier: Apache-2.0
/* A node whose store is past the state from which all others go on, see back.c. One thread. */
#pragma once

#include "base/base.h"

struct store;

struct back {
    enum back_step { BACK_NOT, BACK_ASKED, BACK_IS_ASIDE } step;
    uint64_t generation;
};

/* The next opening of the store goes back, durably. */
CAIRN_MUST_CHECK int back_ask(const char *store, uint64_t generation);
CAIRN_MUST_CHECK int back_look(const char *store, struct back *ret);
/* All that the closed store has is in STORE/aside/GENERATION, too, and the next opening goes on
 * from there. */
CAIRN_MUST_CHECK int back_link_aside(const char *store, uint64_t generation);
/* While it opens, with the remote attached, and before it looks at view or journal. `serves`:
 * processes use the mount already. */
CAIRN_MUST_CHECK int back_go(struct store *store, bool serves, char **ret_text);
