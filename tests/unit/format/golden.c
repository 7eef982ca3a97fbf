// SPDX-License-Identifier: Apache-2.0
/* The bytes on disk must not change unseen. */
#include <ctype.h>

#include "../expect.h"
#include "../base/golden.h"
#include "base/crc.h"
#include "run_files.h"
#include "samples.h"

/* As they are in samples.c. */
Test(golden, plain)
{
    static const struct {
        const char *name;
        enum sample sample;
        uint32_t runs;
    } plain[] = {{"superblock", SAMPLE_SUPERBLOCK, 0},
                 {"prefix-info", SAMPLE_PREFIX_INFO, 0},
                 {"lease", SAMPLE_LEASE, 0},
                 {"writer-entry", SAMPLE_WRITER_ENTRY, 0},
                 {"ended", SAMPLE_ENDED, 0},
                 {"head", SAMPLE_HEAD, 3},
                 {"feed", SAMPLE_FEED, 2}};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        uint8_t buf[SAMPLE_LEN_MAX];
        size_t len = sample_encode(plain[i].sample, plain[i].runs, buf);
        golden_compare(plain[i].name, buf, len);
        assert_i64(sample_decode(plain[i].sample, buf, len), 0, "%s", plain[i].name);
    }
}

/* Returns what is decoded. */
static struct superblock compare_superblock(const char *name, struct superblock sb)
{
    uint8_t buf[SUPERBLOCK_LEN];
    superblock_encode(&sb, buf);
    golden_compare(name, buf, sizeof buf);
    assert_i64(superblock_decode(buf, sizeof buf, &sb), 0, "%s", name);
    return sb;
}

Test(golden, superblock_with_former_ids)
{
    (void)compare_superblock("superblock-former", sample_renamed_superblock());
}

Test(golden, superblock_with_history)
{
    (void)compare_superblock("superblock-history", sample_adopted_superblock());
}

Test(golden, superblock_with_all_encodings)
{
    struct superblock sb = sample_superblock();
    sb.incompat = SUPERBLOCK_INCOMPAT_ENCODINGS;
    assert_u64(compare_superblock("superblock-encodings", sb).incompat, 4 | 8 | 16 | 32);
}

Test(golden, superblock_of_a_node)
{
    struct superblock sb = sample_superblock();
    sb.incompat = SUPERBLOCK_INCOMPAT_NODES;
    sb.node = 0x0a0b0c;
    assert_u64(compare_superblock("superblock-node", sb).node, 0x0a0b0c);
}

Test(golden, run)
{
    static const uint8_t value[RUN_BLOCK_ROOM];
    const struct run_row rows[] = {{"directory/one", 13, "first", 5},
                                   {"directory/three", 15, NULL, 0},
                                   {"directory/two", 13, "", 0},
                                   {"large", 5, value, sizeof value},
                                   {"large too", 9, "in the second block", 19}};
    struct run_info info = sample_run_info();
    struct run_file file = run_file_of(&info, rows, ARRAY_LEN(rows));
    golden_compare("run", file.data, file.len);
    uint64_t count = 0;
    assert_i64(run_file_read(&file, &count), 0);
    assert_u64(count, ARRAY_LEN(rows));
    run_file_done(&file);
}

Test(golden, head_with_all_encodings)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(3);
    head.incompat = SUPERBLOCK_INCOMPAT_ENCODINGS;
    size_t len = head_encode(&head, buf);
    golden_compare("head-encodings", buf, len);
    assert_i64(head_decode(buf, len, &head), 0);
    assert_u64(head.incompat, 4 | 8 | 16 | 32);
}

Test(golden, head_that_gives_others_up)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_head(3);
    const struct head_given_up given_up = {.cut = (5ull << SEQ_EPOCH_SHIFT) + 9,
                                           .epoch = 6,
                                           .first = 8,
                                           .last = 11,
                                           .time = 1700000000555555555};
    head_give_up(&head, &given_up);
    size_t len = head_encode(&head, buf);
    golden_compare("head-given-up", buf, len);
    assert_i64(head_decode(buf, len, &head), 0);
    assert_u64(head.given_up_count, 1);
    assert_i64(memcmp(head.given_up, &given_up, sizeof given_up), 0);
}

