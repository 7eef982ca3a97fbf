// SPDX-License-Identifier: Apache-2.0
/* Reads answers of a daemon, and prints JSON for programs. A missing field gives NULL,
 * 0 or false. */
#pragma once

#include <cjson/cJSON.h>
#include <time.h>

#include "cli/human.h"

const cJSON *json_part(const cJSON *object, const char *name);
const char *json_text(const cJSON *object, const char *name);
/* `other`: what to show where there is no such text. */
const char *json_text_or(const cJSON *object, const char *name, const char *other);
double json_number(const cJSON *object, const char *name);
/* seconds since 1970; 0: none that can be shown */
time_t json_time(const cJSON *object, const char *name);
uint64_t json_count(const cJSON *object, const char *name);
/* A count of bytes, in words. */
struct human json_bytes(const cJSON *object, const char *name);

/* Control bytes in texts become '?': a file name must not move a terminal's cursor or
 * forge a line. */
void json_make_printable(cJSON *json);

/* On standard output: with line ends, or in one line. */
void json_print(const cJSON *json);
void json_print_line(const cJSON *json);
