// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdio.h>
#include <stdlib.h>

/* realloc of so many elements, or the end of the program. */
static inline void *grow(void *old, size_t count, size_t size)
{
    void *new = reallocarray(old, count, size);
    if (!new) {
        (void)fprintf(stderr, "model: no memory\n");
        exit(4);
    }
    return new;
}
