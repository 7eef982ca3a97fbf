// SPDX-License-Identifier: Apache-2.0
#include "daemon/figures.h"

#include <stdio.h>

#include "daemon/control_json.h"
#include "daemon/service_internal.h"

#define TYPE_OF(type, field)                                                                       \
    _Generic(((type *)NULL)->field, uint64_t                                                       \
             : FIGURE_U64, unsigned                                                                \
             : FIGURE_UNSIGNED, bool                                                               \
             : FIGURE_BOOL, double                                                                 \
             : FIGURE_DOUBLE)
#define IN(type, field) TYPE_OF(type, field), offsetof(type, field)
#define S(field) IN(struct snapshot, field)
#define LANE(field) IN(struct fs_lane, field)
#define CODED(field) IN(__typeof__(((struct encode_counts *)NULL)->bytes[0]), field)
#define NS(type, field) FIGURE_NANOSECONDS, offsetof(type, field)
#define ELSEWHERE FIGURE_ELSEWHERE, 0
#define BYTES FIGURE_BYTES
#define COUNT FIGURE_COUNT
#define SECONDS FIGURE_SECONDS
#define MILLISECONDS FIGURE_MILLISECONDS
#define FLAG FIGURE_FLAG
#define WORDS FIGURE_WORDS

const struct figure figure_table[] = {
#include "daemon/figures.def"
    {0},
};

const char *const figure_unit_names[] = {
    [FIGURE_BYTES] = "bytes",        [FIGURE_COUNT] = "number",
    [FIGURE_SECONDS] = "seconds",    [FIGURE_MILLISECONDS] = "milliseconds",
    [FIGURE_FLAG] = "true or false", [FIGURE_WORDS] = "text"};

bool figure_is_of_array(const struct figure *figure)
{
    return strchr(figure->group, '[') != NULL;
}

bool figure_grows(const struct figure *figure)
{
    size_t len = strlen(figure->metric);
    return len > 6 && strcmp(figure->metric + len - 6, "_total") == 0;
}

cJSON *figure_group(cJSON *status, const char *group, bool make)
{
    cJSON *at = status;
    while (*group && at) {
        char name[32];
        size_t len = strcspn(group, ".[");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, group);
        cJSON *next = json_part(at, name);
        at = next || !make ? next : cJSON_AddObjectToObject(at, name);
        group += len;
        group += strspn(group, ".[]");
    }
    return at;
}
