// SPDX-License-Identifier: Apache-2.0

#include "../expect.h"
#include "../base/seeded.h"
#include "format/run.h"
#include "run_files.h"

/* The model: a fixed table of keys in order; each run is, for each key, a version or nothing. */
enum { KEYS = 400, RUNS = 250, ABSENT = -1, REMOVED = -2 };

struct key {
    uint8_t bytes[6];
    size_t len;
};

struct model {
    struct key keys[KEYS];
    struct run_file files[RUNS];
    struct run_reader *readers[RUNS];
    size_t count;
    int newest[KEYS]; /* number of the run whose row counts, or ABSENT or REMOVED */
};

static int compare_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int order = memcmp(x->bytes, y->bytes, x->len < y->len ? x->len : y->len);
    return order ? order : (int)x->len - (int)y->len;
}

static bool key_is_there(const struct key *keys, size_t count, const struct key *key)
{
    for (size_t i = 0; i < count; i++)
        if (compare_key(&keys[i], key) == 0)
            return true;
    return false;
}

/* Of few letters, so that many begin alike and many are the beginning of others. */
static void make_keys(struct key *keys, struct seeded *seeded)
{
    static const uint8_t letters[] = {0, 'a', 0x80, 0xff};
    for (size_t count = 0; count < KEYS;) {
        struct key key = {.len = 1 + seeded_below(seeded, sizeof key.bytes)};
        for (size_t i = 0; i < key.len; i++)
            key.bytes[i] = letters[seeded_below(seeded, sizeof letters)];
        if (!key_is_there(keys, count, &key))
            keys[count++] = key;
    }
    qsort(keys, KEYS, sizeof *keys, compare_key);
}

/* One more run, newer than those before, with about one in `sparse` keys. */
static void add_run(struct model *m, struct seeded *seeded, uint64_t sparse)
{
    struct run_row rows[KEYS];
    size_t count = 0;
    uint8_t number = (uint8_t)m->count;
    for (size_t k = 0; k < KEYS; k++) {
        if (seeded_below(seeded, sparse))
            continue;
        bool removed = seeded_below(seeded, 4) == 0;
        rows[count++] =
            (struct run_row){m->keys[k].bytes, m->keys[k].len, removed ? NULL : &number, !removed};
        m->newest[k] = removed ? REMOVED : number;
    }
    struct run_info info = sample_run_info();
    m->files[m->count++] = run_file_of(&info, rows, count);
}

static struct model *model_new(struct seeded *seeded, size_t runs)
{
    struct model *m = xcalloc(1, sizeof *m);
    make_keys(m->keys, seeded);
    for (size_t k = 0; k < KEYS; k++)
        m->newest[k] = ABSENT;
    while (m->count < runs)
        add_run(m, seeded, m->count ? 2 + seeded_below(seeded, 30) : 1);
    for (size_t i = 0; i < runs; i++)
        m->readers[i] = run_file_open(&m->files[i]);
    return m;
}

static void model_free(struct model *m)
{
    for (size_t i = 0; i < m->count; i++) {
        run_reader_free(m->readers[i]);
        run_file_done(&m->files[i]);
    }
    free(m);
}

struct given {
    const struct model *model;
    size_t next; /* key */
    bool drop_removed;
    uint64_t rows;
    uint64_t stop_at; /* this many rows; 0: never */
};

static int expect_given(const struct run_row *row, void *arg)
{
    struct given *given = arg;
    const int *newest = given->model->newest;
    size_t k = given->next;
    while (k < KEYS && (newest[k] == ABSENT || (given->drop_removed && newest[k] == REMOVED)))
        k++;
    cr_assert_lt(k, (size_t)KEYS, "a row too many");
    const struct key *key = &given->model->keys[k];
    cr_assert(row->key_len == key->len && memcmp(row->key, key->bytes, key->len) == 0);
    assert_i64(row->value == NULL, newest[k] == REMOVED);
    if (row->value)
        cr_assert(row->value_len == 1 && *(const uint8_t *)row->value == newest[k]);
    given->next = k + 1;
    return ++given->rows == given->stop_at ? -ECANCELED : 0;
}

static uint64_t expected_rows(const struct model *m, bool drop_removed)
{
    uint64_t rows = 0;
    for (size_t k = 0; k < KEYS; k++)
        rows += m->newest[k] >= 0 || (m->newest[k] == REMOVED && !drop_removed);
    return rows;
}

Test(run_merge, like_the_model)
{
    for (uint64_t round = 0; round < 120; round++) {
        struct seeded seeded = {round};
        size_t runs = round < 10 ? round : round < 15 ? RUNS : seeded_below(&seeded, RUNS + 1);
        struct model *m = model_new(&seeded, runs);
        struct given given = {.model = m, .drop_removed = round % 2};
        assert_i64(run_merge(m->readers, m->count, given.drop_removed, expect_given, &given), 0);
        assert_u64(given.rows, expected_rows(m, given.drop_removed));
        model_free(m);
    }
}

