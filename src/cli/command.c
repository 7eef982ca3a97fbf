// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <stdarg.h>

#include "base/text.h"

/* "a|b"; caller frees. */
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

char *option_dashed(const struct option_spec *spec)
{
    char *name = xstrdup(spec->name);
    for (char *c = name; *c; c++)
        *c = *c == '_' ? '-' : *c;
    return name;
}

static void call_with_option(const struct option_spec *spec,
                             void (*fn)(const struct flag *flag, void *arg), void *arg)
{
    _cleanup_free_ char *name = option_dashed(spec);
    _cleanup_free_ char *words = spec->words ? join_words(spec->words) : NULL;
    const char *argument = words ? words : option_value_kind(spec);
    struct flag flag = {.name = name,
                        .argument = argument,
                        .help = spec->help,
                        .kind = words      ? FLAG_WORD
                                : argument ? FLAG_TEXT
                                           : FLAG_SET};
    fn(&flag, arg);
}

void command_each_flag(const struct command *command,
                       void (*fn)(const struct flag *flag, void *arg), void *arg)
{
    for (const struct flag *flag = command->flags; flag && (flag->letter || flag->name); flag++)
        if (flag->help)
            fn(flag, arg);
    for (const struct option_spec *spec = option_table; command->takes_option && spec->name; spec++)
        if (spec->help && command->takes_option(spec))
            call_with_option(spec, fn, arg);
}

static void print_flag(FILE *out, const struct flag *flag)
{
    char letter[] = {'-', flag->letter, '\0'};
    (void)fprintf(out, " %s%s%s", flag->is_required ? "" : "[", flag->name ? "--" : letter,
                  flag->name ? flag->name : "");
    (void)fprintf(out, "%s%s%s", flag->argument ? " " : "", flag->argument ? flag->argument : "",
                  flag->is_required ? "" : "]");
}

char *command_usage(const struct command *command)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    check(out != NULL);
    (void)fprintf(out, "cairn %s", command->name);
    for (const struct flag *flag = command->flags; flag && (flag->letter || flag->name); flag++)
        if (flag->help)
            print_flag(out, flag);
    for (const struct operand *o = command->operands; o && o->name; o++)
        (void)fprintf(out, " %s%s%s%s", o->is_optional ? "[" : "", o->name,
                      o->is_repeated ? "..." : "", o->is_optional ? "]" : "");
    check(fclose(out) == 0);
    return text;
}

static void complain_va(const char *name, const char *fmt, va_list ap)
{
    _cleanup_free_ char *text = NULL;
    if (vasprintf(&text, fmt, ap) < 0)
        text = NULL;
    text_print(stderr, "cairn %s: %s", name, text ? text : "out of memory");
}

int complain(const char *name, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain_va(name, fmt, ap);
    va_end(ap);
    return CLI_FAILED;
}

int complain_usage(const struct command *command, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    complain_va(command->name, fmt, ap);
    va_end(ap);
    return command_usage_exit(command);
}
