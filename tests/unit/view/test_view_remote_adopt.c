// SPDX-License-Identifier: Apache-2.0
/* Rows that no view wrote, crashes while a view is filled, and marks that are many. */
#include "../expect.h"
#include "remote_fixture.h"
#include "view/db.h"

#include <stdio.h>

#include "../base/seeded.h"

/* --- the rows of a small remote --------------------------------------------------------------- */

struct row {
    uint8_t key[300], value[700];
    size_t key_len, value_len;
};

static struct row rows[64];
static size_t row_count;

static int keep_row(const struct run_row *row, void *arg)
{
    (void)arg;
    struct row *kept = &rows[row_count++];
    cr_assert(row_count <= ARRAY_LEN(rows) && row->key_len <= sizeof kept->key &&
              row->value_len <= sizeof kept->value);
    memcpy(kept->key, row->key, kept->key_len = row->key_len);
    memcpy(kept->value, row->value, kept->value_len = row->value_len);
    return 0;
}

static void keep_rows(void)
{
    row_count = 0;
    assert_i64(remote_rows(&remote, keep_row, NULL), 0);
    assert_u64(row_count, 29);
}

static void begin_rows(void)
{
    begin_full_remote();
    keep_rows();
}

TestSuite(view_adopt, .init = begin_rows, .fini = end_remote);

static struct row *row_of(char type, size_t number)
{
    for (size_t i = 0; i < row_count; i++)
        if (rows[i].key[0] == type && number-- == 0)
            return &rows[i];
    cr_fatal("no row of type %c", type);
    return NULL;
}

/* Each row from memory of exactly its length, so that the sanitizer sees what reads too far. */
static int give(struct view_adoption *adoption, const struct row *row)
{
    _cleanup_free_ uint8_t *key = xmalloc(row->key_len), *value = xmalloc(row->value_len);
    memcpy(key, row->key, row->key_len);
    memcpy(value, row->value, row->value_len);
    int r = view_adopt_row(adoption, &(struct run_row){.key = key,
                                                       .key_len = row->key_len,
                                                       .value = value,
                                                       .value_len = row->value_len});
    return r;
}

static uint64_t max_id = UINT64_MAX; /* of the head whose rows these are */
static bool has_nodes;               /* it has */

/* Fills a new view with rows[]. NULL `use`: it is thrown away. */
static int adopt_rows(const struct view_state *state, void (*use)(struct view *view))
{
    _cleanup_free_ char *path = xasprintf("%s.hostile", f.path);
    struct view *view;
    struct view_adoption *adoption;
    int r = 0;
    open_view_at(path, &view);
    assert_i64(view_adopt_begin(view, &adoption), 0);
    for (size_t i = 0; i < row_count && r == 0; i++)
        r = give(adoption, &rows[i]);
    if (r == 0)
        r = view_adopt_end(
            adoption, state,
            &(struct view_head){.number = 1, .max_id = max_id, .has_nodes = has_nodes});
    view_adopt_done(adoption);
    if (r == 0 && use)
        use(view);
    view_close(view);
    remove_tree(path);
    return r;
}

static int adopt_now(void)
{
    return adopt_rows(&remote.state, NULL);
}

static void expect_bad(struct row *row, size_t at, uint8_t byte)
{
    uint8_t was = row->value[at];
    row->value[at] = byte;
    expect_i64(adopt_now(), -EUCLEAN, "type %c, byte %zu", row->key[0], at);
    row->value[at] = was;
}

/* --- rows that no view wrote ------------------------------------------------------------------ */

Test(view_adopt, rows_as_they_are)
{
    assert_i64(adopt_rows(&remote.state, expect_check_ok), 0);
}

Test(view_adopt, impossible_rows)
{
    for (size_t i = 0; i < row_count; i++) {
        expect_bad(&rows[i], 0, VIEW_VALUE_VERSION + 1);
        rows[i].key_len++;
        if (strchr("DX", rows[i].key[0]) == NULL) /* a longer name is a name */
            expect_i64(adopt_now(), -EUCLEAN, "a longer key of type %c", rows[i].key[0]);
        rows[i].key_len--;
        if (strchr("LNX", rows[i].key[0]) == NULL) { /* and so is a longer value */
            rows[i].value_len++;
            cr_expect(adopt_now() == -EUCLEAN || rows[i].key[0] == 'C', "a longer value of type %c",
                      rows[i].key[0]);
            rows[i].value_len--;
        }
    }
    struct row *chunk = row_of('H', 0), *pack = row_of('Q', 0);
    expect_bad(chunk, 34, 1);             /* deep, and refers to nothing */
    expect_bad(chunk, 27, 0xff);          /* stored length */
    expect_bad(chunk, 31, 0xff);          /* raw length */
    expect_bad(chunk, 35, 200);           /* chunk references */
    expect_bad(chunk, 9, 99);             /* pack without a row */
    expect_bad(chunk, 9, 102);            /* unreferenced */
    expect_bad(chunk, 18, 0xff);          /* past the end of the pack */
    expect_bad(pack, 2, 0);               /* shorter than its chunks */
    expect_bad(pack, 9, 2);               /* fewer chunks */
    expect_bad(pack, 13, 1);              /* unreferenced */
    expect_bad(row_of('I', 1), 72, 0xff); /* version */
}

