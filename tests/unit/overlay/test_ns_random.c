// SPDX-License-Identifier: Apache-2.0
/* Random histories through ns_apply(), with batches applied to the view and retired at random
 * moments, against a model in memory. */
#include <stdio.h>

#include "../expect.h"
#include "../named.h"
#include "test_ns_model.h"

static struct fixture f;
static uint64_t next_ino, applied;

static bool is_dead(const struct model_node *n)
{
    return n != &nodes[0] && n->names == 0 && !n->open;
}

static struct model_entry *random_entry(void)
{
    for (unsigned tries = 0; tries < 200; tries++) {
        struct model_entry *e = &entries[rnd(ENTRIES)];
        if (e->node)
            return e;
    }
    return NULL;
}

static struct model_entry *free_entry(void)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (!entries[i].node)
            return &entries[i];
    return NULL;
}

static bool is_empty(const struct model_node *dir)
{
    for (unsigned i = 0; i < ENTRIES; i++)
        if (entries[i].node && entries[i].dir == dir)
            return false;
    return true;
}

/* --- operations ------------------------------------------------------------------------------- */

static void hold(struct model_node *n)
{
    struct ns_inode inode;
    if (n)
        assert_i64(ns_hold(ns, n->ino, &inode), 0);
}

static void drop(struct model_node *n)
{
    if (n)
        ns_drop(ns, n->ino);
}

/* Performs a record that is history, or happens only in the overlay. */
static uint64_t perform(struct record rec, bool history)
{
    if (history) {
        rec.seq = add(&f, rec);
    } else {
        rec.seq = ++f.seq;
    }
    rec.time = time_of(rec.seq);
    ns_apply(ns, &rec);
    return rec.seq;
}

static void touch(struct model_node *n, uint64_t seq)
{
    if (n && !n->nascent)
        n->changed = seq;
}

static struct model_node *new_node(uint32_t mode, struct model_node *parent)
{
    for (unsigned i = 1; i < NODES; i++) {
        if (nodes[i].ino)
            continue;
        nodes[i] =
            (struct model_node){.ino = next_ino++, .mode = mode, .parent = parent, .names = 1};
        return &nodes[i];
    }
    return NULL;
}

static void name_of(char name[4])
{
    (void)snprintf(name, 4, "n%u", (unsigned)rnd(NAMES));
}

static void bury(struct model_node *n)
{
    if (is_dead(n))
        n->ino = 0;
}

static void make(uint32_t type)
{
    struct model_node *dir = random_node(fits_dir);
    struct model_entry *e = free_entry();
    char name[4];
    name_of(name);
    if (!e || find_entry(dir, name))
        return;
    struct model_node *n = new_node(type | 0700, dir);
    if (!n)
        return;
    n->nascent = type == S_IFREG;
    if (type == S_IFLNK)
        (void)snprintf(n->target, sizeof n->target, "t%u", (unsigned)rnd(1000));
    struct record rec = {.type = n->nascent ? REC_NASCENT : REC_MAKE,
                         .ino = n->ino,
                         .parent = dir->ino,
                         .cookie = f.seq + 1,
                         NAMED(name),
                         .attrs = {.mode = n->mode, .size = strlen(n->target)},
                         VALUED(n->target)};
    n->size = rec.attrs.size;
    hold(dir);
    uint64_t seq = perform(rec, !n->nascent);
    drop(dir);
    *e = (struct model_entry){.dir = dir, .node = n, .cookie = rec.cookie};
    strcpy(e->name, name);
    if (!n->nascent)
        touch(dir, seq);
    touch(n, seq);
}

static int collect_xattr(const struct record *rec, void *arg)
{
    unsigned *count = arg;
    assert_u64(rec->type, REC_SETXATTR);
    (*count)++;
    return 0;
}

static void set_xattr(struct model_node *n, unsigned which, uint8_t len)
{
    if (len == 0 && n->xattrs[which] == 0)
        return;
    char name[] = {'x', (char)('0' + which)}, value[256];
    memset(value, len, sizeof value);
    struct record rec = {.type = len ? REC_SETXATTR : REC_REMOVEXATTR,
                         .ino = n->ino,
                         .name = name,
                         .name_len = 2,
                         .value = value,
                         .value_len = len};
    hold(n);
    uint64_t seq = perform(rec, !n->nascent);
    drop(n);
    n->xattrs[which] = len;
    touch(n, seq);
}

