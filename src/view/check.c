// SPDX-License-Identifier: Apache-2.0
/* Recounts the namespace. Walks the keys of each type in order and merges sorted tallies: memory is
 * a few words for each name and piece, for the time of the check. */
#include "view/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#define ID(x) ((unsigned long long)(x))

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

/* Amounts of one id that come together become one. */
void tally_add(struct tally_list *list, uint64_t id, uint64_t amount)
{
    if (list->of.count && list->of.at[list->of.count - 1].id == id)
        list->of.at[list->of.count - 1].amount += amount;
    else
        vector_add(&list->of, (struct tally){id, amount});
}

void tally_sort(struct tally_list *list)
{
    vector_sort(&list->of, compare_u64);
}

uint64_t tally_take(struct checker *c, struct tally_list *list, uint64_t id)
{
    for (; list->next < list->of.count && list->of.at[list->next].id < id; list->next++)
        check_differs(c, "%s of %llu, which does not exist", list->what,
                      ID(list->of.at[list->next].id));
    uint64_t sum = 0;
    for (; list->next < list->of.count && list->of.at[list->next].id == id; list->next++)
        sum += list->of.at[list->next].amount;
    return sum;
}

int check_walk(struct checker *c, enum key_type type,
               int (*step)(struct checker *c, const struct scan *scan))
{
    struct key prefix;
    key_type(&prefix, type);
    _cleanup_scan_ struct scan scan;
    scan_open(&scan, &c->snap, &prefix);
    for (; scan_valid(&scan); scan_next(&scan)) {
        int r = scan.key_len < KEY_U64_LEN ? -EUCLEAN : step(c, &scan);
        if (r == -EUCLEAN)
            check_differs(c, "an entry of type %c does not decode", type);
        else if (r < 0)
            return r;
    }
    return scan_error(&scan);
}

/* The other key of a name says the same. */
static int check_cookie(struct checker *c, uint64_t parent, const struct view_entry *entry,
                        const char *name, size_t len)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_u64_u64(&key, KEY_COOKIE, parent, entry->cookie);
    int r = db_get(c->view, &c->snap, &key, &value);
    if (r < 0 && r != -ENOENT)
        return r;
    uint8_t expected[COOKIE_VALUE_HEADER_LEN + NAME_LEN_MAX];
    size_t expected_len = cookie_encode(entry, name, len, expected);
    if (r == -ENOENT || value.len != expected_len ||
        memcmp(value.data, expected, expected_len) != 0)
        check_differs(c, "directory %llu: name \"%.*s\" is not listed under its cookie", ID(parent),
                      (int)len, name);
    return 0;
}

static int check_name(struct checker *c, const struct scan *scan)
{
    uint64_t parent = key_get_u64(scan->key, 1);
    const char *name = (const char *)scan->key + KEY_U64_LEN;
    size_t len = scan->key_len - KEY_U64_LEN;
    struct view_entry entry;
    struct inode_row row;
    int r = len > NAME_LEN_MAX ? -EUCLEAN : name_decode(scan->value, scan->value_len, &entry);
    if (r == 0)
        r = check_cookie(c, parent, &entry, name, len);
    if (r < 0)
        return r;
    tally_add(&c->names, entry.ino, 1);
    tally_add(&c->entries, parent, 1);
    if (S_ISDIR(entry.type))
        tally_add(&c->subdirs, parent, 1);
    r = db_get_inode(c->view, &c->snap, entry.ino, &row);
    if (r < 0)
        return r == -ENOENT ? 0 : r; /* the tally reports it */
    if ((row.pub.attrs.mode & S_IFMT) != entry.type)
        check_differs(c, "directory %llu: name \"%.*s\" has another type than inode %llu",
                      ID(parent), (int)len, name, ID(entry.ino));
    if (S_ISDIR(entry.type) && row.pub.parent != parent)
        check_differs(c, "directory %llu is in %llu and not in %llu", ID(entry.ino), ID(parent),
                      ID(row.pub.parent));
    if (row.pub.nlink == 1 && row.pub.parent != parent && row.pub.parent != 0)
        check_differs(c, "inode %llu, with its one name in %llu, is noted in %llu", ID(entry.ino),
                      ID(parent), ID(row.pub.parent));
    return 0;
}

