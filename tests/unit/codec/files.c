// SPDX-License-Identifier: Apache-2.0
#include "files.h"
#include "../expect.h"

#include "../base/seeded.h"
#include "codec/chunker.h"
#include "format/chunk.h"
#include "format/le.h"

static uint8_t *extend(struct file *f, size_t len)
{
    while (f->len + len > f->room) {
        f->room = f->room ? f->room * 2 : 4096;
        f->data = xrealloc(f->data, f->room);
    }
    f->len += len;
    return f->data + f->len - len;
}

void file_noise(struct file *f, size_t len)
{
    struct seeded s = {f->len};
    uint8_t *p = extend(f, len);
    for (size_t i = 0; i + 8 <= len; i += 8)
        put_le64(p + i, seeded_u64(&s));
    for (size_t i = len / 8 * 8; i < len; i++)
        p[i] = 7;
}

void file_write(struct file *f, size_t len)
{
    f->writes[f->write_count++] = f->len;
    file_noise(f, len);
}

void file_text(struct file *f, const char *header)
{
    size_t len = strlen(header);
    uint8_t *p = extend(f, 8 + len);
    put_le64(p, len);
    memcpy(p + 8, header, len);
}

void file_entry(struct file *f, size_t len, uint16_t padding, unsigned descriptor_len)
{
    if (f->entry_count < ARRAY_LEN(f->entries)) {
        f->entries[f->entry_count].header = f->len;
        f->entries[f->entry_count++].len = len;
    }
    uint8_t *p = extend(f, 30u + 9 + padding);
    memset(p, 'Z', 30u + 9 + padding);
    memset(p, 0, 30);
    put_le32(p, 0x04034b50);
    put_le16(p + 6, 0x0808);
    put_le16(p + 26, 9);
    put_le16(p + 28, padding);
    f->entry_data = f->len;
    file_noise(f, len);
    if (descriptor_len == 0)
        return;
    p = extend(f, descriptor_len);
    memset(p, 0, descriptor_len);
    put_le32(p, 0x08074b50);
    put_le32(p + 8, (uint32_t)len);
    put_le32(p + (descriptor_len == 24 ? 16 : 12), (uint32_t)len);
}

void file_central(struct file *f)
{
    uint8_t *p = extend(f, 46 + 9 + 22);
    memset(p, 0, 46 + 9 + 22);
    put_le32(p, 0x02014b50);
    put_le16(p + 8, 0x0808);
    put_le32(p + 55, 0x06054b50);
}

static void central(struct file *f, uint64_t header, uint64_t len, bool zip64)
{
    uint8_t *p = extend(f, 46u + 9 + (zip64 ? 5 + 28 : 0));
    memset(p, 0, 46u + 9 + (zip64 ? 5 + 28 : 0));
    put_le32(p, 0x02014b50);
    put_le16(p + 8, 0x0808);
    put_le32(p + 20, zip64 ? UINT32_MAX : (uint32_t)len);
    put_le32(p + 24, zip64 ? UINT32_MAX : (uint32_t)len);
    put_le16(p + 28, 9);
    put_le32(p + 42, zip64 ? UINT32_MAX : (uint32_t)header);
    if (!zip64)
        return;
    put_le16(p + 30, 5 + 28);
    put_le16(p + 55, 0x5455); /* another field before it */
    put_le16(p + 57, 1);
    put_le16(p + 60, 1);
    put_le16(p + 62, 24);
    put_le64(p + 64, len);
    put_le64(p + 72, len);
    put_le64(p + 80, header);
}

void file_directory(struct file *f, bool zip64)
{
    uint64_t at = f->len;
    for (size_t i = 0; i < f->entry_count; i++)
        central(f, f->entries[i].header, f->entries[i].len, zip64);
    uint64_t end = f->len;
    uint8_t *p = extend(f, zip64 ? 98 : 22);
    memset(p, 0, zip64 ? 98 : 22);
    if (zip64) {
        put_le32(p, 0x06064b50);
        put_le64(p + 32, f->entry_count);
        put_le64(p + 40, end - at);
        put_le64(p + 48, at);
        put_le32(p + 56, 0x07064b50);
        put_le64(p + 64, end);
        p += 76;
    }
    put_le32(p, 0x06054b50);
    put_le16(p + 10, (uint16_t)f->entry_count);
    put_le32(p + 12, zip64 ? UINT32_MAX : (uint32_t)(end - at));
    put_le32(p + 16, zip64 ? UINT32_MAX : (uint32_t)at);
}

void file_done(struct file *f)
{
    free(f->data);
    *f = (struct file){0};
}

void borders_done(struct borders *b)
{
    free(b->at);
    *b = (struct borders){0};
}

