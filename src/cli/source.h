// SPDX-License-Identifier: Apache-2.0
/* SOURCE:PATH of `cairn ls` and `cairn cp`: where it is opened, and what is there. One thread. */
#pragma once

#include <getopt.h>
#include <sys/stat.h>

#include "base/vector.h"
#include "cli/cli.h"
#include "daemon/offline.h"

/* Flags of a verb that reads a remote: those of a mount that say how it is reached. */
struct source_flags {
    struct option flags[32]; /* for getopt_long() */
    char *names[16];         /* to be freed */
};
#define SOURCE_FLAG 1000 /* what getopt_long() returns for them, and above */
void source_flags_make(struct source_flags *flags);
void source_flags_done(struct source_flags *flags);
/* Takes one that was found; an exit code, 0 to go on. */
int source_flag_set(const struct verb *verb, struct mount_options *options, int found);

struct source {
    char *name;
    struct offline *offline;
    struct store *store;
    struct ns *ns;
};

/* What a PATH names. */
struct source_node {
    uint64_t ino;
    struct ns_inode inode;
    char *path; /* as given */
    char *name; /* its last part; "": the root, or PATH ends in '/' */
};

/* Opens the source that `text` names, if it is not the one that is open in *source, and finds its PATH. Says what went wrong:
 * CLI_OK, CLI_FAILED or the verb's usage exit. */
int source_open(const struct verb *verb, const struct mount_options *options, const char *text, struct source *source,
                struct source_node *ret);
void source_close(struct source *source);
void source_node_done(struct source_node *node);

struct source_entry {
    char *name;
    uint64_t ino;
    struct ns_inode inode;
};
DEFINE_VECTOR(source_list, struct source_entry);
/* Of a folder, by name. -EUCLEAN: names that no folder can have. */
CAIRN_MUST_CHECK int source_list(struct source *source, uint64_t ino, struct source_list *ret);
void source_list_done(struct source_list *list);

/* Target of a symbolic link, caller frees. */
CAIRN_MUST_CHECK int source_readlink(struct source *source, uint64_t ino, char **ret);

/* In words. */
const char *source_trouble(int r);
