// SPDX-License-Identifier: Apache-2.0
/* What a sample tells of changes, at all lengths. */
#include "client/sample.h"

#include <stdlib.h>
#include <string.h>

#include "../expect.h"
#include "base/base.h"

static const size_t lengths[] = {
    1, 7, 8, 63, 64, 65, 1000, 64 * KIB - 1, 64 * KIB, 64 * KIB + 1, MIB - 8, MIB, MIB + 1};

/* Memory of exactly that length, so that a sanitizer sees what is read behind it. */
static unsigned char *filled(size_t length)
{
    unsigned char *bytes = malloc(length);
    cr_assert(bytes);
    for (size_t i = 0; i < length; i++)
        bytes[i] = (unsigned char)(i * 31 + i / 4096);
    return bytes;
}

Test(sample, is_that_of_the_same_bytes_alone)
{
    for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
        _cleanup_free_ unsigned char *bytes = filled(lengths[n]);
        uint64_t before = sample_of(bytes, lengths[n], n);
        assert_u64(sample_of(bytes, lengths[n], n), before);
        cr_assert(lengths[n] == 1 || sample_of(bytes, lengths[n] - 1, n) != before);
        for (size_t i = 0; i < lengths[n]; i += sizeof(float)) /* one byte of each number */
            bytes[i] ^= 1;
        cr_assert(sample_of(bytes, lengths[n], n) != before, "%zu", lengths[n]);
    }
    assert_u64(sample_of(NULL, 0, 0), sample_of(NULL, 0, 1));
}

/* Of two strides one lies in it with all of its line, or the ends of two do. */
Test(sample, sees_any_128_kib)
{
    const size_t length = MIB + 12345, range = 128 * KIB;
    _cleanup_free_ unsigned char *bytes = filled(length);
    uint64_t before = sample_of(bytes, length, 3);
    for (size_t from = 0; from + range <= length; from += 1000) {
        for (size_t i = from; i < from + range; i++)
            bytes[i] ^= 0x80;
        cr_assert(sample_of(bytes, length, 3) != before, "at %zu", from);
        for (size_t i = from; i < from + range; i++)
            bytes[i] ^= 0x80;
    }
    assert_u64(sample_of(bytes, length, 3), before);
}

/* One number of each row: the pieces of 64 MiB differ in where they are looked at. */
Test(sample, sees_every_column)
{
    const size_t piece = MIB, size = 64 * piece, row = 16 * KIB;
    _cleanup_free_ unsigned char *bytes = calloc(1, size);
    cr_assert(bytes);
    for (size_t column = 0; column < row; column += 500) {
        for (size_t at = column; at < size; at += row)
            bytes[at] = 1;
        bool is_seen = false;
        for (size_t i = 0; i < size / piece && !is_seen; i++) {
            unsigned char *of = bytes + i * piece;
            uint64_t sample = sample_of(of, piece, i);
            for (size_t at = column; at < piece; at += row)
                of[at] = 0;
            is_seen = sample_of(of, piece, i) != sample;
        }
        cr_assert(is_seen, "column at byte %zu", column);
        memset(bytes, 0, size);
    }
}
