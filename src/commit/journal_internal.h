// SPDX-License-Identifier: Apache-2.0
/* The journal's state, its writing, and the search behind damage (journal_damage.c). */
#pragma once

#include "commit/journal.h"

struct journal {
    struct local *local;
    struct anchor anchor;
    uint64_t segment; /* running number of the current one; 0: none yet */
    uint64_t offset;  /* where the next batch goes */
    uint64_t room;    /* length of the current segment's file */
    uint64_t cut_seq; /* of the last batch */
    int64_t time;     /* of its last operation, as it was read; 0: not known */
    uint64_t epoch;   /* newest epoch of any segment */
    uint64_t bytes;   /* of all segment files */
    uint64_t spare;   /* number of the segment that is allocated ahead; 0: none */
    uint8_t chain[CHAIN_LEN];
    struct journal_damage damage;
    bool was_skipped; /* some of it is damaged, and the view has those batches */
};

/* --- journal.c -------------------------------------------------------------------------------- */

struct journal *journal_new(struct local *local);
/* `time`: of the last operation. */
CAIRN_MUST_CHECK int journal_append(struct journal *journal, uint64_t cut, int64_t time,
                                    const void *records, size_t len, uint32_t count);

/* A segment that is being read. */
struct segment {
    uint64_t number, len; /* of its file */
    char object[32];
    bool has_header; /* that can be read */
    struct segment_header header;
    bool is_last; /* none that has a header comes after it */
};

/* --- journal_damage.c: recovery's thread ------------------------------------------------------ */

/* The tag of an encoded batch header, under the store's key. */
void journal_batch_tag(const struct journal *journal, const void *header,
                       uint8_t ret_tag[BATCH_TAG_LEN]);

/* Content of a segment from some place on. */
struct behind {
    bool has_content; /* something that is not zero */
    uint64_t count;   /* batches that the store wrote */
    uint64_t offset;  /* of the first */
    uint64_t cut_seq; /* of the newest */
    /* Of the last whose base is at or before `resume_at`; 0: there is none. */
    uint64_t resume_offset;
    struct batch_header resume;
};

/* Searches a segment from `offset` on. Blocks: reads all of it. */
CAIRN_MUST_CHECK int journal_look_behind(struct journal *journal, const struct segment *segment,
                                         uint64_t offset, uint64_t resume_at, struct behind *ret);

/* --- catch_up.c ------------------------------------------------------------------------------- */

/* Has the view of a live store apply the batches of the journal that it lacks, in the writeback
 * thread; the journal is read again. -EUCLEAN: it is no longer the view of this journal, or
 * damaged; the next mount makes it anew. */
CAIRN_MUST_CHECK int commit_catch_up(struct commit *commit);
