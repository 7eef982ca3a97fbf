// SPDX-License-Identifier: Apache-2.0
/* WHEN of `--at` and -o at=: selects a head of a remote. Pure functions. */
#pragma once

#include "commit/options.h"

/* Parses a head's number ("17"), the name of a snapshot, a time of RFC 3339
 * ("2026-11-28T20:59:08Z", "...T22:59:08.5+02:00"), or an age ("2h", "30m"), counted from `now` (ns
 * since 1970). A time without a fraction means the end of its second: a time that `cairn history`
 * prints selects the head for which it was printed. -EINVAL with *ret_text, one line to be
 * freed. */
CAIRN_MUST_CHECK int when_parse(const char *text, int64_t now, struct head_choice *ret,
                                char **ret_text);
/* -EINVAL with *ret_text: the name is not valid for a snapshot, or could be a time or a number. */
CAIRN_MUST_CHECK int when_check_name(const char *name, char **ret_text);
/* Returns the choice as a text that when_parse() reads at any later time. Caller frees. */
char *when_print(const struct head_choice *choice);
