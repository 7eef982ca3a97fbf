// SPDX-License-Identifier: Apache-2.0
/* The journal's state, its writing, and the search for batches after damage (journal_damage.c). */
#pragma once

#include "commit/journal.h"

struct journal {
    struct local *local;
    struct anchor anchor;
    uint64_t segment; /* running number of the current one; 0: none yet */
    uint64_t offset;  /* where the next batch is written */
    uint64_t room;    /* length of the current segment's file */
    uint64_t cut_seq; /* of the last batch */
    int64_t time;     /* of its last operation, as read; 0: not known */
    uint64_t epoch;   /* newest epoch of any segment */
    uint64_t bytes;   /* of all segment files */
    uint64_t spare;   /* number of the segment allocated ahead; 0: none */
    uint8_t chain[CHAIN_LEN];
    struct journal_damage damage;
    bool was_skipped; /* part of it is damaged, but the view has those batches */
};

/* --- journal.c -------------------------------------------------------------------------------- */

struct journal *journal_new(struct local *local);
/* `time`: of the last operation. */
CAIRN_MUST_CHECK int journal_append(struct journal *journal, uint64_t cut, int64_t time,
                                    const void *records, size_t len, uint32_t count);

/* A segment being read. */
struct segment {
    uint64_t number, len; /* of its file */
    char object[32];
    bool has_header; /* has a readable header */
    struct segment_header header;
    bool is_last; /* no later segment has a header */
};

/* --- journal_damage.c: recovery's thread ------------------------------------------------------ */

/* Computes the tag of an encoded batch header, under the store's key. */
void journal_batch_tag(const struct journal *journal, const void *header,
                       uint8_t ret_tag[BATCH_TAG_LEN]);

/* Content of a segment from some offset on. */
struct behind {
    bool has_content; /* bytes that are not zero */
    uint64_t count;   /* batches written by this store */
    uint64_t offset;  /* of the first of these */
    uint64_t cut_seq; /* of the newest of these */
    /* Of the last batch whose base is at or before `resume_at`; 0: none. */
    uint64_t resume_offset;
    struct batch_header resume;
};

/* Searches a segment from `offset` on. Blocks: reads the whole segment. */
CAIRN_MUST_CHECK int journal_look_behind(struct journal *journal, const struct segment *segment,
                                         uint64_t offset, uint64_t resume_at, struct behind *ret);

/* --- catch_up.c ------------------------------------------------------------------------------- */

/* Makes the view of a live store apply the batches that it lacks, from the journal. Writeback
 * thread only. -EUCLEAN: the view no longer fits this journal, or is damaged; the next mount
 * rebuilds it. */
CAIRN_MUST_CHECK int commit_catch_up(struct commit *commit);
