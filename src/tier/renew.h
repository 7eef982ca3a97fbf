// SPDX-License-Identifier: Apache-2.0
/* A directory whose fsync failed: its names are written anew in another one, which takes its place.
 * Not for two threads at once; files may be moved into the directory meanwhile, and are not removed
 * from it. */
#pragma once

#include "base/base.h"

/* `directory` is one directly below `root_fd`. Durable on return: its names, and its own. */
CAIRN_MUST_CHECK int renew_directory(int root_fd, const char *directory);

/* Moves back into the directory what a crash left of that. */
CAIRN_MUST_CHECK int renew_settle(int root_fd, const char *directory);
