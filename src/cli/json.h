// SPDX-License-Identifier: Apache-2.0
/* Answers of a daemon as people read them, and JSON for programs. */
#pragma once

#include <time.h>

#include "cli/human.h"
#include "daemon/control_json.h"

/* seconds since 1970; 0: none that can be shown */
time_t json_time(const cJSON *object, const char *name);
/* A count of bytes, in words. */
struct human json_bytes(const cJSON *object, const char *name);

/* Control bytes in texts become '?': a file name must not move a terminal's cursor or
 * forge a line. */
void json_make_printable(cJSON *json);

/* On standard output: with line ends, or in one line. */
void json_print(const cJSON *json);
void json_print_line(const cJSON *json);
