// SPDX-License-Identifier: Apache-2.0
/* Zips whose directory is read ahead of the chunker: the same borders as by a search, and the
 * search where the directory does not fit. */
#include <criterion/criterion.h>

#include "../base/seeded.h"
#include "files.h"
#include "format/le.h"

#define FAKE_AT 70000u /* in the data of the first entry */

static void make(struct file *f, bool zip64, struct seeded *s)
{
    static const unsigned descriptors[] = {16, 16, 24};
    file_entry(f, 200000, 20, 16);
    for (uint64_t n = seeded_below(s, 40); n > 0; n--)
        file_entry(f, seeded_below(s, 3) ? seeded_below(s, 9000) : seeded_below(s, 1500000),
                   (uint16_t)seeded_below(s, 64), descriptors[seeded_below(s, 3)]);
    file_directory(f, zip64);
}

/* What a search takes for a header. */
static void put_fake(struct file *f)
{
    uint8_t *p = f->data + FAKE_AT;
    memset(p, 0, 30);
    put_le32(p, 0x04034b50);
    put_le16(p + 6, 0x0808);
}

static void expect_equal(const struct file *f, struct seeded *s, bool is_equal)
{
    _cleanup_borders_ struct borders whole = chunk_whole(f), ahead = chunk_ahead(f, s);
    if (is_equal)
        expect_same(&whole, &ahead);
    else
        cr_assert(whole.count != ahead.count ||
                  memcmp(whole.at, ahead.at, whole.count * sizeof *whole.at) != 0);
}

Test(directory, borders_are_those_of_a_search)
{
    struct seeded s = {21};
    for (int round = 0; round < 120; round++) {
        _cleanup_file_ struct file f = {0};
        make(&f, round % 2, &s);
        expect_equal(&f, &s, true);
        put_fake(&f);
        expect_equal(&f, &s, false);
    }
}

Test(directory, entries_without_data_are_no_markers)
{
    struct seeded s = {22};
    _cleanup_file_ struct file f = {0};
    file_entry(&f, 0, 20, 0);
    put_le16(f.data + 6, 0x0800);
    file_entry(&f, 200000, 20, 16);
    file_entry(&f, 90, 20, 16);
    uint64_t at = f.len;
    file_directory(&f, false);
    put_le16(f.data + at + 8, 0x0800);
    expect_equal(&f, &s, true);
}

/* A byte of the directory, of an end record or of a header that is another: the fake header is
 * found, as a search finds it. */
static void expect_searched(bool zip64, uint64_t back, uint8_t add)
{
    struct seeded s = {23 + back};
    _cleanup_file_ struct file f = {0};
    file_entry(&f, 200000, 20, 16);
    file_entry(&f, 5000, 20, 16);
    file_directory(&f, zip64);
    put_fake(&f);
    expect_equal(&f, &s, false);
    f.data[f.len - 1 - back] += add;
    expect_equal(&f, &s, true);
}

Test(directory, one_that_does_not_fit_is_not_believed)
{
    static const uint64_t plain[] = {
        0, 2, 5, 9, 11, 21, 22 + 9 + 3, 22 + 9 + 25, 22 + 9 + 45, 22 + 22, 22 + 2 * 55 - 21};
    for (size_t i = 0; i < ARRAY_LEN(plain); i++)
        for (int add = 1; add < 256; add *= 2)
            expect_searched(false, plain[i], (uint8_t)add);
    static const uint64_t wide[] = {22 + 11,      22 + 19, 22 + 20 + 7, 22 + 20 + 15, 22 + 20 + 23,
                                    22 + 20 + 55, 98 + 7,  98 + 15,     98 + 25};
    for (size_t i = 0; i < ARRAY_LEN(wide); i++)
        for (int add = 1; add < 256; add *= 2)
            expect_searched(true, wide[i], (uint8_t)add);
}

Test(directory, one_of_several_archives_explains_too_little)
{
    struct seeded s = {24};
    _cleanup_file_ struct file f = {0};
    for (int i = 0; i < 2;
         i++) { /* two that are equal: the offsets of the second are right in the first, too */
        f.entry_count = 0;
        uint64_t start = f.len;
        file_entry(&f, 200000, 20, 16);
        f.entries[0].header -= start;
        file_directory(&f, false);
        put_le32(f.data + f.len - 6, (uint32_t)(f.len - start - 22 - 55));
    }
    put_fake(&f);
    expect_equal(&f, &s, true);
}

Test(directory, hostile_ones)
{
    struct seeded s = {25};
    for (int round = 0; round < 400; round++) {
        _cleanup_file_ struct file f = {0};
        file_entry(&f, 5000 + seeded_below(&s, 5000), 5, 16);
        file_entry(&f, 5000 + seeded_below(&s, 5000), 5, 24);
        uint64_t tail = f.len;
        file_directory(&f, round % 2);
        for (uint64_t n = 1 + seeded_below(&s, 4); n > 0; n--)
            f.data[tail + seeded_below(&s, f.len - tail)] = (uint8_t)seeded_u64(&s);
        expect_equal(&f, &s, true);
    }
}
