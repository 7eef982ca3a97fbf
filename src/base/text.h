// SPDX-License-Identifier: Apache-2.0
/* Text from outside, made safe to display. Any thread. */
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "base/base.h"

/* Returns the length in bytes of the control character that begins at `text`, e.g. 1 for ESC; 0:
 * none begins there. Control characters are C0, DEL and C1, the last also as a byte that is not
 * UTF-8 (an 8-bit terminal obeys it), and characters that change the direction of text or end a
 * line (U+2028 to U+202E, U+2066 to U+2069). *ret_code is the code point. Every function that shows
 * or quotes text from outside uses this one, and no other test. */
size_t text_control_len(const char *text, unsigned *ret_code);

/* Replaces control characters by '?', in place: the name of a file or process may contain newlines
 * and escapes, which must not forge lines or drive a terminal. Other bytes stay, also invalid
 * UTF-8. */
void text_hide_controls(char *text);

/* Prints one line, with control characters replaced. */
void text_print(FILE *out, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void text_vprint(FILE *out, const char *fmt, va_list ap);
/* Prints text of several lines, each like text_print(). */
void text_print_lines(FILE *out, const char *text);

/* A time (ns since 1970) as RFC 3339 in UTC, in whole seconds: "2026-11-28T20:59:08Z". */
#define TEXT_TIME_LEN 32u
void text_time(int64_t ns, char buf[TEXT_TIME_LEN]);

/* A list for a message, of which TEXT_LIST_NAMED items are named: "a, b, c, d, e and 3 more". {0}:
 * empty; one that is not taken has text to be freed. */
#define TEXT_LIST_NAMED 5u
struct text_list {
    char *text;
    size_t count;
};
void text_list_add(struct text_list *list, const char *item);
/* Leaves it empty. NULL: it was. Caller frees. */
char *text_list_take(struct text_list *list);

/* Sets *ret_text to a message, which the caller frees, and returns `r`. */
int text_fail(char **ret_text, int r, const char *fmt, ...) CAIRN_PRINTF(3, 4);

/* Returns the length in bytes of the character that begins at `text`, 1 to 4; 0: invalid UTF-8. */
size_t text_utf8_len(const char *text);

/* Finds the candidate that a mistyped word most likely means: after all were tried, `best`, or NULL
 * if none is similar, e.g. "mount" for "moutn". '-' and '_' count as equal. All strings are
 * borrowed. */
struct text_guess {
    const char *word, *best;
    unsigned distance; /* of `best` */
};
void text_guess_try(struct text_guess *guess, const char *candidate);
