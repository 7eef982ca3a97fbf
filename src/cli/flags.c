// SPDX-License-Identifier: Apache-2.0
/* Parses a command line by the tables of its command. */
#include <getopt.h>

#include "base/text.h"
#include "cli/command.h"

/* Values of getopt_long() for long flags; a letter stands for itself. */
#define LONG_FLAG 0x100
#define OPTION_FLAG 0x1000
#define LONG_MAX_COUNT 160

/* The tables of a command as getopt_long() wants them. */
struct getopt_tables {
    struct option longs[LONG_MAX_COUNT + 1];
    size_t used;
    char letters[64];
    char *names[LONG_MAX_COUNT]; /* of options, with '-' for '_'; owned */
    size_t name_count;
};

struct parsing {
    const struct command *command;
    void *request;
    char *error; /* NULL: none */
};

static bool flag_is_end(const struct flag *flag)
{
    return !flag->letter && !flag->name;
}

static void tables_add(struct getopt_tables *t, const char *name, bool has_argument, int value)
{
    check(t->used < LONG_MAX_COUNT);
    t->longs[t->used++] =
        (struct option){name, has_argument ? required_argument : no_argument, NULL, value};
}

static void tables_add_flags(struct getopt_tables *t, const struct flag *flags)
{
    char *at = t->letters;
    *at++ = ':'; /* getopt_long() returns ':' where an argument is missing, and prints nothing */
    for (int i = 0; flags && !flag_is_end(&flags[i]); i++) {
        check(at + 3 < t->letters + sizeof t->letters);
        if (flags[i].letter)
            *at++ = flags[i].letter;
        if (flags[i].letter && flags[i].argument)
            *at++ = ':';
        if (flags[i].name)
            tables_add(t, flags[i].name, flags[i].argument != NULL, LONG_FLAG + i);
    }
    *at = '\0';
}

/* Adds each option by its name, and once more with '-' where it has '_'. */
static void tables_add_options(struct getopt_tables *t,
                               bool (*takes)(const struct option_spec *spec))
{
    for (int i = 0; takes && option_table[i].name; i++) {
        const struct option_spec *spec = &option_table[i];
        if (!takes(spec))
            continue;
        tables_add(t, spec->name, option_value_kind(spec) != NULL, OPTION_FLAG + i);
        if (!strchr(spec->name, '_'))
            continue;
        char *dashed = t->names[t->name_count++] = option_dashed(spec);
        tables_add(t, dashed, option_value_kind(spec) != NULL, OPTION_FLAG + i);
    }
}

static void tables_make(struct getopt_tables *t, const struct command *command)
{
    *t = (struct getopt_tables){0};
    tables_add_flags(t, command->flags);
    tables_add_options(t, command->takes_option);
}

static void tables_done(struct getopt_tables *t)
{
    for (size_t i = 0; i < t->name_count; i++)
        free(t->names[i]);
}

static const struct flag *flag_found(const struct command *command, int found)
{
    if (found >= LONG_FLAG)
        return &command->flags[found - LONG_FLAG];
    const struct flag *flag = command->flags;
    while (flag->letter != found)
        flag++;
    return flag;
}

/* "bash|zsh|fish" as "bash, zsh or fish"; caller frees. */
static char *words_list(const char *words)
{
    char *list = xstrdup("");
    for (const char *at = words; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL) {
        bool is_last = !strchr(at, '|');
        char *longer = xasprintf("%s%s%.*s", list,
                                 *list == '\0' ? ""
                                 : is_last     ? " or "
                                               : ", ",
                                 (int)strcspn(at, "|"), at);
        free(list);
        list = longer;
    }
    return list;
}

static int word_index(const char *words, const char *text, unsigned *ret)
{
    unsigned index = 0;
    for (const char *at = words; at; at = strchr(at, '|') ? strchr(at, '|') + 1 : NULL, index++) {
        size_t len = strcspn(at, "|");
        if (strlen(text) != len || strncmp(at, text, len) != 0)
            continue;
        *ret = index;
        return 0;
    }
    return -EINVAL;
}

