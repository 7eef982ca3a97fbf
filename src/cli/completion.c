// SPDX-License-Identifier: Apache-2.0
/* cairn completion: for each shell a script whose fixed part is below, and whose tables are made from what the verbs take. */
#include <ctype.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/mounts.h"
#include "cli/usage.h"
#include "daemon/options.h"

/* What completes an operand or a value. */
enum source_kind { FROM_NOTHING, FROM_WORDS, FROM_VERBS, FROM_MOUNTPOINTS, FROM_FOLDERS, FROM_FILES, FROM_OPTIONS };

static enum source_kind operand_kind(const struct verb *verb, const char *operand)
{
    if (islower((unsigned char)*operand))
        return FROM_WORDS;
    if (strcmp(operand, "VERB") == 0)
        return FROM_VERBS;
    /* Where `cairn mount` mounts, nothing is mounted yet. */
    if (strcmp(operand, "MOUNTPOINT") == 0)
        return strcmp(verb->name, "mount") == 0 ? FROM_FOLDERS : FROM_MOUNTPOINTS;
    return strcmp(operand, "STORE") == 0 ? FROM_FOLDERS : FROM_FILES;
}

static enum source_kind value_kind(const char *value)
{
    static const char *const files[] = {"PATH", "FILE"};
    if (usage_is_words(value))
        return FROM_WORDS;
    if (strcmp(value, "LIST") == 0)
        return FROM_OPTIONS;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        if (strcmp(value, files[i]) == 0)
            return FROM_FILES;
    return FROM_NOTHING;
}

/* "a|b" as "a b" */
static void print_words(const char *words)
{
    for (; *words; words++)
        (void)putchar(*words == '|' ? ' ' : *words);
}

/* All verbs, each with `end` behind it. */
static void print_verbs(const char *end)
{
    for (const struct verb *verb = verb_table; verb->name; verb++)
        (void)printf("%s%s", verb->name, end);
}

/* For inside of single quotes. Brackets mean something to zsh there. */
static void print_text(const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            (void)printf("'\\''");
        else
            (void)putchar(*text == '[' ? '(' : *text == ']' ? ')' : *text);
    }
}

/* The operands of a verb, each kind once; words all of them. */
static bool is_repeated(const struct verb *verb, const struct usage *usage, size_t i)
{
    enum source_kind kind = operand_kind(verb, usage->operands[i]);
    for (size_t j = 0; j < i && kind != FROM_WORDS; j++)
        if (operand_kind(verb, usage->operands[j]) == kind)
            return true;
    return false;
}

/* --- bash ------------------------------------------------------------------------------------------------------------------- */

/* $cur is what is to be completed, without backslashes; $kept the part of it that bash takes for words before (up to the last of
 * '=' and ':'), so what it gets must begin behind that. */
static const char bash_head[] =
    "# bash completion of cairn, as `cairn completion bash` prints it\n"
    "\n"
    "_cairn_offer() { # WORD...: those that $cur begins\n"
    "    local word\n"
    "    for word; do\n"
    "        [[ $word == \"$cur\"* ]] && COMPREPLY+=(\"${word#\"$kept\"}\")\n"
    "    done\n"
    "    return 0\n"
    "}\n"
    "\n"
    "_cairn_files() { # -d (folders) or -f\n"
    "    local found\n"
    "    while IFS= read -r found; do\n"
    "        COMPREPLY+=(\"$found\")\n"
    "    done < <(compgen \"$1\" -- \"${cur#\"$kept\"}\")\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "\n"
    "_cairn_mountpoints() {\n"
    "    local line fields\n"
    "    while IFS= read -r line; do\n"
    "        [[ $line == *' - " CAIRN_FSTYPE " '* ]] || continue\n"
    "        read -r -a fields <<<\"$line\"\n"
    "        _cairn_offer \"$(printf '%b' \"${fields[4]//\\\\/\\\\0}\")\"\n"
    "    done < <(cat /proc/self/mountinfo)\n"
    "    compopt -o filenames 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "\n"
    "_cairn_options() { # the last of a list: its name, or its value\n"
    "    local item=${cur##*,} words word\n"
    "    local before=${cur%\"$item\"}\n"
    "    words=$_cairn_option_names\n"
    "    [[ $item == *=* ]] && words=$_cairn_option_values\n"
    "    for word in $words; do\n"
    "        [[ $word == \"$item\"* ]] && _cairn_offer \"$before$word\"\n"
    "    done\n"
    "    compopt -o nospace 2>/dev/null\n"
    "    return 0\n"
    "}\n"
    "\n";

