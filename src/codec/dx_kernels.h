// SPDX-License-Identifier: Apache-2.0
/* The inner loops of dx, once for each instruction set; all return the same as the scalar ones.
 * Counts are always multiples of FX_GROUP, widths 2, 4 or 8. Pure; any thread. */
#pragma once

#include "codec/fx_kernels.h"

#define DX_CLASSES_MAX 16u
#define DX_SLACK 64u /* bytes that must be readable, or writable, behind fields */

/* Classes of elements by the exponent of the base's element; its highest 8 bits count. Exponents up
 * to `first` are class 0, the next one is class 1, and so on; first + count - 1 and all above are
 * the last class. */
struct dx_classes {
    uint8_t count; /* 1: all elements are of one class; up to DX_CLASSES_MAX */
    uint8_t shift; /* lowest bits of the 8 that do not count */
    uint8_t first; /* of the exponents after that shift */
    /* number of lengths that an element can have; count * lengths is less than 256 */
    uint8_t lengths;
};

/* Elements as their differences to those of a base, zigzag. Byte p of a difference is in low[p],
 * for p < `low_planes`, which is less than `width`. The remaining upper part has as many bits as
 * its entry in `lengths`; the bits below its highest one, its field, are in `fields`, the first
 * element in the lowest bits. */
struct dx_elements {
    const uint8_t *base;
    size_t count;
    unsigned width, low_planes;
    uint8_t *low[8], *lengths, *fields;
};

struct dx_kernels {
    const struct fx_kernels *fx;
    /* Splits the elements at `src` into planes, lengths and fields. Returns how many bits the
     * fields take. */
    size_t (*take_apart)(const struct dx_elements *elements, const uint8_t *src);
    /* The reverse. Lengths are at most 8 * (width - low_planes). */
    void (*put_together)(const struct dx_elements *elements, uint8_t *dst);
    /* Adds to each value the element's class times `classes->lengths`, modulo 256. */
    void (*add_classes)(const uint8_t *base, size_t count, unsigned width,
                        const struct dx_classes *classes, uint8_t *values);
    /* Returns the bits of the fields of elements of these lengths. False: one length is more than
     * `most`. */
    bool (*field_bits)(const uint8_t *lengths, size_t count, uint8_t most, size_t *ret);
};

/* Expands `function` for each layout of elements, so that the layout is a constant in the loop;
 * `wide` for elements of 8 bytes. */
#define DX_BY_LAYOUT(function, wide, elements, at)                                                 \
    ((elements)->width == 8 ? wide                                                                 \
     : (elements)->width == 2                                                                      \
         ? ((elements)->low_planes ? function(elements, at, 2, 1) : function(elements, at, 2, 0))  \
     : (elements)->low_planes == 0 ? function(elements, at, 4, 0)                                  \
     : (elements)->low_planes == 1 ? function(elements, at, 4, 1)                                  \
     : (elements)->low_planes == 2 ? function(elements, at, 4, 2)                                  \
                                   : function(elements, at, 4, 3))

CPU_KERNELS(dx)
