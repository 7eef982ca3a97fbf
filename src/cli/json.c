// SPDX-License-Identifier: Apache-2.0
#include "cli/json.h"

#include <stdio.h>

#include "base/text.h"

#define TIME_SECONDS_MAX 1e11 /* of the year 5138 */

time_t json_time(const cJSON *object, const char *name)
{
    double seconds = json_number(object, name);
    return seconds > 0 && seconds < TIME_SECONDS_MAX ? (time_t)seconds : 0;
}

struct human json_bytes(const cJSON *object, const char *name)
{
    return human_bytes(json_count(object, name));
}

void json_make_printable(cJSON *json)
{
    cJSON *item;
    if (cJSON_IsString(json))
        text_hide_controls(cJSON_GetStringValue(json));
    cJSON_ArrayForEach(item, json)
    {
        json_make_printable(item);
    }
}

void json_print(const cJSON *json)
{
    _cleanup_free_ char *text = control_print(json, true);
    (void)printf("%s\n", text);
}

void json_print_line(const cJSON *json)
{
    _cleanup_free_ char *text = control_print(json, false);
    (void)printf("%s\n", text);
    (void)fflush(stdout);
}
