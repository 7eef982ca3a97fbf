// SPDX-License-Identifier: Apache-2.0
/* SOURCE:PATH of `cairn ls` and `cairn cp`: opens sources and finds files in them. One thread. */
#pragma once

#include <sys/stat.h>

#include "base/vector.h"
#include "cli/command.h"
#include "daemon/offline.h"

/* Returns true for a mount option that selects how a remote is reached: it is also a flag of
 * commands that read a remote. */
bool source_takes_option(const struct option_spec *spec);
/* Prints the end of the help text of such a command: `text`, and these flags. */
void source_print_help(const char *text);
void source_more_help(void);

/* The flag --at of a struct with a `const char *`, which is passed to source_look_back(). */
#define FLAG_AT(at)                                                                                \
    {                                                                                              \
        .name = "at", .argument = "WHEN", .kind = FLAG_TEXT, .offset = (at),                       \
        .help = "show the newest state of a remote that is not later than this: a head's number, " \
                "a snapshot's name, a time such as 2026-11-28T20:59:08Z, or how long ago, such "   \
                "as 2h; 'cairn history' lists what there is",                                      \
    }
/* Sources that are opened from now on show their state at this point; `when` may be NULL. CLI_OK,
 * or the command's usage exit after a message. */
CAIRN_MUST_CHECK int source_look_back(const struct command *command, const char *when,
                                      struct mount_options *options);

struct source {
    char *name;
    struct offline *offline;
    struct store *store;
    struct ns *ns;
};

/* The file that a PATH names. */
struct source_node {
    uint64_t ino;
    struct ns_inode inode;
    char *path; /* as given */
    char *name; /* its last part; "": the root, or PATH ends in '/' */
};

/* Opens the source that `text` names, if it is not the one that is open in *source, and finds its
 * PATH. Prints errors: CLI_OK, CLI_FAILED or the command's usage exit. */
int source_open(const struct command *command, const struct mount_options *options,
                const char *text, struct source *source, struct source_node *ret);
/* If the node is a symbolic link, follows it. Errors as source_open(). */
int source_follow(const struct command *command, struct source *source, struct source_node *node);
void source_close(struct source *source);
void source_node_done(struct source_node *node);

struct source_entry {
    char *name;
    uint64_t ino;
    struct ns_inode inode;
};
DEFINE_VECTOR(source_list, struct source_entry);
/* Lists a directory, sorted by name. -EUCLEAN: it has names that no directory can have. */
CAIRN_MUST_CHECK int source_list(struct source *source, uint64_t ino, struct source_list *ret);
void source_list_done(struct source_list *list);

/* Returns the target of a symbolic link; caller frees. */
CAIRN_MUST_CHECK int source_readlink(struct source *source, uint64_t ino, char **ret);

/* Returns the message for an error of these functions. */
const char *source_trouble(int r);
