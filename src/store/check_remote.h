// SPDX-License-Identifier: Apache-2.0
/* Checking a remote without a mount: `store` comes from reader_open(). Nothing is written there. */
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
    uint64_t read_packs, chunks, bytes; /* content that was read, and verified */
    uint64_t bad_packs, bad_chunks;
    uint64_t files, bad_files, through_base_files;
};

/* 0, whatever it found; negative: it could not look at everything. -EINTR: interrupted. Blocks. */
CAIRN_MUST_CHECK int store_check_remote(struct store *store,
                                        const struct remote_check_options *options,
                                        struct remote_check_counts *ret);
