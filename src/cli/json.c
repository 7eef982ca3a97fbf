// SPDX-License-Identifier: Apache-2.0
#include "cli/json.h"

#include <stdio.h>

#include "base/text.h"
#include "cli/human.h"
#include "daemon/control.h"

#define TIME_SECONDS_MAX 1e11 /* of the year 5138 */

const cJSON *json_part(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

const char *json_text(const cJSON *object, const char *name)
{
    return cJSON_GetStringValue(json_part(object, name));
}

const char *json_text_or(const cJSON *object, const char *name, const char *other)
{
    const char *text = json_text(object, name);
    return text ? text : other;
}

double json_number(const cJSON *object, const char *name)
{
    const cJSON *item = json_part(object, name);
    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

time_t json_time(const cJSON *object, const char *name)
{
    double seconds = json_number(object, name);
    return seconds > 0 && seconds < TIME_SECONDS_MAX ? (time_t)seconds : 0;
}

uint64_t json_count(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    (void)control_get_u64(object, name, &value);
    return value;
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