static const char bash_tail[] =
    "\n"
    "_cairn() {\n"
    "    local line=${COMP_LINE:0:COMP_POINT} words cur='' kept verb prev\n"
    "    COMPREPLY=()\n"
    "    read -a words <<<\"$line\"\n"
    "    if [[ $line != *[[:space:]] ]]; then\n"
    "        cur=${words[${#words[@]} - 1]}\n"
    "        unset \"words[${#words[@]} - 1]\"\n"
    "    fi\n"
    "    kept=${cur%\"${cur##*[=:]}\"}\n"
    "    if ((${#words[@]} < 2)); then\n"
    "        _cairn_offer $_cairn_verbs\n"
    "        return\n"
    "    fi\n"
    "    verb=${words[1]} prev=${words[${#words[@]} - 1]}\n"
    "    if [[ $cur == --*=* ]]; then\n"
    "        prev=${cur%%=*} cur=${cur#*=}\n"
    "        kept=${cur%\"${cur##*[=:]}\"}\n"
    "    fi\n"
    "    _cairn_value \"$verb\" \"${prev//_/-}\" && return\n"
    "    if [[ $cur == -* ]]; then\n"
    "        _cairn_flags \"$verb\"\n"
    "    else\n"
    "        _cairn_operands \"$verb\"\n"
    "    fi\n"
    "}\n"
    "\n"
    "complete -F _cairn cairn\n";

static void bash_source(enum source_kind kind, const char *words)
{
    static const char *const calls[] = {[FROM_NOTHING] = ":",
                                        [FROM_WORDS] = "_cairn_offer ",
                                        [FROM_VERBS] = "_cairn_offer $_cairn_verbs",
                                        [FROM_MOUNTPOINTS] = "_cairn_mountpoints",
                                        [FROM_FOLDERS] = "_cairn_files -d",
                                        [FROM_FILES] = "_cairn_files -f",
                                        [FROM_OPTIONS] = "_cairn_options"};
    (void)printf("%s", calls[kind]);
    if (kind == FROM_WORDS)
        print_words(words);
}

static void bash_values(const struct verb *verb, const struct usage *usage)
{
    for (size_t i = 0; i < usage->flag_count; i++) {
        const struct usage_flag *flag = &usage->flags[i];
        if (!flag->value)
            continue;
        (void)printf("    ");
        if (flag->letter)
            (void)printf("%s/-%c%s", verb->name, flag->letter, flag->name ? " | " : "");
        if (flag->name)
            (void)printf("%s/--%s", verb->name, flag->name);
        (void)printf(") ");
        bash_source(value_kind(flag->value), flag->value);
        (void)printf(" ;;\n");
    }
}

static void bash_flags(const struct verb *verb, const struct usage *usage)
{
    (void)printf("    %s) _cairn_offer --help", verb->name);
    for (size_t i = 0; i < usage->flag_count; i++) {
        if (usage->flags[i].letter)
            (void)printf(" -%c", usage->flags[i].letter);
        if (usage->flags[i].name)
            (void)printf(" --%s", usage->flags[i].name);
    }
    (void)printf(" ;;\n");
}

static void bash_operands(const struct verb *verb, const struct usage *usage)
{
    (void)printf("    %s)", verb->name);
    for (size_t i = 0; i < usage->operand_count; i++) {
        if (is_repeated(verb, usage, i))
            continue;
        (void)printf(" ");
        bash_source(operand_kind(verb, usage->operands[i]), usage->operands[i]);
        (void)printf(" ;");
    }
    (void)printf("%s\n", usage->operand_count ? ";" : " ;;");
}

/* A function of VERB that has a case for each; `others` (NULL: none) if it is one of VERB FLAG and fails for what it does not know. */
static void bash_table(const char *name, void (*print)(const struct verb *verb, const struct usage *usage), const char *others)
{
    (void)printf("\n%s() {\n    case %s in\n", name, others ? "$1/$2" : "$1");
    for (const struct verb *verb = verb_table; verb->name; verb++) {
        struct usage usage;
        usage_read(verb, &usage);
        print(verb, &usage);
        usage_done(&usage);
    }
    (void)printf("%s    esac\n}\n", others ? others : "");
}

/* Names of options as -o takes them, or names with each of their words. */
static void print_option_words(bool values)
{
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        if (!spec->help)
            continue;
        if (!values)
            (void)printf("%s%s ", spec->name, option_value_kind(spec) ? "=" : "");
        for (size_t i = 0; values && spec->words && spec->words[i]; i++)
            (void)printf("%s=%s ", spec->name, spec->words[i]);
    }
}

static void print_bash(void)
{
    (void)fputs(bash_head, stdout);
    (void)printf("_cairn_verbs='");
    print_verbs(" ");
    (void)printf("'\n_cairn_option_names='");
    print_option_words(false);
    (void)printf("'\n_cairn_option_values='");
    print_option_words(true);
    (void)printf("'\n");
    bash_table("_cairn_value", bash_values, "    *) return 1 ;;\n");
    bash_table("_cairn_flags", bash_flags, NULL);
    bash_table("_cairn_operands", bash_operands, NULL);
    (void)fputs(bash_tail, stdout);
}

