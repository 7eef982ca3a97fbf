// SPDX-License-Identifier: Apache-2.0
#include "base/vector.h"

#define CAPACITY_MIN 16u

void *vector_grow(void *at, size_t *capacity, size_t size, size_t count, size_t more)
{
    check(count <= *capacity && more <= SIZE_MAX / 2 / size - count);
    size_t grown = max_u64(*capacity > SIZE_MAX / 4 / size ? 0 : 2 * *capacity, CAPACITY_MIN);
    *capacity = max_u64(grown, count + more);
    return xrealloc(at, *capacity * size);
}

void vector_sort_bytes(void *at, size_t count, size_t size,
                       int (*compare)(const void *, const void *))
{
    if (count > 1)
        qsort(at, count, size, compare);
}

void *vector_search_bytes(const void *key, const void *at, size_t count, size_t size,
                          int (*compare)(const void *, const void *))
{
    return count ? bsearch(key, at, count, size, compare) : NULL;
}

size_t sort_unique_u64(uint64_t *at, size_t count)
{
    size_t left = 0;
    vector_sort_bytes(at, count, sizeof *at, compare_u64);
    for (size_t i = 0; i < count; i++)
        if (left == 0 || at[left - 1] != at[i])
            at[left++] = at[i];
    return left;
}

bool has_u64(const uint64_t *at, size_t count, uint64_t x)
{
    for (size_t i = 0; i < count; i++)
        if (at[i] == x)
            return true;
    return false;
}

int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}
