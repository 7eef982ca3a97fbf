// SPDX-License-Identifier: Apache-2.0
/* The commands of `cairn`. The file of each command has its table: flags, operands and exit
 * statuses. From the table are made parsing (flags.c), help and synopsis (help.c), the lists in the
 * man pages (docs/man/pages.py, from `cairn help --json`) and shell completion
 * (completion/scripts.py, from the same). One thread. */
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "daemon/options.h"

/* Exit statuses of the commands other than mount (mount(8)'s) and fsck (fsck(8)'s). */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_NOT_MET = 3,
    CLI_NOT_DRAINED = 4, /* umount: the mount is gone, and a tier lacks data */
    CLI_INTERRUPTED = 130
};

/* The type of a flag's field in the request of its command. */
enum flag_kind {
    FLAG_SET,     /* takes no argument; bool */
    FLAG_TEXT,    /* const char *, in argv */
    FLAG_WORD,    /* one of the words in `argument`; unsigned, the index of the word */
    FLAG_TIME,    /* int64_t, nanoseconds */
    FLAG_COUNT,   /* uint64_t */
    FLAG_RATE,    /* uint64_t, bytes per second */
    FLAG_OPTIONS, /* struct mount_options, set from a list */
};

struct flag {
    char letter;          /* '\0': none */
    const char *name;     /* without dashes; NULL: none */
    const char *argument; /* "TIME"; of FLAG_WORD the words, "nvme|remote"; NULL: takes none */
    const char *help;     /* one line; NULL: accepted, but not shown */
    enum flag_kind kind;
    size_t offset;    /* of the field in the request */
    uint64_t min;     /* least value of FLAG_TIME and FLAG_COUNT */
    bool is_required; /* a FLAG_SET without which the command is refused */
};

/* The fields that every shown flag has, and flags that many commands have. */
#define FLAG_OF(short, long, of_kind, at)                                                          \
    .letter = (short), .name = (long), .kind = (of_kind), .offset = (at)
#define FLAG_JSON(at) FLAG_JSON_OF("print JSON", at)
#define FLAG_JSON_OF(text, at)                                                                     \
    {                                                                                              \
        .letter = 'j', .name = "json", .help = (text), .offset = (at)                              \
    }
#define FLAG_TIMEOUT(text, at)                                                                     \
    {                                                                                              \
        .letter = 't', .name = "timeout", .argument = "TIME", .help = (text), .kind = FLAG_TIME,   \
        .offset = (at)                                                                             \
    }

/* Where shells find the words to offer for an operand. */
enum {
    OFFER_WORDS = 1 << 0, /* in the operand's name */
    OFFER_COMMANDS = 1 << 1,
    OFFER_MOUNTPOINTS = 1 << 2,
    OFFER_DIRECTORIES = 1 << 3,
    OFFER_FILES = 1 << 4,
};

struct operand {
    const char *name; /* "MOUNTPOINT"; with OFFER_WORDS the words, "bash|zsh|fish" */
    unsigned offers;
    bool is_optional, is_repeated;
};

/* The kind of the first operand, which is resolved before the command is executed (target.h). */
enum command_target {
    TARGET_NONE,
    TARGET_MOUNT, /* a mountpoint, or a path on the mount */
    TARGET_ANY,   /* or a store; without an operand the only mount */
};

/* The operands of many commands, in target.c. */
extern const struct operand operands_mount[], operands_any[], operands_paths[];

struct target {
    char *store;      /* owned */
    char *mountpoint; /* owned; NULL: according to the kernel the store is not mounted */
};

/* One execution of a command. */
struct call {
    const struct command *command;
    void *request;   /* a copy of the command's, with the fields of its flags set */
    char **operands; /* in argv; ends with NULL */
    struct target target;
};

/* The type of a command's request, to which the offsets of its flags refer, with its first
 * values. */
#define REQUEST(type, ...) .request = &(const type){__VA_ARGS__}, .request_size = sizeof(type)

struct exit_status {
    int code;
    const char *meaning;
};

/* The exit statuses of most commands; and of those that an interrupt or a timeout may end. */
#define EXITS(done, failed, ...)                                                                   \
    ((const struct exit_status[]){                                                                 \
        {CLI_OK, done}, {CLI_FAILED, failed}, {CLI_USAGE, "wrong usage"}, ##__VA_ARGS__, {0}})
#define EXITS_INTERRUPTED(done, failed) EXITS(done, failed, {CLI_INTERRUPTED, "interrupted"})
#define EXITS_TIMED(done, failed)                                                                  \
    EXITS(done, failed, {CLI_NOT_MET, "timed out"}, {CLI_INTERRUPTED, "interrupted"})

/* The arrays end with an entry of zeros; NULL: none. */
struct command {
    const char *name;
    const char *summary;     /* one line */
    const char *description; /* lines below the summary; NULL: none */
    const struct flag *flags;
    const struct operand *operands; /* the optional ones come last */
    const struct exit_status *exits;
    const void *request; /* by REQUEST(); NULL: it has no flags */
    size_t request_size;
    enum command_target target;
    int usage_exit; /* 0: CLI_USAGE */
    /* the mount options that are also flags of the command; NULL: none */
    bool (*takes_option)(const struct option_spec *spec);
    size_t options_offset;             /* of the struct mount_options in the request */
    void (*more_help)(void);           /* prints the end of the help text; NULL: none */
    int (*execute)(struct call *call); /* returns the exit status */
};

static inline int command_usage_exit(const struct command *command)
{
    return command->usage_exit ? command->usage_exit : CLI_USAGE;
}

/* All commands in the order of the help text; ends with NULL. */
extern const struct command *const command_table[];
const struct command *command_find(const char *name);
/* Returns the command that a mistyped name most likely means; NULL: no name is close. */
const char *command_guess(const char *name);

/* Executes a command with its arguments; argv[0] is its name. Returns the exit status. */
int command_run(const struct command *command, int argc, char **argv);

/* Stores all flags in the call's request, and checks the number of operands. CLI_OK; otherwise the
 * exit status to end with, after a message. */
CAIRN_MUST_CHECK int flags_parse(struct call *call, int argc, char **argv);

/* The error of getopt() or getopt_long() (`found` is '?' or ':') as a message; returns the exit
 * status to end with. */
int flags_complain(const struct command *command, int found, char **argv);

/* The name with '-' for '_'; caller frees. */
char *option_dashed(const struct option_spec *spec);

/* Calls `fn` for each flag that is shown, those of mount options included. Their names have '-' for
 * '_'; `flag` is valid until `fn` returns. */
void command_each_flag(const struct command *command,
                       void (*fn)(const struct flag *flag, void *arg), void *arg);

/* "cairn wait [--level stage|nvme|remote] PATH..."; caller frees. */
char *command_usage(const struct command *command);

/* The help text of one command, and the list of all. */
void help_print(const struct command *command);
void help_print_overview(FILE *out);

/* Prints one line to standard error: "cairn NAME: ...". Returns CLI_FAILED. */
int complain(const char *name, const char *fmt, ...) CAIRN_PRINTF(2, 3);

/* As complain(), for a wrong argument; returns the exit status to end with. */
int complain_usage(const struct command *command, const char *fmt, ...) CAIRN_PRINTF(2, 3);