/* --- zsh -------------------------------------------------------------------------------------------------------------------- */

static const char zsh_head[] =
    "#compdef cairn\n"
    "# zsh completion of cairn, as `cairn completion zsh` prints it\n"
    "\n"
    "_cairn_mountpoints() {\n"
    "    local line\n"
    "    local -a fields found\n"
    "    while IFS= read -r line; do\n"
    "        [[ $line == *' - " CAIRN_FSTYPE " '* ]] || continue\n"
    "        fields=(${=line})\n"
    "        found+=(\"$(printf '%b' \"${fields[5]//\\\\/\\\\0}\")\")\n"
    "    done < <(cat /proc/self/mountinfo)\n"
    "    compadd -f -a found\n"
    "}\n"
    "\n";

static const char zsh_middle[] =
    "\n"
    "_cairn() {\n"
    "    local curcontext=$curcontext state line\n"
    "    _arguments -C ':verb:_cairn_verbs' '*:: :->rest' && return\n"
    "    [[ $state == rest ]] || return\n"
    "    case $words[1] in\n";

static const char zsh_tail[] =
    "    esac\n"
    "}\n"
    "\n"
    "if [[ $funcstack[1] == _cairn ]]; then _cairn \"$@\"; else compdef _cairn cairn; fi\n";

static void zsh_source(enum source_kind kind, const char *words)
{
    static const char *const actions[] = {[FROM_NOTHING] = " ",
                                          [FROM_WORDS] = "(",
                                          [FROM_VERBS] = "_cairn_verbs",
                                          [FROM_MOUNTPOINTS] = "_cairn_mountpoints",
                                          [FROM_FOLDERS] = "_files -/",
                                          [FROM_FILES] = "_files",
                                          [FROM_OPTIONS] = "_cairn_options"};
    (void)printf("%s", actions[kind]);
    if (kind == FROM_WORDS) {
        print_words(words);
        (void)printf(")");
    }
}

/* One spelling of a flag: "-l+" and "--level=" take their value behind them or as the next word. */
static void zsh_flag(const struct usage_flag *flag, const char *dashes, const char *name, char glue)
{
    (void)printf(" \\\n            '%s%s", dashes, name);
    if (flag->value)
        (void)printf("%c", glue);
    (void)printf("[");
    print_text(flag->help);
    (void)printf("]");
    if (flag->value) {
        (void)printf(":%s:", usage_is_words(flag->value) ? "word" : flag->value);
        zsh_source(value_kind(flag->value), flag->value);
    }
    (void)printf("'");
}

/* Of several operands the completion is the same at each place. */
static void zsh_operands(const struct verb *verb, const struct usage *usage)
{
    size_t words = 0, kinds = 0;
    for (size_t i = 0; i < usage->operand_count; i++) {
        bool is_word = operand_kind(verb, usage->operands[i]) == FROM_WORDS;
        words += is_word;
        kinds += !is_word && !is_repeated(verb, usage, i);
    }
    if (words + kinds == 0)
        return;
    (void)printf(" \\\n            '*:%s:", verb->name);
    if (words) {
        (void)printf("(");
        for (size_t i = 0; i < usage->operand_count; i++)
            (void)printf("%s%s", i ? " " : "", usage->operands[i]);
        (void)printf(")");
    } else if (kinds == 1) {
        zsh_source(operand_kind(verb, usage->operands[0]), NULL);
    } else {
        (void)printf("_alternative");
        for (size_t i = 0; i < usage->operand_count; i++) {
            if (is_repeated(verb, usage, i))
                continue;
            (void)printf(" \"%s\\:%s\\:", verb->name, verb->name);
            zsh_source(operand_kind(verb, usage->operands[i]), NULL);
            (void)printf("\"");
        }
    }
    (void)printf("'");
}

static void zsh_verb(const struct verb *verb)
{
    struct usage usage;
    usage_read(verb, &usage);
    (void)printf("    %s)\n        _arguments '--help[explain it]'", verb->name);
    for (size_t i = 0; i < usage.flag_count; i++) {
        const struct usage_flag *flag = &usage.flags[i];
        const char letter[] = {flag->letter, '\0'};
        if (flag->letter)
            zsh_flag(flag, "-", letter, '+');
        if (flag->name)
            zsh_flag(flag, "--", flag->name, '=');
    }
    zsh_operands(verb, &usage);
    (void)printf(" ;;\n");
    usage_done(&usage);
}

