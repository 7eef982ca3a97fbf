// SPDX-License-Identifier: Apache-2.0
#include "samples.h"

#include "../expect.h"
#include "base/crc.h"
#include "format/le.h"

static void fill(void *p, size_t len, uint8_t first)
{
    for (size_t i = 0; i < len; i++)
        ((uint8_t *)p)[i] = (uint8_t)(first + i);
}

struct record sample_record(uint16_t type)
{
    static const struct extent extents[] = {
        {.offset = 0, .length = 4096, .kind = EXTENT_HOLE},
        {.offset = 4096,
         .length = 1000,
         .kind = EXTENT_CHUNK,
         .chunk = {"chunk name of 24 bytes."},
         .chunk_offset = 77},
        {.offset = 5096, .length = 6, .kind = EXTENT_INLINE},
    };
    struct record rec = {
        .type = type,
        .writer = 3,
        .flags = type == REC_SEAL ? RECORD_BIRTH : 0,
        .seq = (7ull << SEQ_EPOCH_SHIFT) | 99,
        .time = 1700000000123456789,
        .ino = 0x0003000007000001,
        .ino2 = 0x0003000007000002,
        .version = 5,
        .parent = 1,
        .parent2 = 0x0003000007000003,
        .cookie = (7ull << SEQ_EPOCH_SHIFT) | 98,
        .cookie2 = (7ull << SEQ_EPOCH_SHIFT) | 97,
        .keep = 5102,
        .offset = 1 << 20,
        .length = 4096,
        .pack = 0x0003000007000009,
        .count = 64,
        .mask = ATTR_MODE | ATTR_MTIME,
        .slab = 12,
        .slab_offset = 8192,
        .attrs = {.mode = 0100644,
                  .uid = 1000,
                  .gid = 100,
                  .rdev = 0x801,
                  .size = 5102,
                  .atime = 1,
                  .mtime = -2,
                  .ctime = 3,
                  .btime = 4},
        .name = "model.pt",
        .name2 = "model-old.pt",
        .name_len = 8,
        .name2_len = 12,
        .value = "inline",
        .value_len = 6,
    };
    bool sealed = type == REC_SEAL;
    rec.extents = type == REC_PIECE || type == REC_EXTENTS ? extents + 1 : extents;
    rec.extent_count = sealed ? 3 : type == REC_PIECE || type == REC_EXTENTS ? 1 : 0;
    return rec;
}

struct chunk_entry sample_entry(uint8_t refs)
{
    struct chunk_entry e = {.pack = 9,
                            .offset = 64,
                            .stored_len = 1000,
                            .raw_len = 65536,
                            .encoding = ENCODING_LZ4,
                            .depth = refs ? 2 : 0,
                            .ref_count = refs};
    fill(e.name.bytes, sizeof e.name.bytes, 1);
    for (uint8_t i = 0; i < refs; i++) {
        fill(e.refs[i].name.bytes, sizeof e.refs[i].name.bytes, (uint8_t)(40 + i));
        e.refs[i].offset = 16u * i;
        e.refs[i].length = 4096;
    }
    return e;
}

struct pack_trailer sample_trailer(void)
{
    struct pack_trailer t = {.pack = 9,
                             .index_offset = 1064,
                             .index_len = 48,
                             .count = 1,
                             .file_len = 4096,
                             .index_crc = 0x12345678};
    fill(t.store, sizeof t.store, 0xa0);
    return t;
}

struct segment_header sample_segment(void)
{
    struct segment_header h = {.number = 4,
                               .epoch = 7,
                               .base_seq = (7ull << SEQ_EPOCH_SHIFT) | 90,
                               .writer = 3,
                               .length = 16 << 20};
    fill(h.store, sizeof h.store, 0xa0);
    fill(h.prev, sizeof h.prev, 0x10);
    return h;
}

