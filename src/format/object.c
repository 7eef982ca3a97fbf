// SPDX-License-Identifier: Apache-2.0
#include "format/object.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIGITS 16u

void object_name(const char *directory, uint64_t number, char buf[OBJECT_NAME_LEN])
{
    check(strlen(directory) + 1 + DIGITS < OBJECT_NAME_LEN);
    (void)snprintf(buf, OBJECT_NAME_LEN, "%s/%016llx", directory, (unsigned long long)number);
}

/* Not sscanf(): it accepts blanks, signs, "0x" and upper case, so an object of another program
 * could be taken for one of ours. */
bool object_digits(const char *text, uint64_t *ret_number)
{
    if (strlen(text) != DIGITS || strspn(text, "0123456789abcdef") != DIGITS)
        return false;
    *ret_number = strtoull(text, NULL, 16);
    return true;
}

bool object_number(const char *name, const char *directory, uint64_t *ret_number)
{
    size_t len = strlen(directory);
    return strncmp(name, directory, len) == 0 && name[len] == '/' &&
           object_digits(name + len + 1, ret_number);
}