Test(view_adopt, rows_in_another_order)
{
    static struct row kept[ARRAY_LEN(rows)];
    memcpy(kept, rows, sizeof kept);
    for (size_t i = 1; i < row_count; i++) {
        rows[i] = kept[i - 1];
        rows[i - 1] = kept[i];
        assert_i64(adopt_now(), -EUCLEAN);
        memcpy(rows, kept, sizeof kept);
        rows[i] = kept[i - 1];
        assert_i64(adopt_now(), -EUCLEAN, "twice");
        memcpy(rows, kept, sizeof kept);
    }
}

Test(view_adopt, rows_of_another_state)
{
    struct view_state state = remote.state;
    state.files++;
    assert_i64(adopt_rows(&state, NULL), -EUCLEAN);
    state = remote.state;
    state.logical_bytes--;
    assert_i64(adopt_rows(&state, NULL), -EUCLEAN);
    row_of('I', 0)->key[8] = 200; /* no root */
    assert_i64(adopt_now(), -EUCLEAN);
}

Test(view_adopt, numbers_after_the_heads)
{
    struct view_state old_inode = remote.state, old_entry = remote.state;
    old_inode.max_ino = 1;
    old_entry.applied_seq = 0;
    expect_i64(adopt_rows(&old_inode, NULL), -EUCLEAN);
    expect_i64(adopt_rows(&old_entry, NULL), -EUCLEAN);
    has_nodes = true;
    expect_i64(adopt_rows(&old_entry, NULL), 0, "its cut is no operation's number");
    expect_i64(adopt_rows(&old_inode, NULL), -EUCLEAN);
    max_id = 99;
    expect_i64(adopt_now(), -EUCLEAN, "pack");
    has_nodes = false;
    expect_i64(adopt_now(), -EUCLEAN, "pack");
}

Test(view_adopt, keys_of_other_types)
{
    struct view_adoption *adoption;
    for (int type = 0; type < 256; type++) {
        if (type && strchr("CDEHILNOQX", type))
            continue;
        keep_rows();
        _cleanup_free_ char *path = xasprintf("%s.type", f.path);
        struct view *view;
        open_view_at(path, &view);
        assert_i64(view_adopt_begin(view, &adoption), 0);
        rows[0].key[0] = (uint8_t)type;
        assert_i64(give(adoption, &rows[0]), -EUCLEAN);
        assert_i64(view_adopt_row(adoption, &(struct run_row){.key = "I", .key_len = 1}), -EUCLEAN,
                   "removed");
        assert_i64(
            view_adopt_row(adoption, &(struct run_row){.key = "", .value = "", .value_len = 0}),
            -EUCLEAN);
        view_adopt_done(adoption);
        view_close(view);
        remove_tree(path);
        if (type > 'Z')
            type += 30;
    }
}

/* --- rows at random --------------------------------------------------------------------------- */

static void no_line(const char *line, void *arg)
{
    (void)line;
    (void)arg;
}

static int no_entry(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    (void)entry;
    (void)name;
    (void)len;
    (void)arg;
    return 0;
}

static int no_extent(const struct view_extent *part, void *arg)
{
    (void)part;
    (void)arg;
    return 0;
}

static int no_name(const char *name, size_t len, void *arg)
{
    (void)name;
    (void)len;
    (void)arg;
    return 0;
}

static int no_row(const struct run_row *row, void *arg)
{
    (void)row;
    (void)arg;
    return 0;
}

/* Whatever it is, nothing may crash on it. */
static void use_hostile(struct view *view)
{
    uint64_t missing;
    struct view_cut *cut;
    uint8_t buf[256];
    struct record rec = {.type = REC_UNLINK,
                         .seq = f.seq + 1,
                         .time = 5,
                         .ino = 3,
                         .parent = 2,
                         .name = "file",
                         .name_len = 4};
    (void)!view_check(view, no_line, NULL);
    for (uint64_t ino = 1; ino < 8; ino++) {
        char text[300];
        (void)!view_readdir(view, ino, 0, no_entry, NULL);
        (void)!view_extents(view, ino, 0, INT64_MAX, no_extent, NULL);
        (void)!view_listxattr(view, ino, no_name, NULL);
        (void)!view_readlink(view, ino, text, sizeof text);
        (void)!view_getxattr(view, ino, "user.x", 6, text, sizeof text);
        free(view_path(view, ino));
    }
    record_encode(&rec, buf);
    struct view_batch batch = {
        .records = buf, .records_len = record_encoded_len(&rec), .cut_seq = rec.seq};
    (void)!view_apply(view, &batch);
    if (view_cut_open(view, &cut) == 0) {
        (void)!view_cut_rows(cut, 9, no_row, NULL, &missing);
        (void)!view_published(view, cut, 2);
        view_cut_close(cut);
    }
    (void)!view_forget_remote(view);
    (void)!view_check(view, no_line, NULL);
}

