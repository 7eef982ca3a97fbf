// SPDX-License-Identifier: Apache-2.0
/* The operations of this node since its last feed, from the journal, in the form of a feed. In
 * memory, about 100 bytes per operation. Any thread. */
#pragma once

#include "base/vector.h"

struct feed_log;

struct feed_log *feed_log_new(void);
void feed_log_free(struct feed_log *log); /* NULL is fine */

/* Adds durable operations: encoded records of the journal, or of a feed. Skips those up to the
 * newest number added before. -EUCLEAN: other data. */
CAIRN_MUST_CHECK int feed_log_add(struct feed_log *log, const void *records, size_t len);
/* Operations up to `cut` were published: removes them. */
void feed_log_forget(struct feed_log *log, uint64_t cut);
/* Appends the operations up to `cut` to *ret, encoded; returns their number. Sealed files are
 * VERSION records without length and count. */
uint32_t feed_log_up_to(struct feed_log *log, uint64_t cut, struct bytes *ret);
