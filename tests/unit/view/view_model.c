// SPDX-License-Identifier: Apache-2.0
#include "view_model.h"
#include "../expect.h"

#include <stdio.h>

struct model m;

uint64_t rnd(uint64_t below)
{
    return seeded_below(&m.random, below);
}

uint64_t to_bytes(uint64_t units)
{
    return units ? m.base + units * m.unit : 0;
}

static struct node *random_node(uint32_t type, bool orphans)
{
    for (int tries = 0; tries < 100; tries++) {
        struct node *n = &m.nodes[rnd(NODES)];
        if (n->ino && (type == 0 || n->type == type) && (orphans || !n->orphan))
            return n;
    }
    return type == S_IFDIR || type == 0 ? &m.nodes[0] : NULL;
}

static struct node *free_node(void)
{
    for (int i = 0; i < NODES; i++)
        if (!m.nodes[i].ino)
            return &m.nodes[i];
    return NULL;
}

struct entry *find_entry(const struct node *parent, const char *name)
{
    for (int i = 0; i < ENTRIES; i++)
        if (m.entries[i].node && m.entries[i].parent == parent &&
            strcmp(m.entries[i].name, name) == 0)
            return &m.entries[i];
    return NULL;
}

static struct entry *random_entry(void)
{
    for (int tries = 0; tries < 200; tries++) {
        struct entry *e = &m.entries[rnd(ENTRIES)];
        if (e->node)
            return e;
    }
    return NULL;
}

static bool is_empty(const struct node *dir)
{
    for (int i = 0; i < ENTRIES; i++)
        if (m.entries[i].node && m.entries[i].parent == dir)
            return false;
    return true;
}

static struct entry *entry_of_dir(const struct node *dir)
{
    for (int i = 0; i < ENTRIES; i++)
        if (m.entries[i].node == dir)
            return &m.entries[i];
    return NULL;
}

static bool is_below(const struct node *dir, const struct node *above)
{
    while (dir != above && dir != &m.nodes[0])
        dir = entry_of_dir(dir)->parent;
    return dir == above;
}

static struct entry *new_entry(struct node *parent, struct node *node, const char *name,
                               uint64_t cookie)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (m.entries[i].node)
            continue;
        m.entries[i] = (struct entry){.parent = parent, .node = node, .cookie = cookie};
        strcpy(m.entries[i].name, name);
        return &m.entries[i];
    }
    return NULL;
}

static bool entries_full(void)
{
    for (int i = 0; i < ENTRIES; i++)
        if (!m.entries[i].node)
            return false;
    return true;
}

static void random_name(char name[8])
{
    sprintf(name, "n%d", (int)rnd(12));
}

static void free_units(struct node *n)
{
    free(n->units);
    *n = (struct node){0};
}

/* Loses a name; returns the flags for the record. */
static uint32_t lose_name(struct node *n)
{
    if (--n->nlink > 0)
        return 0;
    if (rnd(3) == 0) {
        n->orphan = true;
        return RECORD_ORPHAN;
    }
    free_units(n);
    return 0;
}

static void op_make(void)
{
    struct node *parent = random_node(S_IFDIR, false), *n = free_node();
    char name[8];
    random_name(name);
    if (!n || entries_full() || find_entry(parent, name))
        return;
    *n = (struct node){.ino = m.next_ino++, .nlink = 1, .version = 1};
    n->type = rnd(3) == 0 ? S_IFDIR : S_IFREG;
    n->units = xcalloc(m.units_max, sizeof *n->units);
    new_entry(parent, n, name, m.f.seq + 1);
    if (n->type == S_IFDIR)
        add_dir(&m.f, n->ino, parent->ino, name);
    else
        add_file(&m.f, n->ino, parent->ino, name, 0);
}

static void op_symlink(void)
{
    struct node *parent = random_node(S_IFDIR, false), *n = free_node();
    char name[8], target[24];
    random_name(name);
    if (!n || entries_full() || find_entry(parent, name))
        return;
    *n = (struct node){.ino = m.next_ino++, .nlink = 1, .type = S_IFLNK};
    new_entry(parent, n, name, m.f.seq + 1);
    sprintf(target, "to/%d", (int)rnd(1000000));
    add_make(&m.f, n->ino, parent->ino, name, (struct attrs){.mode = S_IFLNK | 0777, .mtime = 6},
             target);
}

