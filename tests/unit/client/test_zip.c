// SPDX-License-Identifier: Apache-2.0
/* src/client/zip.c against what torch.save wrote once (golden/, make_golden.py), and what it
 * refuses; src/client/crc.c. */
#include "client/zip.h"

#include "../expect.h"
#include "base/cause.h"
#include "client/crc.h"

#include "../base/golden.h"

#define BIG_ZEROS (4 * GIB + 100)

struct record {
    const char *name, *text;
    uint64_t zeros; /* instead of text */
};

static const struct record small[] = {
    {"data.pkl", "pickle", 0},
    {".format_version", "1", 0},
    {"byteorder", "little", 0},
    {"data/0", NULL, 1000},
    {"data/1", "", 0},
    {"version", "3\n", 0},
    {".data/serialization_id", "1524979250246857080300097433481473026399", 0}};
static const struct record big[] = {
    {"data.pkl", "pickle", 0},
    {"data/0", NULL, BIG_ZEROS},
    {"data/1", NULL, 77},
    {"data/2", "", 0},
    {"version", "3\n", 0},
    {"byteorder", "little", 0},
    {".data/serialization_id", "1080486919808268636500099422010101206764", 0}};

/* Joined from pieces, as a save does it. */
static uint32_t crc_of_zeros(uint64_t count)
{
    static const uint8_t zeros[65536];
    uint32_t crc = 0, piece = crc_of(0, zeros, sizeof zeros);
    uint64_t done = 0;
    for (; done + sizeof zeros <= count; done += sizeof zeros)
        crc = done ? crc_joined(crc, piece, sizeof zeros) : piece;
    uint32_t rest = crc_of(0, zeros, (size_t)(count - done));
    return done ? crc_joined(crc, rest, count - done) : rest;
}

static struct zip planned(const struct record *records, size_t count)
{
    struct zip zip = {
        .archive = "archive", .archive_length = 7, .alignment = ZIP_ALIGNMENT, .count = count};
    zip.entries = xcalloc(count, sizeof *zip.entries);
    for (size_t i = 0; i < count; i++) {
        const struct record *record = &records[i];
        zip.entries[i] = (struct zip_entry){
            .name = record->name, .size = record->text ? strlen(record->text) : record->zeros};
        zip.entries[i].crc = record->text ? crc_of(0, record->text, strlen(record->text))
                                          : crc_of_zeros(record->zeros);
    }
    assert_i64(zip_plan(&zip), 0);
    return zip;
}

static void compare(const char *golden, const struct record *records, size_t count)
{
    struct zip zip = planned(records, count);
    uint8_t *around = xmalloc(MIB), *p = around;
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        struct zip_entry *entry = &zip.entries[i];
        assert_u64(entry->start, at);
        assert_u64(entry->data % ZIP_ALIGNMENT, 0);
        zip_header(&zip, entry, p);
        p += entry->data - entry->start;
        size_t length = zip_descriptor(entry, p);
        p += length;
        at = entry->data + entry->size + length;
    }
    assert_u64(zip.directory, at);
    zip_end(&zip, p);
    p += zip.file_size - zip.directory;
    golden_compare(golden, around, (size_t)(p - around));
    free(around);
    free(zip.entries);
}

Test(zip, is_what_torch_writes)
{
    compare("torch-zip", small, ARRAY_LEN(small));
}

Test(zip, is_what_torch_writes_above_4_GiB)
{
    compare("torch-zip-big", big, ARRAY_LEN(big));
}

static int plan_one(const char *name, uint64_t size, uint32_t alignment)
{
    struct zip_entry entry = {.name = name, .size = size};
    struct zip zip = {
        .archive = "a", .archive_length = 1, .alignment = alignment, .entries = &entry, .count = 1};
    cause_clear();
    int r = zip_plan(&zip);
    assert_i64(r < 0, cause_text()[0] != '\0');
    return r;
}

Test(zip, refuses_what_does_not_fit)
{
    _cleanup_free_ char *name = xmalloc(70000);
    memset(name, 'n', 69999);
    name[69999] = '\0';
    assert_i64(plan_one("x", 1, 64), 0);
    assert_i64(plan_one(name, 1, 64), -EINVAL);
    assert_i64(plan_one("", 1, 64), -EINVAL);
    assert_i64(plan_one("x", 1, 0), -EINVAL);
    assert_i64(plan_one("x", 1, 48), -EINVAL);
    assert_i64(plan_one("x", 1, 65536), -EINVAL);
    assert_i64(plan_one("x", UINT64_MAX, 64), -EFBIG);
}

static void expect_archive(const char *path, const char *wanted)
{
    size_t length;
    const char *name = zip_archive_of(path, &length);
    cr_assert(length == strlen(wanted) && memcmp(name, wanted, length) == 0, "%s: %.*s", path,
              (int)length, name);
}

Test(zip, archive_is_named_as_torch_does_it)
{
    expect_archive("/a/b/model.pt", "model");
    expect_archive("model.tar.pt", "model.tar");
    expect_archive("/a.b/model", "model");
    expect_archive("/a/.pt", "archive");
    expect_archive("/\xc3\xa4/model.pt", "archive");
}

Test(crc, pieces_join_to_the_whole)
{
    uint8_t bytes[3000];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 31 + i / 7);
    uint32_t whole = crc_of(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut += 271)
        assert_u64(crc_joined(crc_of(0, bytes, cut), crc_of(0, bytes + cut, sizeof bytes - cut),
                              sizeof bytes - cut),
                   whole);
    assert_u64(crc_of(crc_of(0, bytes, 100), bytes + 100, sizeof bytes - 100), whole);
    assert_u64(crc_of(0, "123456789", 9), 0xcbf43926u);
}
