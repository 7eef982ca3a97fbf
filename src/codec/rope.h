// SPDX-License-Identifier: Apache-2.0
/* A range of file content that lies in several buffers, read by file offset; and the scan for zip
 * headers in it. Pure; one thread at a time for one struct rope. */
#pragma once

#include <sys/uio.h>

#include "base/base.h"

/* A zip header as torch writes it, at least 30 bytes: the local header of an entry ("PK\3\4",
 * streamed, stored), or an entry of the central directory ("PK\1\2", the same flags), which ends
 * the last entry's data. */
#define MARKER_LEN 30u

struct rope {
    const struct iovec *iov;
    size_t iov_count;
    uint64_t start, end; /* file offsets */
    size_t at;           /* the buffer that was used last, and its file offset */
    uint64_t at_offset;
};

struct marker {
    uint64_t at;   /* file offset */
    uint64_t data; /* where the entry's data begin; 0 for the central directory */
};

void rope_init(struct rope *c, const struct iovec *iov, size_t iov_count, uint64_t offset);

/* Copies the bytes from file offset `from` on; fewer than `len` at the end of the content. Returns
 * how many. */
size_t rope_copy(struct rope *c, uint64_t from, void *buf, size_t len);

/* Returns the `len` bytes from file offset `from` on, all of which must lie in the content: a
 * pointer to their place if one buffer holds them, else to a copy in `buf`. */
const uint8_t *rope_bytes(struct rope *c, uint64_t from, size_t len, void *buf);

/* Finds the first marker that begins in [from, limit). A marker of which the content has less than
 * MARKER_LEN bytes is not found. */
bool rope_find_marker(struct rope *c, uint64_t from, uint64_t limit, struct marker *ret_marker);
