// SPDX-License-Identifier: Apache-2.0
/* CRC-32 (zlib's) of the bytes of a save, as fast as the machine can. Pure, any thread. */
#pragma once

#include "base/base.h"

/* Continues `crc` (0 to begin) over `len` bytes. */
uint32_t crc_of(uint32_t crc, const void *data, size_t len);

/* The CRC of A followed by B, from both CRCs and the length of B. */
uint32_t crc_joined(uint32_t a, uint32_t b, uint64_t b_length);
