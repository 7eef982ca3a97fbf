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
    uint64_t pack; /* the one that is damaged; 0: the chunk has no place in the remote */
    int error;
    bool is_through_base;
    UT_hash_handle hh;
};

/* A pack that was looked at for some state. A later state may need other chunks of it. */
struct known_pack {
    uint64_t pack;
    bool is_read;             /* its content, too */
    bool is_done;             /* there is no more to look at: it is missing, or all was read */
    bool is_bad;              /* and counted */
    VECTOR(uint64_t) offsets; /* of chunks that were looked at; ascending */
};

struct pack_check {
    struct remote_check *all;
    struct view_remote_pack pack;
    struct known_pack *known; /* NULL: this state is the first to need it */
    bool is_read;             /* its content, too */
    int index_error;
    uint64_t bad_chunks;
    struct reader_entries entries; /* that this state is the first to need */
};

struct remote_check {
    const struct remote_check_options *options;
    struct remote_check_counts counts;
    struct store *store;             /* of the state that is looked at */
    VECTOR(struct known_pack) known; /* by id */
    VECTOR(struct pack_check) packs; /* of which that state may need more than others; by id */
    struct {
        struct cairn_mutex lock; /* LOCK_LEAF */
        struct bad_chunk *bad;   /* by name */
        uint64_t chunks, bytes;
        int error; /* the first other than damage */
    } found;
};

/* `arg`: struct remote_check. */
void remote_check_report(const char *object, const char *what, void *arg);
void remote_check_note(const char *line, void *arg);
/* Looks at what the state needs of packs, and no state before needed. */
CAIRN_MUST_CHECK int remote_check_packs(struct remote_check *c);
/* "is missing; ...". NULL: the pack is whole. Caller frees. */
CAIRN_MUST_CHECK char *remote_check_describe(const struct pack_check *check);