struct batch_header sample_batch(void)
{
    struct batch_header h = {.payload_len = 400,
                             .payload_crc = 0x89abcdef,
                             .count = 5,
                             .base_seq = (7ull << SEQ_EPOCH_SHIFT) | 90,
                             .cut_seq = (7ull << SEQ_EPOCH_SHIFT) | 99,
                             .epoch = 7,
                             .writer = 3,
                             .time = 1700000000123456789};
    fill(h.prev, sizeof h.prev, 0x30);
    fill(h.tag, sizeof h.tag, 0x70);
    return h;
}

struct superblock sample_superblock(void)
{
    struct superblock sb = {
        .version = SUPERBLOCK_VERSION, .writer = 3, .created = 1700000000123456789};
    fill(sb.store, sizeof sb.store, 0xa0);
    fill(sb.key_id, sizeof sb.key_id, 0x60);
    fill(sb.key.bytes, sizeof sb.key.bytes, 0x80);
    return sb;
}

struct superblock sample_adopted_superblock(void)
{
    struct superblock sb = sample_superblock();
    fill(sb.history, sizeof sb.history, 0xc0);
    return sb;
}

struct superblock sample_renamed_superblock(void)
{
    struct superblock sb = sample_adopted_superblock();
    sb.former_count = 2;
    fill(sb.former[0], sizeof sb.former[0], 0x10);
    fill(sb.former[1], sizeof sb.former[1], 0x20);
    return sb;
}

static struct run_info run_of_head(uint32_t i, const uint8_t history[16])
{
    struct run_info run = {.id = 0x0003000007000010 + i,
                           .base_cut = i ? (6ull << SEQ_EPOCH_SHIFT) + i : 0,
                           .cut = (6ull << SEQ_EPOCH_SHIFT) + i + 1,
                           .rows = 1000 + i,
                           .length = 70000 + i};
    memcpy(run.history, history, sizeof run.history);
    fill(run.hash, sizeof run.hash, (uint8_t)(0x50 + i));
    return run;
}

struct head sample_head(uint32_t runs)
{
    struct head head = {.number = 12,
                        .writer = 3,
                        .epoch = 7,
                        .holder = "node7:/scratch/cairn pid 4711",
                        .time = 1700000000123456789,
                        .published = 1700000001000000000,
                        .cut = runs ? (6ull << SEQ_EPOCH_SHIFT) + runs : 0,
                        .max_ino = 0x000007000055,
                        .max_id = 0x0003000007000099,
                        .files = 1001,
                        .logical_bytes = 1002,
                        .chunks = 1003,
                        .stored_bytes = 1004,
                        .packs = 1005,
                        .pack_bytes = 1006,
                        .run_count = runs};
    fill(head.history, sizeof head.history, 0xc0);
    fill(head.store, sizeof head.store, 0xa0);
    fill(head.nonce, sizeof head.nonce, 0xe0);
    fill(head.chain, sizeof head.chain, 0x10);
    for (uint32_t i = 0; i < runs; i++)
        head.runs[i] = run_of_head(i, head.history);
    return head;
}

struct head sample_union_head(uint32_t runs, uint32_t writers)
{
    struct head head = sample_head(runs);
    head.incompat = SUPERBLOCK_INCOMPAT_NODES;
    head.epoch = 2 * HEAD_WRITERS_MAX;
    head.cut = (1ull << SEQ_EPOCH_SHIFT) + 850000000;
    head.end_time = 1700000000000000000;
    head.writer_count = writers;
    for (uint32_t i = 0; i < writers; i++) {
        struct head_writer *w = &head.writers[i];
        *w = (struct head_writer){.epoch = 2 * i + 1,
                                  .node = i,
                                  .state = i % 2 ? HEAD_WRITER_ENDED : HEAD_WRITER_LIVES,
                                  .merged = ((2 * i + 1ull) << SEQ_EPOCH_SHIFT) + 77,
                                  .feed_round = 849999999};
        fill(w->feed_hash, sizeof w->feed_hash, (uint8_t)i);
    }
    for (uint32_t i = 0; i < runs; i++) {
        head.runs[i].base_cut = i ? (1ull << SEQ_EPOCH_SHIFT) + i : 0;
        head.runs[i].cut = (1ull << SEQ_EPOCH_SHIFT) + i + 1;
    }
    return head;
}

