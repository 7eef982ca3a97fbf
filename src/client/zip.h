// SPDX-License-Identifier: Apache-2.0
/* The layout of a zip archive as torch.save writes it. It is known before any content, except the
 * CRCs, which are stored after the content: in data descriptors and in the directory. Pure: no I/O,
 * no locks. docs/man/libcairn.3 describes the part of the format that is used.
 *
 * A file is, for each record: local header with the name and padding up to the alignment; content,
 * stored; unless the content is empty a descriptor (16 bytes, 24 if size or offset need zip64).
 * Then the directory and three end records (zip64, its locator, the plain one). */
#pragma once

#include "base/base.h"

#define ZIP_ALIGNMENT 64u
/* The padding is an extra field, whose length has 16 bits. */
#define ZIP_ALIGNMENT_MAX 32768u

struct zip_entry {
    const char *name; /* borrowed: the part after the archive's name and a slash */
    uint64_t start;   /* of the local header */
    uint64_t data;
    uint64_t size;
    uint32_t crc; /* for zip_descriptor() and zip_end() */
};

struct zip {
    const char *archive;
    size_t archive_length;
    uint32_t alignment;
    /* owned by the caller, which sets name and size; zip_plan() sets start and data */
    struct zip_entry *entries;
    size_t count;
    uint64_t directory; /* offset; also the end of the last record */
    uint64_t file_size;
};

/* Lays out the entries. -EINVAL, with cause: an alignment that is not a power of two from 1 to
 * ZIP_ALIGNMENT_MAX, or a name that is empty or too long; -EFBIG: more than 2^62 bytes. */
CAIRN_MUST_CHECK int zip_plan(struct zip *zip);

/* Writes the local header with its padding: entry->data - entry->start bytes. */
void zip_header(const struct zip *zip, const struct zip_entry *entry, uint8_t *ret);

#define ZIP_DESCRIPTOR_MAX 24u
/* Returns the bytes written: 0, 16 or 24. */
size_t zip_descriptor(const struct zip_entry *entry, uint8_t ret[ZIP_DESCRIPTOR_MAX]);

/* Writes the directory and the end records: file_size - directory bytes. */
void zip_end(const struct zip *zip, uint8_t *ret);

/* The archive name that torch.save uses for a file of this name: without directory and suffix;
 * "archive" if torch writes through an open file. The first *ret_length bytes of the result
 * count. */
const char *zip_archive_of(const char *file_name, size_t *ret_length);
