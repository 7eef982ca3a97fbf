// SPDX-License-Identifier: Apache-2.0
/* Columns:
 *
 *   OFFSET SIZE
 *        0    2  elements of a row, 64 to 16,384
 *        2    1  base
 *        3       a code (lx.c), and a byte for each column as values of it
 *                a code, and a byte for each row as values of it; the last row may be shorter; at
 *                most 8,192 rows; 255: the row is not predicted */
#include "codec/fx_columns.h"

#define ROWS_MIN 4u /* fewer rows do not predict columns */

/* A sample from which the difference of exponents at a distance is measured. */
#define WINDOWS 16u
#define WINDOW 1024u
#define MULTIPLES 8u

/* A sample from which the best of several row lengths is chosen. */
#define SAMPLE_ROWS 64u
#define STRIDE_MAX 7u
#define MEAN_BITS 5u /* about, of a row or a column */
#define SHORT_ROW 128u

/* --- the length of a row ---------------------------------------------------------------------- */

static uint32_t difference_of(const uint8_t *restrict a, const uint8_t *restrict b)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < WINDOW; i++)
        sum += (uint32_t)abs(a[i] - b[i]);
    return sum;
}

static uint32_t difference_at(const uint8_t *levelled, size_t step, size_t distance)
{
    uint32_t sum = 0;
    for (size_t i = 0; i < WINDOWS; i++)
        sum += difference_of(levelled + i * step, levelled + i * step + distance);
    return sum;
}

/* Returns the mean of the differences at a distance and its first multiples: at multiples of the
 * row length they are all alike. */
static uint32_t mean_of_multiples(const uint32_t *sums, size_t distances, size_t distance)
{
    uint64_t sum = 0;
    uint32_t n = 0;
    for (size_t at = distance; at <= distances && n < MULTIPLES; at += distance, n++)
        sum += sums[at - 1];
    return (uint32_t)(sum / n);
}

/* Returns the shortest distance at which exponents differ about as little as at any distance; 0:
 * there are too few. The exponents are levelled, so that the size of a row alone does not make its
 * elements alike. */
static size_t find_row_len(const uint8_t *levelled, size_t count)
{
    size_t longest = (size_t)min_u64(FX_ROW_MAX, count / ROWS_MIN),
           distances = longest / FX_ROW_STEP;
    uint32_t sums[FX_ROW_MAX / FX_ROW_STEP], least = UINT32_MAX;
    uint64_t all = 0;
    if (distances == 0 || count < longest + WINDOW)
        return 0;
    for (size_t i = 0; i < distances; i++)
        all += sums[i] =
            difference_at(levelled, (count - longest - WINDOW) / WINDOWS, (i + 1) * FX_ROW_STEP);
    for (size_t i = 1; i <= distances; i++)
        least = (uint32_t)min_u64(least, mean_of_multiples(sums, distances, i));
    for (size_t i = 1; i <= distances; i++)
        if (mean_of_multiples(sums, distances, i) <= least + (all / distances - least) / 3)
            return i * FX_ROW_STEP;
    return 0;
}

/* --- their means ------------------------------------------------------------------------------ */

/* Exponents as rows, the last of which may be shorter; one of each `stride` rows is sampled. */
struct grid {
    const uint8_t *exponents;
    size_t count, row_len, stride;
};

/* Returns the i-th sampled row; spread irregularly, so that the sample is not in step with any
 * pattern. */
static size_t grid_row_at(const struct grid *grid, size_t i)
{
    return i * grid->stride + i * 2654435761u % grid->stride;
}

static size_t len_of_row(const struct grid *grid, size_t r)
{
    return (size_t)min_u64(grid->row_len, grid->count - r * grid->row_len);
}

/* In quarters. Zeros have no exponent, and are not counted. Returns the least mean. */
static int32_t find_means_of_columns(const struct grid *grid, struct fx_columns_work *work)
{
    const size_t row_len = grid->row_len;
    int32_t least = INT32_MAX;
    memset(work->sums, 0, row_len * sizeof *work->sums);
    memset(work->counts, 0, row_len * sizeof *work->counts);
    for (size_t i = 0, r = 0; r < grid->count / row_len; r = grid_row_at(grid, ++i)) {
        const uint8_t *row = grid->exponents + r * row_len;
        for (size_t k = 0; k < row_len; k++) {
            work->sums[k] += row[k];
            work->counts[k] += row[k] != 0;
        }
    }
    for (size_t i = 0; i < row_len; i++) {
        uint32_t n = work->counts[i];
        work->quarters[i] = n ? (int32_t)((4 * work->sums[i] + n / 2) / n) : INT32_MAX;
        if (work->quarters[i] < least)
            least = work->quarters[i];
    }
    least = least == INT32_MAX ? 0 : least;
    for (size_t i = 0; i < row_len; i++)
        if (work->counts[i] == 0)
            work->quarters[i] = least;
    return least;
}