struct head sample_given_up_head(uint32_t runs, uint32_t count)
{
    struct head head = sample_head(runs);
    head.number = 1000;
    head.epoch = 500;
    for (uint32_t i = 0; i < count; i++)
        head_give_up(&head, &(struct head_given_up){.cut = (10ull * i << SEQ_EPOCH_SHIFT) + 5,
                                                    .epoch = 10 * i + 5,
                                                    .first = 20 * i + 8,
                                                    .last = 20 * i + 10,
                                                    .time = 1700000000000000000 + i});
    return head;
}

struct head sample_history_head(uint32_t runs)
{
    struct head head = sample_given_up_head(runs, 1);
    head.keep = (struct head_keep){.last = 10, .hourly = 24, .daily = 7, .weekly = 4};
    head.has_names = true;
    return head;
}

struct local_snapshot sample_local_snapshot(uint32_t packs)
{
    struct local_snapshot sample = {.number = 1796055265,
                                    .taken = 1796055265123456789,
                                    .cut = 0x1020304050607,
                                    .files = 12,
                                    .logical_bytes = 0x123456789,
                                    .name = "before-lr-change"};
    for (uint32_t i = 0; i < packs; i++)
        vector_add(&sample.packs, 0x1000001 + 7 * (uint64_t)i);
    return sample;
}

struct named_snapshot sample_snapshot(uint32_t runs)
{
    return (struct named_snapshot){
        .name = "before-lr_0.1", .created = 1700000000123456789, .head = sample_history_head(runs)};
}

struct writer_entry sample_writer_entry(void)
{
    struct writer_entry entry = {.number = 9,
                                 .epoch = 7,
                                 .node = 3,
                                 .lease_ms = 60000,
                                 .clock_error_ms = 53,
                                 .holder = "node7:/scratch/cairn pid 4711"};
    fill(entry.history, sizeof entry.history, 0xc0);
    fill(entry.store, sizeof entry.store, 0xa0);
    return entry;
}

struct ended sample_ended(void)
{
    struct ended ended = {.why = ENDED_SILENT, .epoch = 7, .by = 8, .time = 1700000000123456789};
    fill(ended.history, sizeof ended.history, 0xc0);
    return ended;
}

static const uint16_t fed_types[] = {REC_MAKE,     REC_VERSION,     REC_LINK,
                                     REC_RENAME,   REC_UNLINK,      REC_SETATTR,
                                     REC_SETXATTR, REC_REMOVEXATTR, REC_REAP};

static void add_records(struct feed *feed, uint8_t *room)
{
    for (size_t i = 0; i < ARRAY_LEN(fed_types); i++) {
        struct record rec = sample_record(fed_types[i]);
        rec.seq = feed->from + 1 + i;
        record_encode(&rec, room + feed->records_len);
        feed->records_len += record_encoded_len(&rec);
        feed->record_count++;
        check(feed->records_len <= FEED_SAMPLE_LEN);
    }
    feed->records = room;
}

struct feed sample_feed(uint32_t runs, void *room)
{
    struct feed feed = {.epoch = 7,
                        .node = 3,
                        .generation = 1,
                        .from = (7ull << SEQ_EPOCH_SHIFT) + 100,
                        .to = (7ull << SEQ_EPOCH_SHIFT) + 120,
                        .lo = 850000000,
                        .hi = 850000004,
                        .time = 1700000000123456789,
                        .clock = {.error = 50, .before = 1200, .after = UINT32_MAX},
                        .max_ino = 0x000007000055,
                        .max_id = 0x0000000007000099,
                        .chunks = 1003,
                        .stored_bytes = 1004,
                        .packs = 1005,
                        .pack_bytes = 1006,
                        .head = 1007,
                        .run_count = runs};
    fill(feed.history, sizeof feed.history, 0xc0);
    fill(feed.previous, sizeof feed.previous, 0x20);
    for (uint32_t i = 0; i < runs; i++)
        feed.runs[i] = run_of_head(i, feed.history);
    add_records(&feed, room);
    return feed;
}

