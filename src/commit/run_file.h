// SPDX-License-Identifier: Apache-2.0
/* Inside the store: the files of STORE/runs. Read and written with calls that return errors, never
 * mapped: a page that the disk cannot read, or has no room for, would end the daemon (SIGBUS). An
 * object is used by one thread at a time; all calls block. */
#pragma once

#include "codec/hash.h"
#include "commit/local.h"
#include "commit/room.h"
#include "format/head.h"
#include "format/run.h"
#include "view/remote.h"

#define RUN_FETCH_WINDOW (16 * MIB) /* memory of ranges that are being fetched */

int run_directory_make(const struct local *local);
/* To be freed. `suffix` ".new": while it is being made. */
char *run_path(const struct local *local, const struct run_info *info, const char *suffix);

/* --- a file that is written from front to back ------------------------------------------------ */

struct run_file {
    const struct local *local;
    struct room *room;
    struct run_info info; /* as it began */
    int fd;
    uint8_t *buffer;
    size_t used;
    uint64_t written;
    struct hash_stream *hash; /* of the bytes that were written */
    struct run_writer *writer;
    uint64_t rows;
};

/* Under a preliminary name. run_file_done() in any case; after an error run_file_abandon(), too. */
CAIRN_MUST_CHECK int run_file_begin(struct run_file *file, const struct local *local,
                                    struct room *room, const struct run_info *info);
/* `arg`: the file. */
int run_file_add(const struct run_row *row, void *arg);
/* Whole and durable under its name; *info gets length, rows and hash. -EIO: the disk does not give
 * back what it was given. */
CAIRN_MUST_CHECK int run_file_finish(struct run_file *file, struct run_info *info);
void run_file_done(struct run_file *file);
void run_file_abandon(const struct local *local, const struct run_info *info);

/* --- a file that is read ---------------------------------------------------------------------- */

struct run_input {
    int fd;
    uint64_t id, length;
    struct run_reader *reader; /* NULL: not begun */
};

/* -ENOENT; -EUCLEAN: it has another length; or what the disk says. run_input_done() in any case. */
CAIRN_MUST_CHECK int run_input_open(const struct local *local, const struct run_info *info,
                                    struct run_input *ret);
/* Opens it, and a reader of its rows. */
CAIRN_MUST_CHECK int run_input_begin(const struct local *local, const struct run_info *info,
                                     struct run_input *ret);
void run_input_done(struct run_input *input);

/* Exactly `len` bytes; an error of the disk is logged with the name of the run. `arg`: the input.
 * Any thread. */
CAIRN_MUST_CHECK int run_input_bytes(uint64_t offset, void *buf, size_t len, void *arg);
/* All of it is read: -EBADMSG where it does not hash to its name in the head. */
CAIRN_MUST_CHECK int run_input_verify(struct run_input *input, const uint8_t hash[HASH_LEN]);
/* Is it in STORE/runs, whole and verified? -ENOENT: it has to be fetched. Anything else: the disk
 * cannot read it; another copy of it can be written elsewhere. */
CAIRN_MUST_CHECK int run_look(const struct local *local, const struct run_info *info);

/* The rows of runs in STORE/runs, merged, in key order. `drop_removed`: not those without a value.
 * (run_lists.c) */
CAIRN_MUST_CHECK int runs_merge(const struct local *local, const struct run_info *runs,
                                size_t count, bool drop_removed,
                                int (*fn)(const struct run_row *row, void *arg), void *arg);
/* From which on the runs of a list become one: those that together are at least half as long as the
 * one before them are merged with it. So there are as many as the logarithm of the whole, and each
 * row is written again as seldom. At most `most` bytes, where a head has room. */
size_t runs_first_to_merge(const struct run_info *runs, size_t count, uint64_t most);
/* The runs from `first` on become one with the id and the cut of *info, in their place. */
CAIRN_MUST_CHECK int runs_merge_from(const struct local *local, struct room *room,
                                     const struct run_info *info, struct run_info *runs,
                                     size_t *count, size_t first);
