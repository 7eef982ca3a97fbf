/* Random histories against a model in memory: a tree of names, and files as arrays of units, each of which
 * says which unit of which chunk, or which inline byte, it shows. */
#include "helpers.h"

#include <stdio.h>

#define NODES 40
#define ENTRIES 80
#define CHUNKS 4000

struct node {
    uint64_t ino; /* 0: free */
    uint32_t type;
    uint32_t nlink; /* names */
    bool orphan;
    uint64_t version;
    uint64_t size; /* units */
    uint64_t *units;
};

struct entry {
    struct node *parent, *node; /* node NULL: free */
    char name[8];
    uint64_t cookie;
};

#define INLINE_UNIT (1ull << 63)

static struct fixture f;
static struct node nodes[NODES];
static struct entry entries[ENTRIES];
static uint64_t unit;      /* bytes of a unit */
static uint64_t units_max; /* of a file */
static uint64_t base;      /* all content lies at or after it */
static uint64_t next_ino;
static uint32_t next_chunk;
static uint64_t next_pack;
static bool placed[CHUNKS];
static uint64_t random_state;

static uint64_t rnd(uint64_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (random_state >> 33) % below;
}

static uint64_t to_bytes(uint64_t units)
{
    return units ? base + units * unit : 0;
}

static struct node *random_node(uint32_t type, bool orphans)
{
    for (int tries = 0; tries < 100; tries++) {
        struct node *n = &nodes[rnd(NODES)];
        if (n->ino && (type == 0 || n->type == type) && (orphans || !n->orphan))
            return n;
    }
    return type == S_IFDIR || type == 0 ? &nodes[0] : NULL;
}

static struct node *free_node(void)
{
    for (int i = 0; i < NODES; i++)
        if (!nodes[i].ino)
            return &nodes[i];
    return NULL;
}

static struct entry *find_entry(const struct node *parent, const char *name)
{
    for (int i = 0; i < ENTRIES; i++)
        if (entries[i].node && entries[i].parent == parent && strcmp(entries[i].name, name) == 0)
            return &entries[i];
    return NULL;
}

static struct entry *random_entry(void)
{
    for (int tries = 0; tries < 200; tries++) {
        struct entry *e = &entries[rnd(ENTRIES)];
        if (e->node)
            return e;
    }
    return NULL;
}

static bool is_empty(const struct node *dir)
{
    for (int i = 0; i < ENTRIES; i++)
        if (entries[i].node && entries[i].parent == dir)
            return false;
    return true;
}

static struct entry *entry_of_dir(const struct node *dir)
{
    for (int i = 0; i < ENTRIES; i++)
        if (entries[i].node == dir)
            return &entries[i];
    return NULL;
}

static bool is_below(const struct node *dir, const struct node *above)
{
    while (dir != above && dir != &nodes[0])
        dir = entry_of_dir(dir)->parent;
    return dir == above;
}

static struct entry *new_entry(struct node *parent, struct node *node, const char *name, uint64_t cookie)
{
    for (int i = 0; i < ENTRIES; i++) {
        if (entries[i].node)
            continue;
        entries[i] = (struct entry){.parent = parent, .node = node, .cookie = cookie};
        strcpy(entries[i].name, name);
        return &entries[i];
    }
    return NULL;
}

static bool entries_full(void)
{
    for (int i = 0; i < ENTRIES; i++)
        if (!entries[i].node)
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
    *n = (struct node){.ino = next_ino++, .nlink = 1, .version = 1};
    n->type = rnd(3) == 0 ? S_IFDIR : S_IFREG;
    n->units = xcalloc(units_max, sizeof *n->units);
    new_entry(parent, n, name, f.seq + 1);
    if (n->type == S_IFDIR)
        add_dir(&f, n->ino, parent->ino, name);
    else
        add_file(&f, n->ino, parent->ino, name, 0);
}

static void op_link(void)
{
    struct node *parent = random_node(S_IFDIR, false), *n = random_node(S_IFREG, false);
    char name[8];
    random_name(name);
    if (!n || entries_full() || find_entry(parent, name))
        return;
    n->nlink++;
    new_entry(parent, n, name, f.seq + 1);
    add_link(&f, n->ino, parent->ino, name);
}

static void op_unlink(void)
{
    struct entry *e = random_entry();
    if (!e || (e->node->type == S_IFDIR && !is_empty(e->node)))
        return;
    uint64_t ino = e->node->ino;
    uint32_t flags = lose_name(e->node);
    add_unlink(&f, ino, e->parent->ino, e->name, flags);
    e->node = NULL;
}

static void op_reap(void)
{
    struct node *n = random_node(0, true);
    if (!n->orphan)
        return;
    add(&f, (struct record){.type = REC_REAP, .ino = n->ino});
    free_units(n);
}

