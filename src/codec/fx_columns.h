// SPDX-License-Identifier: Apache-2.0
/* Columns: means of a matrix's exponents, by row and by column. Second moments are nearly a column
 * times a row, and first moments are as large as the roots of second moments, so the two means
 * together predict an exponent much better than the elements before it do. The chunk stores how
 * long its rows are, since the shapes of tensors are not known here: a row may be a part of a row
 * of the tensor. Pure; any thread. */
#pragma once

#include "codec/lx.h"

#define FX_ROW_MIN 64u /* elements */
#define FX_ROW_MAX LX_VALUES_MAX
#define FX_ROWS_MAX 8192u

#define FX_ROW_ZEROS 255u /* of_row: the row is not predicted */

/* An exponent is predicted as base + (of_column + of_row) / 4, the sum modulo 256, and the result
 * too. Element 0 of the chunk is element 0 of row 0, whether or not a row of the tensor begins
 * there. */
struct fx_columns {
    size_t row_len, rows; /* row_len 0: there are no columns */
    uint8_t base;
    uint8_t of_column[FX_ROW_MAX], of_row[FX_ROWS_MAX];
};

/* Row lengths that are tried are multiples of this. */
#define FX_ROW_STEP 64u

/* Working memory of fx_columns_find(). */
struct fx_columns_work {
    uint32_t sums[FX_ROW_MAX], counts[FX_ROW_MAX];
    int32_t quarters[FX_ROW_MAX], of_row[FX_ROWS_MAX];
};

/* Finds the columns of `count` exponents, a multiple of FX_GROUP; `levelled`: the same exponents,
 * levelled, which are changed. False: there are too few. Does not say whether columns save
 * bytes. */
bool fx_columns_find(const uint8_t *exponents, uint8_t *levelled, size_t count,
                     struct fx_columns_work *work, struct fx_columns *ret);

/* Subtract the prediction from each of `count` exponents, or add it again; `at`: the place of the
 * first one in the chunk. Modulo 256. */
void fx_columns_take(const struct fx_columns *columns, size_t at, uint8_t *exponents, size_t count);
void fx_columns_give(const struct fx_columns *columns, size_t at, uint8_t *exponents, size_t count);

/* Write and read the columns; the number of rows follows from `elements`, the elements of the
 * chunk. `scratch` has FX_ROW_MAX bytes. False: no room left; the bytes do not have the format. */
CAIRN_MUST_CHECK bool fx_columns_put(struct writer *w, const struct fx_kernels *kernels,
                                     const struct fx_columns *columns, uint8_t *scratch,
                                     struct lx_work *work);
CAIRN_MUST_CHECK bool fx_columns_get(struct cursor *c, const struct fx_kernels *kernels,
                                     size_t elements, struct fx_columns *ret, struct lx_work *work);
