// SPDX-License-Identifier: Apache-2.0
/* The operations of all nodes in one order: by time, then by epoch of the stay; those of one stay
 * in the order of their numbers, whatever its clock did. */
#pragma once

#include "nodes/stays.h"

/* Calls `fn` with each operation of the feeds up to the round, which all stays determine. One feed
 * per stay is in memory, besides those that are kept. Ends with the first error of `fn`, or of
 * reading a feed again. */
CAIRN_MUST_CHECK int fold_feeds(struct stays *stays, uint64_t round,
                                int (*fn)(uint64_t epoch, const struct record *rec, void *arg),
                                void *arg);
