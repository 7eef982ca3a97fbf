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
    struct tier *tier; /* of the tier that is being read */
    bool is_remote;
    uint8_t *span, *stored, *raw;
    struct reader_entries entries; /* live chunks of the pack that is being checked */
    int64_t allowance_at;
    VECTOR(struct bad_chunk) bad_there; /* in the remote, by pack */
    bool is_pack_bad;                   /* of the pack of the remote that is being checked */
    VECTOR(struct bad_chunk) given;     /* chunks that were passed on to be stored on NVMe again */
    struct chunk_names lost;            /* no tier can read them */
    unsigned rescues;
    VECTOR(struct hurt_chunk) hurt; /* local snapshots, and damaged chunks that they need */
    struct earlier_scrub *earlier;  /* scrub_earlier.c; NULL: files need the chunks */
};

/* Chunks that a pack's index lists are collected in s->entries. */
struct scrub_collecting {
    struct scrub *s;
    uint64_t pack;
};

/* "is missing". */
const char *scrub_explain(int error);
/* Calls `bad` for each of s->entries that does not verify; a negative result of `bad` ends the
 * call, which returns it. Any other negative result: the pack cannot be read now. */
typedef int scrub_bad_fn(struct scrub *s, const struct chunk_entry *entry, int error);
CAIRN_MUST_CHECK int scrub_entries(struct scrub *s, const char *object, scrub_bad_fn *bad);

/* --- scrub_snapshots.c ------------------------------------------------------------------------ */

/* Verifies chunks on NVMe that only snapshots of the store need. */
CAIRN_MUST_CHECK int scrub_local_snapshots(struct scrub *s);

/* --- scrub_earlier.c -------------------------------------------------------------------------- */

/* Verifies chunks in the remote that an earlier state which stays needs, and the newest state does
 * not. */
CAIRN_MUST_CHECK int scrub_earlier_states(struct scrub *s);
