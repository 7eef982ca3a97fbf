// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>

#include "base/io.h"
#include "expect.h"

/* Flips these bits of `length` bytes of a file, from `offset` on. */
static inline void spoil_file(const char *path, uint64_t offset, size_t length, uint8_t bits)
{
    _cleanup_close_ int fd = open(path, O_RDWR | O_CLOEXEC);
    _cleanup_free_ uint8_t *bytes = xmalloc(length);
    cr_assert_geq(fd, 0, "%s", path);
    assert_i64(io_pread_full(fd, bytes, length, offset), 0);
    for (size_t i = 0; i < length; i++)
        bytes[i] ^= bits;
    assert_i64(io_pwrite_full(fd, bytes, length, offset), 0);
}