Test(run_merge, everything_removed)
{
    struct run_row removed = {"k", 1, NULL, 0}, there = {"k", 1, "", 0};
    struct run_info info = sample_run_info();
    struct run_file files[] = {run_file_of(&info, &there, 1), run_file_of(&info, &removed, 1)};
    struct run_reader *readers[] = {run_file_open(&files[0]), run_file_open(&files[1])};
    struct model m = {.newest = {REMOVED}};
    struct given given = {.model = &m, .drop_removed = true};
    for (size_t k = 1; k < KEYS; k++)
        m.newest[k] = ABSENT;
    assert_i64(run_merge(readers, 2, true, expect_given, &given), 0);
    assert_u64(given.rows, 0);
    for (size_t i = 0; i < 2; i++) {
        run_reader_free(readers[i]);
        run_file_done(&files[i]);
    }
}

Test(run_merge, ends_where_it_is_told)
{
    struct seeded seeded = {5};
    struct model *m = model_new(&seeded, 9);
    struct given given = {.model = m, .stop_at = 100};
    assert_i64(run_merge(m->readers, m->count, false, expect_given, &given), -ECANCELED);
    assert_u64(given.rows, 100);
    model_free(m);
}

Test(run_merge, error_of_a_reader_ends_it)
{
    for (uint64_t damaged = 0; damaged < 9; damaged++) {
        struct seeded seeded = {6};
        struct model *m = model_new(&seeded, 9);
        struct run_file *file = &m->files[damaged];
        file->data[file->len - RUN_TRAILER_LEN - 5] ^= 1;
        struct given given = {.model = m};
        assert_i64(run_merge(m->readers, m->count, false, expect_given, &given), -EBADMSG);
        assert_u64(given.rows, 0);
        model_free(m);
    }
}

/* The type of a row and its value. */
static int add_seen(const struct run_row *row, void *arg)
{
    const char both[] = {*(const char *)row->key, row->value ? *(const char *)row->value : '-', 0};
    strcat(arg, both);
    return 0;
}

static int count_row(const struct run_row *row, void *arg)
{
    cr_assert_gt(row->key_len, 0);
    ++*(uint64_t *)arg;
    return 0;
}

Test(run_merge, error_in_a_later_block_ends_it)
{
    struct run_info info = sample_run_info();
    struct run_file whole = run_file_numbered(&info, 1500),
                    damaged = run_file_numbered(&info, 1500);
    size_t second = run_block_at(&damaged, 1);
    damaged.data[second + 100] ^= 1;
    struct run_reader *readers[] = {run_file_open(&damaged), run_file_open(&whole)};
    uint64_t rows = 0;
    assert_i64(run_merge(readers, 2, false, count_row, &rows), -EBADMSG);
    cr_assert(rows > 0 && rows < 1500);
    for (size_t i = 0; i < 2; i++)
        run_reader_free(readers[i]);
    run_file_done(&whole);
    run_file_done(&damaged);
}

Test(run_merge, goes_on_where_readers_are)
{
    struct run_info info = sample_run_info();
    struct run_file files[] = {run_file_numbered(&info, 1500), run_file_numbered(&info, 800)};
    struct run_reader *readers[] = {run_file_open(&files[0]), run_file_open(&files[1])};
    struct run_row row;
    for (int i = 0; i < 1000; i++)
        assert_i64(run_reader_next(readers[0], &row), 0);
    uint64_t rows = 0;
    assert_i64(run_merge(readers, 2, false, count_row, &rows), 0);
    assert_u64(rows, 800 + 500);
    for (size_t i = 0; i < 2; i++) {
        run_reader_free(readers[i]);
        run_file_done(&files[i]);
    }
}

/* Two lists of runs of which each has the rows of some types, in one merge: a row that is not
 * selected hides none of another run, and is read all the same. */
Test(run_merge, of_selected_rows)
{
    struct run_row older[] = {{"a1", 2, "o", 1}, {"b1", 2, "o", 1}, {"c", 1, "o", 1}},
                   newer[] = {{"a1", 2, "n", 1}, {"b1", 2, NULL, 0}, {"d", 1, "n", 1}};
    struct run_info info = sample_run_info();
    struct run_file files[] = {run_file_of(&info, older, 3), run_file_of(&info, newer, 3)};
    struct run_reader *readers[] = {run_file_open(&files[0]), run_file_open(&files[1])};
    struct run_row row;
    char seen[16] = "";
    run_reader_select(readers[0], "bc");
    run_reader_select(readers[1], "ad");
    assert_i64(run_merge(readers, 2, false, add_seen, seen), 0);
    assert_str(seen, "anbocodn");
    assert_i64(run_reader_next(readers[0], &row), -ENODATA);
    for (size_t i = 0; i < 2; i++) {
        run_reader_free(readers[i]);
        run_file_done(&files[i]);
    }
    files[0] = run_file_numbered(&info, 1500);
    files[0].data[run_block_at(&files[0], 1) + 100] ^= 1;
    readers[0] = run_file_open(&files[0]);
    run_reader_select(readers[0], "x");
    assert_i64(run_reader_next(readers[0], &row), -EBADMSG, "what is not selected is damaged");
    run_reader_free(readers[0]);
    run_file_done(&files[0]);
}
