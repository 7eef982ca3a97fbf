// SPDX-License-Identifier: Apache-2.0
/* References to the last version of a file, for content that did not change since
 * (CAIRN_SAVE_REFER). A lane remembers, for each pattern of path (digits are one), the last file
 * that it published, and the fingerprints of the pieces of its sources. Pieces with the same
 * fingerprint go into the new file by copy_file_range. */
#pragma once

#include <sys/stat.h>

#include "base/lock.h"
#include "client/draft.h"
#include "client/fingerprint.h"

struct cairn_save;
struct job;

#define REFER_VERSIONS_MAX 8 /* of a lane: the least recently used goes */

struct refer_piece {
    uint64_t at; /* in the file */
    uint32_t crc;
    bool is_known;      /* the fingerprint is there */
    bool is_referenced; /* the bytes are those of `from` in the older file */
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
    unsigned refs; /* guarded by the lane's lock; the rest never changes */
    char *pattern;
    char *path;     /* absolute, if that could be told */
    struct stat st; /* when it had its name */
    size_t count;
    struct refer_entry *entries; /* by key */
};

/* Guarded by the lane's lock, but for the key, which is made once before others see it. */
struct refer {
    struct cairn_mutex *lock;
    struct fingerprint_key *key;
    struct refer_version *versions[REFER_VERSIONS_MAX]; /* newest first */
};

/* The file that a save may refer to, and the pattern that its successors find it by. */
struct refer_older {
    char *pattern;                 /* NULL: the save takes no part in this */
    struct refer_version *version; /* counted; NULL: none */
    int fd;                        /* -1: none */
};
#define REFER_NONE ((struct refer_older){.fd = -1})

/* Finds the file that a draft may refer to. Without memory it refers to none. */
void refer_begin(struct refer *refer, const struct draft *draft, struct refer_older *ret);
/* The end of it: first closes the file, not with the lock held; then frees all else. */
void refer_close(struct refer_older *older);
void refer_end_locked(struct refer_older *older);

/* The table of the pieces of a source with a key, NULL without memory. */
struct refer_piece *refer_pieces(struct job *job, const char *key);

/* Notes the fingerprint of piece `index` of a job. True: it is that of the older version, whose CRC
 * is taken; nothing is to be copied. */
bool refer_known(struct job *job, size_t index, const struct fingerprint *print);

/* When all pieces are there: brings those that are referenced into the draft. */
CAIRN_MUST_CHECK int refer_apply(const struct cairn_save *save);

/* The save has its name: its successors may refer to it. Takes the fingerprints of its jobs. Not
 * with the lock held. */
void refer_publish(struct cairn_save *save);

void refer_done(struct refer *refer);
