// SPDX-License-Identifier: Apache-2.0
/* Segments of the journal: header, then batches of records. */
#include "format/segment.h"

#include "fuzz.h"
#include "mend.h"

DEFINE_DECODE(decode_header, segment_header, segment_decode_header, segment_encode_header,
              SEGMENT_HEADER_LEN)

/* Bytes of the batch; 0: none. */
static size_t decode_batch(const uint8_t *p, size_t size)
{
    struct batch_header h;
    uint8_t again[BATCH_HEADER_LEN];
    int r = batch_decode_header(p, size, &h);
    if (r < 0) {
        check(r != -ENODATA ||
              bytes_are_zero(p, size < BATCH_HEADER_LEN ? size : BATCH_HEADER_LEN));
        return 0;
    }
    batch_encode_header(&h, again);
    check(memcmp(again, p, sizeof again) == 0);
    check(h.payload_len % 8 == 0 && h.payload_len / RECORD_HEADER_LEN >= h.count);
    return h.payload_len <= size - BATCH_HEADER_LEN ? BATCH_HEADER_LEN + (size_t)h.payload_len : 0;
}

static void decode(const uint8_t *p, size_t size)
{
    struct segment_header header;
    (void)decode_header(p, size, &header);
    size_t at = size < SEGMENT_HEADER_LEN ? size : SEGMENT_HEADER_LEN, len;
    for (; (len = decode_batch(p + at, size - at)) > 0; at += len)
        ;
}

static void mend(uint8_t *p, size_t size)
{
    if (size < SEGMENT_HEADER_LEN)
        return;
    mend_frame(p, SEGMENT_HEADER_LEN);
    for (size_t at = SEGMENT_HEADER_LEN; size - at >= BATCH_HEADER_LEN;) {
        uint8_t *batch = p + at;
        size_t room = (size - at - BATCH_HEADER_LEN) / 8 * 8;
        if (get_le64(batch + 8) > room)
            put_le64(batch + 8, room);
        mend_frame(batch, BATCH_HEADER_LEN);
        at += BATCH_HEADER_LEN + (size_t)get_le64(batch + 8);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode_twice(data, size, decode, mend);
    return 0;
}
