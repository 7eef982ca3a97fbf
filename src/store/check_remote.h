// SPDX-License-Identifier: Apache-2.0
/* Checking a remote without a mount. Nothing is written there. */
#pragma once

#include "store/reader.h"

struct remote_finding {
    const char *object; /* "packs/00..."; NULL: it is of a file */
    const char *path;   /* of a file; NULL */
    const char *what;   /* "is missing; 3 chunks that files need lie there" */
    /* Of a file. */
    uint64_t chunks, bad_chunks, bad_bytes;
    bool is_through_base; /* only chunks that others are stored by cannot be read */
};

struct remote_check_options {
    unsigned sample; /* percent of the packs whose content is read; index and trailer: of all */
    unsigned threads;
    void (*found)(const struct remote_finding *finding, void *arg); /* from one thread at a time */
    void (*note)(const char *line, void *arg);
    void *arg;
    bool (*is_interrupted)(void); /* any thread */
};

struct remote_check_counts {
    uint64_t problems; /* objects and files */
    uint64_t heads, runs, packs, pack_bytes;
    uint64_t earlier;                   /* states before the newest one */
    uint64_t read_packs, chunks, bytes; /* content that was read, and verified */
    uint64_t bad_packs, bad_chunks;
    uint64_t files, bad_files, through_base_files;
};

struct remote_check;
struct past;

/* `options` are lent until remote_check_free(). One thread. */
struct remote_check *remote_check_new(const struct remote_check_options *options);
void remote_check_free(struct remote_check *check); /* NULL is fine */
/* Heads, runs, and all that the newest state needs: `store` comes from reader_open(). 0, whatever
 * it found; negative: it could not look at everything. -EINTR: interrupted. Blocks. */
CAIRN_MUST_CHECK int remote_check_newest(struct remote_check *check, struct store *store);
/* After that: packs that earlier states need and the newest one does not, and names of snapshots.
 * Whole states that gc deletes meanwhile do not count. Errors as above. */
CAIRN_MUST_CHECK int remote_check_earlier(struct remote_check *check, struct past *past);
/* What was found so far. */
const struct remote_check_counts *remote_check_counts(const struct remote_check *check);
