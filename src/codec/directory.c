// SPDX-License-Identifier: Apache-2.0
/* Each field is as hostile as the file: lengths are compared before they are added to, and an entry
 * is accepted only where its local header directly follows the entry before. */
#include "codec/directory.h"

#include "format/le.h"

#define END_LEN 22u
#define LOCATOR_LEN 20u
#define END64_LEN 56u
#define ENTRY_LEN 46u
#define EXTRA_MAX 65535u
/* An entry takes 16 bytes of memory; for more entries than this, a scan is the cheaper way. */
#define ENTRIES_MAX 65536u
#define BIG 0xffffffffu  /* the value is in the zip64 field */
#define STREAMED 0x0008u /* a descriptor of 16 or of 24 bytes follows the data */

enum {
    LOCAL_HEADER = 0x04034b50,
    CENTRAL_HEADER = 0x02014b50,
    END_RECORD = 0x06054b50,
    END64_RECORD = 0x06064b50,
    LOCATOR = 0x07064b50,
};

struct end {
    uint64_t at; /* of the first end record: where the directory ends */
    uint64_t offset, length, count;
};

struct entry {
    uint64_t header, size;
    bool is_streamed;
    uint64_t next; /* the next entry of the directory */
};

static bool read_directory_at(struct rope *c, uint64_t at, void *buf, size_t len)
{
    return at >= c->start && rope_copy(c, at, buf, len) == len;
}

/* Reads the record that the locator names, which must lie directly before the locator. */
static bool read_end64(struct rope *c, uint64_t locator, struct end *end)
{
    uint8_t p[LOCATOR_LEN + END64_LEN];
    if (locator < END64_LEN || !read_directory_at(c, locator - END64_LEN, p, sizeof p) ||
        get_le32(p) != END64_RECORD || get_le32(p + END64_LEN) != LOCATOR ||
        get_le64(p + END64_LEN + 8) != locator - END64_LEN)
        return false;
    *end = (struct end){.at = locator - END64_LEN,
                        .count = get_le64(p + 32),
                        .length = get_le64(p + 40),
                        .offset = get_le64(p + 48)};
    return true;
}

static bool read_directory_end(struct rope *c, struct end *end)
{
    uint8_t p[END_LEN];
    if (c->end < END_LEN || !read_directory_at(c, c->end - END_LEN, p, sizeof p) ||
        get_le32(p) != END_RECORD || get_le16(p + 20) != 0)
        return false;
    *end = (struct end){.at = c->end - END_LEN,
                        .count = get_le16(p + 10),
                        .length = get_le32(p + 12),
                        .offset = get_le32(p + 16)};
    if (end->at >= LOCATOR_LEN)
        (void)read_end64(c, end->at - LOCATOR_LEN, end);
    return end->offset <= end->at && end->at - end->offset == end->length && end->count > 0 &&
           end->count <= ENTRIES_MAX && end->count <= end->length / ENTRY_LEN;
}

/* Returns the value, or if it is BIG the one from the zip64 field. */
static uint64_t widen_value(uint32_t value, struct cursor *field)
{
    return value == BIG ? cursor_le64(field) : value;
}

/* Returns the field with tag 1 among the extra fields; empty if there is none. */
static struct cursor zip64_field(const uint8_t *extra, size_t len)
{
    while (len >= 4) {
        size_t field = get_le16(extra + 2);
        if (field > len - 4)
            break;
        if (get_le16(extra) == 1)
            return (struct cursor){.at = extra + 4, .end = extra + 4 + field};
        extra += 4 + field;
        len -= 4 + field;
    }
    return (struct cursor){.at = extra, .end = extra};
}

static bool read_directory_entry(struct rope *c, uint64_t at, struct entry *entry)
{
    uint8_t p[ENTRY_LEN];
    if (!read_directory_at(c, at, p, sizeof p) || get_le32(p) != CENTRAL_HEADER)
        return false;
    size_t name_len = get_le16(p + 28), extra_len = get_le16(p + 30),
           comment_len = get_le16(p + 32);
    uint32_t size = get_le32(p + 20), raw_size = get_le32(p + 24), header = get_le32(p + 42);
    *entry = (struct entry){.header = header,
                            .size = size,
                            .is_streamed = get_le16(p + 8) & STREAMED,
                            .next = at + ENTRY_LEN + name_len + extra_len + comment_len};
    if (size != BIG && raw_size != BIG && header != BIG)
        return true;
    _cleanup_free_ uint8_t *extra = xmalloc(EXTRA_MAX);
    if (!read_directory_at(c, at + ENTRY_LEN + name_len, extra, extra_len))
        return false;
    struct cursor field = zip64_field(extra, extra_len);
    (void)widen_value(raw_size, &field);
    entry->size = widen_value(size, &field);
    entry->header = widen_value(header, &field);
    return !field.failed;
}

/* Reads the entry's local header, and checks that header and data lie in the file; *ret_end is
 * where the data end. */
static bool read_header(struct rope *c, const struct entry *entry, uint64_t *ret_end)
{
    uint8_t p[MARKER_LEN];
    if (!read_directory_at(c, entry->header, p, sizeof p) || get_le32(p) != LOCAL_HEADER)
        return false;
    uint64_t data = entry->header + MARKER_LEN + get_le16(p + 26) + get_le16(p + 28);
    if (data > c->end || entry->size > c->end - data)
        return false;
    *ret_end = data + entry->size;
    return true;
}

/* Returns whether `next` comes directly behind data that end at `end`. */
static bool comes_behind(uint64_t end, bool is_streamed, uint64_t next)
{
    return is_streamed ? next == end + 16 || next == end + 24 : next == end;
}

/* Walks the directory and the local headers that it names, each with a cursor of its own, as both
 * ascend. */
static bool walk_entries(struct rope *c, const struct end *end, struct marker *markers,
                         size_t *ret_count)
{
    struct rope headers = *c;
    struct marker central;
    uint64_t at = end->offset, data_end = 0;
    bool has_central = false, was_streamed = false;
    for (uint64_t i = 0; i < end->count; i++) {
        struct entry entry;
        if (!read_directory_entry(c, at, &entry) ||
            !comes_behind(data_end, was_streamed, entry.header) ||
            !read_header(&headers, &entry, &data_end))
            return false;
        /* An entry that rope.h does not define as a marker (one without data, say) is none here
         * either, and neither is its entry in the directory. */
        *ret_count +=
            rope_find_marker(&headers, entry.header, entry.header + 1, &markers[*ret_count]);
        has_central = has_central || rope_find_marker(c, at, at + 1, &central);
        was_streamed = entry.is_streamed;
        at = entry.next;
    }
    if (has_central)
        markers[(*ret_count)++] = central;
    return at == end->at && comes_behind(data_end, was_streamed, end->offset);
}

bool directory_read(const struct rope *rope, struct marker **ret_markers, size_t *ret_count)
{
    struct rope c = *rope;
    struct end end;
    if (c.start != 0 || !read_directory_end(&c, &end))
        return false;
    struct marker *markers = xcalloc(end.count + 1, sizeof *markers);
    size_t count = 0;
    if (!walk_entries(&c, &end, markers, &count)) {
        free(markers);
        return false;
    }
    *ret_markers = markers;
    *ret_count = count;
    return true;
}
