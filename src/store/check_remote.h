// SPDX-License-Identifier: Apache-2.0
/* Checks a remote without a mount. Writes nothing to it. */
#pragma once

#include "store/reader.h"

struct remote_finding {
    const char *object; /* "packs/00..."; NULL: the finding is about a file */
    const char *path;   /* of a file; else NULL */
    const char *what;   /* "is missing; 3 chunks that files need lie there" */
    /* Of a file. */
    uint64_t chunks, bad_chunks, bad_bytes;
    bool is_through_base; /* only chunks that other chunks are stored by cannot be read */
};

struct remote_check_options {
    /* percent of the packs whose content is read; index and trailer of all packs are read */
    unsigned sample;
    unsigned threads;
    /* called by one thread at a time */
    void (*found)(const struct remote_finding *finding, void *arg);
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

/* `options` must stay valid until remote_check_free(). One thread. */
struct remote_check *remote_check_new(const struct remote_check_options *options);
void remote_check_free(struct remote_check *check); /* NULL: no effect */
/* Checks heads, runs, and all objects that the newest state needs: `store` comes from
 * reader_open(). 0, independent of the findings; negative: not everything could be checked. -EINTR:
 * interrupted. Blocks. */
CAIRN_MUST_CHECK int remote_check_newest(struct remote_check *check, struct store *store);
/* Called after remote_check_newest(): checks packs that earlier states need and the newest one does
 * not, and names of snapshots. Whole states that gc deletes meanwhile do not count. Errors as
 * above. */
CAIRN_MUST_CHECK int remote_check_earlier(struct remote_check *check, struct past *past);
/* Returns the results so far. */
const struct remote_check_counts *remote_check_counts(const struct remote_check *check);
