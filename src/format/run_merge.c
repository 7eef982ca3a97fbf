// SPDX-License-Identifier: Apache-2.0
/* A heap of readers, each at its next row. On top is the reader with the smallest key and, among
 * equal keys, the newest one. */
#include "base/base.h"
#include "format/run.h"

struct merge {
    struct run_reader *const *readers;
    struct run_row *rows; /* the next row of each reader in the heap */
    uint32_t *heap;       /* numbers of readers */
    size_t count;         /* readers in the heap: those with a row left */
};

static int run_merge_compare_keys(const void *a, size_t a_len, const void *b, size_t b_len)
{
    int order = memcmp(a, b, a_len < b_len ? a_len : b_len);
    return order != 0 ? order : (a_len > b_len) - (a_len < b_len);
}

static bool goes_before(const struct merge *m, uint32_t i, uint32_t j)
{
    const struct run_row *a = &m->rows[i], *b = &m->rows[j];
    int order = run_merge_compare_keys(a->key, a->key_len, b->key, b->key_len);
    return order < 0 || (order == 0 && i > j);
}

/* Restores the heap order at `place`, whose sub-heaps are in order. */
static void sink_heap(struct merge *m, size_t place)
{
    uint32_t moved = m->heap[place];
    for (size_t child = 2 * place + 1; child < m->count; child = 2 * place + 1) {
        if (child + 1 < m->count && goes_before(m, m->heap[child + 1], m->heap[child]))
            child++;
        if (!goes_before(m, m->heap[child], moved))
            break;
        m->heap[place] = m->heap[child];
        place = child;
    }
    m->heap[place] = moved;
}

static int merge_begin(struct merge *m, struct run_reader *const *readers, size_t count)
{
    check(count <= RUN_MERGE_MAX);
    *m = (struct merge){.readers = readers,
                        .rows = xcalloc(count + 1, sizeof *m->rows),
                        .heap = xcalloc(count + 1, sizeof *m->heap)};
    for (uint32_t i = 0; i < count; i++) {
        int r = run_reader_next(readers[i], &m->rows[i]);
        if (r == -ENODATA)
            continue;
        if (r < 0)
            return r;
        m->heap[m->count++] = i;
    }
    for (size_t place = m->count / 2; place-- > 0;)
        sink_heap(m, place);
    return 0;
}

/* Moves the reader on top to its next row, or removes it after its last. */
static int advance_top(struct merge *m)
{
    uint32_t top = m->heap[0];
    int r = run_reader_next(m->readers[top], &m->rows[top]);
    if (r == -ENODATA)
        m->heap[0] = m->heap[--m->count];
    else if (r < 0)
        return r;
    if (m->count > 0)
        sink_heap(m, 0);
    return 0;
}

/* Moves every reader past the rows of the key on top. */
static int skip_key(struct merge *m)
{
    uint8_t key[RUN_KEY_MAX]; /* a copy: the row becomes invalid when its reader moves */
    const struct run_row *top = &m->rows[m->heap[0]];
    size_t key_len = top->key_len;
    memcpy(key, top->key, key_len);
    do {
        TRY(advance_top(m));
        top = &m->rows[m->heap[0]];
    } while (m->count > 0 && run_merge_compare_keys(top->key, top->key_len, key, key_len) == 0);
    return 0;
}

static void merge_done(struct merge *m)
{
    free(m->rows);
    free(m->heap);
}

int run_merge(struct run_reader *const *readers, size_t count, bool drop_removed,
              int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    _cleanup_(merge_done) struct merge m;
    int r = merge_begin(&m, readers, count);
    while (r == 0 && m.count > 0) {
        const struct run_row *row = &m.rows[m.heap[0]];
        if (row->value || !drop_removed)
            r = fn(row, arg);
        if (r == 0)
            r = skip_key(&m);
    }
    return r;
}
