// SPDX-License-Identifier: Apache-2.0
/* Feeds: what decodes is encoded to the same bytes. */
#include "format/feed.h"

#include "fuzz.h"
#include "mend.h"

#define FIXED 256u /* then the runs, then the records */
#define TAIL 8u

static void decode(const uint8_t *p, size_t size)
{
    struct feed feed;
    struct record rec;
    size_t at = 0;
    uint32_t count = 0;
    if (feed_decode(p, size, &feed) < 0)
        return;
    while (feed_next(&feed, &at, &rec))
        count++;
    uint8_t *again = xmalloc(size);
    check(count == feed.record_count && feed_encoded_len(&feed) == size);
    feed_encode(&feed, again);
    check(memcmp(again, p, size) == 0);
    free(again);
}

static void mend(uint8_t *p, size_t size)
{
    size_t records = size >= FIXED + TAIL ? FIXED + 72u * (size_t)get_le32(p + 140) : size;
    if (records <= size - TAIL && size >= FIXED + TAIL)
        mend_records(p + records, size - TAIL - records);
    mend_frame(p, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode_twice(data, size, decode, mend);
    return 0;
}
