// SPDX-License-Identifier: Apache-2.0
/* Replaces a directory whose fsync failed by another one, with new names for the same files. Not
 * for two threads at once. Files may be moved into the directory meanwhile, but not removed from
 * it. */
#pragma once

#include "base/base.h"

/* `directory` is directly below `root_fd`. On return its names, and its own name, are durable. */
CAIRN_MUST_CHECK int renew_directory(int root_fd, const char *directory);

/* After a crash: moves the names of an unfinished renewal back into the directory. */
CAIRN_MUST_CHECK int renew_settle(int root_fd, const char *directory);