static void op_xattr(void)
{
    struct node *n = random_node(0, true);
    uint32_t i = (uint32_t)rnd(5), bit = 1u << i;
    bool removes = (n->xattrs & bit) && rnd(3) == 0;
    char name[16], value[40];
    int len = sprintf(name, "user.%u", i);
    memset(value, (int)('a' + rnd(26)), sizeof value);
    n->xattrs = removes ? n->xattrs & ~bit : n->xattrs | bit;
    add(&m.f, (struct record){.type = removes ? REC_REMOVEXATTR : REC_SETXATTR,
                              .ino = n->ino,
                              .name = name,
                              .name_len = (uint16_t)len,
                              .value = value,
                              .value_len = removes ? 0 : (uint32_t)rnd(sizeof value)});
}

static void op_setattr(void)
{
    struct node *n = random_node(0, true);
    add(&m.f, (struct record){.type = REC_SETATTR,
                              .ino = n->ino,
                              .mask = ATTR_UID | ATTR_MTIME,
                              .attrs = {.uid = (uint32_t)rnd(1000), .mtime = (int64_t)rnd(1000)}});
}

static void op_link(void)
{
    struct node *parent = random_node(S_IFDIR, false), *n = random_node(S_IFREG, false);
    char name[8];
    random_name(name);
    if (!n || entries_full() || find_entry(parent, name))
        return;
    n->nlink++;
    new_entry(parent, n, name, m.f.seq + 1);
    add_link(&m.f, n->ino, parent->ino, name);
}

static void op_unlink(void)
{
    struct entry *e = random_entry();
    if (!e || (e->node->type == S_IFDIR && !is_empty(e->node)))
        return;
    uint64_t ino = e->node->ino;
    uint32_t flags = lose_name(e->node);
    add_unlink(&m.f, ino, e->parent->ino, e->name, flags);
    e->node = NULL;
}

static void op_reap(void)
{
    struct node *n = random_node(0, true);
    if (!n->orphan)
        return;
    add(&m.f, (struct record){.type = REC_REAP, .ino = n->ino});
    free_units(n);
}

static void op_exchange(struct entry *a, struct entry *b)
{
    if (a->node == b->node || (a->node->type == S_IFDIR && is_below(b->parent, a->node)) ||
        (b->node->type == S_IFDIR && is_below(a->parent, b->node)))
        return;
    uint64_t a_cookie = a->cookie, b_cookie = b->cookie;
    m.f.seq++;
    if (rnd(2)) {
        b_cookie = m.f.seq;
        a_cookie = m.f.seq + 1;
    }
    add_rename_at(&m.f, a->node->ino, a->parent->ino, a->name, b->parent->ino, b->name,
                  b->node->ino, RECORD_EXCHANGE, b_cookie, a_cookie);
    struct node *node = a->node;
    a->node = b->node;
    b->node = node;
    b->cookie = b_cookie;
    a->cookie = a_cookie;
}

static void op_rename(void)
{
    struct entry *e = random_entry();
    struct node *parent = random_node(S_IFDIR, false);
    char name[8];
    random_name(name);
    if (!e || (e->node->type == S_IFDIR && is_below(parent, e->node)))
        return;
    struct entry *old = find_entry(parent, name);
    if (old && rnd(3) == 0) {
        op_exchange(e, old);
        return;
    }
    if (old && (old->node == e->node || old->node->type != e->node->type ||
                (old->node->type == S_IFDIR && !is_empty(old->node))))
        return;
    uint64_t replaced = old ? old->node->ino : 0, cookie = m.f.seq + 1;
    uint32_t flags = old ? lose_name(old->node) : 0;
    if (rnd(2)) /* the place of the name, or in its directory of the file */
        cookie = old ? old->cookie : e->parent == parent ? e->cookie : cookie;
    add_rename_at(&m.f, e->node->ino, e->parent->ino, e->name, parent->ino, name, replaced, flags,
                  cookie, 0);
    struct node *moved = e->node;
    e->node = NULL;
    if (old)
        old->node = NULL;
    new_entry(parent, moved, name, cookie);
}

