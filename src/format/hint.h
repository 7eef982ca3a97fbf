// SPDX-License-Identifier: Apache-2.0
/* A hint: which operations of each node a marker lies behind, as the job says that writes the
 * marker. It is the value of the attribute HINT_XATTR of the marker's directory, set before the
 * marker has its name: "1", then for each operation a space and its number, in decimal digits. Pure
 * functions; any thread. */
#pragma once

#include "format/record.h"

#define HINT_XATTR "user.cairn.behind"

/* The number at *at of a hint, 0 at first; *at moves behind it. False: there is none, or the rest
 * is no hint. */
bool hint_next(const char *text, size_t len, size_t *at, uint64_t *ret_number);
/* Is all of it a hint? */
bool hint_is_valid(const char *text, size_t len);
bool record_is_hint(const struct record *rec);
