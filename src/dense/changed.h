// SPDX-License-Identifier: Apache-2.0
/* The files that a cut brings, as far as chunks of theirs could be stored by others: which are
 * there, what they consist of. */
#pragma once

#include "dense/pairing.h"

struct dense;
struct store;
struct view_cut;

struct file_key {
    int64_t mtime;
    uint64_t ino;
};

/* The older one first. */
int file_keys_compare(const void *a, const void *b);

struct changed_file {
    struct file_key key;
    uint64_t parent; /* a directory that has it; 0: not known */
    char *path;      /* NULL: not known, or there was no time for it */
    bool is_wide;    /* it has elements of more than 2 bytes */
    bool is_chained; /* with all that the cut brings in its directory it has none */
};

DEFINE_VECTOR(changed_files, struct changed_file);

/* Lists the files that the newest head does not have as they are, at most 16,384, the oldest first.
 * Takes from *time (ns of CPU) what it needs, and stops where that is spent. -ECANCELED: the upload
 * is to stop; errors of the view. Whatever it returns, changed_done() frees. */
CAIRN_MUST_CHECK int changed_list(struct dense *dense, struct view_cut *cut, int64_t *time,
                                  struct changed_files *ret);
void changed_done(struct changed_files *files);

/* Where the file has its chunks, at most 65,536 of them. */
CAIRN_MUST_CHECK int parts_of_file(struct view_cut *cut, uint64_t ino, struct parts *ret);

/* Bytes of an element, as the first byte of what NVMe stores says; 0: that is no fx, or cannot be
 * read. */
unsigned dense_width(struct store *store, const struct chunk_entry *entry);
