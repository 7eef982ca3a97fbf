// SPDX-License-Identifier: Apache-2.0
/* Runs: the namespace as sorted rows, in immutable files. A tier publishes a list of runs, oldest
 * first; a row of a newer run replaces the row of the same key in older ones, and a row without a
 * value removes it. So each new cut adds a small run with the changed rows, and small runs are
 * merged into larger ones: a snapshot that grows by its changes.
 *
 *   header (RUN_HEADER_LEN) | blocks | trailer (RUN_TRAILER_LEN)
 *
 * A block holds rows in ascending key order, each with the length of the prefix that its key shares
 * with the preceding key (0 in the first row of a block), and ends in a crc32. The content of rows
 * is defined in src/view, not here. Pure functions but for the callbacks; an object is used by one
 * thread at a time. */
#pragma once

#include "base/base.h"

#define RUN_VERSION 1u
#define RUN_HEADER_LEN 128u
#define RUN_TRAILER_LEN 64u
#define RUN_BLOCK_ROOM (64u * 1024) /* a block is closed when its rows reach this */
#define RUN_KEY_MAX 512u
#define RUN_VALUE_MAX (16u * 1024 * 1024)
/* Readers of one run_merge(): enough for a head and all its writers. */
#define RUN_MERGE_MAX 8256u

struct run_info {
    uint64_t id;         /* names its object; unique in the history */
    uint8_t history[16]; /* the history that these rows belong to */
    uint64_t base_cut;   /* the rows are the changes after this cut (0: the complete state) */
    uint64_t cut;        /* up to this one */
    uint64_t rows;       /* set by run_writer_finish() */
    uint64_t length;     /* of the file; set by run_writer_finish() */
    uint8_t hash[32];    /* over the whole file, by the caller; not in the file */
    /* the node whose object it is, set by the caller; 0: of no node. Not in the file */
    uint32_t node;
};

struct run_row {
    const void *key;
    size_t key_len;    /* 1 to RUN_KEY_MAX */
    const void *value; /* NULL: the key is removed */
    size_t value_len;  /* at most RUN_VALUE_MAX; may be 0 */
};

/* --- writing ---------------------------------------------------------------------------------- */

struct run_writer;

/* `put` appends bytes to the file in order; if it returns a negative result, nothing more is
 * written. */
struct run_writer *run_writer_new(const struct run_info *info,
                                  int (*put)(const void *buf, size_t len, void *arg), void *arg);
/* Keys must ascend strictly by bytes; another order is our own bug. */
CAIRN_MUST_CHECK int run_writer_add(struct run_writer *writer, const struct run_row *row);
/* Writes the trailer; sets rows and length of *ret_info. */
CAIRN_MUST_CHECK int run_writer_finish(struct run_writer *writer, struct run_info *ret_info);
void run_writer_free(struct run_writer *writer);

/* --- reading ---------------------------------------------------------------------------------- */

struct run_reader;

/* `get` reads exactly len bytes at offset of the file, which is `length` long. Checks header and
 * trailer. Returns -EUCLEAN, -EBADMSG (checksum), -EPROTONOSUPPORT (newer), or the error of `get`
 * (-EIO if that is -ENODATA). */
CAIRN_MUST_CHECK int run_reader_new(uint64_t length,
                                    int (*get)(uint64_t offset, void *buf, size_t len, void *arg),
                                    void *arg, struct run_reader **ret_reader);
const struct run_info *run_reader_info(const struct run_reader *reader);
/* Returns the next row, valid until the next call, or -ENODATA after the last: only if as many rows
 * were read as the trailer states, and all checksums matched. Other errors: those of
 * run_reader_new(), and -ENOMEM. After an error, every call returns the same error. */
CAIRN_MUST_CHECK int run_reader_next(struct run_reader *reader, struct run_row *ret_row);
/* From now on the reader returns only rows whose keys begin with one of these bytes; NULL: all
 * rows. Skipped rows are read and checked, too. `types` is borrowed for the life of the reader. */
void run_reader_select(struct run_reader *reader, const char *types);
void run_reader_free(struct run_reader *reader);

/* --- merging ---------------------------------------------------------------------------------- */

/* Calls `fn` for the newest row of each key, in key order. readers[0] is the oldest. Includes rows
 * without a value, unless `drop_removed` is set (allowed if the oldest run is complete). Memory:
 * one block per reader, mostly 64 KiB. At most RUN_MERGE_MAX readers, which continue at their
 * current rows. Stops at the first error of a reader or of `fn`; earlier rows were passed to `fn`
 * before. */
CAIRN_MUST_CHECK int run_merge(struct run_reader *const *readers, size_t count, bool drop_removed,
                               int (*fn)(const struct run_row *row, void *arg), void *arg);
