// SPDX-License-Identifier: Apache-2.0
/* Little-endian fields in byte buffers, with a bounded cursor for decoding. Pure. */
#pragma once

#include <endian.h>

#include "base/base.h"

static inline void put_le16(void *p, uint16_t v)
{
    v = htole16(v);
    memcpy(p, &v, sizeof v);
}

static inline void put_le32(void *p, uint32_t v)
{
    v = htole32(v);
    memcpy(p, &v, sizeof v);
}

static inline void put_le64(void *p, uint64_t v)
{
    v = htole64(v);
    memcpy(p, &v, sizeof v);
}

static inline uint16_t get_le16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return le16toh(v);
}

static inline uint32_t get_le32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return le32toh(v);
}

static inline uint64_t get_le64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return le64toh(v);
}

/* Reads fields one after the other. Past the end it yields zeros and `failed` is set: check it
 * once, at the end. */
struct cursor {
    const uint8_t *at;
    const uint8_t *end;
    bool failed;
};

static inline const void *cursor_bytes(struct cursor *c, size_t len)
{
    if (c->failed || (size_t)(c->end - c->at) < len) {
        c->failed = true;
        return NULL;
    }
    const void *p = c->at;
    c->at += len;
    return p;
}

static inline uint8_t cursor_u8(struct cursor *c)
{
    const uint8_t *p = cursor_bytes(c, 1);
    return p ? *p : 0;
}

static inline uint16_t cursor_le16(struct cursor *c)
{
    const void *p = cursor_bytes(c, 2);
    return p ? get_le16(p) : 0;
}

static inline uint32_t cursor_le32(struct cursor *c)
{
    const void *p = cursor_bytes(c, 4);
    return p ? get_le32(p) : 0;
}

static inline uint64_t cursor_le64(struct cursor *c)
{
    const void *p = cursor_bytes(c, 8);
    return p ? get_le64(p) : 0;
}

/* Reserved bytes must be zero: fields of a later version must not be dropped silently. */
static inline bool bytes_are_zero(const void *p, size_t len)
{
    const uint8_t *b = p;
    uint8_t seen = 0;
    for (size_t i = 0; i < len; i++)
        seen |= b[i];
    return seen == 0;
}
