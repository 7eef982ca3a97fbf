// SPDX-License-Identifier: Apache-2.0
/* Members of a struct record that are strings, each with its length. */
#pragma once

#include <string.h>

#define NAMED(text) .name = (text), .name_len = (uint16_t)strlen(text)
#define NAMED2(text) .name2 = (text), .name2_len = (uint16_t)strlen(text)
#define VALUED(text) .value = (text), .value_len = (uint32_t)strlen(text)
