// SPDX-License-Identifier: Apache-2.0
/* What the fuzz targets share. A target is given bytes: whatever they are, it must neither crash
 * nor read past them, and check()s what must hold of all that decodes. */
#pragma once

#include <stdio.h>

#include "base/base.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Of exactly that length, so that a byte read past its end is found. */
static inline uint8_t *exact_copy(const void *data, size_t size)
{
    uint8_t *copy = xmalloc(size ? size : 1);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

/* The same as a string; it ends at the first zero byte, as everything that is handed on as a string
 * does. */
static inline char *text_copy(const void *data, size_t size)
{
    char *text = xmalloc(size + 1);
    if (size)
        memcpy(text, data, size);
    text[size] = '\0';
    return text;
}

/* A new directory, on a disk or in memory. The target removes it at exit; where it crashes, the
 * test that gave TMPDIR and SHMDIR does. */
static inline void make_directory(bool in_memory, char path[128])
{
    const char *base = getenv(in_memory ? "SHMDIR" : "TMPDIR");
    (void)snprintf(path, 128, "%s/cairn-test-XXXXXX",
                   base        ? base
                   : in_memory ? "/dev/shm"
                               : "/tmp");
    check(mkdtemp(path));
}

/* Defines name(p, size, ret): whether a struct of `len` encoded bytes decodes. What does is encoded
 * to the same bytes. */
#define DEFINE_DECODE(name, type, decode, encode, len)                                             \
    static bool name(const uint8_t *p, size_t size, struct type *ret)                              \
    {                                                                                              \
        uint8_t again[len];                                                                        \
        if (decode(p, size, ret) < 0)                                                              \
            return false;                                                                          \
        encode(ret, again);                                                                        \
        check(memcmp(again, p, sizeof again) == 0);                                                \
        return true;                                                                               \
    }

/* An input that is taken apart, from its front. Past the end it yields zeros. */
struct input {
    const uint8_t *at;
    size_t left;
};

static inline const uint8_t *input_bytes(struct input *in, size_t len)
{
    const uint8_t *p = in->at;
    check(len <= in->left);
    in->at += len;
    in->left -= len;
    return p;
}

static inline uint8_t input_u8(struct input *in)
{
    return in->left ? *input_bytes(in, 1) : 0;
}

static inline uint16_t input_u16(struct input *in)
{
    uint8_t low = input_u8(in);
    return (uint16_t)(low | input_u8(in) << 8);
}