static void change_row(struct seeded *s, struct row *row)
{
    switch (seeded_below(s, 5)) {
    case 0:
        row->key[seeded_below(s, row->key_len)] = (uint8_t)seeded_u64(s);
        break;
    case 1:
        row->key_len = 1 + seeded_below(s, sizeof row->key);
        break;
    case 2:
        row->value_len = seeded_below(s, 2) ? seeded_below(s, sizeof row->value)
                                            : seeded_below(s, row->value_len + 1);
        break;
    default:
        if (row->value_len)
            row->value[seeded_below(s, row->value_len)] =
                (uint8_t)(seeded_below(s, 2) ? seeded_u64(s) : seeded_below(s, 4));
    }
}

Test(view_adopt, changed_rows)
{
    struct seeded s = {7};
    const char *text = getenv("CAIRN_VIEW_ROUNDS");
    unsigned long rounds = text ? strtoul(text, NULL, 10) : 150, taken = 0;
    for (unsigned long i = 0; i < rounds; i++) {
        keep_rows();
        for (uint64_t n = 1 + seeded_below(&s, 2); n > 0; n--)
            change_row(&s, &rows[seeded_below(&s, row_count)]);
        int r = adopt_rows(&remote.state, use_hostile);
        cr_assert(r == 0 || r == -EUCLEAN, "%d", r);
        taken += r == 0;
    }
    cr_assert(taken > 0 && taken < rounds);
}

static void random_row(struct seeded *s, struct row *row)
{
    row->key_len = 1 + seeded_below(s, seeded_below(s, 2) ? 30 : sizeof row->key);
    row->value_len = seeded_below(s, seeded_below(s, 2) ? 60 : sizeof row->value);
    seeded_fill(s, row->key, row->key_len);
    seeded_fill(s, row->value, row->value_len);
    if (seeded_below(s, 8))
        row->key[0] = (uint8_t) "CDEHILNOQX"[seeded_below(s, 10)];
    if (row->value_len && seeded_below(s, 8))
        row->value[0] = VIEW_VALUE_VERSION;
}

Test(view_adopt, random_rows)
{
    struct seeded s = {8};
    struct view *view;
    struct view_adoption *adoption;
    _cleanup_free_ char *path = xasprintf("%s.random", f.path);
    open_view_at(path, &view);
    for (int round = 0; round < 2000; round++) {
        assert_i64(view_adopt_begin(view, &adoption), 0);
        int r = 0;
        for (int i = 0; i < 20 && r == 0; i++) {
            random_row(&s, &rows[0]);
            r = give(adoption, &rows[0]);
        }
        cr_assert(r == 0 || r == -EUCLEAN);
        assert_i64(view_adopt_end(adoption, &remote.state,
                                  &(struct view_head){.number = 1, .max_id = UINT64_MAX}),
                   -EUCLEAN);
        view_adopt_done(adoption);
    }
    view_close(view);
    remove_tree(path);
}

/* --- crashes ---------------------------------------------------------------------------------- */

Test(view_adopt, a_view_that_is_not_whole_cannot_be_opened)
{
    struct view_options options = {.cache_bytes = 48 * MIB, .create = true};
    for (size_t count = 0; count <= row_count; count++) {
        _cleanup_free_ char *path = xasprintf("%s.part", f.path);
        struct view *view;
        struct view_adoption *adoption;
        open_view_at(path, &view);
        assert_i64(view_adopt_begin(view, &adoption), 0);
        for (size_t i = 0; i < count; i++)
            assert_i64(give(adoption, &rows[i]), 0);
        view_adopt_done(adoption);
        view_close(view);
        assert_i64(view_open(path, &options, T0, &view), -EUCLEAN);
        remove_tree(path);
    }
}

/* --- marks ------------------------------------------------------------------------------------ */

Test(view_adopt, many_marks_are_forgotten_in_parts)
{
    uint64_t cut_seq;
    for (uint64_t i = 0; i < 15000; i++) {
        char name[16];
        sprintf(name, "%lu", (unsigned long)i);
        add_file(&f, 100 + i, ROOT_INO, name, 0);
    }
    apply_ok(&f);
    struct view_cut *cut = cut_now();
    add(&f,
        (struct record){.type = REC_SETATTR, .ino = 5000, .mask = ATTR_UID, .attrs = {.uid = 5}});
    apply_ok(&f);
    (void)publish(cut, 6);
    for (uint64_t ino = 100; ino < 15100; ino++) {
        assert_i64(view_unpublished(f.view, ino, &cut_seq), 0);
        assert_u64(cut_seq, ino == 5000 ? f.seq : 0);
    }
    expect_check_ok(f.view);
}
