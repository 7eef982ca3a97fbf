// SPDX-License-Identifier: Apache-2.0
#include "merge_fixture.h"

#include "../expect.h"

struct fixture f;
struct merge *merge;
uint64_t impossible;
static int64_t now;

void merge_setup(void)
{
    fixture_open(&f);
    merge = merge_new(f.view);
    now = T0 * 10;
}

void merge_expect_whole(void)
{
    expect_check_ok(f.view);
    assert_u64(merge_counts(merge).impossible, impossible);
}

void merge_teardown(void)
{
    merge_free(merge);
    fixture_close(&f);
}

/* --- operations of nodes ---------------------------------------------------------------------- */

uint64_t new_ino(struct node *node)
{
    return node->epoch << 24 | ++node->inos;
}

uint64_t merge_op(struct node *node, struct record rec)
{
    rec.seq = (node->epoch << SEQ_EPOCH_SHIFT) + ++node->ops;
    rec.time = ++now;
    if (rec.cookie == 0)
        rec.cookie = rec.seq;
    const struct merge_op op = {
        .rec = &rec, .owns = rec.ino >> 24 == node->epoch, .owns2 = rec.ino2 >> 24 == node->epoch};
    assert_i64(merge_record(merge, &op), 0, "%s", record_type_name(rec.type));
    return rec.ino;
}

uint64_t make_dir(struct node *node, uint64_t parent, const char *name)
{
    return merge_op(node, (struct record){.type = REC_MAKE,
                                          .ino = new_ino(node),
                                          .parent = parent,
                                          .attrs = {.mode = S_IFDIR | 0750, .uid = 7},
                                          NAMED(name)});
}

uint64_t make_file(struct node *node, uint64_t parent, const char *name)
{
    return merge_op(node, (struct record){.type = REC_VERSION,
                                          .flags = RECORD_BIRTH,
                                          .ino = new_ino(node),
                                          .version = 1,
                                          .parent = parent,
                                          .attrs = {.mode = S_IFREG | 0644, .size = 5},
                                          NAMED(name)});
}

void write_file(struct node *node, uint64_t ino, uint64_t version, uint64_t size)
{
    (void)merge_op(node, (struct record){.type = REC_VERSION,
                                         .ino = ino,
                                         .version = version,
                                         .attrs = {.mode = S_IFREG | 0644, .size = size}});
}

void remove_name(struct node *node, uint64_t ino, uint64_t parent, const char *name)
{
    (void)merge_op(node,
                   (struct record){.type = REC_UNLINK, .ino = ino, .parent = parent, NAMED(name)});
}

static void rename_to(struct node *node, uint32_t flags, uint64_t ino, uint64_t ino2,
                      uint64_t parent, const char *name, uint64_t parent2, const char *name2)
{
    (void)merge_op(node, (struct record){.type = REC_RENAME,
                                         .flags = flags,
                                         .ino = ino,
                                         .ino2 = ino2,
                                         .parent = parent,
                                         .parent2 = parent2,
                                         NAMED(name),
                                         .name2 = name2,
                                         .name2_len = (uint16_t)strlen(name2)});
}

void move(struct node *node, uint64_t ino, uint64_t ino2, uint64_t parent, const char *name,
          uint64_t parent2, const char *name2)
{
    rename_to(node, 0, ino, ino2, parent, name, parent2, name2);
}

void move_over(struct node *node, uint64_t ino, uint64_t ino2, uint64_t parent, const char *name,
               uint64_t parent2, const char *name2)
{
    rename_to(node, RECORD_ORPHAN, ino, ino2, parent, name, parent2, name2);
    reap(node, ino2);
}

struct node one = {.epoch = 1}, two = {.epoch = 2}, three = {.epoch = 3};

uint64_t at(const char *path)
{
    uint64_t ino = ROOT_INO;
    _cleanup_free_ char *copy = xstrdup(path);
    char *rest = copy, *name;
    while (ino && (name = strsep(&rest, "/")))
        ino = lookup(&f, ino, name);
    return ino;
}

void expect_absent(uint64_t ino)
{
    struct view_inode inode;
    assert_i64(view_inode(f.view, ino, &inode), -ENOENT);
}

void reap(struct node *node, uint64_t ino)
{
    (void)merge_op(node, (struct record){.type = REC_REAP, .ino = ino});
}

void remove_last(struct node *node, uint64_t ino, uint64_t parent, const char *name)
{
    (void)merge_op(
        node,
        (struct record){
            .type = REC_UNLINK, .flags = RECORD_ORPHAN, .ino = ino, .parent = parent, NAMED(name)});
}

void remove_file(struct node *node, uint64_t ino, uint64_t parent, const char *name)
{
    remove_last(node, ino, parent, name);
    reap(node, ino);
}

void link_to(struct node *node, uint64_t ino, uint64_t parent, const char *name)
{
    (void)merge_op(node,
                   (struct record){.type = REC_LINK, .ino = ino, .parent = parent, NAMED(name)});
}

int count_one(uint64_t ino, void *count)
{
    (void)ino;
    (*(unsigned *)count)++;
    return 0;
}