struct borders chunk_whole(const struct file *f)
{
    struct chunker state = {0};
    struct iovec iov = {f->data, f->len};
    struct chunker_input in = {.iov = &iov,
                               .iov_count = f->len > 0,
                               .write_starts = f->writes,
                               .write_count = f->write_count,
                               .is_last = true};
    struct borders b = {.at = xcalloc(f->len / 512 + 16, sizeof *b.at)};
    b.count = chunker_find_borders(&state, &in, b.at, f->len / 512 + 16);
    chunker_done(&state);
    uint64_t last = 0;
    for (size_t i = 0; i < b.count; i++) {
        cr_assert(b.at[i] > last && b.at[i] - last <= CHUNK_SIZE_MAX);
        last = b.at[i];
    }
    assert_u64(last, f->len);
    return b;
}

static size_t split(const struct file *f, struct seeded *s, uint64_t from, uint64_t to,
                    size_t buffer_max, struct iovec **ret_iov)
{
    size_t count = 0, room = 16;
    struct iovec *iov = xcalloc(room, sizeof *iov);
    while (from < to) {
        size_t n = (size_t)min_u64(seeded_below(s, buffer_max + 1), to - from);
        if (count == room)
            iov = xrealloc(iov, (room *= 2) * sizeof *iov);
        iov[count++] = (struct iovec){f->data + from, n};
        from += n;
    }
    *ret_iov = iov;
    return count;
}

static struct borders chunk_calls(const struct file *f, struct chunker *state, struct seeded *s,
                                  size_t call_max, size_t buffer_max)
{
    struct borders b = {.at = xcalloc(f->len / 512 + 16, sizeof *b.at)};
    uint64_t from = 0, to = 0;
    do {
        to = min_u64(to + 1 + seeded_below(s, call_max), f->len);
        _cleanup_free_ struct iovec *iov = NULL;
        size_t iov_count = split(f, s, from, to, buffer_max, &iov), first = 0, end;
        while (first < f->write_count && f->writes[first] < from)
            first++;
        for (end = first; end < f->write_count && f->writes[end] < to;)
            end++;
        struct chunker_input in = {.iov = iov,
                                   .iov_count = iov_count,
                                   .offset = from,
                                   .write_starts = f->writes + first,
                                   .write_count = end - first,
                                   .is_last = to == f->len};
        size_t max = (to - from) / 512 + 16;
        _cleanup_free_ uint64_t *at = xcalloc(max, sizeof *at);
        size_t n = chunker_find_borders(state, &in, at, max);
        memcpy(b.at + b.count, at, n * sizeof *at);
        b.count += n;
        from = n ? at[n - 1] : from;
    } while (to < f->len);
    return b;
}

struct borders chunk_pieces(const struct file *f, struct seeded *s, size_t call_max,
                            size_t buffer_max)
{
    struct chunker state = {0};
    struct borders b = chunk_calls(f, &state, s, call_max, buffer_max);
    chunker_done(&state);
    return b;
}

struct borders chunk_ahead(const struct file *f, struct seeded *s)
{
    struct chunker state = {0};
    size_t buffer_max = 1 + seeded_below(s, 300000);
    _cleanup_free_ struct iovec *iov = NULL;
    size_t iov_count = split(f, s, 0, f->len, buffer_max, &iov);
    chunker_look_ahead(&state, iov, iov_count);
    struct borders b = chunk_calls(f, &state, s, 1 + seeded_below(s, 2 * f->len), buffer_max);
    chunker_done(&state);
    return b;
}

struct borders chunk_in_two(const struct file *f, uint64_t end)
{
    struct chunker state = {0};
    size_t max = f->len / 512 + 16;
    struct borders b = {.at = xcalloc(max, sizeof *b.at)};
    struct iovec iov = {f->data, end};
    struct chunker_input in = {.iov = &iov, .iov_count = 1};
    b.count = chunker_find_borders(&state, &in, b.at, max);
    uint64_t from = b.count ? b.at[b.count - 1] : 0;
    iov = (struct iovec){f->data + from, f->len - from};
    in = (struct chunker_input){.iov = &iov, .iov_count = 1, .offset = from, .is_last = true};
    _cleanup_free_ uint64_t *at = xcalloc(max, sizeof *at);
    size_t n = chunker_find_borders(&state, &in, at, max);
    memcpy(b.at + b.count, at, n * sizeof *at);
    b.count += n;
    chunker_done(&state);
    return b;
}

void expect_same(const struct borders *a, const struct borders *b)
{
    for (size_t i = 0; i < a->count && i < b->count; i++)
        assert_u64(a->at[i], b->at[i], "border %zu: %lu and %lu", i, a->at[i], b->at[i]);
    assert_u64(a->count, b->count, "%zu and %zu borders", a->count, b->count);
}

void expect_borders(const struct file *f, const uint64_t *at, size_t count)
{
    _cleanup_borders_ struct borders whole = chunk_whole(f);
    const struct borders expected = {.at = (uint64_t *)(uintptr_t)at, .count = count};
    if (count)
        expect_same(&whole, &expected);
    struct seeded s = {f->len};
    for (int i = 0; i < 24; i++) {
        size_t call_max = 1 + seeded_below(&s, 2 * f->len + 1);
        _cleanup_borders_ struct borders pieces =
            chunk_pieces(f, &s, call_max, i % 3 ? 1 + seeded_below(&s, 300000) : 100);
        expect_same(&whole, &pieces);
    }
}
