// SPDX-License-Identifier: Apache-2.0
/* Heads of the world, and whether they are what they must be. */
#include <stdio.h>

#include "../expect.h"
#include "base/io.h"
#include "commit/run_file.h"
#include "world.h"

static int note_head(const struct tier_object *object, void *arg)
{
    uint64_t number, *newest = arg;
    if (object_number(object->name, "heads", &number))
        *newest = max_u64(*newest, number);
    return 0;
}

uint64_t world_newest_head(const struct world *w)
{
    uint64_t newest = 0;
    assert_i64(w->tier->ops->list(w->tier, "heads", NULL, note_head, &newest), 0);
    return newest;
}

void world_read_head(const struct world *w, uint64_t number, struct head *ret)
{
    _cleanup_free_ char *path = world_path(w, "heads/%016llx", (unsigned long long)number);
    _cleanup_free_ char *bytes = NULL;
    size_t len;
    assert_i64(io_read_file(path, HEAD_LEN_MAX, &bytes, &len), 0, "%s", path);
    assert_i64(head_decode(bytes, len, ret), 0, "%s", path);
}

static int adopt_row(const struct run_row *row, void *arg)
{
    return view_adopt_row(arg, row);
}

/* What a reader of the head has. */
static struct view *read_union(const struct world *w, const struct head *head, const char *path)
{
    struct local local = {.path = (char *)w->path, .sb = w->sb};
    struct view_state state = {.applied_seq = head->cut,
                               .max_ino = head->max_ino,
                               .files = head->files,
                               .logical_bytes = head->logical_bytes};
    struct view_head of_view = {
        .number = head->number, .max_id = head->max_id, .has_nodes = head_has_nodes(head)};
    struct view_adoption *adoption;
    struct view *view;
    open_view_at(path, &view);
    assert_i64(view_adopt_begin(view, &adoption), 0);
    assert_i64(runs_merge(&local, head->runs, head->run_count, true, adopt_row, adoption), 0);
    assert_i64(view_adopt_end(adoption, &state, &of_view), 0);
    view_adopt_done(adoption);
    return view;
}

static const struct head_writer *row_of(const struct head *head, uint64_t epoch)
{
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head->writers[i].epoch == epoch)
            return &head->writers[i];
    return NULL;
}

static void forget_ops(struct world *w, uint64_t stay, uint64_t after)
{
    size_t kept = 0;
    for (size_t i = 0; i < w->ops.count; i++)
        if (w->ops.at[i].stay == stay && w->ops.at[i].seq > after)
            free(w->ops.at[i].bytes);
        else
            w->ops.at[kept++] = w->ops.at[i];
    w->ops.count = kept;
}

void world_set_aside(struct world *w, unsigned i, const struct head *head)
{
    struct world_node *n = &w->nodes[i];
    const struct head_writer *row = row_of(head, n->peer.node.epoch);
    n->is_still = true;
    n->from = row ? row->merged : n->peer.node.epoch << SEQ_EPOCH_SHIFT;
    n->hi = row ? row->feed_round : 0;
    memset(n->hash, 0, sizeof n->hash);
    if (row)
        memcpy(n->hash, row->feed_hash, sizeof n->hash);
    n->peer.node.ops = n->from & ((1ull << SEQ_EPOCH_SHIFT) - 1);
    n->pending.count = 0;
    forget_ops(w, n->peer.node.epoch, n->from);
    for (uint64_t k = n->hi + 1; k <= w->round; k++)
        if (k > FIRST_ROUND)
            n->noted[k - FIRST_ROUND] = 0;
    n->generation = head_generation(head);
}

static int compare_ops(const void *a, const void *b)
{
    const struct world_op *x = a, *y = b;
    if (x->time != y->time)
        return x->time < y->time ? -1 : 1;
    return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* A stay that its node came back from is merged whole, and has no row any more. */
static bool is_in(const struct world *w, const struct head *head, const struct world_op *op)
{
    const struct head_writer *row = row_of(head, op->stay);
    if (row)
        return op->seq <= row->merged;
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        const struct world_node *n = &w->nodes[i];
        bool was_its = n->joined > 1 && (op->stay == n->node || op->stay < n->peer.node.epoch);
        if (was_its && n->peer.node.epoch != op->stay && row_of(head, n->peer.node.epoch))
            return true;
    }
    return false;
}

