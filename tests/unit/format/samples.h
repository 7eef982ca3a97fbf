// SPDX-License-Identifier: Apache-2.0
/* One filled structure of each kind, for the tests of the formats. */
#pragma once

#include "format/feed.h"
#include "format/head.h"
#include "format/pack.h"
#include "format/record.h"
#include "format/segment.h"
#include "format/superblock.h"

static const uint16_t sample_types[] = {
    REC_SEAL,     REC_MAKE,        REC_LINK,  REC_UNLINK,  REC_RENAME, REC_SETATTR,
    REC_SETXATTR, REC_REMOVEXATTR, REC_REAP,  REC_EXTENTS, REC_PACK,   REC_DROP,
    REC_VERSION,  REC_NASCENT,     REC_ERASE, REC_LAYER,   REC_RANGE,  REC_PIECE};

/* Every field is filled; the type says which of them count. */
struct record sample_record(uint16_t type);
struct chunk_entry sample_entry(uint8_t refs);
struct pack_header sample_pack_header(void);
struct pack_trailer sample_trailer(void);
struct segment_header sample_segment(void);
struct batch_header sample_batch(void);
struct superblock sample_superblock(void);
/* With the history of another store. */
struct superblock sample_adopted_superblock(void);
struct superblock sample_renamed_superblock(void);
struct head sample_head(uint32_t runs);
/* Of a prefix that several nodes write. */
struct head sample_union_head(uint32_t runs, uint32_t writers);
struct writer_entry sample_writer_entry(void);
struct ended sample_ended(void);
/* Its records are in `room`, which has FEED_SAMPLE_LEN. */
#define FEED_SAMPLE_LEN 4096u
struct feed sample_feed(uint32_t runs, void *room);
struct prefix_info sample_prefix_info(void);
struct lease sample_lease(void);