static void seal(struct model_node *n)
{
    struct ns_birth birth = {0};
    bool is_born = ns_birth(ns, n->ino, &birth);
    assert_u64(is_born, n->nascent);
    struct record rec = {.type = REC_SEAL, .ino = n->ino, .version = ++n->version, .keep = n->size};
    n->size = rnd(100000);
    rec.attrs = (struct attrs){.mode = n->mode, .size = n->size};
    if (is_born) {
        rec.flags = RECORD_BIRTH;
        rec.parent = birth.parent;
        rec.cookie = birth.cookie;
        rec.name = birth.name;
        rec.name_len = birth.name_len;
        rec.keep = 0;
    }
    if (rec.keep > n->size)
        rec.keep = n->size;
    hold(n);
    if (is_born)
        hold(n->parent);
    uint64_t seq = perform(rec, true);
    n->nascent = false;
    touch(n, seq);
    if (is_born) {
        touch(n->parent, seq);
        drop(n->parent);
        unsigned dumped = 0, expected = 0;
        assert_i64(ns_dump_xattrs(ns, n->ino, collect_xattr, &dumped), 0);
        for (unsigned i = 0; i < XATTRS; i++) {
            expected += n->xattrs[i] > 0;
            if (n->xattrs[i])
                set_xattr(n, i, n->xattrs[i]);
        }
        assert_u64(dumped, expected);
    }
    drop(n);
}

static void link_one(void)
{
    struct model_node *n = random_node(fits_file), *dir = random_node(fits_dir);
    struct model_entry *e = free_entry();
    char name[4];
    name_of(name);
    if (!n || !e || find_entry(dir, name))
        return;
    if (n->nascent)
        seal(n);
    struct record rec = {
        .type = REC_LINK, .ino = n->ino, .parent = dir->ino, .cookie = f.seq + 1, NAMED(name)};
    hold(n);
    hold(dir);
    uint64_t seq = perform(rec, true);
    drop(dir);
    drop(n);
    *e = (struct model_entry){.dir = dir, .node = n, .cookie = rec.cookie};
    strcpy(e->name, name);
    n->names++;
    if (!n->parent)
        n->parent = dir;
    touch(dir, seq);
    touch(n, seq);
}

static void lose_name(struct model_node *n, const struct model_node *dir)
{
    n->names--;
    if (n->names > 0 && n->parent == dir)
        n->parent = NULL;
}

static void unlink_one(void)
{
    struct model_entry *e = random_entry();
    if (!e || (is_dir(e->node) && !is_empty(e->node)))
        return;
    struct model_node *n = e->node, *dir = e->dir;
    bool nascent = n->nascent;
    struct record rec = {.type = REC_UNLINK,
                         .flags = n->names == 1 && n->open ? RECORD_ORPHAN : 0,
                         .ino = n->ino,
                         .parent = dir->ino,
                         NAMED(e->name)};
    hold(n);
    hold(dir);
    uint64_t seq = perform(rec, !nascent);
    drop(dir);
    drop(n);
    e->node = NULL;
    lose_name(n, dir);
    if (!nascent)
        touch(dir, seq);
    touch(n, seq);
    bury(n);
}

static bool may_replace(const struct model_node *source, const struct model_node *target)
{
    if (is_dir(source) != is_dir(target))
        return false;
    return !is_dir(target) || is_empty(target);
}

static void rename_one(void)
{
    struct model_entry *e = random_entry(), *other;
    struct model_node *to = random_node(fits_dir);
    char name[4];
    name_of(name);
    if (!e || (is_dir(e->node) && may_be_below(to, e->node)))
        return;
    struct model_node *n = e->node, *from = e->dir;
    other = find_entry(to, name);
    struct model_node *old = other ? other->node : NULL;
    bool exchange = old && rnd(2) && !(is_dir(old) && may_be_below(from, old));
    if (old == n || (old && !exchange && !may_replace(n, old)))
        return;
    if (n->nascent)
        seal(n);
    if (old && old->nascent)
        seal(old);
    uint64_t cookie = f.seq + 2, cookie2 = exchange ? cookie - 1 : 0;
    f.seq++;
    if (rnd(4)) { /* as renames do: names keep their places, else a file does in its directory */
        cookie = other ? other->cookie : from == to ? e->cookie : cookie;
        cookie2 = exchange ? e->cookie : 0;
    }
    struct record rec = {.type = REC_RENAME,
                         .flags = exchange ? RECORD_EXCHANGE : 0,
                         .ino = n->ino,
                         .ino2 = old ? old->ino : 0,
                         .parent = from->ino,
                         .parent2 = to->ino,
                         .cookie = cookie,
                         .cookie2 = cookie2,
                         NAMED(e->name),
                         NAMED2(name)};
    if (old && !exchange && old->names == 1 && old->open)
        rec.flags |= RECORD_ORPHAN;
    struct model_node *held[] = {from, to, n, old};
    for (unsigned i = 0; i < 4; i++)
        hold(held[i]);
    uint64_t seq = perform(rec, true);
    for (unsigned i = 0; i < 4; i++)
        drop(held[i]);
    for (unsigned i = 0; i < 4; i++)
        touch(held[i], seq);
    n->parent = to;
    if (exchange) {
        old->parent = from;
        e->node = old;
        e->cookie = rec.cookie2;
        other->node = n;
        other->cookie = cookie;
        return;
    }
    if (old) {
        lose_name(old, to);
        other->node = NULL;
        bury(old);
    }
    e->dir = to;
    strcpy(e->name, name);
    e->cookie = cookie;
}

