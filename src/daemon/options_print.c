// SPDX-License-Identifier: Apache-2.0
/* The options of a mount as a list that options_set_list() reads. */
#include <stdio.h>

#include "daemon/options.h"

static void print_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == ',' || *text == '\\')
            (void)fputc('\\', out);
        (void)fputc(*text, out);
    }
}

static void print_amount(FILE *out, const struct option_spec *spec, uint64_t amount)
{
    const uint64_t second = 1000000000;
    if (spec->kind == OPTION_ENUM)
        (void)fprintf(out, ",%s=%s", spec->name, spec->words[amount]);
    else if (spec->kind == OPTION_DURATION)
        (void)fprintf(out, ",%s=%llu.%09llus", spec->name, (unsigned long long)(amount / second),
                      (unsigned long long)(amount % second));
    else
        (void)fprintf(out, ",%s=%llu", spec->name, (unsigned long long)amount);
}

static void print_one(FILE *out, const struct option_spec *spec, const void *field,
                      const void *usual)
{
    bool is_text = spec->kind == OPTION_STRING || spec->kind == OPTION_PATH;
    if (spec->kind == OPTION_SET || spec->kind == OPTION_CLEAR) {
        bool value = *(const bool *)field;
        if (value != *(const bool *)usual && value == (spec->kind == OPTION_SET))
            (void)fprintf(out, ",%s", spec->name);
    } else if (is_text) {
        const char *text = *(char *const *)field, *usual_text = *(char *const *)usual;
        if (!text || (usual_text && strcmp(text, usual_text) == 0))
            return;
        (void)fprintf(out, ",%s=", spec->name);
        print_text(out, text);
    } else if (memcmp(field, usual, sizeof(uint64_t)) != 0) {
        uint64_t amount;
        memcpy(&amount, field, sizeof amount);
        print_amount(out, spec, amount);
    }
}

char *options_print(const struct mount_options *o)
{
    struct mount_options usual;
    char *list = NULL;
    size_t len;
    FILE *out = open_memstream(&list, &len);
    check(out != NULL);
    options_init(&usual);
    for (const struct option_spec *spec = option_table; spec->name; spec++)
        if (!spec->alias_of)
            print_one(out, spec, (const char *)o + spec->offset,
                      (const char *)&usual + spec->offset);
    options_done(&usual);
    check(fclose(out) == 0);
    return list;
}
