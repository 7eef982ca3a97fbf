// SPDX-License-Identifier: Apache-2.0
/* A growable array of one type.
 *
 *     VECTOR(uint64_t) packs = {0};               one without a name, in a function or a struct
 *     DEFINE_VECTOR(piece_list, struct piece);    struct piece_list, to be passed on
 *
 *     vector_add(&packs, 7);
 *     for (size_t i = 0; i < packs.count; i++)
 *         use(packs.at[i]);
 *     vector_free(&packs);                        or declared _cleanup_vector_
 *
 *     struct bytes block = {0};                   a buffer
 *     put_le32(bytes_extend(&block, 4), crc);
 *
 * {0} is an empty one, and has no memory. `at` moves when it grows: a pointer to an element holds
 * until the next is added. The macros evaluate `v` several times. The owner's lock guards it. Only
 * for control structures, as xmalloc(): the caller bounds what comes from a disk or a network. A
 * size that overflows is a bug of our own, and ends the process. */
#pragma once

#include "base/base.h"

#define VECTOR(type)                                                                               \
    struct {                                                                                       \
        type *at;                                                                                  \
        size_t count, capacity;                                                                    \
    }
#define DEFINE_VECTOR(name, type)                                                                  \
    struct name {                                                                                  \
        type *at;                                                                                  \
        size_t count, capacity;                                                                    \
    }

/* Makes room for `more` elements behind the last. */
#define vector_reserve(v, more)                                                                    \
    ((v)->capacity - (v)->count < (size_t)(more)                                                   \
         ? (void)((v)->at =                                                                        \
                      vector_grow((v)->at, &(v)->capacity, sizeof *(v)->at, (v)->count, (more)))   \
         : (void)0)

/* The place of one more element, whose content is undefined. */
#define vector_next(v) (vector_reserve((v), 1), &(v)->at[(v)->count++])

#define vector_add(v, ...)                                                                         \
    do {                                                                                           \
        __typeof__(*(v)->at) vector_added = (__VA_ARGS__);                                         \
        *vector_next(v) = vector_added;                                                            \
    } while (0)

/* Adds `n` elements from `items`, which lie elsewhere. */
#define vector_add_all(v, items, n)                                                                \
    do {                                                                                           \
        const __typeof__(*(v)->at) *vector_items = (items);                                        \
        size_t vector_more = (n);                                                                  \
        vector_reserve((v), vector_more);                                                          \
        if (vector_more)                                                                           \
            memcpy((v)->at + (v)->count, vector_items, vector_more * sizeof *(v)->at);             \
        (v)->count += vector_more;                                                                 \
    } while (0)

/* `compare` as for qsort() and bsearch(). An empty vector is fine. */
#define vector_sort(v, compare) vector_sort_bytes((v)->at, (v)->count, sizeof *(v)->at, (compare))

/* Sorts uint64_t, and leaves each once. */
#define vector_sort_unique(v) ((v)->count = sort_unique_u64((v)->at, (v)->count))

/* Finds an element that equals *key in a sorted vector; NULL: none. */
#define vector_search(v, key, compare)                                                             \
    ((__typeof__((v)->at))vector_search_bytes((key), (v)->at, (v)->count, sizeof *(v)->at,         \
                                              (compare)))

/* Does a vector of uint64_t, in any order, contain the number `x`? */
#define vector_has(v, x) has_u64((v)->at, (v)->count, (x))

/* Frees the memory; the vector is empty then. */
#define vector_free(v)                                                                             \
    do {                                                                                           \
        free((v)->at);                                                                             \
        (v)->at = NULL;                                                                            \
        (v)->count = (v)->capacity = 0;                                                            \
    } while (0)

/* `at` is the first member of each. */
#define _cleanup_vector_ __attribute__((cleanup(cleanup_free)))

/* Used by the macros only. */
void *vector_grow(void *at, size_t *capacity, size_t size, size_t count, size_t more);
void vector_sort_bytes(void *at, size_t count, size_t size,
                       int (*compare)(const void *, const void *));
void *vector_search_bytes(const void *key, const void *at, size_t count, size_t size,
                          int (*compare)(const void *, const void *));

/* Sorts numbers in place and removes duplicates; returns how many remain. */
size_t sort_unique_u64(uint64_t *at, size_t count);
bool has_u64(const uint64_t *at, size_t count, uint64_t x);

/* Orders uint64_t, and structs that begin with one, ascending. */
int compare_u64(const void *a, const void *b);

DEFINE_VECTOR(bytes, uint8_t);

/* Appends `n` bytes, whose content is undefined, and returns a pointer to them: never NULL. */
static inline uint8_t *bytes_extend(struct bytes *bytes, size_t n)
{
    vector_reserve(bytes, max_u64(n, 1));
    bytes->count += n;
    return bytes->at + bytes->count - n;
}
