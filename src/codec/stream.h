// SPDX-License-Identifier: Apache-2.0
/* Copies of what is not looked at again soon. Pure; any thread. */
#pragma once

#include "base/base.h"

/* As memcpy(), but past the caches where the processor has stores for that: memory that is only
 * written is not read first, and does not push out what the caches hold. On return all threads see
 * the bytes, and devices too. */
void stream_copy(void *dst, const void *src, size_t len);
