// SPDX-License-Identifier: Apache-2.0
/* Checksums stop a fuzzer: these give damaged structures the checksums (and lengths) that let a
 * decoder look further. */
#pragma once

#include "base/crc.h"
#include "format/le.h"
#include "format/record.h"
#include "fuzz.h"

/* crc32 of everything before it, in the last 4 of `len` bytes. */
static inline void mend_frame(uint8_t *p, size_t len)
{
    if (len >= 4)
        put_le32(p + len - 4, crc32_of(0, p, len - 4));
}

/* As the bytes are, and once more after they were mended. */
static inline void decode_twice(const uint8_t *data, size_t size,
                                void (*decode)(const uint8_t *p, size_t size),
                                void (*mend)(uint8_t *p, size_t size))
{
    uint8_t *copy = exact_copy(data, size);
    decode(copy, size);
    mend(copy, size);
    decode(copy, size);
    free(copy);
}

/* Records one after the other; one whose length makes no sense takes all that is left. */
static inline void mend_records(uint8_t *p, size_t len)
{
    while (len >= RECORD_HEADER_LEN) {
        uint32_t n = get_le32(p + 4);
        if (n < RECORD_HEADER_LEN || n % 8 != 0 || n > len)
            n = (uint32_t)align_down(len, 8);
        put_le32(p + 4, n);
        put_le32(p, crc32_of(0, p + 4, n - 4));
        p += n;
        len -= n;
    }
}
