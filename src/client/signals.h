// SPDX-License-Identifier: Apache-2.0
/* Writes to a pipe that may be broken, in a thread of the caller: SIGPIPE must not end the
 * training. */
#pragma once

#include <signal.h>

#include "base/base.h"

struct signals_held {
    sigset_t before;
    bool was_pending;
};

/* Between hold and release, a broken pipe is reported only as EPIPE. */
void signals_hold_pipe(struct signals_held *held);
void signals_release_pipe(const struct signals_held *held);
