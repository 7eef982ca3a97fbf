// SPDX-License-Identifier: Apache-2.0
/* Text from outside, made fit to be shown. Any thread. */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

/* Control characters become '?', in place: a file's name may hold newlines and escapes, which must
 * not forge lines or drive a terminal. Other bytes stay, also those that are no UTF-8. */
void text_hide_controls(char *text);

/* Prints one line, its control characters hidden. */
void text_print(FILE *out, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void text_vprint(FILE *out, const char *fmt, va_list ap);

/* Bytes of the character that begins at `text`, 1 to 4; 0: what is there is no UTF-8. */
size_t text_utf8_len(const char *text);

/* The candidate that a mistyped word most likely means: `best` after each has been tried, NULL if
 * none is near, e.g. "mount" for "moutn". A '-' is as a '_'. All borrowed. */
struct text_guess {
    const char *word, *best;
    unsigned distance; /* of `best` */
};
void text_guess_try(struct text_guess *guess, const char *candidate);
