// SPDX-License-Identifier: Apache-2.0
/* The exchange of a mount's program. The daemon that serves asks the other program whether it can
 * take the mount over, answers the requests that it has received, tells the holder (holder.h), and
 * ends. The holder starts the other program's daemon. Only when that serves, the holder executes
 * the other program itself, and keeps its process number; when it does not, the holder starts a
 * daemon of its own version.
 *
 * The other program is started as
 *
 *   cairn holder check FD               prints "cairn holder 1 VERSION" if it can take the mount
 *                                       over, else the reason why not
 *   cairn holder daemon FD STORE MOUNT  serves, as the holder's child; first it sends a byte to the
 *                                       link
 *   cairn holder keep FD STORE MOUNT    becomes the holder; also of a daemon of its own program
 *                                       whose holder has died
 *
 * with a handover (handover.h) in descriptor FD. STORE and MOUNT only serve to show them in the
 * list of processes. */
#pragma once

#include "base/base.h"
#include "daemon/handover.h"

#define UPGRADE_CHECK_PREFIX "cairn holder 1 "

/* Asks `binary` whether it can continue that mount. *ret_text: its version, else one line with the
 * reason why not (-errno); the caller frees. Takes 10 s at most. Any thread. */
CAIRN_MUST_CHECK int upgrade_check(const char *binary, const struct handover_source *from,
                                   char **ret_text);

/* Runs `binary` with `how` ("daemon", "keep"), in this process. Returns -errno if that fails. */
int upgrade_execute(const char *binary, const char *how, const struct handover_source *from);

/* Starts `binary` with `how` as a child of this process, in a session of its own. Any thread. */
CAIRN_MUST_CHECK int upgrade_spawn(const char *binary, const char *how,
                                   const struct handover_source *from, pid_t *ret);

/* Runs as the other program: argv[0] is "holder". Returns the exit status. */
int upgrade_main(int argc, char **argv);
