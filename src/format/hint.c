// SPDX-License-Identifier: Apache-2.0
#include "format/hint.h"

#include <string.h>

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Up to 2^64 - 1. */
static bool read_number(const char *text, size_t len, size_t *at, uint64_t *ret)
{
    size_t begin = *at;
    *ret = 0;
    for (; *at < len && is_digit(text[*at]); ++*at)
        if (__builtin_mul_overflow(*ret, 10, ret) ||
            __builtin_add_overflow(*ret, (uint64_t)(text[*at] - '0'), ret))
            return false;
    return *at > begin;
}

bool hint_next(const char *text, size_t len, size_t *at, uint64_t *ret_number)
{
    if (*at == 0) {
        if (len == 0 || text[0] != '1')
            return false;
        *at = 1;
    }
    if (*at >= len || text[*at] != ' ')
        return false;
    ++*at;
    return read_number(text, len, at, ret_number);
}

bool hint_is_valid(const char *text, size_t len)
{
    size_t at = 0;
    uint64_t number;
    while (hint_next(text, len, &at, &number))
        ;
    return at > 1 && at == len && is_digit(text[len - 1]);
}

bool record_is_hint(const struct record *rec)
{
    return rec->type == REC_SETXATTR && rec->name_len == strlen(HINT_XATTR) &&
           memcmp(rec->name, HINT_XATTR, rec->name_len) == 0;
}
