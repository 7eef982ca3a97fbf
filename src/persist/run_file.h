// SPDX-License-Identifier: Apache-2.0
/* Inside the store: the files of STORE/runs. Read and written with calls that return errors, never mapped: a page that the disk cannot
 * read, or has no room for, would end the daemon (SIGBUS). Nobody outside persist/ includes this. An object is used by one thread at a
 * time; all calls block. */
#pragma once

#include "codec/hash.h"
#include "format/run.h"
#include "persist/internal.h"

#define RUN_FETCH_WINDOW (16 * MIB) /* memory of what is being fetched */

int run_folder_make(const struct store *store);
/* To be freed. `suffix` ".new": while it is being made. */
char *run_path(const struct store *store, uint64_t id, const char *suffix);

/* --- a file that is written from front to back --------------------------------------------------------------------------- */

struct run_file {
    struct store *store;
    uint64_t id;
    int fd;
    uint8_t *buffer;
    size_t used;
    uint64_t written;
    struct hash_stream *hash; /* of what was written */
    struct run_writer *writer;
    uint64_t rows;
};

/* Under a preliminary name. run_file_done() in any case; after an error run_file_abandon(), too. */
CAIRN_MUST_CHECK int run_file_begin(struct run_file *file, struct store *store, const struct run_info *info);
/* `arg`: the file. */
int run_file_add(const struct run_row *row, void *arg);
/* Whole and durable under its name; *info gets length, rows and hash. -EIO: the disk does not give back what it was given. */
CAIRN_MUST_CHECK int run_file_finish(struct run_file *file, struct run_info *info);
void run_file_done(struct run_file *file);
void run_file_abandon(const struct store *store, uint64_t id);

/* --- a file that is read -------------------------------------------------------------------------------------------------- */

struct run_input {
    int fd;
    uint64_t id, length;
    struct run_reader *reader; /* NULL: not begun */
};

/* -ENOENT; -EUCLEAN: it has another length; or what the disk says. run_input_done() in any case. */
CAIRN_MUST_CHECK int run_input_open(const struct store *store, const struct run_info *info, struct run_input *ret);
/* Opens it, and a reader of its rows. */
CAIRN_MUST_CHECK int run_input_begin(const struct store *store, const struct run_info *info, struct run_input *ret);
void run_input_done(struct run_input *input);

/* Exactly `len` bytes; an error of the disk is logged with the name of the run. `arg`: the input. Any thread. */
CAIRN_MUST_CHECK int run_input_bytes(uint64_t offset, void *buf, size_t len, void *arg);
/* All of it is read: -EBADMSG where it does not hash to its name in the head. */
CAIRN_MUST_CHECK int run_input_verify(struct run_input *input, const uint8_t hash[HASH_LEN]);
