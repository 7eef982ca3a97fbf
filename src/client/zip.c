// SPDX-License-Identifier: Apache-2.0
#include "client/zip.h"

#include "base/cause.h"
#include "format/le.h"

/* Sizes from here on need zip64, and this value marks replaced fields. */
#define BIG 0xffffffffull
#define SIZE_MAX_SUM (1ull << 62)
#define FIELD_16 0xffffull

enum { LOCAL_BYTES = 30, DIRECTORY_BYTES = 46, END_BYTES = 56 + 20 + 22 };
enum { FLAG_UTF8 = 0x0800, FLAG_DESCRIPTOR = 0x0008 };

static size_t zip_name_length(const struct zip *zip, const struct zip_entry *entry)
{
    return zip->archive_length + 1 + strlen(entry->name);
}

/* Length of the zip64 field of a local header or of the directory: sizes if they need it, then the
 * offset. In a local header torch leaves the second size 0, as the descriptor has it. */
static size_t zip64_length(const struct zip_entry *entry)
{
    size_t fields = 16 * (entry->size >= BIG) + 8 * (entry->start >= BIG);
    return fields ? 4 + fields : 0;
}

static size_t descriptor_length(const struct zip_entry *entry)
{
    if (entry->size == 0)
        return 0;
    return zip64_length(entry) ? 24 : 16;
}

static int check_zip_name(const struct zip *zip, const struct zip_entry *entry)
{
    size_t length = zip_name_length(zip, entry);
    if (entry->name[0] != '\0' && length <= FIELD_16)
        return 0;
    cause_note(entry->name[0] ? "the name of a record has more than 65535 bytes"
                              : "the name of a record is empty");
    return -EINVAL;
}

int zip_plan(struct zip *zip)
{
    uint64_t at = 0, directory = 0;
    if (zip->alignment == 0 || zip->alignment > ZIP_ALIGNMENT_MAX ||
        (zip->alignment & (zip->alignment - 1))) {
        cause_note("alignment %u is not a power of two from 1 to %u", zip->alignment,
                   ZIP_ALIGNMENT_MAX);
        return -EINVAL;
    }
    for (size_t i = 0; i < zip->count; i++) {
        struct zip_entry *entry = &zip->entries[i];
        TRY(check_zip_name(zip, entry));
        if (entry->size >= SIZE_MAX_SUM || at >= SIZE_MAX_SUM) {
            cause_note("the records have more than 2^62 bytes");
            return -EFBIG;
        }
        entry->start = at;
        uint64_t unpadded =
            at + LOCAL_BYTES + zip_name_length(zip, entry) + zip64_length(entry) + 4;
        entry->data = align_up(unpadded, zip->alignment);
        at = entry->data + entry->size + descriptor_length(entry);
        directory += DIRECTORY_BYTES + zip_name_length(zip, entry) + zip64_length(entry);
    }
    zip->directory = at;
    zip->file_size = at + directory + END_BYTES;
    return 0;
}

/* put_field*() write a field and return the position after it. */
static uint8_t *put_field16(uint8_t *p, uint64_t v)
{
    put_le16(p, (uint16_t)v);
    return p + 2;
}

static uint8_t *put_field32(uint8_t *p, uint64_t v)
{
    put_le32(p, (uint32_t)v);
    return p + 4;
}

static uint8_t *put_field64(uint8_t *p, uint64_t v)
{
    put_le64(p, v);
    return p + 8;
}

static uint8_t *put_zip_name(uint8_t *p, const struct zip *zip, const struct zip_entry *entry)
{
    size_t length = strlen(entry->name);
    memcpy(p, zip->archive, zip->archive_length);
    p += zip->archive_length;
    *p++ = '/';
    memcpy(p, entry->name, length);
    return p + length;
}

static uint8_t *put_zip64(uint8_t *p, const struct zip_entry *entry, bool is_local)
{
    size_t length = zip64_length(entry);
    if (length == 0)
        return p;
    p = put_field16(p, 1);
    p = put_field16(p, length - 4);
    if (entry->size >= BIG) {
        p = put_field64(p, entry->size);
        p = put_field64(p, is_local ? 0 : entry->size);
    }
    return entry->start >= BIG ? put_field64(p, entry->start) : p;
}

static uint16_t flags_of(const struct zip_entry *entry)
{
    return entry->size ? FLAG_UTF8 | FLAG_DESCRIPTOR : FLAG_UTF8;
}

