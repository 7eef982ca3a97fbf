// SPDX-License-Identifier: Apache-2.0
/* What a sample tells of changes, at all lengths. */
#include "client/sample.h"

#include <stdlib.h>

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
        unsigned char *bytes = filled(lengths[n]);
        uint64_t before = sample_of(bytes, lengths[n]);
        assert_u64(sample_of(bytes, lengths[n]), before);
        cr_assert(lengths[n] == 1 || sample_of(bytes, lengths[n] - 1) != before);
        for (size_t i = 0; i < lengths[n]; i += sizeof(float)) /* one byte of each number */
            bytes[i] ^= 1;
        cr_assert(sample_of(bytes, lengths[n]) != before, "%zu", lengths[n]);
        free(bytes);
    }
    assert_u64(sample_of(NULL, 0), sample_of(NULL, 0));
}

/* Of two strides one lies in it with all of its line, or the ends of two do. */
Test(sample, sees_any_128_kib)
{
    const size_t length = MIB + 12345, range = 128 * KIB;
    unsigned char *bytes = filled(length);
    uint64_t before = sample_of(bytes, length);
    for (size_t from = 0; from + range <= length; from += 1000) {
        for (size_t i = from; i < from + range; i++)
            bytes[i] ^= 0x80;
        cr_assert(sample_of(bytes, length) != before, "at %zu", from);
        for (size_t i = from; i < from + range; i++)
            bytes[i] ^= 0x80;
    }
    assert_u64(sample_of(bytes, length), before);
    free(bytes);
}
