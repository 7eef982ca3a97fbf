// SPDX-License-Identifier: Apache-2.0
/* Recounting: what the parts of view_check() share. */
#pragma once

#include "view/db.h"

/* Amounts by inode or pack, collected in one walk and compared in another. */
struct tally {
    uint64_t id, amount;
};

struct tally_list {
    const char *what; /* for reports */
    VECTOR(struct tally) of;
    size_t next; /* first that is not yet taken */
};

/* A blob that a piece refers to. */
struct blob_use {
    uint64_t ino, version, offset;
};

struct checker {
    struct view *view;
    struct snap snap;
    void (*report)(const char *line, void *arg);
    void *arg;
    int found; /* differences */
    struct view_state counted;
    struct tally_list names, entries, subdirs, pages, blocks, xattrs, links, orphans; /* by inode */
    struct tally_list live_bytes, live_count, placed, lists;                          /* by pack */
    /* by remote pack */
    struct tally_list remote_live_bytes, remote_live_count, remote_placed, remote_lists;
    struct remote_state_row remote;
    struct view_remote counted_remote;
    VECTOR(struct chunk_name) uses;  /* one for each piece that is a chunk */
    VECTOR(struct chunk_name) rests; /* one for each base of an entry with a place on NVMe */
    VECTOR(struct chunk_row) bases;  /* those that say that they have dependents there */
    VECTOR(struct blob_use) blobs;   /* one for each inline piece */
};

void check_differs(struct checker *c, const char *fmt, ...) CAIRN_PRINTF(2, 3);
void check_chunk_differs(struct checker *c, const struct chunk_name *name, const char *what,
                         uint64_t is, uint64_t counted);

void tally_add(struct tally_list *list, uint64_t id, uint64_t amount);
void tally_sort(struct tally_list *list);
/* Amount of `id`; ids are asked for in ascending order, those passed over have no owner and are
 * reported. */
uint64_t tally_take(struct checker *c, struct tally_list *list, uint64_t id);

/* Walks all keys of a type; the step returns 0, or a -errno that ends it. */
CAIRN_MUST_CHECK int check_walk(struct checker *c, enum key_type type,
                                int (*step)(struct checker *c, const struct scan *scan));

/* check_content.c: pages, blobs, chunks, packs. */
CAIRN_MUST_CHECK int check_pages(struct checker *c);
CAIRN_MUST_CHECK int check_chunks(struct checker *c);
/* Counts a pack's list in `lists`, and decodes it. Its chunks may have their place elsewhere by
 * now. -EUCLEAN. */
CAIRN_MUST_CHECK int check_list(const struct scan *scan, struct tally_list *lists);

/* check_remote.c: what is known of the remote. */
CAIRN_MUST_CHECK int check_remote(struct checker *c);
