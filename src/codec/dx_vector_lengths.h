// SPDX-License-Identifier: Apache-2.0
/* The work of dx on lengths in vectors, written once for all sets of instructions. A file that
 * includes this says before it, besides what dx_vectors.h asks for:
 *
 *   all_bytes(b)               each byte b
 *   larger_bytes(a, b)         of each two bytes the larger one
 *   table_16, load_table(p)    16 bytes
 *   look_up(table, v)          for each byte, which is less than 16, that of the table
 *   exponents_of(base, width)  highest 8 bits below the sign; as many as a vector has bytes
 *   class_of(e, first, last)   e - first, from 0 to last
 *   sums_of_fields(n)          of 8 bytes each the sum, of bytes that are less by one or 0 */
#pragma once

#include "codec/dx_vectors.h"

typedef uint8_t vec_8 __attribute__((vector_size(sizeof(vec))));

static void add_classes(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values)
{
    check(classes->count >= 1 && classes->count <= DX_CLASSES_MAX);
    if (width == 8) {
        dx_scalar.add_classes(base, count, width, classes, values);
        return;
    }
    uint8_t times[DX_CLASSES_MAX];
    for (unsigned i = 0; i < DX_CLASSES_MAX; i++)
        times[i] = (uint8_t)(i * classes->lengths);
    const vec first = all_bytes(classes->first), last = all_bytes((uint8_t)(classes->count - 1)),
              left = all_bytes(0xff >> classes->shift);
    const table_16 add = load_table(times);
    for (size_t i = 0; i < count; i += sizeof(vec)) {
        vec_16 e = (vec_16)exponents_of(base + i * width, width) >> classes->shift & (vec_16)left;
        vec_8 more = (vec_8)look_up(add, class_of((vec)e, first, last));
        store_vec(values + i, (vec)((vec_8)load_vec(values + i) + more));
    }
}

static size_t field_bits(const uint8_t *lengths, size_t count, uint8_t *ret_longest)
{
    vec sum = all_bytes(0), longest = sum;
    for (size_t i = 0; i < count; i += sizeof(vec)) {
        vec v = load_vec(lengths + i);
        sum = (vec)((vec_64)sum + (vec_64)sums_of_fields(v));
        longest = larger_bytes(longest, v);
    }
    uint8_t each[sizeof(vec)], most = 0;
    uint64_t sums[sizeof(vec) / 8], all = 0;
    store_vec(each, longest);
    store_vec(sums, sum);
    for (size_t k = 0; k < ARRAY_LEN(each); k++)
        most = each[k] > most ? each[k] : most;
    for (size_t k = 0; k < ARRAY_LEN(sums); k++)
        all += sums[k];
    *ret_longest = most;
    return all;
}