Test(golden, head_of_a_history)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_history_head(2);
    size_t len = head_encode(&head, buf);
    golden_compare("head-history", buf, len);
    assert_i64(head_decode(buf, len, &head), 0);
}

Test(golden, local_snapshot)
{
    uint8_t buf[SAMPLE_LEN_MAX];
    struct local_snapshot out;
    size_t len = sample_encode(SAMPLE_LOCAL_SNAPSHOT, 3, buf);
    golden_compare("local-snapshot", buf, len);
    assert_i64(local_snapshot_decode(buf, len, &out), 0);
    assert_u64(out.number, 1796055265);
    assert_u64(out.files, 12);
    assert_str(out.name, "before-lr-change");
    assert_u64(out.packs.count, 3);
    assert_u64(out.packs.at[2], 0x1000001 + 14);
    vector_free(&out.packs);
}

Test(golden, superblock_with_snapshots)
{
    struct superblock sb = sample_superblock();
    sb.incompat = SUPERBLOCK_INCOMPAT_SNAPSHOTS;
    assert_u64(compare_superblock("superblock-snapshots", sb).incompat, 128);
}

Test(golden, snapshot)
{
    uint8_t buf[SNAPSHOT_LEN_MAX];
    struct named_snapshot snapshot = sample_snapshot(2);
    size_t len = snapshot_encode(&snapshot, buf);
    golden_compare("snapshot", buf, len);
    assert_i64(snapshot_decode(buf, len, &snapshot), 0);
}

Test(golden, head_of_several_nodes)
{
    uint8_t buf[HEAD_LEN_MAX];
    struct head head = sample_union_head(2, 3);
    size_t len = head_encode(&head, buf);
    golden_compare("head-nodes", buf, len);
    assert_i64(head_decode(buf, len, &head), 0);
}

Test(golden, prefix_info_with_all_encodings)
{
    uint8_t buf[PREFIX_INFO_LEN];
    struct prefix_info info = sample_prefix_info();
    info.incompat = SUPERBLOCK_INCOMPAT_ENCODINGS;
    prefix_info_encode(&info, buf);
    golden_compare("prefix-info-encodings", buf, sizeof buf);
    assert_i64(prefix_info_decode(buf, sizeof buf, &info), 0);
    assert_u64(info.incompat, 4 | 8 | 16 | 32);
}

static int count_entry(const struct chunk_entry *entry, void *arg)
{
    assert_u64(entry->pack, 9);
    ++*(uint32_t *)arg;
    return 0;
}

static void decode_pack(const uint8_t *buf, size_t size, uint32_t version)
{
    struct pack_header header;
    struct pack_trailer t;
    uint32_t count = 0;
    assert_i64(pack_decode_header(buf, size, &header), 0);
    assert_u64(header.version, version);
    assert_i64(pack_decode_trailer(buf + size - PACK_TRAILER_LEN, PACK_TRAILER_LEN, &t), 0);
    assert_i64(pack_decode_index(&t, buf + t.index_offset, t.index_len, count_entry, &count), 0);
    assert_u64(count, 3);
}

static void finish_pack(struct pack_trailer *t, uint8_t *buf, size_t size,
                        struct chunk_entry *entries)
{
    t->index_len = t->count = 0;
    for (; t->count < 3; t->count++)
        t->index_len +=
            (uint32_t)pack_encode_entry(&entries[t->count], buf + t->index_offset + t->index_len);
    t->index_crc = crc32_of(0, buf + t->index_offset, t->index_len);
    pack_encode_trailer(t, buf + size - PACK_TRAILER_LEN);
}

