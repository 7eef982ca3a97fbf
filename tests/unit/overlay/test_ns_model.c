// SPDX-License-Identifier: Apache-2.0
#include "test_ns_model.h"
#include "../expect.h"

#include <stdio.h>

struct ns *ns;
struct seeded seed;
struct model_node nodes[NODES];
struct model_entry entries[ENTRIES];

uint64_t rnd(uint64_t below)
{
    return seeded_below(&seed, below);
}

bool is_dir(const struct model_node *n)
{
    return S_ISDIR(n->mode);
}

struct model_node *random_node(bool (*fits)(const struct model_node *n))
{
    for (unsigned tries = 0; tries < 200; tries++) {
        struct model_node *n = &nodes[rnd(NODES)];
        if (n->ino && fits(n))
            return n;
    }
    return fits(&nodes[0]) ? &nodes[0] : NULL;
}

bool fits_dir(const struct model_node *n)
{
    return is_dir(n) && (n == &nodes[0] || n->names > 0);
}

bool fits_file(const struct model_node *n)
{
    return S_ISREG(n->mode) && n->names > 0;
}

bool fits_any(const struct model_node *n)
{
    (void)n;
    return true;
}

struct model_entry *find_entry(const struct model_node *dir, const char *name)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].node && entries[i].dir == dir && strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

bool may_be_below(const struct model_node *n, const struct model_node *dir)
{
    if (n == dir)
        return true;
    if (!is_dir(dir) || n->ino == 0)
        return false;
    if (!is_dir(n) && (n->names > 1 || (n->names == 1 && !n->parent)))
        return true;
    return n->parent && may_be_below(n->parent, dir);
}

/* Through any of its names. */
static bool is_below(const struct model_node *n, const struct model_node *dir)
{
    if (n == dir)
        return true;
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].node == n && is_below(entries[i].dir, dir))
            return true;
    return false;
}

/* --- comparing -------------------------------------------------------------------------------- */

struct listing {
    const struct model_node *dir;
    uint64_t last;
    unsigned count, stop_at;
};

static int check_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    struct listing *l = arg;
    char text[256];
    memcpy(text, name, name_len);
    text[name_len] = '\0';
    const struct model_entry *e = find_entry(l->dir, text);
    cr_assert_not_null(e, "%s is listed", text);
    assert_u64(entry->ino, e->node->ino);
    assert_u64(entry->cookie, e->cookie);
    assert_u64(entry->type, e->node->mode & S_IFMT);
    cr_assert_gt(entry->cookie, l->last);
    l->last = entry->cookie;
    return ++l->count == l->stop_at;
}

static void check_dir(const struct model_node *dir)
{
    unsigned expected = 0;
    for (unsigned i = 0; i < ENTRIES; i++)
        expected += entries[i].node && entries[i].dir == dir;
    struct listing l = {.dir = dir};
    assert_i64(ns_readdir(ns, dir->ino, 0, SIZE_MAX, check_entry, &l), 0);
    assert_u64(l.count, expected);
    if (expected > 1) {
        struct listing first = {.dir = dir, .stop_at = 1 + (unsigned)rnd(expected - 1)};
        assert_i64(ns_readdir(ns, dir->ino, 0, 3, check_entry, &first), 0);
        assert_u64(first.count, first.stop_at);
        struct listing rest = {.dir = dir, .last = first.last};
        assert_i64(ns_readdir(ns, dir->ino, first.last, 1, check_entry, &rest), 0);
        assert_u64(first.count + rest.count, expected);
    }
    assert_i64(ns_check_empty(ns, dir->ino), expected ? -ENOTEMPTY : 0);
    for (unsigned i = 0; i < NAMES; i++) {
        char name[4];
        struct view_entry entry;
        (void)snprintf(name, sizeof name, "n%u", i);
        const struct model_entry *e = find_entry(dir, name);
        assert_i64(ns_lookup(ns, dir->ino, name, strlen(name), &entry), e ? 0 : -ENOENT);
        assert_u64(e ? entry.ino : 0, e ? e->node->ino : 0);
    }
}

static int note_xattr(const char *name, size_t name_len, void *arg)
{
    assert_u64(name_len, 2);
    ((unsigned *)arg)[name[1] - '0']++;
    return 0;
}

static void check_xattrs(const struct model_node *n)
{
    unsigned listed[XATTRS] = {0};
    assert_i64(ns_listxattr(ns, n->ino, note_xattr, listed), 0);
    for (unsigned i = 0; i < XATTRS; i++) {
        char name[] = {'x', (char)('0' + i)};
        uint8_t value[256];
        assert_u64(listed[i], n->xattrs[i] > 0);
        assert_i64(ns_getxattr(ns, n->ino, name, 2, NULL, 0),
                   n->xattrs[i] ? n->xattrs[i] : -ENODATA);
        ssize_t len = ns_getxattr(ns, n->ino, name, 2, value, sizeof value);
        assert_i64(len < 0 ? n->xattrs[i] : value[0], n->xattrs[i]);
        if (n->xattrs[i] > 1)
            assert_i64(ns_getxattr(ns, n->ino, name, 2, value, 1), -ERANGE);
    }
}

static uint32_t links_of(const struct model_node *n)
{
    uint32_t links = n->names;
    if (is_dir(n)) {
        links = n == &nodes[0] || n->names ? 2 : 0;
        for (unsigned i = 0; i < ENTRIES && links; i++)
            links += entries[i].node && entries[i].dir == n && is_dir(entries[i].node);
    }
    return links;
}

static uint64_t last_change(const struct model_node *n)
{
    uint64_t last = 0;
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i].ino && nodes[i].changed > last &&
            (may_be_below(&nodes[i], n) || may_be_below(n, &nodes[i])))
            last = nodes[i].changed;
    return last;
}

static void check_node(const struct model_node *n)
{
    struct ns_inode inode;
    assert_i64(ns_inode(ns, n->ino, &inode), 0);
    assert_u64(inode.nlink, links_of(n), "inode %llu: %u links", (unsigned long long)n->ino,
               inode.nlink);
    assert_u64(inode.attrs.mode, n->mode);
    assert_u64(inode.nascent, n->nascent);
    assert_u64(inode.version, n->version);
    assert_u64(inode.orphan, n != &nodes[0] && n->names == 0);
    if (S_ISREG(n->mode))
        assert_u64(inode.attrs.size, n->size);
    char target[16];
    if (S_ISLNK(n->mode)) {
        assert_i64(ns_readlink(ns, n->ino, target, sizeof target), (ssize_t)strlen(n->target));
        assert_i64(memcmp(target, n->target, strlen(n->target)), 0);
        assert_i64(ns_readlink(ns, n->ino, target, 1), -ERANGE);
    }
    check_xattrs(n);
    if (is_dir(n))
        check_dir(n);
}

void check_all(void)
{
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i].ino)
            check_node(&nodes[i]);
    const struct model_node *a = random_node(fits_any), *dir = random_node(fits_dir);
    bool answer = ns_may_be_below(ns, a->ino, dir->ino);
    assert_u64(answer, may_be_below(a, dir));
    cr_assert(answer || !is_below(a, dir));
    assert_u64(ns_last_change(ns, dir->ino), last_change(dir));
    if (a->names == 1)
        assert_u64(ns_last_change(ns, a->ino), last_change(a), "is %llu, expected %llu",
                   (unsigned long long)ns_last_change(ns, a->ino),
                   (unsigned long long)last_change(a));
}
