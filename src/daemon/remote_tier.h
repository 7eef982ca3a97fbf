// SPDX-License-Identifier: Apache-2.0
/* Opens the tier that an address and the options of a mount describe. */
#pragma once

#include "daemon/options.h"
#include "daemon/remote_address.h"
#include "tier/tier.h"

/* The caller that waits for a directory to be opened: as in struct dir_options. */
struct remote_waiter {
    bool (*given_up)(void *arg);
    int (*judge)(int error, const char *real, void *arg);
    void *arg;
    bool later; /* a directory is opened by the calls that need it, at its place at that time */
    bool must_exist;
};

/* `waiter` may be NULL. On failure *ret_text is one line (caller frees), or NULL if the judge has
 * already reported the reason. -EINVAL: the options are wrong. */
CAIRN_MUST_CHECK int remote_tier_open(const struct remote_address *address,
                                      const struct mount_options *options, bool read_only,
                                      const struct remote_waiter *waiter, struct tier **ret,
                                      char **ret_text);
