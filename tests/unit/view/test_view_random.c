// SPDX-License-Identifier: Apache-2.0
/* Random histories against a model in memory. */
#include "../expect.h"
#include "view_model.h"

#include <stdio.h>

struct content_walk {
    const struct node *node;
    uint64_t at;
};

static int compare_part(const struct view_extent *part, void *arg)
{
    struct content_walk *w = arg;
    const struct extent *e = &part->extent;
    assert_u64(e->offset, w->at);
    cr_assert_gt(e->length, 0);
    w->at += e->length;
    for (uint64_t at = e->offset; at < w->at; at += m.unit) {
        if (at < m.base) {
            assert_u64(e->kind, EXTENT_HOLE);
            at = min_u64(m.base, w->at) - m.unit;
            continue;
        }
        uint64_t is = 0, skip = at - e->offset;
        if (e->kind == EXTENT_CHUNK)
            is = ((uint64_t)(chunk_id(&e->chunk) + 1) << 32) | ((e->chunk_offset + skip) / m.unit);
        else if (e->kind == EXTENT_INLINE)
            is = INLINE_UNIT | ((const uint8_t *)part->bytes)[skip];
        assert_u64(is, w->node->units[(at - m.base) / m.unit], "unit %lu",
                   (unsigned long)((at - m.base) / m.unit));
    }
    return 0;
}

static uint32_t subdirs_of(const struct node *dir)
{
    uint32_t count = 0;
    for (int i = 0; i < ENTRIES; i++)
        count +=
            m.entries[i].node && m.entries[i].parent == dir && m.entries[i].node->type == S_IFDIR;
    return count;
}

struct readdir_count {
    const struct node *dir;
    uint64_t last;
    int count;
};

static int compare_entry(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    struct readdir_count *rc = arg;
    char text[300];
    sprintf(text, "%.*s", (int)len, name);
    struct entry *e = find_entry(rc->dir, text);
    cr_assert(e && e->node->ino == entry->ino && e->cookie == entry->cookie &&
              e->node->type == entry->type);
    cr_assert_gt(entry->cookie, rc->last);
    rc->last = entry->cookie;
    rc->count++;
    return 0;
}

static void compare_node(const struct node *n)
{
    struct view_inode inode = inode_of(&m.f, n->ino);
    if (n->type == S_IFREG) {
        struct content_walk w = {.node = n};
        assert_u64(inode.attrs.size, to_bytes(n->size));
        assert_i64(view_extents(m.f.view, n->ino, 0, INT64_MAX, compare_part, &w), 0);
        assert_u64(w.at, to_bytes(n->size));
        assert_u64(inode.nlink, n->nlink);
        return;
    }
    if (n->type == S_IFLNK) {
        assert_u64(inode.nlink, n->nlink);
        return;
    }
    struct readdir_count rc = {.dir = n};
    int expected = 0;
    for (int i = 0; i < ENTRIES; i++)
        expected += m.entries[i].node && m.entries[i].parent == n;
    assert_i64(view_readdir(m.f.view, n->ino, 0, compare_entry, &rc), 0);
    assert_i64(rc.count, expected);
    assert_u64(inode.nlink, n->orphan ? 0 : 2 + subdirs_of(n));
}

/* Chunks that have references are those that some file shows. */
static void compare_chunks(void)
{
    _cleanup_free_ bool *shown = xcalloc(CHUNKS, sizeof *shown);
    for (int i = 0; i < NODES; i++)
        for (uint64_t u = 0; m.nodes[i].units && u < m.units_max; u++)
            if (m.nodes[i].units[u] && !(m.nodes[i].units[u] & INLINE_UNIT))
                shown[(m.nodes[i].units[u] >> 32) - 1] = true;
    uint64_t count = 0;
    for (uint32_t i = 0; i < m.next_chunk; i++) {
        uint64_t refs = refs_of(&m.f, i);
        assert_u64(shown[i], refs != 0 && refs != UINT64_MAX);
        cr_assert(m.placed[i] ? refs != UINT64_MAX : refs != 0);
        count += shown[i];
    }
    assert_u64(view_state(m.f.view).chunks, count);
}

/* What rests on others has them, however dead they are otherwise. */
static void compare_bases(void)
{
    for (uint32_t i = 0; i < m.next_chunk; i++) {
        struct chunk_name name = chunk_of(i);
        struct view_local_chunk chunk, base;
        if (view_local_chunk(m.f.view, &name, &chunk) < 0 || chunk.entry.pack == 0)
            continue;
        for (size_t k = 0; k < chunk.entry.ref_count; k++) {
            assert_i64(view_local_chunk(m.f.view, &chunk.entry.refs[k].name, &base), 0);
            cr_assert(base.entry.pack != 0 && base.dependents > 0);
            cr_assert(base.entry.depth < chunk.entry.depth);
        }
    }
}

static void compare_all(void)
{
    uint64_t files = 0;
    for (int i = 0; i < NODES; i++) {
        if (m.nodes[i].ino)
            compare_node(&m.nodes[i]);
        files += m.nodes[i].ino && m.nodes[i].type == S_IFREG && !m.nodes[i].orphan;
    }
    assert_u64(view_state(m.f.view).files, files);
    compare_chunks();
    compare_bases();
    expect_check_ok(m.f.view);
}

static void run(uint64_t seed, uint64_t unit_bytes, uint64_t max, uint64_t first, int batches)
{
    model_begin(seed, unit_bytes, max, first);
    for (int i = 0; i < batches; i++) {
        for (uint64_t n = rnd(25); n > 0; n--)
            random_op();
        apply_ok(&m.f);
        if (rnd(4) == 0)
            compact();
        if (rnd(4) == 0)
            condense();
        if (rnd(20) == 0)
            fixture_reopen(&m.f);
        compare_all();
    }
    expect_replay_same(&m.f);
    model_end();
}

Test(random, bytes_around_a_page_border)
{
    for (uint64_t seed = 1; seed <= 6; seed++)
        run(seed, 1, 2000, TEST_PAGE - 1000, 60);
}

Test(random, kibibytes_over_pages)
{
    for (uint64_t seed = 11; seed <= 13; seed++)
        run(seed, 1024, 40000, 0, 60);
}
