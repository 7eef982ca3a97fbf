// SPDX-License-Identifier: Apache-2.0
/* A sample tells whether a range of memory was changed by one who changes much of it: an update of
 * parameters, an average that is swapped in. It reads a cache line in every 64 KiB, so that a call
 * can take samples of all that it names. What changes between the lines is not seen. Pure. */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t sample_of(const void *bytes, size_t length);
