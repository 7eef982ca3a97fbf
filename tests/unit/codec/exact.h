// SPDX-License-Identifier: Apache-2.0
/* Buffers of exactly one length, so that a sanitizer sees a byte read or written past them. */
#pragma once

#include "base/base.h"

struct exact {
    uint8_t *bytes;
    size_t len;
};

static inline void exact_done(struct exact *e)
{
    free(e->bytes);
}

#define _cleanup_exact_ __attribute__((cleanup(exact_done)))

static inline struct exact exact_new(size_t len)
{
    return (struct exact){xmalloc(len ? len : 1), len};
}

static inline struct exact exact_of(const void *bytes, size_t len)
{
    struct exact e = exact_new(len);
    if (len)
        memcpy(e.bytes, bytes, len);
    return e;
}