static void op_exchange(struct entry *a, struct entry *b)
{
    if (a->node == b->node || (a->node->type == S_IFDIR && is_below(b->parent, a->node)) ||
        (b->node->type == S_IFDIR && is_below(a->parent, b->node)))
        return;
    uint64_t cookie = f.seq + 1;
    add_rename(&f, a->node->ino, a->parent->ino, a->name, b->parent->ino, b->name, b->node->ino,
               RECORD_EXCHANGE);
    struct node *node = a->node;
    a->node = b->node;
    b->node = node;
    b->cookie = cookie;
    a->cookie = cookie + 1;
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
    uint64_t replaced = old ? old->node->ino : 0, cookie = f.seq + 1;
    uint32_t flags = old ? lose_name(old->node) : 0;
    add_rename(&f, e->node->ino, e->parent->ino, e->name, parent->ino, name, replaced, flags);
    struct node *moved = e->node;
    e->node = NULL;
    if (old)
        old->node = NULL;
    new_entry(parent, moved, name, cookie);
}

static uint32_t random_chunk(void)
{
    if (next_chunk < CHUNKS - 1 && rnd(2))
        return next_chunk++;
    return next_chunk > 30 ? next_chunk - 1 - (uint32_t)rnd(30) : (uint32_t)rnd(next_chunk);
}

/* One extent and what it does to the model. */
static struct extent random_extent(struct node *n, uint64_t size, uint8_t *value, uint32_t *value_len)
{
    uint64_t at = rnd(size), len = 1 + rnd(min_u64(size - at, rnd(4) == 0 ? size : 40));
    struct extent e = {.offset = base + at * unit, .kind = (enum extent_kind)rnd(3)};
    uint8_t byte = (uint8_t)('a' + rnd(26));
    uint32_t chunk = random_chunk();
    uint64_t in_chunk = rnd(20), chunk_units = CHUNK_SIZE_MAX / unit;
    if (e.kind == EXTENT_INLINE)
        len = min_u64(len, (INLINE_MAX - *value_len) / unit);
    if (e.kind == EXTENT_CHUNK)
        len = min_u64(len, chunk_units - in_chunk);
    if (len == 0) {
        len = 1;
        e.kind = EXTENT_HOLE;
    }
    e.length = len * unit;
    if (e.kind == EXTENT_CHUNK) {
        e.chunk = chunk_of(chunk);
        e.chunk_offset = (uint32_t)(in_chunk * unit);
    } else if (e.kind == EXTENT_INLINE) {
        memset(value + *value_len, byte, e.length);
        *value_len += (uint32_t)e.length;
    }
    for (uint64_t i = 0; i < len; i++)
        n->units[at + i] = e.kind == EXTENT_HOLE     ? 0
                           : e.kind == EXTENT_INLINE ? INLINE_UNIT | byte
                                                     : ((uint64_t)(chunk + 1) << 32) | (in_chunk + i);
    return e;
}

