// SPDX-License-Identifier: Apache-2.0
/* Columns: means of a matrix's exponents, by row and by column. Second moments are nearly a
 * column times a row, first moments are as large as their roots, so the two together tell an
 * exponent much better than the elements before it do. The chunk says how long its rows are, since
 * no tensor's shape is known here: they may be parts of the rows that the tensor has. Pure; any
 * thread. */
#pragma once

#include "codec/lx.h"

#define FX_ROW_MIN 64u /* elements */
#define FX_ROW_MAX LX_VALUES_MAX
#define FX_ROWS_MAX 8192u

#define FX_ROW_ZEROS 255u /* of_row: nothing is told of the row */

/* An exponent is told to be base + (of_column + of_row) / 4, the sum modulo 256, and the result
 * too. Element 0 is of column 0 and row 0, be it one or not. */
struct fx_columns {
    size_t row_len, rows; /* row_len 0: there are none */
    uint8_t base;
    uint8_t of_column[FX_ROW_MAX], of_row[FX_ROWS_MAX];
};

/* Where row lengths are looked for, each a multiple of this. */
#define FX_ROW_STEP 64u

/* Room for fx_columns_find(). */
struct fx_columns_work {
    uint32_t sums[FX_ROW_MAX], counts[FX_ROW_MAX];
    int32_t quarters[FX_ROW_MAX], of_row[FX_ROWS_MAX];
};

/* Finds the columns of `count` exponents, a multiple of FX_GROUP; `levelled`: the same, levelled,
 * which are changed. False: they are too few. Whether it pays is not said. */
bool fx_columns_find(const uint8_t *exponents, uint8_t *levelled, size_t count,
                     struct fx_columns_work *work, struct fx_columns *ret);

/* Takes from each of `count` exponents what is told of it, or gives it back; `at`: the first one's
 * place in the chunk. Modulo 256. */
void fx_columns_take(const struct fx_columns *columns, size_t at, uint8_t *exponents, size_t count);
void fx_columns_give(const struct fx_columns *columns, size_t at, uint8_t *exponents, size_t count);

/* Writes and reads them; `elements` of the chunk tell how many rows there are. `scratch` has
 * FX_ROW_MAX bytes. False: no room; not as the format wants it. */
CAIRN_MUST_CHECK bool fx_columns_put(struct writer *w, const struct fx_kernels *kernels,
                                     const struct fx_columns *columns, uint8_t *scratch,
                                     struct lx_work *work);
CAIRN_MUST_CHECK bool fx_columns_get(struct cursor *c, const struct fx_kernels *kernels,
                                     size_t elements, struct fx_columns *ret, struct lx_work *work);
