// SPDX-License-Identifier: Apache-2.0
/* The boundary to the caller: structs of another version, errors, log lines. */
#pragma once

#include "base/base.h"

struct cairn_lane;
struct cairn_lane_options;

/* A call of the API ends: notes a cause if there is none, and how long it took. */
int lane_return(struct cairn_lane *lane, int64_t begun_ns, int r);

void lane_log(struct cairn_lane *lane, int level, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* The level of $CAIRN_LOG; else all lines where the caller takes them, warnings where they go to
 * standard error. */
int log_level_of(const struct cairn_lane_options *options);

/* Fills `ret` (which begins with its size) from `have`, as much as it knows of. -EINVAL: a size
 * that cannot be. */
CAIRN_MUST_CHECK int copy_struct(void *ret, const void *have, size_t size);

/* The other direction: `ret` of `size` bytes, zeros where `from` is shorter; `from` may be NULL.
 * -E2BIG: it has members that this library does not know, and they are not zero. */
CAIRN_MUST_CHECK int take_struct(void *ret, size_t size, const void *from);