#define NOTHING INT32_MAX

/* Returns by how much a row's exponents are more than the means of their columns. NOTHING: the row
 * is all zeros. */
static int32_t find_mean_of_row(const uint8_t *exponents, size_t count, const int32_t *quarters)
{
    int32_t sum = 0, n = 0;
    for (size_t i = 0; i < count; i++) {
        sum += exponents[i] ? 4 * exponents[i] - quarters[i] : 0;
        n += exponents[i] != 0;
    }
    return n ? (sum + (sum < 0 ? -n : n) / 2) / n : NOTHING;
}

/* Leaves out rows that are not sampled. False: there is nothing to predict. */
static bool find_means(const struct grid *grid, struct fx_columns_work *work,
                       struct fx_columns *ret)
{
    const size_t row_len = grid->row_len;
    int32_t least_row = NOTHING;
    ret->row_len = row_len;
    ret->rows = (grid->count + row_len - 1) / row_len;
    if (ret->rows > FX_ROWS_MAX)
        return false;
    int32_t least = find_means_of_columns(grid, work);
    for (size_t i = 0, r = 0; r < ret->rows; r = grid_row_at(grid, ++i)) {
        work->of_row[r] =
            find_mean_of_row(grid->exponents + r * row_len, len_of_row(grid, r), work->quarters);
        if (work->of_row[r] < least_row)
            least_row = work->of_row[r];
    }
    if (least_row == NOTHING)
        return false;
    /* 2: half of one, to round; 4 * 256: keeps it positive */
    int32_t base = least + least_row + 2 + 4 * 256;
    ret->base = (uint8_t)(base / 4);
    for (size_t i = 0; i < row_len; i++)
        ret->of_column[i] = (uint8_t)min_u64(UINT8_MAX, (uint64_t)(work->quarters[i] - least));
    for (size_t i = 0, r = 0; r < ret->rows; r = grid_row_at(grid, ++i)) {
        uint64_t more = min_u64(FX_ROW_ZEROS - 4, (uint64_t)(work->of_row[r] - least_row));
        ret->of_row[r] =
            work->of_row[r] == NOTHING ? FX_ROW_ZEROS : (uint8_t)(more + (uint64_t)(base % 4));
    }
    return true;
}

/* --- which length of a row is best ------------------------------------------------------------ */

/* Returns the bits that exponents take with rows of this length, including the means, by a sample,
 * which is left in `sample`. */
static uint64_t guess_bits(struct grid *grid, uint8_t *sample, struct fx_columns_work *work,
                           struct fx_columns *columns)
{
    uint32_t counts[256];
    struct lx_code code;
    size_t sampled = 0;
    grid->stride =
        (size_t)max_u64(1, min_u64(STRIDE_MAX, grid->count / grid->row_len / SAMPLE_ROWS));
    if (!find_means(grid, work, columns))
        return UINT64_MAX;
    for (size_t i = 0, r = 0; r < columns->rows; r = grid_row_at(grid, ++i)) {
        size_t len = len_of_row(grid, r), at = r * grid->row_len;
        memcpy(sample + sampled, grid->exponents + at, len);
        fx_columns_take(columns, at, sample + sampled, len);
        sampled += len;
    }
    lx_count(sample, sampled, counts);
    return lx_code_make_of_many(counts, sampled, &code) * grid->count / sampled +
           MEAN_BITS * (columns->row_len + columns->rows);
}

/* If a chunk is one matrix, the rows that are found are those of the matrix. If slices cross
 * tensors, the chunk holds parts of several: then shorter rows, whose means are those of one place,
 * predict better. */