static void zsh_options(void)
{
    (void)printf("\n_cairn_options() {\n    _values -s , option");
    for (const struct option_spec *spec = option_table; spec->name; spec++) {
        const char *kind = option_value_kind(spec);
        if (!spec->help)
            continue;
        (void)printf(" \\\n        '%s[", spec->name);
        print_text(spec->help);
        (void)printf("]%s%s", kind ? ":" : "", kind ? kind : "");
        for (size_t i = 0; spec->words && spec->words[i]; i++)
            (void)printf("%s%s%s", i ? " " : ":(", spec->words[i], spec->words[i + 1] ? "" : ")");
        (void)printf("'");
    }
    (void)printf("\n}\n");
}

static void print_zsh(void)
{
    (void)fputs(zsh_head, stdout);
    (void)printf("_cairn_verbs() {\n    local -a verbs\n    verbs=(\n");
    for (const struct verb *verb = verb_table; verb->name; verb++) {
        (void)printf("        '%s:", verb->name);
        print_text(verb->summary);
        (void)printf("'\n");
    }
    (void)printf("    )\n    _describe -t verbs verb verbs\n}\n");
    zsh_options();
    (void)fputs(zsh_middle, stdout);
    for (const struct verb *verb = verb_table; verb->name; verb++)
        zsh_verb(verb);
    (void)fputs(zsh_tail, stdout);
}

/* --- fish ------------------------------------------------------------------------------------------------------------------- */

static const char fish_head[] =
    "# fish completion of cairn, as `cairn completion fish` prints it\n"
    "\n"
    "function __cairn_is_verb # none yet, or this one\n"
    "    set -l words (commandline -opc)\n"
    "    if test (count $argv) -eq 0\n"
    "        test (count $words) -eq 1\n"
    "    else\n"
    "        test (count $words) -gt 1; and test \"$words[2]\" = $argv[1]\n"
    "    end\n"
    "end\n"
    "\n"
    "function __cairn_mountpoints\n"
    "    string match -e ' - " CAIRN_FSTYPE " ' </proc/self/mountinfo | while read -l -a fields\n"
    "        printf '%b\\n' (string replace -a '\\\\' '\\\\0' -- $fields[5])\n"
    "    end\n"
    "end\n"
    "\n"
    "complete -c cairn -f\n";

static void fish_source(enum source_kind kind, const char *words)
{
    static const char *const arguments[] = {[FROM_NOTHING] = " -x",
                                            [FROM_WORDS] = " -x -a '",
                                            [FROM_VERBS] = " -x -a '",
                                            [FROM_MOUNTPOINTS] = " -x -a '(__cairn_mountpoints)'",
                                            [FROM_FOLDERS] = " -x -a '(__fish_complete_directories)'",
                                            [FROM_FILES] = " -r -F",
                                            [FROM_OPTIONS] = " -x -a '(__fish_complete_list , __cairn_options)'"};
    (void)printf("%s", arguments[kind]);
    if (kind == FROM_WORDS)
        print_words(words);
    if (kind == FROM_VERBS)
        print_verbs(" ");
    if (kind == FROM_WORDS || kind == FROM_VERBS)
        (void)printf("'");
}

static void fish_verb(const struct verb *verb)
{
    struct usage usage;
    usage_read(verb, &usage);
    (void)printf("complete -c cairn -n __cairn_is_verb -a %s -d '", verb->name);
    print_text(verb->summary);
    (void)printf("'\n");
    for (size_t i = 0; i < usage.flag_count; i++) {
        const struct usage_flag *flag = &usage.flags[i];
        (void)printf("complete -c cairn -n '__cairn_is_verb %s'", verb->name);
        if (flag->letter)
            (void)printf(" -s %c", flag->letter);
        if (flag->name)
            (void)printf(" -l %s", flag->name);
        if (flag->value)
            fish_source(value_kind(flag->value), flag->value);
        (void)printf(" -d '");
        print_text(flag->help);
        (void)printf("'\n");
    }
    for (size_t i = 0; i < usage.operand_count; i++) {
        if (is_repeated(verb, &usage, i))
            continue;
        (void)printf("complete -c cairn -n '__cairn_is_verb %s'", verb->name);
        fish_source(operand_kind(verb, usage.operands[i]), usage.operands[i]);
        (void)printf("\n");
    }
    usage_done(&usage);
}

static void print_fish(void)
{
    (void)fputs(fish_head, stdout);
    (void)printf("\nfunction __cairn_options\n    string split ' ' -- '");
    print_option_words(false);
    print_option_words(true);
    (void)printf("'\nend\n\n");
    for (const struct verb *verb = verb_table; verb->name; verb++)
        fish_verb(verb);
}

int verb_completion(const struct verb *verb, int argc, char **argv)
{
    static const struct {
        const char *shell;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; argc == 2 && i < ARRAY_LEN(shells); i++) {
        if (strcmp(shells[i].shell, argv[1]) != 0)
            continue;
        shells[i].print();
        return CLI_OK;
    }
    return complain_usage(verb, "the name of a shell is needed; run: cairn completion %s", verb->synopsis);
}