static bool world_owns(const struct world *w, const struct world_op *op, uint64_t ino)
{
    return ino >> 28 < WORLD_NUMBERS && w->owners[ino >> 28] == op->node;
}

/* What the operations make that the head says to have. */
static struct view *make_model(struct world *w, const struct head *head, const char *path)
{
    struct view *view;
    open_view_at(path, &view);
    struct merge *m = merge_new(view);
    vector_sort(&w->ops, compare_ops);
    for (size_t i = 0; i < w->ops.count; i++) {
        const struct world_op *op = &w->ops.at[i];
        struct record rec;
        size_t len;
        if (!is_in(w, head, op))
            continue;
        assert_i64(record_decode(op->bytes, op->len, &rec, &len), 0);
        const struct merge_op told = {&rec, .owns = world_owns(w, op, rec.ino),
                                      .owns2 = world_owns(w, op, rec.ino2)};
        assert_i64(merge_record(m, &told), 0);
    }
    assert_u64(merge_counts(m).impossible, 0);
    merge_free(m);
    return view;
}

/* The head is at a round at which each node had exactly what the head has of it. */
static void check_rows(const struct world *w, const struct head *head)
{
    for (unsigned i = 0; i < WORLD_NODES; i++) {
        const struct world_node *n = &w->nodes[i];
        const struct head_writer *row = row_of(head, n->peer.node.epoch);
        uint64_t noted = n->is_there ? n->noted[head_round(head) - FIRST_ROUND] : 0;
        if (n->is_dead && row)
            cr_assert(row->state == HEAD_WRITER_ENDED || !head_generation(head));
        if (n->is_dead || (n->is_still && !noted))
            continue;
        if (noted)
            cr_assert_not_null(row, "head %llu lacks node %u", (unsigned long long)head->number, i);
        if (!row)
            continue;
        assert_u64(row->merged, noted, "head %llu, node %u", (unsigned long long)head->number, i);
        assert_u64(row->node, n->node);
        assert_u64(row->state,
                   row->feed_round == ROUND_MAX ? HEAD_WRITER_ENDED : HEAD_WRITER_LIVES);
    }
}

static void check_totals(const struct head *head)
{
    uint64_t chunks = 0, told = 0;
    for (uint32_t i = 0; i < head->writer_count; i++)
        told += head->writers[i].feed_round > 0;
    for (uint32_t i = 0; i < head->writer_count; i++)
        chunks += head->writers[i].merged & ((1ull << SEQ_EPOCH_SHIFT) - 1);
    assert_u64(head->chunks, chunks);
    assert_u64(head->packs, told);
}

static void check_head(struct world *w, const struct head *head)
{
    _cleanup_free_ char *path = world_path(w, "reader"), *model_path = world_path(w, "model");
    check_rows(w, head);
    struct view *view = read_union(w, head, path), *model = make_model(w, head, model_path);
    _cleanup_free_ char *text = dump(view), *wanted = dump(model);
    expect_str(strstr(text, " files"), strstr(wanted, " files"), "head %llu",
               (unsigned long long)head->number);
    expect_check_ok(view);
    view_close(view);
    view_close(model);
    remove_tree(path);
    remove_tree(model_path);
}

static void check_all(struct world *w, bool totals)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    uint64_t newest = world_newest_head(w), cut = 0;
    while (w->checked < newest) {
        world_read_head(w, ++w->checked, head);
        cr_assert_gt(head->cut, cut);
        cut = head->cut;
        if (totals)
            check_totals(head);
        check_head(w, head);
    }
}

void world_check(struct world *w)
{
    check_all(w, true);
}

void world_check_but_totals(struct world *w)
{
    check_all(w, false);
}
