// SPDX-License-Identifier: Apache-2.0
/* One filled structure of each kind, for the tests of the formats. */
#pragma once

#include "format/feed.h"
#include "format/head.h"
#include "format/local_snapshot.h"
#include "format/snapshot.h"
#include "format/pack.h"
#include "format/record.h"
#include "format/segment.h"
#include "format/superblock.h"

static const uint16_t sample_types[] = {
    REC_SEAL,        REC_MAKE,  REC_LINK,    REC_UNLINK, REC_RENAME, REC_SETATTR, REC_SETXATTR,
    REC_REMOVEXATTR, REC_REAP,  REC_EXTENTS, REC_PACK,   REC_DROP,   REC_VERSION, REC_STAND_IN,
    REC_NASCENT,     REC_ERASE, REC_LAYER,   REC_RANGE,  REC_PIECE};

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
struct head sample_given_up_head(uint32_t runs, uint32_t count);
struct head sample_history_head(uint32_t runs);
struct named_snapshot sample_snapshot(uint32_t runs);
/* `packs` is to be freed. */
struct local_snapshot sample_local_snapshot(uint32_t packs);
/* Its records are in `room`, which has FEED_SAMPLE_LEN. */
#define FEED_SAMPLE_LEN 4096u
struct feed sample_feed(uint32_t runs, void *room);
struct prefix_info sample_prefix_info(void);
struct lease sample_lease(void);

/* What begins with a magic number and ends in a checksum. */
enum sample {
    SAMPLE_SUPERBLOCK,
    SAMPLE_PREFIX_INFO,
    SAMPLE_LEASE,
    SAMPLE_WRITER_ENTRY,
    SAMPLE_ENDED,
    SAMPLE_PACK_HEADER,
    SAMPLE_TRAILER,
    SAMPLE_SEGMENT,
    SAMPLE_BATCH,
    SAMPLE_HEAD,       /* from here on with runs */
    SAMPLE_UNION_HEAD, /* and one writer less */
    SAMPLE_GIVEN_UP_HEAD,
    SAMPLE_HISTORY_HEAD,
    SAMPLE_SNAPSHOT,
    SAMPLE_LOCAL_SNAPSHOT, /* with packs */
    SAMPLE_FEED,
    SAMPLES
};

#define SAMPLE_RUNS 3u /* where nothing else is said */
#define SAMPLE_LEN_MAX SNAPSHOT_LEN_MAX

extern const char *const sample_names[SAMPLES];
/* Every byte of it is written; returns the length. */
size_t sample_encode(enum sample which, uint32_t runs, uint8_t buf[SAMPLE_LEN_MAX]);
int sample_decode(enum sample which, const uint8_t *buf, size_t len);
/* A field of up to 8 bytes; the checksum fits again. */
void sample_change(uint8_t *buf, size_t len, size_t at, uint64_t value, size_t field_len);
int sample_decode_changed(enum sample which, size_t at, uint64_t value, size_t field_len);

struct change {
    size_t at;
    uint64_t value;
    size_t len;
    int result; /* of decoding what has the change, and no other */
    const char *why;
};

void expect_changes(enum sample which, const struct change *changes, size_t count);
