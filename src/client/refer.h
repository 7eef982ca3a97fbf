// SPDX-License-Identifier: Apache-2.0
/* References to the last version of a file, for content that has not changed since
 * (CAIRN_SAVE_REFER). For each path pattern (all numbers count as equal), a lane remembers the last
 * file that it published, and the fingerprints of the pieces of its sources. Pieces with equal
 * fingerprints are put into the new file by copy_file_range. */
#pragma once

#include <sys/stat.h>

#include "base/lock.h"
#include "client/draft.h"
#include "client/fingerprint.h"

struct cairn_save;
struct job;

#define REFER_VERSIONS_MAX 8 /* per lane: the least recently used is dropped */

struct refer_piece {
    uint64_t at; /* in the file */
    uint32_t crc;
    bool is_known;      /* the fingerprint is computed */
    bool is_referenced; /* the bytes are those at `from` in the older file */
    uint64_t from;
    struct fingerprint print;
};

/* One source of a file. */
struct refer_entry {
    char *key;
    bool has_crcs;
    size_t count;
    struct refer_piece *pieces;
};

struct refer_version {
    unsigned refs; /* guarded by the lane's lock; all other fields are constant */
    char *pattern;
    char *path;     /* absolute, if known */
    struct stat st; /* when the file got its name */
    size_t count;
    struct refer_entry *entries; /* sorted by key */
};

/* Guarded by the lane's lock, except the key, which is made once before others see it. */
struct refer {
    struct cairn_mutex *lock;
    struct fingerprint_key *key;
    struct refer_version *versions[REFER_VERSIONS_MAX]; /* newest first */
};

/* The file to which a save may refer, and the pattern by which later saves find this save's
 * file. */
struct refer_older {
    char *pattern;                 /* NULL: the save neither refers nor is referred to */
    struct refer_version *version; /* reference counted; NULL: none */
    int fd;                        /* -1: none */
};
#define REFER_NONE ((struct refer_older){.fd = -1})

/* Finds the file to which a draft may refer; without memory, none. */
void refer_begin(struct refer *refer, const struct draft *draft, struct refer_older *ret);
/* Call both to end it: first closes the file, without the lock; then frees the rest. */
void refer_close(struct refer_older *older);
void refer_end_locked(struct refer_older *older);

/* Allocates the table for the pieces of a source with a key; NULL without memory. */
struct refer_piece *refer_pieces(struct job *job, const char *key);

/* Notes the fingerprint of piece `index` of a job. True: the older version has the same piece; its
 * CRC is used, and nothing is to be copied. */
bool refer_known(struct job *job, size_t index, const struct fingerprint *print);

/* Call when all pieces are complete: puts the referenced ones into the draft. */
CAIRN_MUST_CHECK int refer_apply(const struct cairn_save *save);

/* The save has its name: later saves may refer to its file. Takes over the fingerprints of its
 * jobs. Call without the lock. */
void refer_publish(struct cairn_save *save);

void refer_done(struct refer *refer);