static int check_cookie_key(struct checker *c, const struct scan *scan)
{
    struct view_entry entry;
    const char *name;
    size_t len;
    if (scan->key_len != KEY_U64_U64_LEN)
        return -EUCLEAN;
    uint64_t parent = key_get_u64(scan->key, 1), cookie = key_get_u64(scan->key, KEY_U64_LEN);
    int r = cookie_decode(cookie, scan->value, scan->value_len, &entry, &name, &len);
    if (r < 0)
        return r;
    struct key key;
    _cleanup_value_ struct value value = {0};
    key_named(&key, KEY_NAME, parent, name, len);
    r = db_get(c->view, &c->snap, &key, &value);
    if (r == -ENOENT)
        check_differs(c, "directory %llu: cookie %llu has a name that does not exist", ID(parent),
                      ID(cookie));
    return r == -ENOENT ? 0 : r;
}

static int tally_xattr(struct checker *c, const struct scan *scan)
{
    tally_add(&c->xattrs, key_get_u64(scan->key, 1), 1);
    return 0;
}

static int tally_link(struct checker *c, const struct scan *scan)
{
    tally_add(&c->links, key_get_u64(scan->key, 1), 1);
    return 0;
}

static int tally_orphan(struct checker *c, const struct scan *scan)
{
    tally_add(&c->orphans, key_get_u64(scan->key, 1), 1);
    return 0;
}

static void check_counted(struct checker *c, const char *owner, uint64_t id, const char *what,
                          uint64_t is, uint64_t counted)
{
    if (is != counted)
        check_differs(c, "%s %llu: %s is %llu, counted %llu", owner, ID(id), what, ID(is),
                      ID(counted));
}

static int check_inode(struct checker *c, const struct scan *scan)
{
    struct inode_row row;
    if (scan->key_len != KEY_U64_LEN)
        return -EUCLEAN;
    uint64_t ino = key_get_u64(scan->key, 1);
    int r = inode_decode(ino, scan->value, scan->value_len, &row);
    if (r < 0)
        return r;
    uint32_t mode = row.pub.attrs.mode;
    uint64_t names = tally_take(c, &c->names, ino), subdirs = tally_take(c, &c->subdirs, ino);
    if (S_ISDIR(mode) && (names > 1 || (ino == ROOT_INO && names)))
        check_differs(c, "directory %llu has %llu names", ID(ino), ID(names));
    bool named = names > 0 || ino == ROOT_INO;
    check_counted(c, "inode", ino, "nlink", row.pub.nlink,
                  !named          ? 0
                  : S_ISDIR(mode) ? 2 + subdirs
                                  : names);
    check_counted(c, "inode", ino, "being an orphan", tally_take(c, &c->orphans, ino),
                  row.pub.nlink == 0);
    check_counted(c, "inode", ino, "number of entries", row.entries,
                  tally_take(c, &c->entries, ino));
    check_counted(c, "inode", ino, "number of pages", row.pages, tally_take(c, &c->pages, ino));
    check_counted(c, "inode", ino, "size of its content", row.pub.blocks_bytes,
                  tally_take(c, &c->blocks, ino));
    check_counted(c, "inode", ino, "number of xattrs", row.pub.xattrs,
                  tally_take(c, &c->xattrs, ino));
    check_counted(c, "inode", ino, "number of link targets", tally_take(c, &c->links, ino),
                  S_ISLNK(mode) ? 1 : 0);
    if (!S_ISDIR(mode) && row.entries)
        check_differs(c, "inode %llu is no directory and has names", ID(ino));
    if (S_ISREG(mode) && row.pub.nlink > 0) {
        c->counted.files++;
        c->counted.logical_bytes += row.pub.attrs.size;
    }
    c->counted.max_ino = max_u64(c->counted.max_ino, ino & ((1ull << 48) - 1));
    return 0;
}