static int parse_rate(const char *text, uint64_t *ret)
{
    _cleanup_free_ char *number = xstrdup(text);
    size_t len = strlen(number);
    if (len > 2 && strcmp(number + len - 2, "/s") == 0)
        number[len - 2] = '\0';
    int r = parse_size(number, ret);
    return r == 0 && *ret == 0 ? -EINVAL : r;
}

static char *flag_expects(const struct flag *flag)
{
    switch (flag->kind) {
    case FLAG_WORD:
        return words_list(flag->argument);
    case FLAG_TIME:
        return flag->min ? xasprintf("a time of %llu ms or more, such as 1s",
                                     (unsigned long long)flag->min / 1000000)
                         : xstrdup("a time such as 10s or 5m");
    case FLAG_COUNT:
        return xasprintf("a number from %llu on", (unsigned long long)flag->min);
    default:
        return xstrdup("bytes per second, such as 100M");
    }
}

static int take_argument(struct parsing *p, const struct flag *flag, const char *text)
{
    void *field = (char *)p->request + flag->offset;
    int r = 0;
    switch (flag->kind) {
    case FLAG_SET:
        *(bool *)field = true;
        return 0;
    case FLAG_TEXT:
        *(const char **)field = text;
        return 0;
    case FLAG_OPTIONS:
        return options_set_list(field, text, false, &p->error);
    case FLAG_WORD:
        r = word_index(flag->argument, text, field);
        break;
    case FLAG_TIME:
        r = parse_duration(text, field);
        r = r == 0 && *(int64_t *)field < (int64_t)flag->min ? -EINVAL : r;
        break;
    case FLAG_COUNT:
        r = parse_count(text, field);
        r = r == 0 && *(uint64_t *)field < flag->min ? -EINVAL : r;
        break;
    case FLAG_RATE:
        r = parse_rate(text, field);
        break;
    }
    if (r < 0) {
        _cleanup_free_ char *wanted = flag_expects(flag);
        p->error = xasprintf("invalid argument '%s' for --%s; use %s", text, flag->name, wanted);
    }
    return r;
}

static int take_option_flag(struct parsing *p, const struct option_spec *spec, const char *text)
{
    struct mount_options *options =
        (struct mount_options *)((char *)p->request + p->command->options_offset);
    return options_set(options, spec->name, text, &p->error);
}

static int take_flag(struct parsing *p, int found, char **argv)
{
    if (found == '?' || found == ':')
        return flags_complain(p->command, found, argv);
    int r = found >= OPTION_FLAG ? take_option_flag(p, &option_table[found - OPTION_FLAG], optarg)
                                 : take_argument(p, flag_found(p->command, found), optarg);
    int code = r < 0 ? complain_usage(p->command, "%s", p->error) : CLI_OK;
    free(p->error);
    p->error = NULL;
    return code;
}

/* Options of other tools, and the equivalent here. */
static const struct {
    const char *command, *option, *advice;
} habits[] = {
    {"umount", "-l",
     "programs that use the mount are listed, to be ended first; 'umount -l' of the system "
     "detaches it at once, and the daemon ends when the last of them closes its files"},
    {"umount", "-f",
     "end the programs that are listed; nothing that they have written is lost. A mount whose "
     "daemon is dead needs no force"},
    {"umount", "--lazy", "use 'umount -l' of the system"},
    {"umount", "--force", "end the programs that are listed; nothing that they wrote is lost"},
    {"mount", "--read-only", "use --ro"},
    {"mount", "-r", "use --ro"},
    {"cp", "-a", "use -r: modes, times, holes and links are kept, owners are not"},
    {"cp", "-p", "modes and times are always kept"},
};

static const char *habit_advice(const struct command *command, const char *option, size_t len)
{
    for (size_t i = 0; i < ARRAY_LEN(habits); i++)
        if (strcmp(habits[i].command, command->name) == 0 && strlen(habits[i].option) == len &&
            strncmp(habits[i].option, option, len) == 0)
            return habits[i].advice;
    return NULL;
}

