// SPDX-License-Identifier: Apache-2.0
/* Inside store/check_remote*.c. */
#pragma once

#include "base/tables.h"
#include "format/local_snapshot.h"
#include "store/check_remote.h"
#include "store/internal.h"
#include "view/remote.h"

struct bad_chunk {
    struct chunk_name name;
    uint64_t pack; /* the pack that is damaged; 0: the chunk has no place in the remote */
    int error;
    bool is_through_base;
    UT_hash_handle hh;
};

/* A pack that was checked for some state. A later state may need other chunks of it. */
struct known_pack {
    uint64_t pack;
    bool is_read; /* its content, too */
    /* nothing is left to check: the pack is missing, or was read completely */
    bool is_done;
    bool is_bad;              /* it is bad, and counted */
    VECTOR(uint64_t) offsets; /* of the chunks that were checked; ascending */
};

struct pack_check {
    struct remote_check *all;
    struct view_remote_pack pack;
    struct known_pack *known; /* NULL: this state is the first to need it */
    bool is_read;             /* its content, too */
    int index_error;
    uint64_t bad_chunks;
    struct reader_entries entries; /* chunks that this state is the first to need */
};

struct remote_check {
    const struct remote_check_options *options;
    struct remote_check_counts counts;
    struct store *store;             /* of the state that is being checked */
    VECTOR(struct known_pack) known; /* by id */
    /* packs of which that state may need more chunks than others; by id */
    VECTOR(struct pack_check) packs;
    struct {
        struct cairn_mutex lock; /* LOCK_LEAF */
        struct bad_chunk *bad;   /* by name */
        uint64_t chunks, bytes;
        int error; /* the first one other than damage */
    } found;
};

/* `arg`: struct remote_check. */
void remote_check_report(const char *object, const char *what, void *arg);
void remote_check_note(const char *line, void *arg);
/* Checks the content of packs that the state needs, and no state before needed. */
CAIRN_MUST_CHECK int remote_check_packs(struct remote_check *c);
/* Returns "is missing; ...". NULL: the pack is whole. Caller frees. */
CAIRN_MUST_CHECK char *remote_check_describe(const struct pack_check *check);
