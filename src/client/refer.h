// SPDX-License-Identifier: Apache-2.0
/* References to the last version of a file, for content that did not change since
 * (CAIRN_SAVE_REFER).
 *
 * A lane remembers, for each pattern of path (digits are one), the last file that it published:
 * what stat() told of it, and for each source with a key the fingerprints of its pieces. A piece
 * with the same fingerprint is neither copied from its device nor written; when all pieces are
 * there, stretches of such pieces go into the new file by copy_file_range, which a CairnFS mount
 * answers with references; where that is refused, they are copied from the file. A file that was
 * changed, removed or renamed since is not referred to.
 *
 * The older file is open as long as a save refers to it, and not between saves: an idle program
 * keeps no mount in use. */
#pragma once

#include <sys/stat.h>

#include "base/base.h"
#include "client/fingerprint.h"

struct cairn_lane;
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
    struct fingerprint_key *key;
    struct refer_version *versions[REFER_VERSIONS_MAX]; /* newest first */
};

/* A save with CAIRN_SAVE_REFER finds what it may refer to. Without memory it refers to nothing. */
void refer_begin(struct cairn_save *save);

/* The table of the pieces of a source with a key, NULL without memory. */
struct refer_piece *refer_pieces(struct job *job, const char *key);

/* The fingerprint of piece `index` of a job is known. True: it is that of the older version, its
 * CRC noted; nothing is to be copied. */
bool refer_known(struct job *job, size_t index, const struct fingerprint *print);

/* When all pieces are there: brings those that are referenced into the draft. */
CAIRN_MUST_CHECK int refer_apply(struct cairn_save *save);

/* The save has its name: its successors may refer to it. Not with the lock held. */
void refer_publish(struct cairn_save *save);

/* The save needs no older version any more: closes the file, not with the lock held; then forgets
 * the version. */
void refer_close(struct cairn_save *save);
void refer_end_locked(struct cairn_save *save);

void refer_done(struct refer *refer);
