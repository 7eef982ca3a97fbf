// SPDX-License-Identifier: Apache-2.0
/* Journal records. */
#include "fuzz.h"
#include "mend.h"

static void look_at(const struct record *rec)
{
    check(rec->name_len <= NAME_LEN_MAX && rec->name2_len <= NAME_LEN_MAX);
    check(!rec->name || !memchr(rec->name, 0, rec->name_len));
    check(*record_type_name(rec->type));
    uint64_t inline_bytes = 0;
    for (uint32_t i = 0; i < rec->extent_count; i++) {
        struct extent e = record_extent(rec, i);
        check(e.length > 0 && e.offset + e.length <= INT64_MAX);
        check(e.kind != EXTENT_CHUNK || e.chunk_offset + e.length <= CHUNK_SIZE_MAX);
        inline_bytes += e.kind == EXTENT_INLINE ? e.length : 0;
    }
    check(inline_bytes <= rec->value_len);
}

static void decode_all(const uint8_t *p, size_t size)
{
    struct record rec;
    for (size_t len = 0; record_decode(p, size, &rec, &len) == 0; p += len, size -= len) {
        check(len <= size && record_encoded_len(&rec) == len);
        look_at(&rec);
        uint8_t *again = xmalloc(len);
        record_encode(&rec, again);
        check(memcmp(again, p, len) == 0);
        free(again);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode_twice(data, size, decode_all, mend_records);
    return 0;
}
