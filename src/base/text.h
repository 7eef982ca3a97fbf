// SPDX-License-Identifier: Apache-2.0
/* Text from outside, made fit to be shown. Any thread. */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

/* Bytes of the control character that begins at `text`, e.g. 1 for ESC; 0: none does. These are C0,
 * DEL and C1, the last also as a byte that is no UTF-8 (a terminal of 8 bits obeys it), and
 * characters that turn the direction of text or end a line (U+2028 to U+202E, U+2066 to U+2069).
 * *ret_code is its number. What shows or quotes text from outside asks this, and nothing else. */
size_t text_control_len(const char *text, unsigned *ret_code);

/* Control characters become '?', in place: a file's name, or that of a process, may hold newlines
 * and escapes, which must not forge lines or drive a terminal. Other bytes stay, also those that
 * are no UTF-8. */
void text_hide_controls(char *text);

/* Prints one line, its control characters hidden. */
void text_print(FILE *out, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void text_vprint(FILE *out, const char *fmt, va_list ap);
/* Prints text of several lines, each as text_print() does. */
void text_print_lines(FILE *out, const char *text);

/* A time (ns since 1970) as RFC 3339 in UTC, in whole seconds: "2026-11-28T20:59:08Z". */
#define TEXT_TIME_LEN 32u
void text_time(int64_t ns, char buf[TEXT_TIME_LEN]);

/* Sets *ret_text to a message, which the caller frees, and returns `r`. */
int text_fail(char **ret_text, int r, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* Bytes of the character that begins at `text`, 1 to 4; 0: what is there is no UTF-8. */
size_t text_utf8_len(const char *text);

/* The candidate that a mistyped word most likely means: `best` after each has been tried, NULL if
 * none is near, e.g. "mount" for "moutn". A '-' is as a '_'. All borrowed. */
struct text_guess {
    const char *word, *best;
    unsigned distance; /* of `best` */
};
void text_guess_try(struct text_guess *guess, const char *candidate);
