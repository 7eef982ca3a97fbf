// SPDX-License-Identifier: Apache-2.0
/* Journal segments: files of batches; each batch is one step of the durable horizon.
 *
 *   segment header (SEGMENT_HEADER_LEN) | batch header (BATCH_HEADER_LEN) | records
 *   | batch header | records ...
 *
 * A segment file is allocated ahead: zeros follow its last batch. A batch counts only if it is
 * whole: both checksums match, and `prev` is the hash of the preceding batch (of the segment
 * before, for the first batch of a segment). Pure functions; any thread. */
#pragma once

#include "base/base.h"

#define SEGMENT_VERSION 2u
#define SEGMENT_HEADER_LEN 128u
#define BATCH_HEADER_LEN 128u
#define CHAIN_LEN 32u
#define BATCH_TAG_LEN 24u
#define BATCH_TAGGED_LEN 96u /* the bytes of an encoded batch header that its tag covers */

struct segment_header {
    uint8_t store[16];       /* store id */
    uint64_t number;         /* running number of the segment: 1, 2, ... */
    uint64_t epoch;          /* epoch in which it was begun */
    uint64_t base_seq;       /* horizon when it was begun: all its batches are later */
    uint16_t writer;         /* writer slot */
    uint8_t prev[CHAIN_LEN]; /* hash of the last batch before this segment; zeros in a new store */
    uint32_t version;        /* 0: the newest */
    uint64_t length; /* of the file, as allocated; 0 in version 1, which does not record it */
};

struct batch_header {
    uint64_t payload_len; /* bytes of records after the header */
    uint32_t payload_crc;
    uint32_t count;    /* records */
    uint64_t base_seq; /* horizon before */
    uint64_t cut_seq;  /* horizon with it */
    uint64_t epoch;
    uint16_t writer;
    int64_t time; /* hybrid time of the cut */
    uint8_t prev[CHAIN_LEN];
    uint32_t version; /* 0: the newest */
    /* keyed hash of the header before this field: only the store itself can write a header with it.
     * Absent in version 1 */
    uint8_t tag[BATCH_TAG_LEN];
};

void segment_encode_header(const struct segment_header *h, void *buf);

/* -EUCLEAN, -EBADMSG, -EPROTONOSUPPORT. */
CAIRN_MUST_CHECK int segment_decode_header(const void *buf, size_t len,
                                           struct segment_header *ret_h);

void batch_encode_header(const struct batch_header *h, void *buf);

/* -ENODATA if there is no batch (zeros), -EUCLEAN, -EBADMSG. Does not check the payload. */
CAIRN_MUST_CHECK int batch_decode_header(const void *buf, size_t len, struct batch_header *ret_h);
