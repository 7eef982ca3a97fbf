// SPDX-License-Identifier: Apache-2.0
/* The text of -o keep. Pure functions. */
#pragma once

#include "format/head.h"

/* "last:10,hourly:24,daily:7,weekly:4", each once at most and in any order; "none". -EINVAL with
 * *ret_text, one line to be freed. */
CAIRN_MUST_CHECK int keep_parse(const char *text, struct head_keep *ret, char **ret_text);
/* As keep_parse(), for a text that keep_parse() accepted before; NULL: no policy. */
struct head_keep keep_of(const char *text);
/* Returns whether the text is one of the rules, such as "hourly:24". In a list of mount options the
 * same comma separates rules and options. */
CAIRN_MUST_CHECK bool keep_is_rule(const char *text);
