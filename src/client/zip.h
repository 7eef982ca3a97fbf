// SPDX-License-Identifier: Apache-2.0
/* The layout of a zip archive as torch.save writes it: known before a byte of content is, but for
 * the CRCs, which stand behind the content: in data descriptors and in the directory. Pure: no I/O,
 * no locks. docs/man/libcairn.3 describes the part of the format that is used.
 *
 * A file is, for each record: local header with the name and padding up to the alignment; content,
 * stored; unless the content is empty a descriptor (16 bytes, 24 where size or place need zip64).
 * Then the directory and three ends (zip64, its locator, the plain one). */
#pragma once

#include "base/base.h"

#define ZIP_ALIGNMENT 64u
/* The padding stands in an extra field, whose length has 16 bits. */
#define ZIP_ALIGNMENT_MAX 32768u

struct zip_entry {
    const char *name; /* lent: after the archive's name and a slash */
    uint64_t start;   /* of the local header */
    uint64_t data;
    uint64_t size;
    uint32_t crc; /* for zip_descriptor() and zip_end() */
};

struct zip {
    const char *archive;
    size_t archive_length;
    uint32_t alignment;
    /* the caller's; name and size are set by it, start and data by zip_plan() */
    struct zip_entry *entries;
    size_t count;
    uint64_t directory; /* offset; the end of the last record */
    uint64_t file_size;
};

/* Lays out the entries. -EINVAL, with cause: an alignment that is no power of two in 1 to
 * ZIP_ALIGNMENT_MAX, a name that is empty or too long; -EFBIG: more than 2^62 bytes. */
CAIRN_MUST_CHECK int zip_plan(struct zip *zip);

/* Bytes of the local header with its padding: entry->data - entry->start. */
void zip_header(const struct zip *zip, const struct zip_entry *entry, uint8_t *ret);

#define ZIP_DESCRIPTOR_MAX 24u
/* Bytes written: 0, 16 or 24. */
size_t zip_descriptor(const struct zip_entry *entry, uint8_t ret[ZIP_DESCRIPTOR_MAX]);

/* The directory and the ends: file_size - directory bytes. */
void zip_end(const struct zip *zip, uint8_t *ret);

/* The name of the archive that torch.save gives to a file of this name: without directory and
 * suffix; "archive" where torch writes through an open file. *ret_length bytes of the result count.
 */
const char *zip_archive_of(const char *file_name, size_t *ret_length);
