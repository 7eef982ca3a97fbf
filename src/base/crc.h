// SPDX-License-Identifier: Apache-2.0
/* CRC-32 (zlib's) of records, indexes and headers: finds torn and flipped bytes; never an identity.
 * Pure. */
#pragma once

#include "base/base.h"

/* Continues `crc` (0 to begin) over `len` bytes. */
uint32_t crc32_of(uint32_t crc, const void *buf, size_t len);
