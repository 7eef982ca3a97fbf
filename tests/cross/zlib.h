// SPDX-License-Identifier: Apache-2.0
/* In place of zlib, where there is none for the processor that tests are compiled for. */
#pragma once

#include <stddef.h>

static inline unsigned long crc32(unsigned long crc, const unsigned char *bytes, size_t len)
{
    crc = ~crc & 0xffffffff;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0xedb88320 & (0 - (crc & 1)));
    }
    return ~crc & 0xffffffff;
}

#define crc32_z crc32
