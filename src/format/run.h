// SPDX-License-Identifier: Apache-2.0
/* Runs: the namespace as sorted rows, in immutable files. What a tier publishes is a list of runs,
 * oldest first; a row of a newer run replaces the row of the same key in older ones, and a row
 * without a value removes it. So each new cut adds a small run with what changed, and small runs
 * are merged into larger ones: a snapshot that grows with what changes.
 *
 *   header (RUN_HEADER_LEN) | blocks | trailer (RUN_TRAILER_LEN)
 *
 * A block holds rows in ascending key order, each with the length of what its key shares with the
 * key before it (0 in the first row of a block), and ends in a crc32. Rows are opaque here:
 * src/view says what they are. Pure functions but for the callbacks; an object is used by one
 * thread at a time. */
#pragma once

#include "base/base.h"

#define RUN_VERSION 1u
#define RUN_HEADER_LEN 128u
#define RUN_TRAILER_LEN 64u
#define RUN_BLOCK_ROOM (64u * 1024) /* a block is closed when its rows reach this */
#define RUN_KEY_MAX 512u
#define RUN_VALUE_MAX (16u * 1024 * 1024)
#define RUN_MERGE_MAX 8256u /* readers of one run_merge(): of a head and all its writers */

struct run_info {
    uint64_t id;         /* names its object; unique in the history */
    uint8_t history[16]; /* whose rows these are */
    uint64_t base_cut;   /* rows tell what changed after this cut (0: everything is here) */
    uint64_t cut;        /* up to this one */
    uint64_t rows;       /* set by run_writer_finish() */
    uint64_t length;     /* of the file; set by run_writer_finish() */
    uint8_t hash[32];    /* over the whole file, by the caller; not in the file */
    uint32_t node;       /* whose object it is, by the caller; 0: of no node. Not in the file */
};

struct run_row {
    const void *key;
    size_t key_len;    /* 1 to RUN_KEY_MAX */
    const void *value; /* NULL: the key is removed */
    size_t value_len;  /* at most RUN_VALUE_MAX; may be 0 */
};

/* --- writing ---------------------------------------------------------------------------------- */

struct run_writer;

/* `put` appends bytes to the file in order; its negative result ends the writing. */
struct run_writer *run_writer_new(const struct run_info *info,
                                  int (*put)(const void *buf, size_t len, void *arg), void *arg);
/* Keys strictly ascending by bytes: anything else is our own bug. */
CAIRN_MUST_CHECK int run_writer_add(struct run_writer *writer, const struct run_row *row);
/* Trailer; sets rows and length of *ret_info. */
CAIRN_MUST_CHECK int run_writer_finish(struct run_writer *writer, struct run_info *ret_info);
void run_writer_free(struct run_writer *writer);

/* --- reading ---------------------------------------------------------------------------------- */

struct run_reader;

/* `get` reads exactly len bytes at offset of the file, which is `length` long. Checks header and
 * trailer. -EUCLEAN, -EBADMSG (checksum), -EPROTONOSUPPORT (newer), or what `get` returned (-EIO
 * for its -ENODATA). */
CAIRN_MUST_CHECK int run_reader_new(uint64_t length,
                                    int (*get)(uint64_t offset, void *buf, size_t len, void *arg),
                                    void *arg, struct run_reader **ret_reader);
const struct run_info *run_reader_info(const struct run_reader *reader);
/* The next row; valid until the next call. -ENODATA after the last, which is only said when as many
 * rows as the trailer promises were read and all their checksums held. The errors of
 * run_reader_new(), and -ENOMEM; after an error, the same again. */
CAIRN_MUST_CHECK int run_reader_next(struct run_reader *reader, struct run_row *ret_row);
/* From now on it gives only rows whose keys begin with one of these bytes; NULL: all. The others
 * are read and checked, too. `types` stays the caller's, as long as the reader lives. */
void run_reader_select(struct run_reader *reader, const char *types);
void run_reader_free(struct run_reader *reader);

/* --- merging ---------------------------------------------------------------------------------- */

/* Calls `fn` for the newest row of each key, in key order. readers[0] is the oldest. Rows without a
 * value are given too, unless `drop_removed` (the oldest reader has everything). Memory: one block
 * a reader, of 64 KiB mostly. At most RUN_MERGE_MAX readers, which go on from where they are. Ends
 * with the first error of a reader or of `fn`; rows were given before it. */
CAIRN_MUST_CHECK int run_merge(struct run_reader *const *readers, size_t count, bool drop_removed,
                               int (*fn)(const struct run_row *row, void *arg), void *arg);
