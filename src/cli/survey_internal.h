// SPDX-License-Identifier: Apache-2.0
/* Inside survey*.c: a walk over a tree, whose directories and files are read by a daemon, or from a
 * source. One thread. */
#pragma once

#include <uthash.h>

#include "base/vector.h"
#include "cli/survey.h"

/* A chunk to which other files may refer, too: only at the end of the walk it is known whether all
 * references to it are in the tree. */
struct shared {
    UT_hash_handle hh;
    char name[32];
    uint64_t refs, uses;
    uint64_t used_bytes;
    uint32_t stored_len, remote_len; /* in the tier; 0: it is not there */
};

/* An inode with several names. */
struct linked {
    UT_hash_handle hh;
    uint64_t ino, links, seen;
    bool has_content;
};

/* The files that a portion lists: a linked file frees its content only if all its names are in the
 * tree, which is known after the directories. */
enum phase { IN_DIRECTORIES, LINKED_WITHIN, LINKED_OUTSIDE };

struct item {
    char text[64];
};

struct walk {
    const struct command *command;
    int (*look)(struct walk *walk); /* reads an item of `todo`: CLI_OK, or the exit code */
    const char *store;              /* to read by its daemon */
    struct source *source;          /* to read from it */
    struct survey_sum sum;
    VECTOR(struct item) todo; /* the last is the next: depth first, so the list stays short */
    enum phase phase;
    struct shared *shared;
    struct linked *linked;
    int64_t drawn_at;
    bool drawn;
};

/* A row about a part of a file. */
struct part {
    char name[33];
    uint64_t refs, length;
    uint32_t uses, raw, stored;
    int where; /* 1: NVMe, 2: the remote */
    unsigned encoding;
    uint32_t remote_stored; /* in the remote, like the other members below */
    unsigned remote_encoding;
    char bases[CHUNK_REFS_MAX][33];
    unsigned base_count;
};

/* Called for each entry of a directory ('d', 'f' or 'o'), for inline content, to which no other
 * file can refer, and for each part that is a chunk. */
void survey_see_entry(struct walk *w, char kind, uint64_t ino, uint64_t size, uint64_t links,
                      uint64_t staged);
void survey_see_inline(struct walk *w, uint64_t bytes, uint64_t remote_bytes);
void survey_see_chunk(struct walk *w, const struct part *part);
/* Continues until nothing is left to read. CLI_OK, or the exit code after a message. */
CAIRN_MUST_CHECK int survey_walk_all(struct walk *w, struct survey_sum *ret);
