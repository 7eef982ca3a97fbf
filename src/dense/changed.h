// SPDX-License-Identifier: Apache-2.0
/* The files new in a cut, as far as their chunks could be stored with bases: which files, and their
 * chunks. */
#pragma once

#include "dense/pairing.h"

struct dense;
struct store;
struct view_cut;

struct file_key {
    int64_t mtime;
    uint64_t ino;
};

/* Orders the older one first. */
int file_keys_compare(const void *a, const void *b);

struct changed_file {
    struct file_key key;
    uint64_t parent; /* a directory that contains it; 0: not known */
    char *path;      /* NULL: not known, or there was no time to find it */
    bool is_wide;    /* it has elements of more than 2 bytes */
    /* neither the file nor any file of the cut in its directory has such elements */
    bool is_chained;
};

DEFINE_VECTOR(changed_files, struct changed_file);

/* Lists the files that differ from the newest head, at most 16,384, oldest first. Subtracts the CPU
 * time used from *time (ns), and stops when it is used up. -ECANCELED: the upload is to stop;
 * errors of the view. Call changed_done() whatever it returns. */
CAIRN_MUST_CHECK int changed_list(struct dense *dense, struct view_cut *cut, int64_t *time,
                                  struct changed_files *ret);
void changed_done(struct changed_files *files);

/* Lists the chunks of the file with their offsets, at most 65,536. */
CAIRN_MUST_CHECK int parts_of_file(struct view_cut *cut, uint64_t ino, struct parts *ret);

/* Bytes per element, from the first stored byte on NVMe; 0: it is not fx, or cannot be read. */
unsigned dense_width(struct store *store, const struct chunk_entry *entry);
