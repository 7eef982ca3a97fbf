// SPDX-License-Identifier: Apache-2.0
#include "client/crc.h"

#include <zlib.h>

#ifdef CAIRN_HAVE_ISAL
#include <isa-l/crc.h>
#endif

uint32_t crc_of(uint32_t crc, const void *data, size_t len)
{
#ifdef CAIRN_HAVE_ISAL
    return crc32_gzip_refl(crc, data, len);
#else
    return (uint32_t)crc32_z(crc, data, len);
#endif
}

uint32_t crc_joined(uint32_t a, uint32_t b, uint64_t b_length)
{
    return (uint32_t)crc32_combine(a, b, (z_off_t)b_length);
}
