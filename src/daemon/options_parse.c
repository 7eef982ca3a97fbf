// SPDX-License-Identifier: Apache-2.0
/* Sizes, durations and numbers, as everywhere in `cairn`. */
#include <ctype.h>
#include <math.h>

#include "base/clock.h"
#include "daemon/options.h"

/* Parses a decimal number, with or without a fraction, at the start of `text`; false: there is
 * none. */
static bool parse_number(const char *text, double *ret, const char **ret_rest)
{
    size_t digits = strspn(text, "0123456789");
    size_t len = digits;
    if (digits > 0 && text[len] == '.')
        len += 1 + strspn(text + len + 1, "0123456789");
    if (digits == 0 || text[len - 1] == '.' || len > 24)
        return false;
    char number[32];
    memcpy(number, text, len);
    number[len] = '\0';
    *ret = strtod(number, NULL);
    *ret_rest = text + len;
    return true;
}

int parse_size(const char *text, uint64_t *ret_bytes)
{
    static const char letters[] = "KMGTP";
    size_t digits = strspn(text, "0123456789");
    const char *rest;
    double number;
    if (!parse_number(text, &number, &rest))
        return -EINVAL;
    unsigned shift = 0;
    const char *letter = *rest ? strchr(letters, toupper((unsigned char)*rest)) : NULL;
    if (letter) {
        shift = 10 * (unsigned)(letter - letters + 1);
        rest++;
        if (strcmp(rest, "iB") == 0)
            rest += 2;
    }
    if (*rest != '\0' || ldexp(number, (int)shift) >= 9.0e18)
        return -EINVAL;
    /* Whole numbers exactly: a double would round above 2^53. */
    if (text[digits] == '.')
        *ret_bytes = (uint64_t)ldexp(number, (int)shift);
    else
        *ret_bytes = strtoull(text, NULL, 10) << shift;
    return 0;
}

int parse_duration(const char *text, int64_t *ret_ns)
{
    static const struct {
        const char *name;
        double seconds;
    } units[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};
    const char *rest;
    double number;
    if (!parse_number(text, &number, &rest))
        return -EINVAL;
    for (size_t i = 0; i < ARRAY_LEN(units); i++) {
        if (strcmp(rest, units[i].name) != 0)
            continue;
        double ns = number * units[i].seconds * (double)SECOND_NS;
        if (ns >= 9.0e18)
            return -EINVAL;
        *ret_ns = llround(ns);
        return 0;
    }
    return -EINVAL;
}

int parse_count(const char *text, uint64_t *ret)
{
    size_t len = strlen(text);
    if (len == 0 || len > 9 || strspn(text, "0123456789") != len)
        return -EINVAL;
    *ret = strtoull(text, NULL, 10);
    return 0;
}