static uint32_t random_chunk(void)
{
    if (m.next_chunk < CHUNKS - 1 && rnd(2))
        return m.next_chunk++;
    return m.next_chunk > 30 ? m.next_chunk - 1 - (uint32_t)rnd(30) : (uint32_t)rnd(m.next_chunk);
}

/* One extent and what it does to the model. */
static struct extent random_extent(struct node *n, uint64_t size, uint8_t *value,
                                   uint32_t *value_len)
{
    uint64_t at = rnd(size), len = 1 + rnd(min_u64(size - at, rnd(4) == 0 ? size : 40));
    struct extent e = {.offset = m.base + at * m.unit, .kind = (enum extent_kind)rnd(3)};
    uint8_t byte = (uint8_t)('a' + rnd(26));
    uint32_t chunk = random_chunk();
    uint64_t in_chunk = rnd(20), chunk_units = CHUNK_SIZE_MAX / m.unit;
    if (e.kind == EXTENT_INLINE)
        len = min_u64(len, (INLINE_MAX - *value_len) / m.unit);
    if (e.kind == EXTENT_CHUNK)
        len = min_u64(len, chunk_units - in_chunk);
    if (len == 0) {
        len = 1;
        e.kind = EXTENT_HOLE;
    }
    e.length = len * m.unit;
    if (e.kind == EXTENT_CHUNK) {
        e.chunk = chunk_of(chunk);
        e.chunk_offset = (uint32_t)(in_chunk * m.unit);
    } else if (e.kind == EXTENT_INLINE) {
        memset(value + *value_len, byte, e.length);
        *value_len += (uint32_t)e.length;
    }
    for (uint64_t i = 0; i < len; i++)
        n->units[at + i] = e.kind == EXTENT_HOLE ? 0
                           : e.kind == EXTENT_INLINE
                               ? INLINE_UNIT | byte
                               : ((uint64_t)(chunk + 1) << 32) | (in_chunk + i);
    return e;
}

static void op_seal(void)
{
    struct node *n = random_node(S_IFREG, true);
    if (!n)
        return;
    uint64_t size = rnd(5) == 0 ? rnd(m.units_max) : min_u64(m.units_max, n->size + rnd(10));
    uint64_t keep = rnd(3) ? n->size : rnd(m.units_max);
    if (rnd(10) == 0)
        add(&m.f, (struct record){.type = REC_SEAL,
                                  .flags = RECORD_ELIDED,
                                  .ino = n->ino,
                                  .version = ++n->version,
                                  .attrs = file_attrs(to_bytes(rnd(m.units_max)))});
    for (uint64_t i = min_u64(keep, size); i < m.units_max; i++)
        n->units[i] = 0;
    struct extent e[12];
    uint8_t value[INLINE_MAX];
    uint32_t value_len = 0, count = size ? (uint32_t)rnd(ARRAY_LEN(e)) : 0;
    for (uint32_t i = 0; i < count; i++)
        e[i] = random_extent(n, size, value, &value_len);
    uint32_t early = 0; /* extents that go into a record of their own; inline content cannot */
    while (early < count && e[early].kind != EXTENT_INLINE && rnd(2))
        early++;
    n->version++;
    n->size = size;
    if (early)
        add(&m.f, (struct record){.type = REC_EXTENTS,
                                  .ino = n->ino,
                                  .version = n->version,
                                  .extents = e,
                                  .extent_count = early});
    add(&m.f, (struct record){.type = REC_SEAL,
                              .ino = n->ino,
                              .version = n->version,
                              .keep = to_bytes(keep),
                              .attrs = file_attrs(to_bytes(size)),
                              .extents = e + early,
                              .extent_count = count - early,
                              .value = value,
                              .value_len = value_len});
}

/* Packs with some chunks that have no place yet. */
static void op_pack(void)
{
    uint32_t ids[200], count = 0;
    for (uint32_t i = 0; i < m.next_chunk && count < ARRAY_LEN(ids); i++)
        if (!m.placed[i] && rnd(3)) {
            m.placed[i] = true;
            ids[count++] = i;
        }
    if (count)
        add_pack(&m.f, m.next_pack++, ids, count);
}

