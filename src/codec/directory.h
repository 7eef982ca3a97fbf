// SPDX-License-Identifier: Apache-2.0
/* The central directory of a zip that lies whole in memory: where its headers are, without a look
 * at the data between them. Pure. */
#pragma once

#include "codec/rope.h"

/* The markers that a scan of the whole content would find, ascending, the first entry of the
 * directory last; owned by the caller. False, and nothing is returned, unless the directory
 * explains every byte: entries from the first byte on, each behind the other's data, then the
 * directory, then its end record, then nothing. Then only the data of an entry can hold what looks
 * like a header: a scan would take it for one, and is the better one nowhere. */
bool directory_read(const struct rope *rope, struct marker **ret_markers, size_t *ret_count);
