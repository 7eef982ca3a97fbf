// SPDX-License-Identifier: Apache-2.0
#include "base/crc.h"

#include <zlib.h>

uint32_t crc32_of(uint32_t crc, const void *buf, size_t len)
{
    return (uint32_t)crc32_z(crc, buf, len);
}