struct prefix_info sample_prefix_info(void)
{
    struct prefix_info info = {.version = PREFIX_INFO_VERSION, .created = 1700000000123456789};
    fill(info.history, sizeof info.history, 0xc0);
    fill(info.key_id, sizeof info.key_id, 0x60);
    fill(info.key.bytes, sizeof info.key.bytes, 0x80);
    return info;
}

struct lease sample_lease(void)
{
    struct lease lease = {.epoch = 7, .holder = "node7:/scratch/cairn pid 4711"};
    fill(lease.history, sizeof lease.history, 0xc0);
    fill(lease.store, sizeof lease.store, 0xa0);
    return lease;
}

struct pack_header sample_pack_header(void)
{
    struct pack_trailer t = sample_trailer();
    struct pack_header h = {.pack = t.pack};
    memcpy(h.store, t.store, sizeof h.store);
    return h;
}

const char *const sample_names[SAMPLES] = {
    [SAMPLE_SUPERBLOCK] = "superblock",
    [SAMPLE_PREFIX_INFO] = "prefix info",
    [SAMPLE_LEASE] = "lease",
    [SAMPLE_WRITER_ENTRY] = "writer entry",
    [SAMPLE_ENDED] = "ended",
    [SAMPLE_PACK_HEADER] = "pack header",
    [SAMPLE_TRAILER] = "trailer",
    [SAMPLE_SEGMENT] = "segment",
    [SAMPLE_BATCH] = "batch",
    [SAMPLE_HEAD] = "head",
    [SAMPLE_UNION_HEAD] = "head of several nodes",
    [SAMPLE_GIVEN_UP_HEAD] = "head that gives others up",
    [SAMPLE_HISTORY_HEAD] = "head of a history",
    [SAMPLE_SNAPSHOT] = "snapshot",
    [SAMPLE_LOCAL_SNAPSHOT] = "snapshot of a store",
    [SAMPLE_FEED] = "feed",
};

#define RETURN_ENCODED(type, make, encode, length, buf)                                            \
    {                                                                                              \
        struct type sample = make;                                                                 \
        encode(&sample, buf);                                                                      \
        return length;                                                                             \
    }

static size_t encode_local_snapshot(uint32_t packs, uint8_t *buf)
{
    struct local_snapshot sample = sample_local_snapshot(packs);
    struct bytes bytes = {0};
    local_snapshot_encode(&sample, &bytes);
    size_t len = bytes.count;
    memcpy(buf, bytes.at, len);
    vector_free(&bytes);
    vector_free(&sample.packs);
    return len;
}

size_t sample_encode(enum sample which, uint32_t runs, uint8_t buf[SAMPLE_LEN_MAX])
{
    uint8_t room[FEED_SAMPLE_LEN];
    memset(buf, 0xee, SAMPLE_LEN_MAX);
    switch (which) {
    case SAMPLE_SUPERBLOCK:
        RETURN_ENCODED(superblock, sample_superblock(), superblock_encode, SUPERBLOCK_LEN, buf)
    case SAMPLE_PREFIX_INFO:
        RETURN_ENCODED(prefix_info, sample_prefix_info(), prefix_info_encode, PREFIX_INFO_LEN, buf)
    case SAMPLE_LEASE:
        RETURN_ENCODED(lease, sample_lease(), lease_encode, LEASE_LEN, buf)
    case SAMPLE_WRITER_ENTRY:
        RETURN_ENCODED(writer_entry, sample_writer_entry(), writer_entry_encode, WRITER_ENTRY_LEN,
                       buf)
    case SAMPLE_ENDED:
        RETURN_ENCODED(ended, sample_ended(), ended_encode, ENDED_LEN, buf)
    case SAMPLE_PACK_HEADER:
        RETURN_ENCODED(pack_header, sample_pack_header(), pack_encode_header, PACK_HEADER_LEN, buf)
    case SAMPLE_TRAILER:
        RETURN_ENCODED(pack_trailer, sample_trailer(), pack_encode_trailer, PACK_TRAILER_LEN, buf)
    case SAMPLE_SEGMENT:
        RETURN_ENCODED(segment_header, sample_segment(), segment_encode_header, SEGMENT_HEADER_LEN,
                       buf)
    case SAMPLE_BATCH:
        RETURN_ENCODED(batch_header, sample_batch(), batch_encode_header, BATCH_HEADER_LEN, buf)
    case SAMPLE_FEED:
        RETURN_ENCODED(feed, sample_feed(runs, room), feed_encode, feed_encoded_len(&sample), buf)
    case SAMPLE_LOCAL_SNAPSHOT:
        return encode_local_snapshot(runs, buf);
    case SAMPLE_SNAPSHOT: {
        struct named_snapshot snapshot = sample_snapshot(runs);
        return snapshot_encode(&snapshot, buf);
    }
    default: {
        struct head head = which == SAMPLE_HEAD ? sample_head(runs)
                           : which == SAMPLE_UNION_HEAD
                               ? sample_union_head(runs, runs ? runs - 1 : 0)
                           : which == SAMPLE_HISTORY_HEAD ? sample_history_head(runs)
                                                          : sample_given_up_head(runs, 2);
        return head_encode(&head, buf);
    }
    }
}

