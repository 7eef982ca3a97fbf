// SPDX-License-Identifier: Apache-2.0
#include "test_remote.h"
#include "../expect.h"

static int put(const void *buf, size_t len, void *arg)
{
    struct test_run *run = arg;
    if (run->len + len > run->room) {
        run->room = 2 * (run->len + len);
        run->data = xrealloc(run->data, run->room);
    }
    memcpy(run->data + run->len, buf, len);
    run->len += len;
    return 0;
}

static int get(uint64_t offset, void *buf, size_t len, void *arg)
{
    const struct test_run *run = arg;
    cr_assert(offset <= run->len && len <= run->len - offset);
    memcpy(buf, run->data + offset, len);
    return 0;
}

static int add_row(const struct run_row *row, void *arg)
{
    return run_writer_add(arg, row);
}

void remote_done(struct test_remote *remote)
{
    for (size_t i = 0; i < remote->count; i++)
        free(remote->runs[i].data);
    free(remote->made.data);
    *remote = (struct test_remote){0};
}

struct test_remote remote_copy(const struct test_remote *remote)
{
    struct test_remote copy = *remote;
    copy.made = (struct test_run){0};
    for (size_t i = 0; i < copy.count; i++) {
        copy.runs[i].data = xmalloc(copy.runs[i].len);
        memcpy(copy.runs[i].data, remote->runs[i].data, copy.runs[i].len);
    }
    return copy;
}

uint64_t remote_make(struct test_remote *remote, struct view_cut *cut, int64_t now)
{
    uint64_t missing;
    struct run_writer *writer;
    bool whole = view_cut_is_whole(cut);
    free(remote->made.data);
    remote->made = (struct test_run){.info = {.id = ++remote->next_run,
                                              .base_cut = whole ? 0 : remote->state.applied_seq,
                                              .cut = view_cut_state(cut).applied_seq}};
    remote->made_whole = whole;
    writer = run_writer_new(&remote->made.info, put, &remote->made);
    assert_i64(view_cut_rows(cut, now, add_row, writer, &missing), 0);
    assert_i64(run_writer_finish(writer, &remote->made.info), 0);
    run_writer_free(writer);
    return missing;
}

void remote_publish(struct test_remote *remote, struct view *view, struct view_cut *cut)
{
    cr_assert_not_null(remote->made.data);
    for (size_t i = 0; i < remote->count && remote->made_whole; i++)
        free(remote->runs[i].data);
    if (remote->made_whole)
        remote->count = 0;
    if (remote->count == TEST_RUNS_MAX)
        remote_merge(remote, TEST_RUNS_MAX / 2);
    remote->runs[remote->count++] = remote->made;
    remote->made = (struct test_run){0};
    remote->state = view_cut_state(cut);
    remote->head++;
    if (view)
        assert_i64(view_published(view, cut, remote->head), 0);
}

static int merge(const struct test_run *runs, size_t count, bool drop_removed,
                 int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    struct run_reader *readers[TEST_RUNS_MAX] = {0};
    for (size_t i = 0; i < count; i++)
        assert_i64(run_reader_new(runs[i].len, get, (void *)&runs[i], &readers[i]), 0);
    int r = run_merge(readers, count, drop_removed, fn, arg);
    for (size_t i = 0; i < count; i++)
        run_reader_free(readers[i]);
    return r;
}

void remote_merge(struct test_remote *remote, size_t count)
{
    size_t first = remote->count - count;
    const struct test_run *old = remote->runs + first;
    struct test_run run = {.info = {.id = ++remote->next_run,
                                    .base_cut = old[0].info.base_cut,
                                    .cut = old[count - 1].info.cut}};
    struct run_writer *writer = run_writer_new(&run.info, put, &run);
    assert_i64(merge(old, count, first == 0, add_row, writer), 0);
    assert_i64(run_writer_finish(writer, &run.info), 0);
    run_writer_free(writer);
    for (size_t i = first; i < remote->count; i++)
        free(remote->runs[i].data);
    remote->runs[first] = run;
    remote->count = first + 1;
}

int remote_rows(const struct test_remote *remote, int (*fn)(const struct run_row *row, void *arg),
                void *arg)
{
    return merge(remote->runs, remote->count, true, fn, arg);
}

int remote_newest_rows(const struct test_remote *remote,
                       int (*fn)(const struct run_row *row, void *arg), void *arg)
{
    return merge(remote->runs + remote->count - 1, 1, false, fn, arg);
}

static int adopt_row(const struct run_row *row, void *arg)
{
    return view_adopt_row(arg, row);
}

int remote_adopt(const struct test_remote *remote, struct view *view)
{
    struct view_adoption *adoption;
    int r = view_adopt_begin(view, &adoption);
    if (r < 0)
        return r;
    r = remote_rows(remote, adopt_row, adoption);
    if (r == 0)
        r = view_adopt_end(adoption, &remote->state,
                           &(struct view_head){.number = remote->head, .max_id = UINT64_MAX});
    view_adopt_done(adoption);
    return r;
}

void open_adopted(const struct test_remote *remote, const char *path, struct view **ret_view)
{
    open_view_at(path, ret_view);
    assert_i64(remote_adopt(remote, *ret_view), 0);
}

struct looking {
    const void *key;
    size_t key_len;
    uint8_t *value;
    ssize_t len;
};

static int look(const struct run_row *row, void *arg)
{
    struct looking *looking = arg;
    if (row->key_len != looking->key_len || memcmp(row->key, looking->key, row->key_len) != 0)
        return 0;
    cr_assert_leq(row->value_len, 256);
    memcpy(looking->value, row->value, row->value_len);
    looking->len = (ssize_t)row->value_len;
    return 0;
}

ssize_t remote_row(const struct test_remote *remote, const void *key, size_t key_len,
                   uint8_t value[256])
{
    struct looking looking = {.key = key, .key_len = key_len, .value = value, .len = -1};
    assert_i64(remote_rows(remote, look, &looking), 0);
    return looking.len;
}
