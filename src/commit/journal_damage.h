// SPDX-License-Identifier: Apache-2.0
/* Between journal.c, journal_damage.c and repair.c: what of a journal cannot be read, and where.
 * Recovery's thread. */
#pragma once

#include "commit/internal.h"

/* The tag of an encoded batch header, under the store's key. */
void batch_tag(const struct store *store, const void *header, uint8_t ret_tag[BATCH_TAG_LEN]);

/* Content of a segment from some place on. */
struct behind {
    bool has_content; /* something that is not zero */
    uint64_t count;   /* batches that the store wrote */
    uint64_t offset;  /* of the first */
    uint64_t cut_seq; /* of the newest */
    uint64_t
        resume_offset; /* of the last whose base is at or before `resume_at`; 0: there is none */
    struct batch_header resume;
};

/* Searches a segment of `len` bytes from `offset` on. `segment`: its header; NULL: it cannot be
 * read. Blocks: reads all of it. */
CAIRN_MUST_CHECK int journal_look_behind(struct store *store, const struct segment_header *segment,
                                         const char *object, uint64_t len, uint64_t offset,
                                         uint64_t resume_at, struct behind *ret);

/* The damage that the last journal_read() found, for people: caller frees; NULL: none. */
char *journal_explain_damage(const struct store *store);