static void op_seal(void)
{
    struct node *n = random_node(S_IFREG, true);
    if (!n)
        return;
    uint64_t size = rnd(5) == 0 ? rnd(units_max) : min_u64(units_max, n->size + rnd(10));
    uint64_t keep = rnd(3) ? n->size : rnd(units_max);
    if (rnd(10) == 0)
        add(&f, (struct record){.type = REC_SEAL,
                                .flags = RECORD_ELIDED,
                                .ino = n->ino,
                                .version = ++n->version,
                                .attrs = file_attrs(to_bytes(rnd(units_max)))});
    for (uint64_t i = min_u64(keep, size); i < units_max; i++)
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
        add(&f, (struct record){.type = REC_EXTENTS,
                                .ino = n->ino,
                                .version = n->version,
                                .extents = e,
                                .extent_count = early});
    add(&f, (struct record){.type = REC_SEAL,
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
    for (uint32_t i = 0; i < next_chunk && count < ARRAY_LEN(ids); i++)
        if (!placed[i] && rnd(3)) {
            placed[i] = true;
            ids[count++] = i;
        }
    if (count)
        add_pack(&f, next_pack++, ids, count);
}

static int pick_pack(const struct view_pack *pack, void *arg)
{
    uint64_t *picked = arg;
    if (*picked == 0 || rnd(4) == 0)
        *picked = pack->pack;
    return 0;
}

/* Moves what a pack holds that is live to a new one and drops it. In a batch of its own, so that what the
 * view says is true then. */
static void compact(void)
{
    uint64_t pack = 0;
    cr_assert_eq(view_packs(f.view, pick_pack, &pack), 0);
    struct test_pack *p = NULL;
    for (size_t i = 0; i < f.pack_count; i++)
        if (f.packs[i].pack == pack)
            p = &f.packs[i];
    if (!p)
        return;
    uint32_t live[200], count = 0;
    for (uint32_t i = 0; i < p->count; i++) {
        struct chunk_entry entry;
        uint64_t refs;
        int r = view_chunk(f.view, &p->entries[i].name, &entry, &refs);
        if (r == 0 && entry.pack == pack && refs > 0)
            live[count++] = chunk_id(&p->entries[i].name);
        else if (r == 0 && entry.pack == pack)
            placed[chunk_id(&p->entries[i].name)] = false;
    }
    p->gone = true;
    if (count)
        add_pack(&f, next_pack++, live, count);
    add_drop(&f, pack);
    apply_ok(&f);
}

struct content_walk {
    const struct node *node;
    uint64_t at;
};

static int compare_part(const struct view_extent *part, void *arg)
{
    struct content_walk *w = arg;
    const struct extent *e = &part->extent;
    cr_assert_eq(e->offset, w->at);
    cr_assert_gt(e->length, 0);
    w->at += e->length;
    for (uint64_t at = e->offset; at < w->at; at += unit) {
        if (at < base) {
            cr_assert_eq(e->kind, EXTENT_HOLE);
            at = min_u64(base, w->at) - unit;
            continue;
        }
        uint64_t is = 0, skip = at - e->offset;
        if (e->kind == EXTENT_CHUNK)
            is = ((uint64_t)(chunk_id(&e->chunk) + 1) << 32) | ((e->chunk_offset + skip) / unit);
        else if (e->kind == EXTENT_INLINE)
            is = INLINE_UNIT | ((const uint8_t *)part->bytes)[skip];
        cr_assert_eq(is, w->node->units[(at - base) / unit], "unit %lu", (unsigned long)((at - base) / unit));
    }
    return 0;
}

static uint32_t subdirs_of(const struct node *dir)
{
    uint32_t count = 0;
    for (int i = 0; i < ENTRIES; i++)
        count += entries[i].node && entries[i].parent == dir && entries[i].node->type == S_IFDIR;
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
    cr_assert(e && e->node->ino == entry->ino && e->cookie == entry->cookie && e->node->type == entry->type);
    cr_assert_gt(entry->cookie, rc->last);
    rc->last = entry->cookie;
    rc->count++;
    return 0;
}

static void compare_node(const struct node *n)
{
    struct view_inode inode = inode_of(&f, n->ino);
    if (n->type == S_IFREG) {
        struct content_walk w = {.node = n};
        cr_assert_eq(inode.attrs.size, to_bytes(n->size));
        cr_assert_eq(view_extents(f.view, n->ino, 0, 0, INT64_MAX, compare_part, &w), 0);
        cr_assert_eq(w.at, to_bytes(n->size));
        cr_assert_eq(inode.nlink, n->nlink);
        return;
    }
    struct readdir_count rc = {.dir = n};
    int expected = 0;
    for (int i = 0; i < ENTRIES; i++)
        expected += entries[i].node && entries[i].parent == n;
    cr_assert_eq(view_readdir(f.view, n->ino, 0, compare_entry, &rc), 0);
    cr_assert_eq(rc.count, expected);
    cr_assert_eq(inode.nlink, n->orphan ? 0 : 2 + subdirs_of(n));
}

/* Chunks that have references are those that some file shows. */
static void compare_chunks(void)
{
    _cleanup_free_ bool *shown = xcalloc(CHUNKS, sizeof *shown);
    for (int i = 0; i < NODES; i++)
        for (uint64_t u = 0; nodes[i].units && u < units_max; u++)
            if (nodes[i].units[u] && !(nodes[i].units[u] & INLINE_UNIT))
                shown[(nodes[i].units[u] >> 32) - 1] = true;
    uint64_t count = 0;
    for (uint32_t i = 0; i < next_chunk; i++) {
        uint64_t refs = refs_of(&f, i);
        cr_assert_eq(shown[i], refs != 0 && refs != UINT64_MAX);
        cr_assert(placed[i] ? refs != UINT64_MAX : refs != 0);
        count += shown[i];
    }
    cr_assert_eq(view_state(f.view).chunks, count);
}

static void compare_all(void)
{
    uint64_t files = 0;
    for (int i = 0; i < NODES; i++) {
        if (nodes[i].ino)
            compare_node(&nodes[i]);
        files += nodes[i].ino && nodes[i].type == S_IFREG && !nodes[i].orphan;
    }
    cr_assert_eq(view_state(f.view).files, files);
    compare_chunks();
    expect_check_ok(f.view);
}

static void random_op(void)
{
    static void (*const ops[])(void) = {op_make,   op_make, op_make, op_link, op_unlink, op_reap, op_rename,
                                        op_rename, op_seal, op_seal, op_seal, op_seal,   op_pack};
    ops[rnd(ARRAY_LEN(ops))]();
}

static void run(uint64_t seed, uint64_t unit_bytes, uint64_t max, uint64_t first, int batches)
{
    fixture_open(&f);
    random_state = seed;
    unit = unit_bytes;
    units_max = max;
    base = first;
    next_ino = 100;
    next_chunk = next_pack = 1;
    memset(placed, 0, sizeof placed);
    nodes[0] = (struct node){.ino = ROOT_INO, .type = S_IFDIR};
    for (int i = 0; i < batches; i++) {
        for (uint64_t n = rnd(25); n > 0; n--)
            random_op();
        apply_ok(&f);
        if (rnd(8) == 0)
            compact();
        if (rnd(20) == 0)
            fixture_reopen(&f);
        compare_all();
    }
    expect_replay_same(&f);
    for (int i = 0; i < NODES; i++)
        free_units(&nodes[i]);
    memset(entries, 0, sizeof entries);
    fixture_close(&f);
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