bool fx_columns_find(const uint8_t *exponents, uint8_t *levelled, size_t count,
                     struct fx_columns_work *work, struct fx_columns *ret)
{
    struct grid grid = {.exponents = exponents, .count = count};
    const size_t found = find_row_len(levelled, count),
                 lens[] = {found, found / 2, found / 4, SHORT_ROW};
    size_t best_len = 0;
    uint64_t best = UINT64_MAX;
    for (size_t i = 0; i < ARRAY_LEN(lens) && found > 0; i++) {
        grid.row_len = lens[i];
        uint64_t bits = lens[i] < FX_ROW_MIN ? UINT64_MAX : guess_bits(&grid, levelled, work, ret);
        if (bits < best) {
            best = bits;
            best_len = lens[i];
        }
    }
    grid.row_len = best_len;
    grid.stride = 1;
    return best_len > 0 && find_means(&grid, work, ret);
}

/* --- exponents without them ------------------------------------------------------------------- */

/* `sign` is 1 or, modulo 256, -1. */
static inline __attribute__((always_inline)) void add_columns(const struct fx_columns *columns,
                                                              size_t at,
                                                              uint8_t *restrict exponents,
                                                              size_t count, const uint8_t sign)
{
    const size_t row_len = columns->row_len;
    const uint8_t base = columns->base;
    check(at + count <= row_len * columns->rows);
    while (count > 0) {
        size_t column = at % row_len, len = (size_t)min_u64(count, row_len - column);
        const uint8_t *restrict of_column = columns->of_column + column;
        const uint8_t of_row = columns->of_row[at / row_len];
        for (size_t i = 0; i < len && of_row != FX_ROW_ZEROS; i++) {
            uint8_t common = (uint8_t)(base + ((uint8_t)(of_column[i] + of_row) >> 2));
            exponents[i] = (uint8_t)(exponents[i] + sign * common);
        }
        exponents += len;
        at += len;
        count -= len;
    }
}

void fx_columns_take(const struct fx_columns *columns, size_t at, uint8_t *exponents, size_t count)
{
    add_columns(columns, at, exponents, count, UINT8_MAX);
}

void fx_columns_give(const struct fx_columns *columns, size_t at, uint8_t *exponents, size_t count)
{
    add_columns(columns, at, exponents, count, 1);
}

/* --- as they are stored ----------------------------------------------------------------------- */

static bool put_table(struct writer *w, const struct fx_kernels *kernels, const uint8_t *table,
                      size_t count, uint8_t *scratch, struct lx_work *work)
{
    struct lx_code code;
    uint32_t counts[256];
    lx_count(table, count, counts);
    (void)lx_code_make(counts, count, &code);
    if (code.levels == 0) /* rows of all sizes, such as those of more and less frequent words */
        lx_code_make_of_one(table[0], &code);
    if (!lx_put_code(w, &code))
        return false;
    lx_code_rank(&code);
    memcpy(scratch, table, count);
    return lx_put(w, kernels, &code, scratch, count, work);
}

bool fx_columns_put(struct writer *w, const struct fx_kernels *kernels,
                    const struct fx_columns *columns, uint8_t *scratch, struct lx_work *work)
{
    uint8_t *p = writer_take(w, 3);
    if (!p)
        return false;
    put_le16(p, (uint16_t)columns->row_len);
    p[2] = columns->base;
    return put_table(w, kernels, columns->of_column, columns->row_len, scratch, work) &&
           put_table(w, kernels, columns->of_row, columns->rows, scratch, work);
}

static bool get_table(struct cursor *c, const struct fx_kernels *kernels, uint8_t *table,
                      size_t count, struct lx_work *work)
{
    struct lx_code code;
    return lx_get_code(c, &code) && lx_get(c, kernels, &code, table, count, work);
}

bool fx_columns_get(struct cursor *c, const struct fx_kernels *kernels, size_t elements,
                    struct fx_columns *ret, struct lx_work *work)
{
    const uint8_t *p = cursor_bytes(c, 3);
    if (!p)
        return false;
    ret->row_len = get_le16(p);
    ret->base = p[2];
    if (ret->row_len < FX_ROW_MIN || ret->row_len > FX_ROW_MAX || elements == 0)
        return false;
    ret->rows = (elements + ret->row_len - 1) / ret->row_len;
    return ret->rows <= FX_ROWS_MAX && get_table(c, kernels, ret->of_column, ret->row_len, work) &&
           get_table(c, kernels, ret->of_row, ret->rows, work);
}
