// SPDX-License-Identifier: Apache-2.0
/* Golden files: bytes that must not change unseen are compared with files that were written once.
 * After a change that is meant, CAIRN_WRITE_GOLDEN=1 writes them anew. */
#pragma once

#include <fcntl.h>

#include "../expect.h"
#include "base/io.h"

static inline char *golden_path(const char *name)
{
    const char *directory = getenv("CAIRN_GOLDEN");
    cr_assert_not_null(
        directory,
        "run by meson test, or set CAIRN_GOLDEN to the directory golden beside the test's source");
    return xasprintf("%s/%s.bin", directory, name);
}

/* The caller frees it. */
static inline char *golden_read(const char *name, size_t *ret_len)
{
    _cleanup_free_ char *path = golden_path(name);
    char *data = NULL;
    assert_i64(io_read_file(path, 1 << 20, &data, ret_len), 0, "%s", path);
    return data;
}

static inline void golden_write(const char *name, const void *data, size_t len)
{
    _cleanup_free_ char *path = golden_path(name);
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    cr_assert_geq(fd, 0);
    assert_i64(io_pwrite_full(fd, data, len, 0), 0);
}

static inline void golden_compare(const char *name, const void *data, size_t len)
{
    if (getenv("CAIRN_WRITE_GOLDEN"))
        golden_write(name, data, len);
    size_t golden_len;
    _cleanup_free_ char *golden = golden_read(name, &golden_len);
    assert_u64(golden_len, len, "%s", name);
    cr_assert_arr_eq(golden, data, len, "%s", name);
}
