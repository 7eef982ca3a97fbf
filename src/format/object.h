// SPDX-License-Identifier: Apache-2.0
/* Names of the objects of a tier: DIRECTORY/NUMBER, the number as 16 lower-case hexadecimal digits.
 * Pure functions. */
#pragma once

#include "base/base.h"

#define OBJECT_NAME_LEN 32u /* with its NUL */

/* `directory`: at most 14 bytes. */
void object_name(const char *directory, uint64_t number, char buf[OBJECT_NAME_LEN]);

/* Parses a name that is exactly as object_name() makes it; false: not one of our objects. */
CAIRN_MUST_CHECK bool object_number(const char *name, const char *directory, uint64_t *ret_number);

/* As object_number(), for the part of the name after the directory. */
CAIRN_MUST_CHECK bool object_digits(const char *text, uint64_t *ret_number);
