// SPDX-License-Identifier: Apache-2.0
/* Recounts the namespace. Walks the keys of each type in order and merges sorted tallies: memory is
 * a few words for each name and piece, for the time of the check. */
#include "view/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define ID(x) ((unsigned long long)(x))

static const char *const tally_names[TALLIES] = {
    [NAMES] = "a name",
    [ENTRIES] = "names in a directory",
    [SUBDIRS] = "directories in a directory",
    [PAGES] = "extent pages",
    [BLOCKS] = "content",
    [XATTRS] = "xattrs",
    [LINKS] = "a link target",
    [ORPHANS] = "an orphan entry",
    [LIVE_BYTES] = "live bytes in pack",
    [LIVE_COUNT] = "live chunks in pack",
    [PLACED] = "chunks in pack",
    [LISTS] = "a list of pack",
    [REMOTE_LIVE_BYTES] = "live bytes in remote pack",
    [REMOTE_LIVE_COUNT] = "live chunks in remote pack",
    [REMOTE_PLACED] = "chunks in remote pack",
    [REMOTE_LISTS] = "a list of remote pack",
};

void check_differs(struct checker *c, const char *fmt, ...)
{
    char line[512];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    c->found++;
    if (c->report)
        c->report(line, c->arg);
}

void check_counted(struct checker *c, const char *owner, uint64_t id, const char *what, uint64_t is,
                   uint64_t counted)
{
    if (is != counted)
        check_differs(c, "%s %llu: %s is %llu, counted %llu", owner, ID(id), what, ID(is),
                      ID(counted));
}

void check_counters(struct checker *c, const char *owner, const struct counter *counters,
                    size_t count, const void *is, const void *counted)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t a, b;
        memcpy(&a, (const uint8_t *)is + counters[i].offset, sizeof a);
        memcpy(&b, (const uint8_t *)counted + counters[i].offset, sizeof b);
        if (a != b)
            check_differs(c, "%s: %s is %llu, counted %llu", owner, counters[i].name, ID(a), ID(b));
    }
}

/* Consecutive amounts of the same id are added up. */
void tally_add(struct checker *c, enum tally_of of, uint64_t id, uint64_t amount)
{
    struct tally *t = &c->tallies[of];
    check(!t->is_sorted);
    if (t->of.count && t->of.at[t->of.count - 1].id == id)
        t->of.at[t->of.count - 1].amount += amount;
    else
        vector_add(&t->of, (struct amount){id, amount});
}

uint64_t tally_take(struct checker *c, enum tally_of of, uint64_t id)
{
    struct tally *t = &c->tallies[of];
    if (!t->is_sorted)
        vector_sort(&t->of, compare_u64);
    t->is_sorted = true;
    for (; t->next < t->of.count && t->of.at[t->next].id < id; t->next++)
        check_differs(c, "%s of %llu, which does not exist", tally_names[of],
                      ID(t->of.at[t->next].id));
    uint64_t sum = 0;
    for (; t->next < t->of.count && t->of.at[t->next].id == id; t->next++)
        sum += t->of.at[t->next].amount;
    return sum;
}

int check_walk(struct checker *c, enum key_type type,
               int (*step)(struct checker *c, const struct view_row *row))
{
    int end;
    _cleanup_scan_ struct scan scan;
    scan_type(&scan, &c->snap, type);
    while ((end = scan_step(&scan)) > 0) {
        int r = scan_decode(&scan);
        if (r == 0)
            r = step(c, &scan.row);
        if (r == -EUCLEAN)
            check_differs(c, "an entry of type %c does not decode", type);
        else if (r < 0)
            return r;
    }
    return end;
}

/* Checks that the other key of a name agrees. */
static int check_cookie(struct checker *c, const struct view_row *name)
{
    _cleanup_value_ struct value value = {0};
    int r =
        look_get(&c->look, key_u64_u64(NEW_KEY, KEY_COOKIE, name->id, name->entry.cookie), &value);
    if (r < 0 && r != -ENOENT)
        return r;
    uint8_t expected[COOKIE_VALUE_HEADER_LEN + NAME_LEN_MAX];
    size_t len = cookie_encode(&name->entry, name->name, name->name_len, expected);
    if (r == -ENOENT || value.len != len || memcmp(value.data, expected, len) != 0)
        check_differs(c, "directory %llu: name \"%.*s\" is not listed under its cookie",
                      ID(name->id), (int)name->name_len, name->name);
    return 0;
}

static int check_name(struct checker *c, const struct view_row *name)
{
    uint64_t parent = name->id, ino = name->entry.ino;
    bool is_dir = S_ISDIR(name->entry.type);
    struct inode_row row;
    TRY(check_cookie(c, name));
    tally_add(c, NAMES, ino, 1);
    tally_add(c, ENTRIES, parent, 1);
    if (is_dir)
        tally_add(c, SUBDIRS, parent, 1);
    int r = db_get_inode(c->view, &c->snap, ino, &row);
    if (r < 0)
        return r == -ENOENT ? 0 : r; /* the tally reports it */
    if ((row.pub.attrs.mode & S_IFMT) != name->entry.type)
        check_differs(c, "directory %llu: name \"%.*s\" has another type than inode %llu",
                      ID(parent), (int)name->name_len, name->name, ID(ino));
    if (is_dir && row.pub.parent != parent)
        check_differs(c, "directory %llu is in %llu and not in %llu", ID(ino), ID(parent),
                      ID(row.pub.parent));
    if (row.pub.nlink == 1 && row.pub.parent != parent && row.pub.parent != 0)
        check_differs(c, "inode %llu, with its one name in %llu, is noted in %llu", ID(ino),
                      ID(parent), ID(row.pub.parent));
    return 0;
}

