// SPDX-License-Identifier: Apache-2.0
/* A run in memory, as reader and writer want it. */
#pragma once

#include "base/base.h"

struct run_file {
    uint8_t *at;
    size_t len;
};

static inline int run_file_get(uint64_t offset, void *buf, size_t len, void *arg)
{
    const struct run_file *file = arg;
    check(offset <= file->len && len <= file->len - offset);
    memcpy(buf, file->at + offset, len);
    return 0;
}

static inline int run_file_put(const void *buf, size_t len, void *arg)
{
    struct run_file *file = arg;
    file->at = xrealloc(file->at, file->len + len);
    memcpy(file->at + file->len, buf, len);
    file->len += len;
    return 0;
}
