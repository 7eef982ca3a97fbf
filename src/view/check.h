// SPDX-License-Identifier: Apache-2.0
/* Recounting: shared by the parts of view_check(). */
#pragma once

#include "view/db.h"

/* Sums by inode or pack, collected in one walk and compared in another. */
enum tally_of {
    NAMES,
    ENTRIES,
    SUBDIRS,
    PAGES,
    BLOCKS,
    XATTRS,
    LINKS,
    ORPHANS,
    LIVE_BYTES, /* of packs on NVMe; these four in this order */
    LIVE_COUNT,
    PLACED,
    LISTS,
    REMOTE_LIVE_BYTES, /* of remote packs, in the same order */
    REMOTE_LIVE_COUNT,
    REMOTE_PLACED,
    REMOTE_LISTS,
    TALLIES
};

struct amount {
    uint64_t id, amount;
};

struct tally {
    VECTOR(struct amount) of;
    size_t next; /* first one not yet taken */
    bool is_sorted;
};

/* A blob that a piece refers to. */
struct blob_use {
    uint64_t ino, version, offset;
};

struct checker {
    struct view *view;
    struct snap snap;
    struct look look; /* in `snap` */
    void (*report)(const char *line, void *arg);
    void *arg;
    int found; /* number of differences */
    bool tracks;
    struct view_state counted;
    struct remote_state_row remote;
    struct view_remote counted_remote;
    struct tally tallies[TALLIES];
    struct names uses;              /* one for each piece that is a chunk */
    size_t next_use;                /* of these, sorted */
    struct names rests;             /* one for each base of an entry with a place on NVMe */
    VECTOR(struct chunk_row) bases; /* chunks whose row counts dependents on NVMe */
    VECTOR(struct blob_use) blobs;  /* one for each inline piece */
};

void check_differs(struct checker *c, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void check_counted(struct checker *c, const char *owner, uint64_t id, const char *what, uint64_t is,
                   uint64_t counted);
void check_chunk_differs(struct checker *c, const struct chunk_name *name, const char *what,
                         uint64_t is, uint64_t counted);
/* Names a member to compare between two structs. */
struct counter {
    const char *name;
    size_t offset; /* of a uint64_t */
};
void check_counters(struct checker *c, const char *owner, const struct counter *counters,
                    size_t count, const void *is, const void *counted);

void tally_add(struct checker *c, enum tally_of of, uint64_t id, uint64_t amount);
/* Returns the amount of `id`. Call with ascending ids; amounts of skipped ids have no owner and are
 * reported. */
uint64_t tally_take(struct checker *c, enum tally_of of, uint64_t id);

/* Walks all keys of a type; the step returns 0, or a -errno that ends the walk. */
CAIRN_MUST_CHECK int check_walk(struct checker *c, enum key_type type,
                                int (*step)(struct checker *c, const struct view_row *row));

/* check_content.c: pages, blobs, chunks, packs. */
CAIRN_MUST_CHECK int check_pages(struct checker *c);
CAIRN_MUST_CHECK int check_chunks(struct checker *c);
/* Compares the account of a pack; `first`: LIVE_BYTES or REMOTE_LIVE_BYTES. Returns the number of
 * lists. */
uint64_t check_account(struct checker *c, const char *owner, const struct pack_row *row,
                       enum tally_of first);

/* check_remote.c: the rows about the remote. */
CAIRN_MUST_CHECK int check_remote(struct checker *c);
/* Checks that a needed chunk is in the remote or pending upload. */
CAIRN_MUST_CHECK int check_is_reachable(struct checker *c, const struct chunk_name *name);