static int decode_local_snapshot(const uint8_t *buf, size_t len)
{
    struct local_snapshot out;
    int r = local_snapshot_decode(buf, len, &out);
    vector_free(&out.packs);
    return r;
}

int sample_decode(enum sample which, const uint8_t *buf, size_t len)
{
    static union {
        struct superblock superblock;
        struct prefix_info prefix_info;
        struct lease lease;
        struct writer_entry writer_entry;
        struct ended ended;
        struct pack_header pack_header;
        struct pack_trailer trailer;
        struct segment_header segment;
        struct batch_header batch;
        struct head head;
        struct named_snapshot snapshot;
        struct feed feed;
    } out;
    switch (which) {
    case SAMPLE_SUPERBLOCK:
        return superblock_decode(buf, len, &out.superblock);
    case SAMPLE_PREFIX_INFO:
        return prefix_info_decode(buf, len, &out.prefix_info);
    case SAMPLE_LEASE:
        return lease_decode(buf, len, &out.lease);
    case SAMPLE_WRITER_ENTRY:
        return writer_entry_decode(buf, len, &out.writer_entry);
    case SAMPLE_ENDED:
        return ended_decode(buf, len, &out.ended);
    case SAMPLE_PACK_HEADER:
        return pack_decode_header(buf, len, &out.pack_header);
    case SAMPLE_TRAILER:
        return pack_decode_trailer(buf, len, &out.trailer);
    case SAMPLE_SEGMENT:
        return segment_decode_header(buf, len, &out.segment);
    case SAMPLE_BATCH:
        return batch_decode_header(buf, len, &out.batch);
    case SAMPLE_FEED:
        return feed_decode(buf, len, &out.feed);
    case SAMPLE_LOCAL_SNAPSHOT:
        return decode_local_snapshot(buf, len);
    case SAMPLE_SNAPSHOT:
        return snapshot_decode(buf, len, &out.snapshot);
    default:
        return head_decode(buf, len, &out.head);
    }
}

void sample_change(uint8_t *buf, size_t len, size_t at, uint64_t value, size_t field_len)
{
    uint8_t field[8];
    put_le64(field, value);
    memcpy(buf + at, field, field_len);
    put_le32(buf + len - 4, crc32_of(0, buf, len - 4));
}

int sample_decode_changed(enum sample which, size_t at, uint64_t value, size_t field_len)
{
    uint8_t buf[SAMPLE_LEN_MAX];
    size_t len = sample_encode(which, SAMPLE_RUNS, buf);
    sample_change(buf, len, at, value, field_len);
    return sample_decode(which, buf, len);
}

void expect_changes(enum sample which, const struct change *changes, size_t count)
{
    for (const struct change *c = changes; c < changes + count; c++)
        expect_i64(sample_decode_changed(which, c->at, c->value, c->len), c->result,
                   "%s: %#llx at %zu: %s", sample_names[which], (unsigned long long)c->value, c->at,
                   c->why);
}
