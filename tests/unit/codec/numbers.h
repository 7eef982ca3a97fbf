// SPDX-License-Identifier: Apache-2.0
/* Content for the encoders: what tensors look like, and what nothing looks like. Made of integers
 * only, so it is the same everywhere. */
#pragma once

#include "../base/seeded.h"
#include "base/base.h"

enum numbers {
    NUMBERS_NOISE,
    NUMBERS_BF16,        /* weights: exponents as those of a normal distribution, both signs */
    NUMBERS_F32,         /* the same in 32 bits */
    NUMBERS_F32_ROWS,    /* second moments: no sign, exponents that drift slowly */
    NUMBERS_F32_MATRIX,  /* the same as a column times a row, of rows of 192 */
    NUMBERS_BF16_MATRIX, /* first moments in 16 bits */
    NUMBERS_F64,
    NUMBERS_I64,   /* small, as token numbers */
    NUMBERS_BYTES, /* quantized: 8 bits, most near zero */
    NUMBERS_ZEROS,
    NUMBERS_NANS,      /* every pattern of NaN and infinity, and zeros of both signs */
    NUMBERS_DENORMALS, /* of 32 bits */
    NUMBERS_MIXED,     /* 16 and 32 bits in turns */
    NUMBERS_TEXT,
    NUMBERS_KINDS,
};

/* Fills `len` bytes; the first element begins `shift` bytes before them. */
void numbers_fill(enum numbers kind, struct seeded *s, uint8_t *buf, size_t len, size_t shift);
