// SPDX-License-Identifier: Apache-2.0
/* Properties of the chunker on many random files. */
#include <criterion/criterion.h>

#include "../base/seeded.h"
#include "codec/chunker.h"
#include "files.h"
#include "format/le.h"

static void expect_split_independent(const struct file *f, struct seeded *s)
{
    _cleanup_borders_ struct borders whole = chunk_whole(f);
    for (int i = 0; i < 4; i++) {
        _cleanup_borders_ struct borders pieces =
            chunk_pieces(f, s, 1 + seeded_below(s, f->len + 1), 1 + seeded_below(s, 100000));
        expect_same(&whole, &pieces);
    }
}

Test(chunker_random, writes)
{
    static const size_t usual[] = {8,     100,        4096,        65535,
                                   65536, 128 * 1024, 1024 * 1024, 1024 * 1024 + 4};
    struct seeded s = {10};
    for (int round = 0; round < 60; round++) {
        _cleanup_file_ struct file f = {0};
        for (uint64_t n = 1 + seeded_below(&s, 40); n > 0; n--)
            file_write(&f, seeded_below(&s, 2) ? usual[seeded_below(&s, ARRAY_LEN(usual))]
                                               : 1 + seeded_below(&s, 200000));
        expect_split_independent(&f, &s);
    }
}

Test(chunker_random, archives)
{
    static const unsigned descriptors[] = {16, 16, 24, 0};
    struct seeded s = {11};
    for (int round = 0; round < 60; round++) {
        _cleanup_file_ struct file f = {0};
        for (uint64_t n = 1 + seeded_below(&s, 60); n > 0; n--) {
            size_t len = seeded_below(&s, 3) ? seeded_below(&s, 9000) : seeded_below(&s, 600000);
            uint16_t padding = (uint16_t)seeded_below(&s, seeded_below(&s, 9) ? 64 : 65535);
            file_entry(&f, len, padding, descriptors[seeded_below(&s, ARRAY_LEN(descriptors))]);
            if (seeded_below(&s, 8) == 0)
                file_central(&f);
        }
        expect_split_independent(&f, &s);
    }
}

/* Headers strewn over the file, within each other's names and data, with lengths that make no
 * sense. */
Test(chunker_random, hostile_archives)
{
    struct seeded s = {12};
    for (int round = 0; round < 150; round++) {
        _cleanup_file_ struct file f = {0};
        file_entry(&f, 200000 + seeded_below(&s, 2000000), 5, 16);
        for (uint64_t n = seeded_below(&s, 3000); n > 0; n--) {
            uint8_t *p = f.data + seeded_below(&s, f.len - 40);
            put_le32(p, seeded_below(&s, 3)   ? 0x04034b50
                        : seeded_below(&s, 2) ? 0x02014b50
                                              : 0x08074b50);
            put_le16(p + 6, 0x0808);
            put_le16(p + 8, seeded_below(&s, 2) ? 0 : 0x0808);
            put_le16(p + 10, 0);
            put_le16(p + 26, (uint16_t)seeded_below(&s, 5000));
            put_le16(p + 28, (uint16_t)seeded_u64(&s));
        }
        expect_split_independent(&f, &s);
    }
}

Test(chunker_random, hostile_safetensors)
{
    struct seeded s = {13};
    for (int round = 0; round < 150; round++) {
        _cleanup_file_ struct file f = {0};
        char *header = xstrdup("{");
        for (uint64_t n = seeded_below(&s, 200); n > 0; n--) {
            uint64_t a = seeded_below(&s, 2000000),
                     len = seeded_below(&s, seeded_below(&s, 2) ? 300000 : 6000);
            char *longer = xasprintf("%s\"t\":{\"data_offsets\":[%lu,%lu]},", header, a, a + len);
            free(header);
            header = longer;
        }
        file_text(&f, header);
        for (uint64_t n = seeded_below(&s, 10); n > 0; n--)
            f.data[8 + seeded_below(&s, f.len - 8)] =
                (uint8_t) "0123456789[],:{} \""[seeded_below(&s, 18)];
        file_noise(&f, 1000000);
        free(header);
        expect_split_independent(&f, &s);
    }
}

/* Stretches of the second file that are whole chunks of the first one are what is not
 * stored again. */
static uint64_t shared_bytes(const struct file *a, const struct file *b)
{
    _cleanup_borders_ struct borders x = chunk_whole(a), y = chunk_whole(b);
    uint64_t shared = 0;
    for (size_t j = 0; j < y.count; j++) {
        uint64_t from = j ? y.at[j - 1] : 0, len = y.at[j] - from;
        for (size_t i = 0; i < x.count; i++) {
            uint64_t at = i ? x.at[i - 1] : 0;
            if (x.at[i] - at == len && memcmp(a->data + at, b->data + from, len) == 0) {
                shared += len;
                break;
            }
        }
    }
    return shared;
}

Test(chunker_random, tensors_are_found_again_when_headers_change)
{
    _cleanup_file_ struct file a = {0}, b = {0};
    struct seeded s = {14};
    uint64_t tensors = 0;
    file_entry(&a, 500, 10, 16);
    file_entry(&b, 3700, 33, 16);
    for (int i = 0; i < 12; i++) {
        size_t len = 4096 + seeded_below(&s, 1500000);
        file_entry(&a, len, (uint16_t)seeded_below(&s, 64), 16);
        uint64_t data = a.entry_data;
        file_entry(&b, len, (uint16_t)seeded_below(&s, 64), 16);
        memcpy(b.data + b.entry_data, a.data + data, len);
        tensors += len;
    }
    file_central(&a);
    file_central(&b);
    cr_assert_geq(shared_bytes(&a, &b), tensors);
}
