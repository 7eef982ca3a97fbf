// SPDX-License-Identifier: Apache-2.0
/* Merging of runs, against the plain way: the newest row of each key, in order. */
#include "format/run.h"

#include "fuzz.h"
#include "run_file.h"

#define RUNS 4u
#define ROWS_MAX 256u

/* Keys are short, so that runs have some in common; 0 is none. */
struct row {
    uint8_t key[3];
    size_t key_len;
    bool removed;
    uint8_t value;
};

struct model {
    struct row rows[RUNS * ROWS_MAX];
    size_t count, given;
    bool drop_removed;
};

static int compare_rows(const void *pa, const void *pb)
{
    const struct row *a = pa, *b = pb;
    int order = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
    return order != 0 ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static struct row read_row(struct input *in)
{
    struct row row = {.key_len = 1 + input_u8(in) % sizeof row.key};
    for (size_t i = 0; i < row.key_len; i++)
        row.key[i] = input_u8(in);
    row.value = input_u8(in);
    row.removed = row.value % 4 == 0;
    return row;
}

/* Sorted, each key once. */
static size_t read_rows(struct input *in, struct row *rows)
{
    size_t count = input_u8(in), kept = 0;
    for (size_t i = 0; i < count; i++)
        rows[i] = read_row(in);
    qsort(rows, count, sizeof *rows, compare_rows);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || compare_rows(&rows[kept - 1], &rows[i]) != 0)
            rows[kept++] = rows[i];
    return kept;
}

static void write_run(uint64_t id, const struct row *rows, size_t count, struct run_file *file)
{
    struct run_info info = {.id = id, .cut = id};
    struct run_writer *writer = run_writer_new(&info, run_file_put, file);
    for (size_t i = 0; i < count; i++) {
        struct run_row row = {.key = rows[i].key, .key_len = rows[i].key_len};
        if (!rows[i].removed) {
            row.value = &rows[i].value;
            row.value_len = 1;
        }
        check(run_writer_add(writer, &row) == 0);
    }
    check(run_writer_finish(writer, &info) == 0);
    run_writer_free(writer);
}

/* The rows of a newer run replace those of older ones. */
static void model_add(struct model *model, const struct row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        size_t at = 0;
        while (at < model->count && compare_rows(&model->rows[at], &rows[i]) != 0)
            at++;
        model->rows[at] = rows[i];
        model->count += at == model->count;
    }
}

static int on_row(const struct run_row *row, void *arg)
{
    struct model *model = arg;
    while (model->drop_removed && model->given < model->count && model->rows[model->given].removed)
        model->given++;
    check(model->given < model->count);
    const struct row *want = &model->rows[model->given++];
    check(row->key_len == want->key_len && memcmp(row->key, want->key, want->key_len) == 0);
    check(want->removed ? !row->value
                        : row->value_len == 1 && *(const uint8_t *)row->value == want->value);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct model model;
    struct input in = {data, size};
    struct run_file files[RUNS] = {0};
    struct run_reader *readers[RUNS];
    model = (struct model){.drop_removed = input_u8(&in) & 1};
    for (size_t i = 0; i < RUNS; i++) {
        struct row rows[ROWS_MAX];
        size_t count = read_rows(&in, rows);
        write_run(i + 1, rows, count, &files[i]);
        model_add(&model, rows, count);
        check(run_reader_new(files[i].len, run_file_get, &files[i], &readers[i]) == 0);
    }
    qsort(model.rows, model.count, sizeof *model.rows, compare_rows);
    check(run_merge(readers, RUNS, model.drop_removed, on_row, &model) == 0);
    while (model.given < model.count && model.rows[model.given].removed && model.drop_removed)
        model.given++;
    check(model.given == model.count);
    for (size_t i = 0; i < RUNS; i++) {
        run_reader_free(readers[i]);
        free(files[i].at);
    }
    return 0;
}
