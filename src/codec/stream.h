// SPDX-License-Identifier: Apache-2.0
/* Copies of bytes that are not read again soon. Pure; any thread. */
#pragma once

#include "base/base.h"

/* As memcpy(), but past the caches where the processor has stores for this: the target is not read
 * before it is written, and does not evict other data from the caches. On return all threads see
 * the bytes, and devices too. */
void stream_copy(void *dst, const void *src, size_t len);