struct flags_search {
    struct text_guess guess;
    char best[64]; /* the closest name is copied: names of mount options last for one call only */
};

static void try_flag(const struct flag *flag, void *arg)
{
    struct flags_search *s = arg;
    const char *before = s->guess.best;
    if (flag->name)
        text_guess_try(&s->guess, flag->name);
    if (s->guess.best == before)
        return;
    (void)snprintf(s->best, sizeof s->best, "%s", s->guess.best);
    s->guess.best = s->best;
}

static int complain_unknown(const struct command *command, const char *option)
{
    size_t len = strcspn(option, "=");
    const char *advice = habit_advice(command, option, len);
    if (advice)
        return complain_usage(command, "unknown option %.*s; %s", (int)len, option, advice);
    _cleanup_free_ char *name = strndup(option + strspn(option, "-"), len);
    check(name);
    name[strcspn(name, "=")] = '\0';
    struct flags_search search = {.guess = {.word = name}};
    if (strncmp(option, "--", 2) == 0)
        command_each_flag(command, try_flag, &search);
    if (search.guess.best)
        return complain_usage(command, "unknown option %.*s; did you mean --%s?", (int)len, option,
                              search.guess.best);
    return complain_usage(command, "unknown option %s; see 'cairn help %s'", option, command->name);
}

int flags_complain(const struct command *command, int found, char **argv)
{
    const char *last = argv[optind - 1];
    bool is_long = strncmp(last, "--", 2) == 0;
    /* Letters that stand together, -xy, are one argument, which may not be finished yet. */
    char letter[] = {'-', (char)optopt, '\0'};
    const char *option = optopt == 0 || is_long ? last : letter;
    if (found == ':')
        return complain_usage(command, "option %s requires an argument; see 'cairn help %s'",
                              option, command->name);
    if (is_long && optopt && strchr(last, '='))
        return complain_usage(command, "option %.*s takes no argument; see 'cairn help %s'",
                              (int)strcspn(last, "="), last, command->name);
    return complain_unknown(command, option);
}

static int check_required(const struct command *command, const void *request)
{
    for (const struct flag *flag = command->flags; flag && !flag_is_end(flag); flag++)
        if (flag->is_required && !*(const bool *)((const char *)request + flag->offset))
            return complain_usage(command, "missing option --%s; see 'cairn help %s'", flag->name,
                                  command->name);
    return CLI_OK;
}

static int check_operands(const struct command *command, char **given)
{
    size_t count = 0, least = 0, most = 0;
    unsigned word;
    const struct operand *o = command->operands;
    while (given[count])
        count++;
    for (size_t i = 0; o && o[i].name; i++) {
        least += !o[i].is_optional;
        most = o[i].is_repeated || most == SIZE_MAX ? SIZE_MAX : most + 1;
    }
    if (count >= least && count <= most) {
        for (size_t i = 0; i < count && o && o[i].name && o[i].offers == OFFER_WORDS; i++)
            if (word_index(o[i].name, given[i], &word) < 0)
                return complain_usage(command, "unexpected argument '%s'; use %s", given[i],
                                      o[i].name);
        return CLI_OK;
    }
    _cleanup_free_ char *usage = command_usage(command);
    return count < least
               ? complain_usage(command, "missing argument %s; usage: %s", o[count].name, usage)
               : complain_usage(command, "unexpected argument '%s'; usage: %s", given[most], usage);
}

int flags_parse(struct call *call, int argc, char **argv)
{
    struct getopt_tables tables;
    struct parsing parsing = {call->command, call->request, NULL};
    int found, code = CLI_OK;
    tables_make(&tables, call->command);
    opterr = 0;
    optind = 1;
    while (code == CLI_OK &&
           (found = getopt_long(argc, argv, tables.letters, tables.longs, NULL)) != -1)
        code = take_flag(&parsing, found, argv);
    tables_done(&tables);
    call->operands = argv + optind;
    if (code == CLI_OK)
        code = check_operands(call->command, call->operands);
    return code == CLI_OK ? check_required(call->command, call->request) : code;
}
