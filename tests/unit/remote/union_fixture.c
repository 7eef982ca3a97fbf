// SPDX-License-Identifier: Apache-2.0
#include "union_fixture.h"

#include <stdio.h>
#include <sys/stat.h>

#include "../shell.h"
#include "commit/run_lists.h"
#include "format/prefix.h"
#include "view/values.h"

#define UNION_EPOCH 0x60u
#define ROUND 1000u /* before the first head */

struct node union_nodes[NODES];
struct union_prefix union_prefix;

/* --- objects ---------------------------------------------------------------------------------- */

static void put_bytes(const char *object, const void *bytes, size_t len)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", union_prefix.path, object);
    shell("mkdir -p $(dirname %s)", path);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    assert_u64(fwrite(bytes, 1, len, file), len);
    assert_i64(fclose(file), 0);
}

static void hash_of(const void *bytes, size_t len, uint8_t hash[HASH_LEN])
{
    const struct iovec iov = {(void *)(uintptr_t)bytes, len};
    hash_parts(&iov, 1, hash);
}

static void put_marker(const struct node *node, const char *object, const char *to,
                       uint64_t incompat)
{
    struct prefix_info info;
    uint8_t bytes[PREFIX_INFO_LEN];
    _cleanup_free_ char *path = xasprintf("%s/%s", node->prefix, object);
    FILE *file = fopen(path, "r");
    cr_assert_not_null(file);
    assert_u64(fread(bytes, 1, sizeof bytes, file), sizeof bytes);
    (void)fclose(file);
    assert_i64(prefix_info_decode(bytes, sizeof bytes, &info), 0);
    info.incompat |= incompat;
    prefix_info_encode(&info, bytes);
    put_bytes(to, bytes, sizeof bytes);
}

/* A node's first epoch is its number, as it reserved that. */
static void put_first_head(const struct node *node, const uint8_t history[16])
{
    uint8_t bytes[HEAD_LEN_MAX];
    struct head head = {.number = 1, .epoch = node->number - 1, .holder = "nobody"};
    memcpy(head.history, history, sizeof head.history);
    _cleanup_free_ char *object = xasprintf("nodes/%016x/heads/%016x", node->number, 1u);
    put_bytes(object, bytes, head_encode(&head, bytes));
}

/* --- nodes ------------------------------------------------------------------------------------ */

static void open_node(struct node *node)
{
    fixture_use_remote(&node->fixture, node->prefix);
    fixture_open(&node->fixture);
    node->fixture.store->local.sb.incompat |= SUPERBLOCK_INCOMPAT_NODES;
    node->fixture.store->local.sb.node = node->number;
}

static void begin_node(struct node *node, unsigned i)
{
    *node = (struct node){.number = 0x10 * (i + 1)};
    node->prefix = xasprintf("%s/nodes/%016x", union_prefix.path, node->number);
    shell("mkdir -p %s", node->prefix);
    fixture_make(&node->fixture);
    if (i > 0) {
        _cleanup_free_ char *marker = xasprintf("nodes/%016x/cairn", node->number);
        put_marker(&union_nodes[0], "cairn", marker, 0);
        put_first_head(node, union_nodes[0].fixture.store->local.sb.history);
    }
    open_node(node);
}

