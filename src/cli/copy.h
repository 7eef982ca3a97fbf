// SPDX-License-Identifier: Apache-2.0
/* Files of a source become local files: each gets its name when it is whole. One file may go to
 * standard output instead. Reads go on in many threads; one thread starts them. */
#pragma once

#include <cjson/cJSON.h>

#include "cli/source.h"

struct copy;

struct copy_counts {
    uint64_t files, bytes;
};

/* Sums over several copies. */
struct copy_result {
    uint64_t copied, total; /* files */
    uint64_t partial;       /* copied only in part */
    uint64_t bytes;         /* read and written */
};

struct copy_how {
    const char *command;
    unsigned threads; /* reads at once */
    /* NAME.partial gets the readable bytes of a damaged file, NAME.holes lists the other
     * ranges. */
    bool is_partial;
    bool to_output;       /* one file, by copy_stream() */
    bool may_not_replace; /* an existing file stays, and this is a failure */
    bool restores; /* owners and extended attributes, too, as far as the caller may set them */
    /* `past`: a path below .history of a mount that shows the same files as the source. Each file
     * that is copied to a path below `past_of` is read from there: by reference if both are on one
     * mount. NULL: all files are read from the store. Valid until copy_end(). */
    const char *past, *past_of;
    cJSON *problems; /* array to which each message is added as {path, problem}; NULL: none */
};

CAIRN_MUST_CHECK int copy_begin(const struct copy_how *how, struct store *store, struct copy **ret);
/* For the progress line, if standard error is a terminal. */
void copy_expect(struct copy *copy, const struct copy_counts *total);

/* Starts copying a regular file to `name` in the open directory `dir_fd`; `shown` names it in
 * messages. Failures are printed, now or later, and remembered. */
void copy_file(struct copy *copy, const struct ns_inode *inode, int dir_fd, const char *name,
               const char *shown);
void copy_link(struct copy *copy, const struct ns_inode *inode, const char *target, int dir_fd,
               const char *name, const char *shown);
/* Writes a regular file to `fd`, in order, and waits for the end. It stops before the first byte
 * that cannot be read; that is a failure like any other. */
void copy_stream(struct copy *copy, const struct ns_inode *inode, int fd, const char *shown);
/* Mode and time of a directory are set at the end, as copying into it changes them. `path` is
 * local. */
void copy_directory_later(struct copy *copy, const struct ns_inode *inode, const char *path);
/* Reports something that cannot be copied. */
void copy_failed(struct copy *copy, const char *shown, const char *why);

/* Waits for all copies; returns an exit code. Adds to *sum. Frees. */
int copy_end(struct copy *copy, struct copy_result *sum);