static int pick_pack(const struct view_pack *pack, void *arg)
{
    uint64_t *picked = arg;
    if (*picked == 0 || rnd(4) == 0)
        *picked = pack->pack;
    return 0;
}

/* Moves what a pack holds that is live to a new one and drops it. In a batch of its own, so that
 * what the view says is true then. */
void compact(void)
{
    uint64_t pack = 0;
    assert_i64(view_packs(m.f.view, pick_pack, &pack), 0);
    struct test_pack *p = NULL;
    for (size_t i = 0; i < m.f.pack_count; i++)
        if (m.f.packs[i].pack == pack)
            p = &m.f.packs[i];
    if (!p)
        return;
    uint32_t live[200], count = 0;
    struct chunk_entry entries[200];
    for (uint32_t i = 0; i < p->count; i++) {
        struct view_local_chunk now;
        int r = view_local_chunk(m.f.view, &p->entries[i].name, &now);
        if (r == 0 && now.entry.pack == pack && view_is_live(&now)) {
            entries[count] = now.entry;
            live[count++] = chunk_id(&p->entries[i].name);
        } else if (r == 0 && now.entry.pack == pack)
            m.placed[chunk_id(&p->entries[i].name)] = false;
    }
    p->gone = true;
    if (count)
        add_pack(&m.f, m.next_pack++, live, count);
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < entries[i].ref_count; k++)
            rest_on(&m.f, i, chunk_id(&entries[i].refs[k].name), entries[i].depth);
    add_drop(&m.f, pack);
    apply_ok(&m.f);
}

static bool may_be_base(uint32_t id, struct view_local_chunk *ret)
{
    struct chunk_name name = chunk_of(id);
    return m.placed[id] && view_local_chunk(m.f.view, &name, ret) == 0 && ret->entry.pack &&
           ret->entry.depth < 2;
}

void condense(void)
{
    uint32_t ids[20], count = 0, bases[20][2];
    uint8_t depths[20][2];
    for (int tries = 0; tries < 200 && count < ARRAY_LEN(ids); tries++) {
        struct view_local_chunk self, base;
        uint32_t id = 1 + (uint32_t)rnd(m.next_chunk), found = 0;
        bool is_new = id < m.next_chunk && may_be_base(id, &self) && self.dependents == 0 &&
                      self.entry.ref_count == 0 && self.refs > 0;
        for (uint32_t i = 0; i < count && is_new; i++)
            is_new = ids[i] != id && bases[i][0] != id && bases[i][1] != id;
        for (int more = 0; more < 50 && found < 2 && is_new; more++) {
            uint32_t other = 1 + (uint32_t)rnd(m.next_chunk);
            bool is_taken = other == id || other >= m.next_chunk;
            for (uint32_t i = 0; i < count; i++)
                is_taken = is_taken || ids[i] == other;
            if (is_taken || !may_be_base(other, &base))
                continue;
            bases[count][found] = other;
            depths[count][found++] = base.entry.depth + 1;
        }
        if (found == 2)
            ids[count++] = id;
    }
    if (count == 0)
        return;
    add_pack(&m.f, m.next_pack++, ids, count);
    for (uint32_t i = 0; i < count; i++)
        for (size_t k = 0; k < 2; k++)
            rest_on(&m.f, i, bases[i][k], depths[i][k]);
    apply_ok(&m.f);
}

void random_op(void)
{
    static void (*const ops[])(void) = {
        op_make, op_make, op_make, op_link, op_unlink, op_reap,    op_rename, op_rename,
        op_seal, op_seal, op_seal, op_seal, op_pack,   op_symlink, op_xattr,  op_setattr};
    ops[rnd(ARRAY_LEN(ops))]();
}

void model_begin(uint64_t seed, uint64_t unit, uint64_t units_max, uint64_t base)
{
    m = (struct model){.random = {seed},
                       .unit = unit,
                       .units_max = units_max,
                       .base = base,
                       .next_ino = 100,
                       .next_chunk = 1,
                       .next_pack = 1,
                       .nodes = {{.ino = ROOT_INO, .type = S_IFDIR}}};
    fixture_open(&m.f);
}

void model_end(void)
{
    for (int i = 0; i < NODES; i++)
        free_units(&m.nodes[i]);
    fixture_close(&m.f);
}
