// SPDX-License-Identifier: Apache-2.0
/* Bytes as hexadecimal digits. Any thread. */
#pragma once

#include "base/base.h"

/* Writes 2 * len lower-case digits and a NUL. */
static inline void hex_print(char *to, const void *bytes, size_t len)
{
    for (const uint8_t *at = bytes, *end = at + len; at < end; at++) {
        *to++ = "0123456789abcdef"[*at >> 4];
        *to++ = "0123456789abcdef"[*at & 15];
    }
    *to = '\0';
}

/* Returns the value of a digit of either case, or -1 if `c` is no digit. */
static inline int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads `len` bytes from twice as many digits. Returns false if a character is no digit. */
static inline bool hex_read(void *to, const char *text, size_t len)
{
    uint8_t *at = to;
    for (size_t i = 0; i < len; i++) {
        int high = hex_digit(text[2 * i]), low = high < 0 ? -1 : hex_digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        at[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
