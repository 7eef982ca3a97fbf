// SPDX-License-Identifier: Apache-2.0
/* WHEN of `--at` and -o at=: which head of a remote is meant. Pure functions. */
#pragma once

#include "commit/options.h"

/* A head's number ("17"), the name of a snapshot, a time of RFC 3339 ("2026-11-28T20:59:08Z",
 * "...T22:59:08.5+02:00"), or how long ago ("2h", "30m"), counted from `now` (ns since 1970). A
 * time without a fraction means the end of its second: what `cairn history` prints finds the head
 * that it is printed of. -EINVAL with *ret_text, one line to be freed. */
CAIRN_MUST_CHECK int when_parse(const char *text, int64_t now, struct head_choice *ret,
                                char **ret_text);
/* -EINVAL with *ret_text: the name is none that a snapshot can have; what could be a time or a
 * number neither. */
CAIRN_MUST_CHECK int when_check_name(const char *name, char **ret_text);
/* The choice as text that when_parse() reads at any later time. Caller frees. */
char *when_print(const struct head_choice *choice);
