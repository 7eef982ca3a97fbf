// SPDX-License-Identifier: Apache-2.0
/* The central directory of a zip that is wholly in memory: finds the headers of the entries without
 * reading the data between them. Pure. */
#pragma once

#include "codec/rope.h"

/* Returns the markers that a scan of the whole content would find, ascending, the first entry of
 * the directory last; owned by the caller. False, with nothing returned, unless the directory
 * explains every byte: entries from the first byte on, each directly behind the data of the one
 * before, then the directory, then its end record, then nothing. Under this condition only the data
 * of an entry can contain bytes that look like a header; a scan would take them for a header, so it
 * is never the better source. */
bool directory_read(const struct rope *rope, struct marker **ret_markers, size_t *ret_count);
