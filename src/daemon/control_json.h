// SPDX-License-Identifier: Apache-2.0
/* JSON of the control socket and of --json: any bytes in strings, numbers of 64 bits. Any thread.
 */
#pragma once

#include <cjson/cJSON.h>

#include "base/base.h"

/* Returns the text of `json`, valid whatever bytes its strings contain: bytes that are no UTF-8
 * appear as "\\xNN". Caller frees. */
char *control_print(const cJSON *json, bool for_people);

/* {"error":text,"errno":error}; `error` is a positive errno. */
cJSON *control_error(int error, const char *text);

/* Many readers of JSON store numbers as doubles: a number of 16 digits or more is written as a
 * string of digits. */
void control_add_u64(cJSON *object, const char *name, uint64_t value);

/* Returns the field of an object. NULL, 0 or false: there is none of this type. */
cJSON *json_part(const cJSON *object, const char *name);
const char *json_text(const cJSON *object, const char *name);
/* `other`: the result if there is no such text. */
const char *json_text_or(const cJSON *object, const char *name, const char *other);
double json_number(const cJSON *object, const char *name);
uint64_t json_count(const cJSON *object, const char *name);
bool json_true(const cJSON *object, const char *name);

static inline void cleanup_json(cJSON **json)
{
    cJSON_Delete(*json);
}
#define _cleanup_json_ __attribute__((cleanup(cleanup_json)))

/* Reads a number that control_add_u64() wrote. False: there is none, or it is no whole number from
 * 0 on. */
bool control_get_u64(const cJSON *object, const char *name, uint64_t *ret_value);
