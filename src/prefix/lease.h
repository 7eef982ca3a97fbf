// SPDX-License-Identifier: Apache-2.0
/* The lease of a prefix: an object that its holder writes again and again. Its age by the medium's
 * clock says whether the holder lives. It keeps no store from writing: heads do that. Any thread.
 */
#pragma once

#include "prefix/prefix.h"

struct lease_seen {
    struct lease lease;
    int64_t modified; /* by the medium's clock */
    bool exists;      /* and can be read */
};
CAIRN_MUST_CHECK int lease_look(struct prefix *prefix, struct lease_seen *ret);
/* Waits until the holder's lease has run out. -EBUSY with *ret_text: it renews, so it lives. */
CAIRN_MUST_CHECK int lease_await(struct prefix *prefix, char **ret_text);
CAIRN_MUST_CHECK int lease_renew(struct prefix *prefix);
/* Without a lease the prefix is free for any store. One that another holds by now is not ours to
 * give. */
void lease_give_back(struct prefix *prefix);
/* Why the prefix is not ours to write to, and what to do: one line. `what`: "is in use". Caller
 * frees. */
char *lease_explain_holder(const struct prefix *prefix, const char *what, const char *holder);