void zip_header(const struct zip *zip, const struct zip_entry *entry, uint8_t *ret)
{
    size_t fixed = LOCAL_BYTES + zip_name_length(zip, entry) + zip64_length(entry) + 4;
    size_t padding = (size_t)(entry->data - entry->start) - fixed;
    uint8_t *p = put_field32(ret, 0x04034b50);
    p = put_field16(p, 0); /* version */
    p = put_field16(p, flags_of(entry));
    memset(p, 0, 18); /* method, time, date, CRC, both sizes: the descriptor has them */
    p = put_field16(p + 18, zip_name_length(zip, entry));
    p = put_field16(p, zip64_length(entry) + 4 + padding);
    p = put_zip_name(p, zip, entry);
    p = put_zip64(p, entry, true);
    *p++ = 'F';
    *p++ = 'B';
    p = put_field16(p, padding);
    memset(p, 'Z', padding);
}

size_t zip_descriptor(const struct zip_entry *entry, uint8_t ret[ZIP_DESCRIPTOR_MAX])
{
    size_t length = descriptor_length(entry);
    if (length == 0)
        return 0;
    uint8_t *p = put_field32(ret, 0x08074b50);
    p = put_field32(p, entry->crc);
    for (size_t i = 0; i < 2; i++)
        p = length == 24 ? put_field64(p, entry->size) : put_field32(p, entry->size);
    return length;
}

static uint8_t *put_zip_directory(uint8_t *p, const struct zip *zip, const struct zip_entry *entry)
{
    p = put_field32(p, 0x02014b50);
    p = put_field32(p, 0); /* versions: made by, needed */
    p = put_field16(p, flags_of(entry));
    memset(p, 0, 6); /* method, time, date */
    p = put_field32(p + 6, entry->crc);
    p = put_field32(p, min_u64(entry->size, BIG));
    p = put_field32(p, min_u64(entry->size, BIG));
    p = put_field16(p, zip_name_length(zip, entry));
    p = put_field16(p, zip64_length(entry));
    memset(p, 0, 10); /* comment, disk, attributes */
    p = put_field32(p + 10, min_u64(entry->start, BIG));
    p = put_zip_name(p, zip, entry);
    return put_zip64(p, entry, false);
}

static uint8_t *put_zip_ends(uint8_t *p, const struct zip *zip, uint64_t length)
{
    p = put_field32(p, 0x06064b50);
    p = put_field64(p, 44);     /* bytes that follow */
    p = put_field16(p, 0x031e); /* versions, as miniz says: made by, needed */
    p = put_field16(p, 0x2d);
    p = put_field64(p, 0); /* disks */
    p = put_field64(p, zip->count);
    p = put_field64(p, zip->count);
    p = put_field64(p, length);
    p = put_field64(p, zip->directory);
    p = put_field32(p, 0x07064b50);
    p = put_field32(p, 0);
    p = put_field64(p, zip->directory + length);
    p = put_field32(p, 1);
    p = put_field32(p, 0x06054b50);
    p = put_field32(p, 0);
    p = put_field16(p, min_u64(zip->count, FIELD_16));
    p = put_field16(p, min_u64(zip->count, FIELD_16));
    p = put_field32(p, min_u64(length, BIG));
    p = put_field32(p, min_u64(zip->directory, BIG));
    return put_field16(p, 0);
}

void zip_end(const struct zip *zip, uint8_t *ret)
{
    uint8_t *p = ret;
    for (size_t i = 0; i < zip->count; i++)
        p = put_zip_directory(p, zip, &zip->entries[i]);
    p = put_zip_ends(p, zip, (uint64_t)(p - ret));
    check((uint64_t)(p - ret) == zip->file_size - zip->directory);
}

const char *zip_archive_of(const char *file_name, size_t *ret_length)
{
    const char *slash = strrchr(file_name, '/');
    const char *name = slash ? slash + 1 : file_name;
    const char *dot = strrchr(name, '.');
    bool is_ascii = true;
    for (const char *p = file_name; *p; p++)
        is_ascii = is_ascii && (unsigned char)*p < 0x80;
    *ret_length = dot ? (size_t)(dot - name) : strlen(name);
    if (is_ascii && *ret_length > 0)
        return name;
    *ret_length = strlen("archive");
    return "archive";
}