static void set_mode(void)
{
    struct model_node *n = random_node(fits_any);
    n->mode = (n->mode & S_IFMT) | (uint32_t)rnd(01000);
    struct record rec = {
        .type = REC_SETATTR, .ino = n->ino, .mask = ATTR_MODE, .attrs = {.mode = n->mode}};
    hold(n);
    uint64_t seq = perform(rec, !n->nascent);
    drop(n);
    touch(n, seq);
}

static void open_or_close(void)
{
    struct model_node *n = random_node(fits_any);
    if (n == &nodes[0])
        return;
    if (!n->open) {
        hold(n);
        n->open = true;
        return;
    }
    if (n->names == 0) {
        struct record rec = {.type = REC_REAP, .ino = n->ino};
        touch(n, perform(rec, !n->nascent));
    }
    drop(n);
    n->open = false;
    bury(n);
}

static void retire(void)
{
    if (f.seq > applied && rnd(2)) {
        applied = f.seq;
        apply_ok(&f);
        if (rnd(2))
            return;
    }
    ns_retire(ns, applied);
    for (unsigned i = 0; i < NODES; i++)
        if (nodes[i].changed <= applied)
            nodes[i].changed = 0;
}

static void step(void)
{
    struct model_node *n;
    switch (rnd(14)) {
    case 0:
        make(S_IFDIR);
        break;
    case 1:
        make(S_IFLNK);
        break;
    case 2:
    case 3:
        make(S_IFREG);
        break;
    case 4:
    case 5:
        if ((n = random_node(fits_file)))
            seal(n);
        break;
    case 6:
        link_one();
        break;
    case 7:
        unlink_one();
        break;
    case 8:
    case 9:
        rename_one();
        break;
    case 10:
        set_mode();
        break;
    case 11:
        n = random_node(fits_any);
        set_xattr(n, (unsigned)rnd(XATTRS), (uint8_t)(rnd(3) ? 1 + rnd(200) : 0));
        break;
    case 12:
        open_or_close();
        break;
    default:
        retire();
        break;
    }
}

/* So little that directories are known in part, and forgotten. */
static void vary_clean_max(void)
{
    static const size_t bytes[] = {0, 500, 1500, NS_CLEAN_BYTES};
    if (rnd(8) == 0)
        ns_set_clean_max(ns, bytes[rnd(ARRAY_LEN(bytes))]);
}

static void run(uint64_t number, unsigned steps)
{
    seed.state = number;
    fixture_open(&f);
    memset(nodes, 0, sizeof nodes);
    memset(entries, 0, sizeof entries);
    nodes[0] = (struct model_node){.ino = ROOT_INO, .mode = S_IFDIR | 0755};
    next_ino = 100;
    applied = f.seq;
    ns = ns_new(f.view);
    for (unsigned i = 0; i < steps; i++) {
        step();
        vary_clean_max();
        check_all();
    }
    for (unsigned i = 1; i < NODES; i++)
        if (nodes[i].ino && nodes[i].nascent && nodes[i].names)
            seal(&nodes[i]);
    applied = f.seq;
    apply_ok(&f);
    ns_retire(ns, applied);
    for (unsigned i = 0; i < NODES; i++)
        nodes[i].changed = 0;
    check_all();
    for (unsigned i = 1; i < NODES; i++)
        if (nodes[i].ino && nodes[i].open)
            drop(&nodes[i]);
    ns_free(ns);
    expect_check_ok(f.view);
    fixture_close(&f);
}

TestSuite(ns_random, .timeout = 600);

Test(ns_random, against_a_model)
{
    for (uint64_t i = 0; i < 8; i++)
        run(i, 400);
}
