// SPDX-License-Identifier: Apache-2.0
#include "daemon/control_json.h"

#include <math.h>
#include <stdio.h>

#include "base/text.h"

#define EXACT_DOUBLE_MAX (1ull << 53)
/* cJSON prints 15 digits if this is about the same number. */
#define EXACT_PRINT_MAX 999999999999999ull

/* Names may contain bytes that are no UTF-8, which JSON requires: these appear as "\\xNN". Control
 * characters that JSON allows in a string, such as DEL, are escaped like others: the text may be
 * printed on a terminal. Both occur only in strings, except for line ends and tabs of the
 * layout. */
static char *make_utf8(const char *text)
{
    char *made = xmalloc(6 * strlen(text) + 1), *to = made;
    unsigned code;
    for (size_t len; *text; text += len) {
        len = text_utf8_len(text);
        if (len == 0)
            to += sprintf(to, "\\\\x%02x", (unsigned char)*text);
        else if (*text != '\n' && *text != '\t' && text_control_len(text, &code) > 0)
            to += sprintf(to, "\\u%04x", code);
        else
            to = mempcpy(to, text, len);
        len = len ? len : 1;
    }
    *to = '\0';
    return made;
}

char *control_print(const cJSON *json, bool for_people)
{
    _cleanup_free_ char *text = for_people ? cJSON_Print(json) : cJSON_PrintUnformatted(json);
    check(text); /* out of memory */
    return make_utf8(text);
}

cJSON *control_error(int error, const char *text)
{
    cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "error", text);
    (void)cJSON_AddNumberToObject(object, "errno", error);
    return object;
}

void control_add_u64(cJSON *object, const char *name, uint64_t value)
{
    if (value <= EXACT_PRINT_MAX) {
        (void)cJSON_AddNumberToObject(object, name, (double)value);
        return;
    }
    char text[24];
    (void)snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    (void)cJSON_AddStringToObject(object, name, text);
}

bool control_get_u64(const cJSON *object, const char *name, uint64_t *ret_value)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);
    if (cJSON_IsNumber(item)) {
        double value = item->valuedouble;
        if (!(value >= 0 && value <= (double)EXACT_DOUBLE_MAX) || value != floor(value))
            return false;
        *ret_value = (uint64_t)value;
        return true;
    }
    if (!cJSON_IsString(item))
        return false;
    const char *text = item->valuestring;
    size_t len = strlen(text);
    if (len == 0 || len > 20 || strspn(text, "0123456789") != len)
        return false;
    errno = 0;
    *ret_value = strtoull(text, NULL, 10);
    return errno == 0;
}

cJSON *json_part(const cJSON *object, const char *name)
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

uint64_t json_count(const cJSON *object, const char *name)
{
    uint64_t value = 0;
    (void)control_get_u64(object, name, &value);
    return value;
}

bool json_true(const cJSON *object, const char *name)
{
    return cJSON_IsTrue(json_part(object, name));
}
