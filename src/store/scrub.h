// SPDX-License-Identifier: Apache-2.0
/* Inside store/scrub*.c. */
#pragma once

#include "base/vector.h"
#include "store/job.h"
#include "store/reader.h"

struct bad_chunk {
    struct chunk_name name;
    uint64_t pack;
    int error; /* of the remote; 0: the index of the pack is bad, or a chunk that it refers to */
};

/* A damaged chunk that a snapshot of the store needs. */
struct hurt_chunk {
    uint64_t snapshot;
    struct chunk_name name;
};

struct scrub {
    struct store *store;
    struct job *job;
    const struct job_options *options;
    struct tier *tier; /* that is being read */
    bool is_remote;
    uint8_t *span, *stored, *raw;
    struct reader_entries entries; /* live chunks of the pack that is looked at */
    int64_t allowance_at;
    VECTOR(struct bad_chunk) bad_there; /* in the remote, by pack */
    bool is_pack_bad;                   /* the pack of the remote that is looked at */
    VECTOR(struct bad_chunk) given;     /* handed over to be stored on NVMe anew */
    struct chunk_names lost;            /* no tier gives them */
    unsigned rescues;
    VECTOR(struct hurt_chunk) hurt; /* local snapshots and chunks that these lack */
    struct earlier_scrub *earlier;  /* scrub_earlier.c; NULL: files need the chunks */
};

/* Chunks that a pack's index lists are collected in s->entries. */
struct scrub_collecting {
    struct scrub *s;
    uint64_t pack;
};

/* "is missing". */
const char *scrub_explain(int error);
/* Calls `bad` for each of s->entries that does not verify; what it returns ends the call if it is
 * negative. Else negative: it cannot be read now. */
typedef int scrub_bad_fn(struct scrub *s, const struct chunk_entry *entry, int error);
CAIRN_MUST_CHECK int scrub_entries(struct scrub *s, const char *object, scrub_bad_fn *bad);

/* --- scrub_snapshots.c ------------------------------------------------------------------------ */

/* Chunks on NVMe that snapshots of the store alone need. */
CAIRN_MUST_CHECK int scrub_local_snapshots(struct scrub *s);

/* --- scrub_earlier.c -------------------------------------------------------------------------- */

/* Chunks in the remote that earlier states which stay need, and the newest one does not. */
CAIRN_MUST_CHECK int scrub_earlier_states(struct scrub *s);
