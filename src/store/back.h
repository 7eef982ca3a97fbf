// SPDX-License-Identifier: Apache-2.0
/* A node whose store is ahead of the state from which all other nodes continue, see back.c. One
 * thread. */
#pragma once

#include "base/base.h"

struct store;

struct back {
    enum back_step { BACK_NOT, BACK_ASKED, BACK_IS_ASIDE } step;
    uint64_t generation;
};

/* Makes the next opening of the store go back, durably. */
CAIRN_MUST_CHECK int back_ask(const char *store, uint64_t generation);
CAIRN_MUST_CHECK int back_look(const char *store, struct back *ret);
/* Links the content of the closed store into STORE/aside/GENERATION, and makes the next opening
 * continue from there. */
CAIRN_MUST_CHECK int back_link_aside(const char *store, uint64_t generation);
/* Called while the store opens, with the remote attached, before view or journal are read.
 * `serves`: processes use the mount already. */
CAIRN_MUST_CHECK int back_go(struct store *store, bool serves, char **ret_text);