void several_begin(void)
{
    char directory[40];
    strcpy(directory, "/tmp/cairn-union-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
    union_prefix.path = xstrdup(directory);
    for (unsigned i = 0; i < NODES; i++)
        begin_node(&union_nodes[i], i);
    put_marker(&union_nodes[0], "cairn", "cairn", SUPERBLOCK_INCOMPAT_NODES);
    cr_assert_geq(union_nodes[1].fixture.store->local.epoch, union_nodes[1].number);
}

void rows_done(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free(rows->at[i].value);
    vector_free(rows);
}

void several_end(void)
{
    for (unsigned i = 0; i < NODES; i++) {
        fixture_remove(&union_nodes[i].fixture);
        free(union_nodes[i].prefix);
    }
    shell("rm -rf %s", union_prefix.path);
    rows_done(&union_prefix.rows);
    free(union_prefix.path);
}

/* --- the union -------------------------------------------------------------------------------- */

static int compare_rows(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    int order = memcmp(x->key, y->key, x->key_len < y->key_len ? x->key_len : y->key_len);
    return order ? order : (x->key_len > y->key_len) - (x->key_len < y->key_len);
}

struct row *rows_add(struct rows *rows, const struct run_row *from)
{
    struct row *row = vector_next(rows);
    *row = (struct row){.key_len = from->key_len, .value_len = from->value_len};
    memcpy(row->key, from->key, from->key_len);
    if (from->value) {
        row->value = xmalloc(from->value_len + 1);
        memcpy(row->value, from->value, from->value_len);
    }
    return row;
}

static bool is_of_root(const struct run_row *row)
{
    static const uint8_t ino[8] = {[7] = ROOT_INO};
    return *(const uint8_t *)row->key == 'I' && memcmp((const uint8_t *)row->key + 1, ino, 8) == 0;
}

/* The root, which all nodes have, counts the entries of all. */
static void add_root(const struct run_row *row)
{
    struct row *root = &union_prefix.root;
    struct inode_row inode, before;
    uint8_t value[INODE_VALUE_LEN];
    assert_i64(inode_decode(ROOT_INO, row->value, row->value_len, &inode), 0);
    if (root->value) {
        assert_i64(inode_decode(ROOT_INO, root->value, root->value_len, &before), 0);
        inode.entries += before.entries;
        free(root->value);
    }
    *root = (struct row){.key_len = row->key_len, .value_len = inode_encode(&inode, value)};
    memcpy(root->key, row->key, row->key_len);
    root->value = xmalloc(root->value_len);
    memcpy(root->value, value, root->value_len);
}

static int add_name(const struct run_row *row, void *arg)
{
    (void)arg;
    if (is_of_root(row))
        add_root(row);
    else if (strchr(VIEW_ROWS_OF_NAMES, *(const char *)row->key))
        (void)rows_add(&union_prefix.fresh, row);
    return 0;
}

struct head *several_head_of(struct node *node)
{
    struct head *head = xmalloc(sizeof *head);
    assert_i64(local_head_read(&node->fixture.store->local, head), 0);
    return head;
}

static int put_part(const void *buf, size_t len, void *arg)
{
    memcpy(bytes_extend(arg, len), buf, len);
    return 0;
}

struct run_info several_put_run(const char *directory, struct run_info info,
                                const struct rows *rows)
{
    struct bytes bytes = {0};
    struct run_writer *writer = run_writer_new(&info, put_part, &bytes);
    for (size_t i = 0; i < rows->count; i++) {
        const struct row *row = &rows->at[i];
        assert_i64(run_writer_add(writer, &(struct run_row){row->key, row->key_len, row->value,
                                                            row->value_len}),
                   0);
    }
    assert_i64(run_writer_finish(writer, &info), 0);
    run_writer_free(writer);
    hash_of(bytes.at, bytes.count, info.hash);
    for (unsigned place = 0; place < RUN_PLACES; place++) {
        _cleanup_free_ char *object = xasprintf("%s%s/%016llx", directory, run_directories[place],
                                                (unsigned long long)info.id);
        put_bytes(object, bytes.at, bytes.count);
    }
    vector_free(&bytes);
    return info;
}

/* What is in `to` and not, or otherwise, in `from`; and what is no more. */
static struct rows differences(const struct rows *from, const struct rows *to)
{
    struct rows all = {0};
    for (size_t i = 0, j = 0; i < from->count || j < to->count;) {
        int order = i == from->count ? 1
                    : j == to->count ? -1
                                     : compare_rows(&from->at[i], &to->at[j]);
        const struct row *row = order < 0 ? &from->at[i] : &to->at[j];
        bool same = order == 0 && from->at[i].value_len == row->value_len &&
                    memcmp(from->at[i].value, row->value, row->value_len) == 0;
        if (!same)
            (void)rows_add(&all,
                           &(struct run_row){row->key, row->key_len, order < 0 ? NULL : row->value,
                                             order < 0 ? 0 : row->value_len});
        i += order <= 0;
        j += order >= 0;
    }
    return all;
}

static void put_feed(struct node *node, const struct head *head, uint64_t round)
{
    struct feed feed = {.epoch = node->number,
                        .node = node->told_number ? node->told_number : node->number,
                        .from = node->merged,
                        .to = max_u64(head->cut, node->merged),
                        .lo = round,
                        .hi = round,
                        .max_ino = head->max_ino,
                        .max_id = head->max_id,
                        .head = head->number};
    const struct run_info *runs = node->run_count ? node->runs : head->runs;
    feed.run_count = node->run_count ? node->run_count : head->run_count;
    memcpy(feed.runs, runs, feed.run_count * sizeof *runs);
    memcpy(feed.history, head->history, sizeof feed.history);
    size_t len = feed_encoded_len(&feed);
    _cleanup_free_ uint8_t *bytes = xmalloc(len);
    char object[FEED_NAME_LEN];
    feed_encode(&feed, bytes);
    feed_name(round, feed.epoch, object);
    put_bytes(object, bytes, len);
    hash_of(bytes, len, node->hash);
    node->merged = feed.to;
    node->round = round;
}

static void add_names_of(struct node *node)
{
    _cleanup_free_ struct head *head = several_head_of(node);
    assert_i64(runs_read(&node->fixture.store->local, head, add_name, NULL), 0);
}

static void add_run_of_names(struct head *head)
{
    struct rows news = differences(&union_prefix.rows, &union_prefix.fresh);
    struct run_info info = {.id = (uint64_t)UNION_EPOCH << 24 | head->number,
                            .base_cut = head->run_count ? head->runs[head->run_count - 1].cut : 0,
                            .cut = head->cut};
    memcpy(info.history, head->history, sizeof info.history);
    if (news.count > 0)
        head->runs[head->run_count++] = several_put_run("", info, &news);
    rows_done(&news);
    rows_done(&union_prefix.rows);
    union_prefix.rows = union_prefix.fresh;
    union_prefix.fresh = (struct rows){0};
}

static void add_writer(struct head *head, const struct node *node, const struct head *own)
{
    struct head_writer *writer = &head->writers[head->writer_count++];
    *writer = (struct head_writer){.epoch = node->number,
                                   .node = node->number,
                                   .state = HEAD_WRITER_LIVES,
                                   .merged = node->merged,
                                   .feed_round = node->round};
    memcpy(writer->feed_hash, node->hash, sizeof node->hash);
    head->files += own->files;
    head->logical_bytes += own->logical_bytes;
    head->max_ino = max_u64(head->max_ino, own->max_ino);
    head->max_id = max_u64(head->max_id, own->max_id);
}

void several_publish(void)
{
    struct head *head = &union_prefix.head;
    uint8_t bytes[HEAD_LEN_MAX];
    head->number++;
    head->incompat = SUPERBLOCK_INCOMPAT_NODES;
    head->epoch = UNION_EPOCH;
    head->cut = ROUND + head->number;
    head->writer_count = 0;
    head->files = head->logical_bytes = 0;
    memset(head->nonce, (int)head->number, sizeof head->nonce);
    memset(head->store, 'u', sizeof head->store);
    strcpy(head->holder, "union");
    for (unsigned i = 0; i < NODES; i++) {
        fixture_wait_published(&union_nodes[i].fixture);
        shell("mkdir -p %1$s/packs && if test -d %2$s/packs; then ln -f %2$s/packs/* %1$s/packs/; "
              "fi",
              union_prefix.path, union_nodes[i].prefix);
        _cleanup_free_ struct head *own = several_head_of(&union_nodes[i]);
        memcpy(head->history, own->history, sizeof head->history);
        put_feed(&union_nodes[i], own, head->cut);
        add_writer(head, &union_nodes[i], own);
        add_names_of(&union_nodes[i]);
    }
    vector_add(&union_prefix.fresh, union_prefix.root);
    union_prefix.root = (struct row){0};
    vector_sort(&union_prefix.fresh, compare_rows);
    add_run_of_names(head);
    _cleanup_free_ char *object = xasprintf("heads/%016llx", (unsigned long long)head->number);
    put_bytes(object, bytes, head_encode(head, bytes));
}

void several_put_file(unsigned node, const char *name, unsigned number)
{
    fixture_put(&union_nodes[node].fixture, name, number, 300 * KIB);
}

static int add_any(const struct run_row *row, void *arg)
{
    (void)rows_add(arg, row);
    return 0;
}

void several_split_runs(struct node *node, unsigned runs)
{
    _cleanup_free_ struct head *head = several_head_of(node);
    _cleanup_free_ char *directory = xasprintf("nodes/%016x/", node->number);
    struct rows rows = {0};
    assert_i64(runs_read(&node->fixture.store->local, head, add_any, &rows), 0);
    cr_assert_gt(rows.count, runs);
    for (unsigned i = 0; i < runs; i++) {
        struct run_info info = {.id = (uint64_t)0x50 << 24 | (runs + i),
                                .base_cut = i ? head->cut - runs + i : 0,
                                .cut = head->cut - runs + i + 1};
        size_t from = rows.count * i / runs, to = rows.count * (i + 1) / runs;
        struct rows part = {.at = rows.at + from, .count = to - from};
        memcpy(info.history, head->history, sizeof info.history);
        node->runs[i] = several_put_run(directory, info, &part);
    }
    node->run_count = runs;
    rows_done(&rows);
}
