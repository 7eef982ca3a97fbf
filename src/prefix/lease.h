// SPDX-License-Identifier: Apache-2.0
/* The lease of a prefix: an object that its holder writes again and again. Its age by the medium's
 * clock shows whether the holder is alive. The lease does not prevent a store from writing: heads
 * do that. Any thread. */
#pragma once

#include "prefix/prefix.h"

struct lease_seen {
    struct lease lease;
    int64_t modified; /* by the medium's clock */
    bool exists;      /* the lease exists, and can be read */
};
CAIRN_MUST_CHECK int lease_look(struct prefix *prefix, struct lease_seen *ret);
/* Waits until the holder's lease has expired. -EBUSY with *ret_text: the holder renews it, so it is
 * alive. */
CAIRN_MUST_CHECK int lease_await(struct prefix *prefix, char **ret_text);
CAIRN_MUST_CHECK int lease_renew(struct prefix *prefix);
/* Removes the lease, so that the prefix is free for any store. Does nothing if another store holds
 * the lease by now. */
void lease_give_back(struct prefix *prefix);
/* Returns one line with the reason why this store must not write to the prefix, and advice. `what`:
 * "is in use". Caller frees. */
char *lease_explain_holder(const struct prefix *prefix, const char *what, const char *holder);