static int check_names_and_inodes(struct checker *c)
{
    int r = check_walk(c, KEY_NAME, check_name);
    if (r == 0)
        r = check_walk(c, KEY_COOKIE, check_cookie_key);
    if (r == 0)
        r = check_walk(c, KEY_XATTR, tally_xattr);
    if (r == 0)
        r = check_walk(c, KEY_LINK, tally_link);
    if (r == 0)
        r = check_walk(c, KEY_ORPHAN, tally_orphan);
    tally_sort(&c->names);
    if (r == 0)
        r = check_walk(c, KEY_INODE, check_inode);
    return r;
}

/* Largest inode number: removed inodes count too, so it may be more than what is there. */
static int check_state(struct checker *c)
{
    struct key key;
    _cleanup_value_ struct value value = {0};
    struct view_state s;
    key_type(&key, KEY_STATE);
    int r = db_get(c->view, &c->snap, &key, &value);
    if (r == 0)
        r = state_decode(value.data, value.len, &s);
    if (r < 0)
        return r;
    if (s.max_ino < c->counted.max_ino)
        check_differs(c, "the largest inode number is %llu, there is %llu", ID(s.max_ino),
                      ID(c->counted.max_ino));
    check_counted(c, "state at", s.applied_seq, "number of files", s.files, c->counted.files);
    check_counted(c, "state at", s.applied_seq, "sum of file sizes", s.logical_bytes,
                  c->counted.logical_bytes);
    check_counted(c, "state at", s.applied_seq, "number of chunks", s.chunks, c->counted.chunks);
    check_counted(c, "state at", s.applied_seq, "stored bytes", s.stored_bytes,
                  c->counted.stored_bytes);
    check_counted(c, "state at", s.applied_seq, "held bytes", s.held_bytes, c->counted.held_bytes);
    check_counted(c, "state at", s.applied_seq, "number of packs", s.packs, c->counted.packs);
    check_counted(c, "state at", s.applied_seq, "bytes of packs", s.pack_bytes,
                  c->counted.pack_bytes);
    return 0;
}

/* Sums left in the tallies have no owner. */
static void finish_tallies(struct checker *c)
{
    struct tally_list *lists[] = {&c->names,
                                  &c->entries,
                                  &c->subdirs,
                                  &c->pages,
                                  &c->blocks,
                                  &c->xattrs,
                                  &c->links,
                                  &c->orphans,
                                  &c->live_bytes,
                                  &c->live_count,
                                  &c->placed,
                                  &c->lists,
                                  &c->remote_live_bytes,
                                  &c->remote_live_count,
                                  &c->remote_placed,
                                  &c->remote_lists};
    for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
        (void)tally_take(c, lists[i], UINT64_MAX);
        vector_free(&lists[i]->of);
    }
    vector_free(&c->uses);
    vector_free(&c->rests);
    vector_free(&c->bases);
    vector_free(&c->blobs);
}

int view_check(struct view *view, void (*report)(const char *line, void *arg), void *arg)
{
    struct checker c = {
        .view = view,
        .report = report,
        .arg = arg,
        .names = {.what = "a name"},
        .entries = {.what = "names in a directory"},
        .subdirs = {.what = "directories in a directory"},
        .pages = {.what = "extent pages"},
        .blocks = {.what = "content"},
        .xattrs = {.what = "xattrs"},
        .links = {.what = "a link target"},
        .orphans = {.what = "an orphan entry"},
        .live_bytes = {.what = "live bytes in pack"},
        .live_count = {.what = "live chunks in pack"},
        .placed = {.what = "chunks in pack"},
        .lists = {.what = "a list of pack"},
        .remote_live_bytes = {.what = "live bytes in remote pack"},
        .remote_live_count = {.what = "live chunks in remote pack"},
        .remote_placed = {.what = "chunks in remote pack"},
        .remote_lists = {.what = "a list of remote pack"},
    };
    snap_begin(&c.snap, view);
    int r = check_pages(&c);
    if (r == 0)
        r = check_names_and_inodes(&c);
    if (r == 0)
        r = check_chunks(&c);
    if (r == 0)
        r = check_remote(&c);
    if (r == 0)
        r = check_state(&c);
    if (r < 0)
        c.report = NULL; /* the tallies are not whole */
    finish_tallies(&c);
    snap_end(&c.snap);
    return r < 0 ? r : c.found;
}
