// SPDX-License-Identifier: Apache-2.0
#include "daemon/keep_text.h"

#include "base/text.h"
#include "daemon/options.h"

#define FORM "give none, or some of last:N,hourly:N,daily:N,weekly:N, such as hourly:24,daily:7"

static const struct {
    const char *name;
    size_t offset;
} rules[] = {{"last", offsetof(struct head_keep, last)},
             {"hourly", offsetof(struct head_keep, hourly)},
             {"daily", offsetof(struct head_keep, daily)},
             {"weekly", offsetof(struct head_keep, weekly)}};

static uint32_t *field_of(struct head_keep *keep, size_t rule)
{
    return (uint32_t *)((char *)keep + rules[rule].offset);
}

/* Returns the text behind the rule's colon; NULL: the text begins with no rule. */
static const char *rule_value(const char *text, size_t *ret_rule)
{
    for (size_t i = 0; i < ARRAY_LEN(rules); i++) {
        size_t len = strlen(rules[i].name);
        *ret_rule = i;
        if (strncmp(text, rules[i].name, len) == 0 && text[len] == ':')
            return text + len + 1;
    }
    return NULL;
}

bool keep_is_rule(const char *text)
{
    size_t rule;
    return rule_value(text, &rule) != NULL;
}

static int parse_rule(const char *text, struct head_keep *keep, char **ret_text)
{
    size_t rule;
    uint64_t count = 0;
    const char *value = rule_value(text, &rule);
    if (!value)
        return text_fail(ret_text, -EINVAL, "'%s' is no rule; " FORM, text);
    if (parse_count(value, &count) < 0 || count == 0 || count > HEAD_KEEP_MAX)
        return text_fail(ret_text, -EINVAL, "'%s' has no number from 1 to %u; " FORM, text,
                         HEAD_KEEP_MAX);
    if (*field_of(keep, rule))
        return text_fail(ret_text, -EINVAL, "%s is given twice", rules[rule].name);
    *field_of(keep, rule) = (uint32_t)count;
    return 0;
}

int keep_parse(const char *text, struct head_keep *ret, char **ret_text)
{
    _cleanup_free_ char *copy = xstrdup(text);
    char *rest = copy, *one;
    *ret = (struct head_keep){0};
    if (strcmp(text, "none") == 0)
        return 0;
    while ((one = strsep(&rest, ",")))
        TRY(parse_rule(one, ret, ret_text));
    return 0;
}

struct head_keep keep_of(const char *text)
{
    struct head_keep keep = {0};
    _cleanup_free_ char *why = NULL;
    if (text)
        check(keep_parse(text, &keep, &why) == 0);
    return keep;
}
