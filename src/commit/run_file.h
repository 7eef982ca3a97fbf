// SPDX-License-Identifier: Apache-2.0
/* The files of STORE/runs. Read and written with calls that return errors, never mapped: a page
 * that the disk cannot read, or has no room for, would end the daemon (SIGBUS). An object is used
 * by one thread at a time; all calls block. */
#pragma once

#include "codec/hash.h"
#include "commit/local.h"
#include "commit/room.h"
#include "format/head.h"
#include "format/run.h"
#include "view/remote.h"

#define RUN_FETCH_WINDOW (16 * MIB) /* memory of ranges being fetched */

int run_directory_make(const struct local *local);
/* Caller frees. `suffix` ".new": while the file is being written. */
char *run_path(const struct local *local, const struct run_info *info, const char *suffix);

/* --- a file written sequentially -------------------------------------------------------------- */

struct run_file {
    const struct local *local;
    struct room *room;
    struct run_info info; /* as at the beginning */
    int fd;
    uint8_t *buffer;
    size_t used;
    uint64_t written;
    struct hash_stream *hash; /* of the bytes written so far */
    struct run_writer *writer;
    uint64_t rows;
};

/* Creates the file under a preliminary name. Always call run_file_done(); after an error also
 * run_file_abandon(). */
CAIRN_MUST_CHECK int run_file_begin(struct run_file *file, const struct local *local,
                                    struct room *room, const struct run_info *info);
/* `arg`: the file. */
int run_file_add(const struct run_row *row, void *arg);
/* Completes the file, durable under its name; *info gets length, rows and hash. -EIO: the disk does
 * not return the written bytes. */
CAIRN_MUST_CHECK int run_file_finish(struct run_file *file, struct run_info *info);
void run_file_done(struct run_file *file);
void run_file_abandon(const struct local *local, const struct run_info *info);

/* --- a file being read ------------------------------------------------------------------------ */

struct run_input {
    int fd;
    uint64_t id, length;
    struct run_reader *reader; /* NULL: not begun */
};

/* -ENOENT; -EUCLEAN: it has another length; or an error of the disk. Always call
 * run_input_done(). */
CAIRN_MUST_CHECK int run_input_open(const struct local *local, const struct run_info *info,
                                    struct run_input *ret);
/* Opens the file, and a reader of its rows. */
CAIRN_MUST_CHECK int run_input_begin(const struct local *local, const struct run_info *info,
                                     struct run_input *ret);
void run_input_done(struct run_input *input);

/* Reads exactly `len` bytes; a disk error is logged with the name of the run. `arg`: the input. Any
 * thread. */
CAIRN_MUST_CHECK int run_input_bytes(uint64_t offset, void *buf, size_t len, void *arg);
/* Reads the whole file: -EBADMSG if it does not have this hash. */
CAIRN_MUST_CHECK int run_input_verify(struct run_input *input, const uint8_t hash[HASH_LEN]);
/* Is the run in STORE/runs, whole and verified? -ENOENT: it must be fetched. Any other error: the
 * disk cannot read it; another copy can be written elsewhere. */
CAIRN_MUST_CHECK int run_look(const struct local *local, const struct run_info *info);

/* Merges the rows of runs in STORE/runs, in key order. `drop_removed`: omits rows without a value.
 * (run_lists.c) */
CAIRN_MUST_CHECK int runs_merge(const struct local *local, const struct run_info *runs,
                                size_t count, bool drop_removed,
                                int (*fn)(const struct run_row *row, void *arg), void *arg);
/* Index of the first run of a list to be merged: runs that together are at least half as long as
 * the one before are merged with it. So the number of runs, and how often each row is rewritten,
 * are logarithmic. At most `most` bytes, if a head has room for the runs. */
size_t runs_first_to_merge(const struct run_info *runs, size_t count, uint64_t most);
/* Merges the runs from `first` on into one with the id and the cut of *info, and replaces them. */
CAIRN_MUST_CHECK int runs_merge_from(const struct local *local, struct room *room,
                                     const struct run_info *info, struct run_info *runs,
                                     size_t *count, size_t first);
