/* Opens the tier that an address and the options of a mount name. */
#pragma once

#include "daemon/options.h"
#include "daemon/remote_address.h"
#include "tier/tier.h"

/* On failure *ret_text is one line (caller frees). -EINVAL: the options are wrong. */
CAIRN_MUST_CHECK int remote_tier_open(const struct remote_address *address, const struct mount_options *options,
                                      bool read_only, struct tier **ret, char **ret_text);