static int check_cookie_key(struct checker *c, const struct view_row *row)
{
    int r = look_has(&c->look, key_named(NEW_KEY, KEY_NAME, row->id, row->name, row->name_len));
    if (r == 0)
        check_differs(c, "directory %llu: cookie %llu has a name that does not exist", ID(row->id),
                      ID(row->id2));
    return r < 0 ? r : 0;
}

static int tally_xattr(struct checker *c, const struct view_row *row)
{
    tally_add(c, XATTRS, row->id, 1);
    return 0;
}

static int tally_link(struct checker *c, const struct view_row *row)
{
    tally_add(c, LINKS, row->id, 1);
    return 0;
}

static int tally_orphan(struct checker *c, const struct view_row *row)
{
    tally_add(c, ORPHANS, row->id, 1);
    return 0;
}

static int check_inode(struct checker *c, const struct view_row *inode)
{
    const struct inode_row *row = &inode->inode;
    uint64_t ino = row->pub.ino;
    uint32_t mode = row->pub.attrs.mode;
    uint64_t names = tally_take(c, NAMES, ino), subdirs = tally_take(c, SUBDIRS, ino);
    if (S_ISDIR(mode) && (names > 1 || (ino == ROOT_INO && names)))
        check_differs(c, "directory %llu has %llu names", ID(ino), ID(names));
    bool named = names > 0 || ino == ROOT_INO;
    uint64_t links = !named ? 0 : S_ISDIR(mode) ? 2 + subdirs : names;
    check_counted(c, "inode", ino, "nlink", row->pub.nlink, links);
    check_counted(c, "inode", ino, "being an orphan", tally_take(c, ORPHANS, ino),
                  row->pub.nlink == 0);
    check_counted(c, "inode", ino, "number of entries", row->entries, tally_take(c, ENTRIES, ino));
    bool is_elsewhere = inode_row_is_elsewhere(row);
    check_counted(c, "inode", ino, "number of pages", is_elsewhere ? 0 : row->pages,
                  tally_take(c, PAGES, ino));
    check_counted(c, "inode", ino, "size of its content", is_elsewhere ? 0 : row->pub.blocks_bytes,
                  tally_take(c, BLOCKS, ino));
    check_counted(c, "inode", ino, "number of xattrs", row->pub.xattrs, tally_take(c, XATTRS, ino));
    check_counted(c, "inode", ino, "number of link targets", tally_take(c, LINKS, ino),
                  S_ISLNK(mode) ? 1 : 0);
    if (!S_ISDIR(mode) && row->entries)
        check_differs(c, "inode %llu is no directory and has names", ID(ino));
    if (S_ISREG(mode) && row->pub.nlink > 0) {
        c->counted.files++;
        c->counted.logical_bytes += row->pub.attrs.size;
    }
    c->counted.max_ino = max_u64(c->counted.max_ino, ino & ((1ull << 48) - 1));
    return 0;
}

static int check_names_and_inodes(struct checker *c)
{
    static const struct {
        enum key_type type;
        int (*step)(struct checker *c, const struct view_row *row);
    } walks[] = {{KEY_NAME, check_name}, {KEY_COOKIE, check_cookie_key}, {KEY_XATTR, tally_xattr},
                 {KEY_LINK, tally_link}, {KEY_ORPHAN, tally_orphan},     {KEY_INODE, check_inode}};
    int r = 0;
    for (size_t i = 0; i < ARRAY_LEN(walks) && r == 0; i++)
        r = check_walk(c, walks[i].type, walks[i].step);
    return r;
}

/* Checks the state. The largest inode number may belong to a removed inode. */
static int check_state(struct checker *c)
{
#define COUNTER(name, member)                                                                      \
    {                                                                                              \
        name, offsetof(struct view_state, member)                                                  \
    }
    static const struct counter counters[] = {
        COUNTER("number of files", files),    COUNTER("sum of file sizes", logical_bytes),
        COUNTER("number of chunks", chunks),  COUNTER("stored bytes", stored_bytes),
        COUNTER("held bytes", held_bytes),    COUNTER("number of packs", packs),
        COUNTER("bytes of packs", pack_bytes)};
#undef COUNTER
    _cleanup_value_ struct value value = {0};
    struct view_state s;
    TRY(look_get(&c->look, key_type(NEW_KEY, KEY_STATE), &value));
    TRY(state_decode(value.data, value.len, &s));
    if (s.max_ino < c->counted.max_ino)
        check_differs(c, "the largest inode number is %llu, there is %llu", ID(s.max_ino),
                      ID(c->counted.max_ino));
    check_counters(c, "state", counters, ARRAY_LEN(counters), &s, &c->counted);
    return 0;
}

/* Reports remaining sums: they have no owner. */
static void finish_check(struct checker *c)
{
    for (size_t i = 0; i < TALLIES; i++) {
        (void)tally_take(c, i, UINT64_MAX);
        vector_free(&c->tallies[i].of);
    }
    vector_free(&c->uses);
    vector_free(&c->rests);
    vector_free(&c->bases);
    vector_free(&c->blobs);
}

int view_check(struct view *view, void (*report)(const char *line, void *arg), void *arg)
{
    static int (*const parts[])(struct checker * c) = {check_pages, check_names_and_inodes,
                                                       check_remote, check_chunks, check_state};
    struct checker c = {.view = view, .report = report, .arg = arg};
    int r = 0;
    snap_begin(&c.snap, view);
    c.look = (struct look){.snap = &c.snap};
    for (size_t i = 0; i < ARRAY_LEN(parts) && r == 0; i++)
        r = parts[i](&c);
    if (r < 0)
        c.report = NULL; /* the tallies are incomplete */
    finish_check(&c);
    snap_end(&c.snap);
    return r < 0 ? r : c.found;
}
