// SPDX-License-Identifier: Apache-2.0
#include "cli/usage.h"

#include <ctype.h>

#include "daemon/options.h"

static struct usage_flag *add_flag(struct usage *usage)
{
    usage->flags = xrealloc(usage->flags, (usage->flag_count + 1) * sizeof *usage->flags);
    struct usage_flag *flag = &usage->flags[usage->flag_count++];
    *flag = (struct usage_flag){0};
    return flag;
}

static char *take_word(const char **at)
{
    size_t len = strcspn(*at, " ,\n");
    char *word = xasprintf("%.*s", (int)len, *at);
    *at += len;
    return word;
}

/* `line` begins with the first dash. */
static void read_flag(struct usage *usage, const char *line)
{
    struct usage_flag *flag = add_flag(usage);
    const char *at = line;
    if (at[1] != '-') {
        flag->letter = at[1];
        at += 2;
        at += strncmp(at, ", --", 4) == 0 ? 2 : 0;
    }
    if (strncmp(at, "--", 2) == 0) {
        at += 2;
        flag->name = take_word(&at);
    }
    if (at[0] == ' ' && at[1] != ' ') {
        at++;
        flag->value = take_word(&at);
    }
    at += strspn(at, " ");
    flag->help = xasprintf("%.*s", (int)strcspn(at, "\n"), at);
}

static void read_help(struct usage *usage, const char *help)
{
    for (const char *line = help; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, "  -", 3) == 0)
            read_flag(usage, line + 2);
}

static char *join_words(const char *const *words)
{
    char *all = xstrdup(words[0]);
    for (size_t i = 1; words[i]; i++) {
        char *longer = xasprintf("%s|%s", all, words[i]);
        free(all);
        all = longer;
    }
    return all;
}

static void read_options(struct usage *usage, const struct verb *verb)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        if (!spec->help || !verb->takes || !verb->takes(spec))
            continue;
        const char *kind = option_value_kind(spec);
        struct usage_flag *flag = add_flag(usage);
        flag->name = xstrdup(spec->name);
        for (char *c = flag->name; *c; c++)
            *c = *c == '_' ? '-' : *c;
        flag->value = spec->words ? join_words(spec->words) : kind ? xstrdup(kind) : NULL;
        flag->help = xstrdup(spec->help);
    }
}

/* Where a group "[-...]" that begins at `at` ends. Groups may lie in it. */
static const char *skip_group(const char *at)
{
    int depth = 0;
    do
        depth += *at == '[' ? 1 : *at == ']' ? -1 : 0;
    while (*at++ && depth > 0);
    return at;
}

static void add_operand(struct usage *usage, const char *at, size_t len)
{
    usage->operands = xrealloc(usage->operands, (usage->operand_count + 1) * sizeof *usage->operands);
    usage->operands[usage->operand_count++] = xasprintf("%.*s", (int)len, at);
}

static void read_synopsis(struct usage *usage, const char *at)
{
    while (*at) {
        size_t len = strcspn(at, " []|.");
        if (at[0] == '[' && at[1] == '-') {
            at = skip_group(at);
        } else if (len == 0) {
            at++;
        } else {
            add_operand(usage, at, len);
            at += len;
        }
    }
}

void usage_read(const struct verb *verb, struct usage *ret)
{
    *ret = (struct usage){0};
    read_help(ret, verb->help);
    read_options(ret, verb);
    read_synopsis(ret, verb->synopsis);
}

void usage_done(struct usage *usage)
{
    for (size_t i = 0; i < usage->flag_count; i++) {
        free(usage->flags[i].name);
        free(usage->flags[i].value);
        free(usage->flags[i].help);
    }
    for (size_t i = 0; i < usage->operand_count; i++)
        free(usage->operands[i]);
    free(usage->flags);
    free(usage->operands);
    *usage = (struct usage){0};
}

bool usage_is_words(const char *value)
{
    return value && islower((unsigned char)*value);
}
