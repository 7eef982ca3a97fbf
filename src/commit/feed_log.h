// SPDX-License-Identifier: Apache-2.0
/* What this node did since its last feed: the operations of the journal, as a feed tells them. In
 * memory; of each some 100 bytes. Any thread. */
#pragma once

#include "base/vector.h"

struct feed_log;

struct feed_log *feed_log_new(void);
void feed_log_free(struct feed_log *log); /* NULL is fine */

/* Adds operations that are durable now: encoded records of the journal, or of a feed. Of those that
 * it has already, up to its newest number, none is added again. -EUCLEAN: something else. */
CAIRN_MUST_CHECK int feed_log_add(struct feed_log *log, const void *records, size_t len);
/* Those up to `cut` are told. */
void feed_log_forget(struct feed_log *log, uint64_t cut);
/* Appends those up to `cut` to *ret, encoded; returns how many. Files that were sealed are VERSIONs
 * without length and count. */
uint32_t feed_log_up_to(struct feed_log *log, uint64_t cut, struct bytes *ret);
