// SPDX-License-Identifier: Apache-2.0
/* Packs: header, trailer, index. An input is a header, a trailer, and index entries. */
#include "format/pack.h"

#include "fuzz.h"
#include "mend.h"

struct walk {
    const struct pack_trailer *trailer;
    const uint8_t *at;
    uint32_t count;
};

static int on_entry(const struct chunk_entry *e, void *arg)
{
    struct walk *walk = arg;
    uint8_t again[PACK_ENTRY_LEN_MAX];
    check(e->pack == walk->trailer->pack && e->raw_len > 0 && e->raw_len <= CHUNK_SIZE_MAX);
    check(e->offset >= PACK_HEADER_LEN && e->offset + e->stored_len <= walk->trailer->index_offset);
    size_t len = pack_encode_entry(e, again);
    check(memcmp(again, walk->at, len) == 0);
    walk->at += len;
    walk->count++;
    return 0;
}

DEFINE_DECODE(decode_header, pack_header, pack_decode_header, pack_encode_header, PACK_HEADER_LEN)
DEFINE_DECODE(decode_trailer, pack_trailer, pack_decode_trailer, pack_encode_trailer,
              PACK_TRAILER_LEN)

/* At the place that its chunk's tells, if it is a frame. */
static void decode_frame(const uint8_t *p, size_t size)
{
    struct chunk_entry e;
    uint8_t tag[PACK_TAG_LEN], again[PACK_FRAME_LEN_MAX];
    if (size < 64)
        return;
    const struct pack_frame_place place = {9, 1 << 20, get_le64(p + 56) - get_le32(p + 4)};
    if (pack_decode_frame(&place, p, size, &e, tag) < 0)
        return;
    size_t len = pack_encode_frame(&e, tag, again);
    check(len <= size && memcmp(again, p, len) == 0);
    check(e.offset + e.stored_len <= 1 << 20);
}

static void decode_index(const uint8_t *trailer, const uint8_t *index, size_t len)
{
    struct pack_trailer t;
    if (!decode_trailer(trailer, PACK_TRAILER_LEN, &t))
        return;
    check(t.index_offset + t.index_len + PACK_TRAILER_LEN <= t.file_len);
    struct walk walk = {&t, index, 0};
    if (pack_decode_index(&t, index, len, on_entry, &walk) == 0)
        check(walk.count == t.count && walk.at == index + len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < PACK_HEADER_LEN + PACK_TRAILER_LEN)
        return 0;
    struct pack_header h;
    uint8_t *header = exact_copy(data, PACK_HEADER_LEN);
    uint8_t *trailer = exact_copy(data + PACK_HEADER_LEN, PACK_TRAILER_LEN);
    size_t len = size - PACK_HEADER_LEN - PACK_TRAILER_LEN;
    uint8_t *index = exact_copy(data + size - len, len);
    (void)decode_header(header, PACK_HEADER_LEN, &h);
    decode_index(trailer, index, len);
    decode_frame(index, len);
    mend_frame(header, PACK_HEADER_LEN);
    put_le32(trailer + 48, (uint32_t)len);
    mend_frame(trailer, PACK_TRAILER_LEN);
    (void)decode_header(header, PACK_HEADER_LEN, &h);
    decode_index(trailer, index, len);
    free(header);
    free(trailer);
    free(index);
    return 0;
}