/* Before there were frames. */
Test(golden, pack_of_version_1)
{
    uint8_t buf[PACK_ALIGN] = {0};
    struct pack_header header = sample_pack_header();
    struct pack_trailer t = sample_trailer();
    struct chunk_entry entries[3] = {sample_entry(0), sample_entry(2), sample_entry(4)};
    header.version = 1;
    pack_encode_header(&header, buf);
    for (size_t i = PACK_HEADER_LEN; i < t.index_offset; i++)
        buf[i] = (uint8_t)i;
    finish_pack(&t, buf, sizeof buf, entries);
    golden_compare("pack-v1", buf, sizeof buf);
    decode_pack(buf, sizeof buf, 1);
}

Test(golden, pack)
{
    uint8_t buf[PACK_ALIGN] = {0};
    struct pack_header header = sample_pack_header();
    struct pack_trailer t = sample_trailer();
    struct chunk_entry entries[3] = {sample_entry(0), sample_entry(2), sample_entry(4)}, found;
    uint8_t tag[PACK_TAG_LEN];
    uint64_t at = PACK_HEADER_LEN;
    pack_encode_header(&header, buf);
    for (size_t i = 0; i < 3; i++) {
        struct chunk_entry *e = &entries[i];
        memset(tag, (int)i + 1, sizeof tag);
        e->stored_len = 100;
        e->offset = at + pack_frame_len(e);
        (void)pack_encode_frame(e, tag, buf + at);
        memset(buf + e->offset, 'a' + (int)i, e->stored_len);
        const struct pack_frame_place place = {t.pack, sizeof buf, at};
        assert_i64(pack_decode_frame(&place, buf + at, sizeof buf - at, &found, tag), 0);
        at = align_up(e->offset + e->stored_len, PACK_FRAME_ALIGN);
    }
    t.index_offset = at;
    finish_pack(&t, buf, sizeof buf, entries);
    golden_compare("pack", buf, sizeof buf);
    decode_pack(buf, sizeof buf, 2);
}

static void make_segment(uint32_t version, uint8_t *buf, size_t size)
{
    struct segment_header s = sample_segment();
    struct batch_header b = sample_batch();
    uint8_t *payload = buf + SEGMENT_HEADER_LEN + BATCH_HEADER_LEN;
    memset(buf, 0, size);
    s.version = b.version = version;
    if (version == 1) {
        s.length = 0;
        memset(b.tag, 0, sizeof b.tag);
    }
    segment_encode_header(&s, buf);
    b.payload_len = 0;
    b.count = 2;
    for (size_t i = 0; i < b.count; i++) {
        struct record rec = sample_record(sample_types[i]);
        record_encode(&rec, payload + b.payload_len);
        b.payload_len += record_encoded_len(&rec);
    }
    b.payload_crc = crc32_of(0, payload, b.payload_len);
    batch_encode_header(&b, buf + SEGMENT_HEADER_LEN);
    assert_i64(segment_decode_header(buf, size, &s), 0);
    assert_u64(s.version, version);
    assert_i64(batch_decode_header(buf + SEGMENT_HEADER_LEN, size - SEGMENT_HEADER_LEN, &b), 0);
    assert_u64(b.version, version);
    assert_i64(batch_decode_header(payload + b.payload_len, BATCH_HEADER_LEN, &b), -ENODATA);
}

Test(golden, segment)
{
    uint8_t buf[4096];
    make_segment(2, buf, sizeof buf);
    golden_compare("segment", buf, sizeof buf);
}

/* Before batches had tags. */
Test(golden, segment_of_version_1)
{
    uint8_t buf[4096];
    make_segment(1, buf, sizeof buf);
    golden_compare("segment-v1", buf, sizeof buf);
}

Test(golden, records)
{
    for (size_t i = 0; i < ARRAY_LEN(sample_types); i++) {
        struct record rec = sample_record(sample_types[i]), out;
        size_t len = record_encoded_len(&rec), decoded_len;
        _cleanup_free_ uint8_t *buf = xmalloc(len);
        record_encode(&rec, buf);
        _cleanup_free_ char *name = xasprintf("record-%s", record_type_name(rec.type));
        for (char *c = name; *c; c++)
            *c = (char)tolower(*c);
        golden_compare(name, buf, len);
        assert_i64(record_decode(buf, len, &out, &decoded_len), 0);
        assert_u64(out.type, rec.type);
    }
}
