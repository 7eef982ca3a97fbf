/* Rows that no view wrote, crashes while a view is filled, and tables of the remote that do not agree. */
#include "test_remote.h"

#include <stdio.h>

#include "../base/seeded.h"
#include "meta/view_db.h"

/* --- a small remote ----------------------------------------------------------------------------------------------------- */

static struct fixture f;
static struct test_remote remote;

static void place(uint64_t pack, uint32_t first, uint32_t count)
{
    struct chunk_entry entries[16] = {0};
    for (uint32_t i = 0; i < count; i++)
        entries[i] = (struct chunk_entry){.name = chunk_of(first + i),
                                          .pack = pack,
                                          .offset = 64 + 2000ull * i,
                                          .stored_len = 1000 + first + i,
                                          .raw_len = CHUNK_SIZE_MAX};
    cr_assert_eq(view_far_placed(f.view, pack, 64 + 2000ull * count, entries, count), 0);
}

static void publish(int64_t now)
{
    struct view_cut *cut;
    cr_assert_eq(view_cut_open(f.view, &cut), 0);
    (void)remote_make(&remote, cut, now);
    remote_publish(&remote, f.view, cut);
    view_cut_close(cut);
}

/* Everything that a row can be; chunks 1 to 5 in the remote packs 100 and 101, 102 doomed, 6 missing. */
static void begin(void)
{
    struct extent e[6];
    for (uint32_t i = 0; i < 6; i++)
        e[i] = chunk_extent(i * MIB, MIB, 1 + i, 0);
    fixture_open(&f);
    remote = (struct test_remote){0};
    cr_assert_eq(view_track(f.view), 0);
    add_pack(&f, 10, (const uint32_t[]){1, 2, 3, 4, 5, 6, 7}, 7);
    add_dir(&f, 2, ROOT_INO, "dir");
    add_file(&f, 3, 2, "file", 0);
    add_seal(&f, 3, 2, 0, 6 * MIB, e, 6);
    add_file(&f, 4, 2, "inline", 0);
    add_seal_inline(&f, 4, 2, 0, 10, 0, "0123456789");
    add_file(&f, 5, 2, "orphan", 0);
    add_unlink(&f, 5, 2, "orphan", RECORD_ORPHAN);
    add(&f, (struct record){.type = REC_SETXATTR, .ino = 3, .name = "user.x", .name_len = 6, .value = "v", .value_len = 1});
    add(&f, (struct record){.type = REC_MAKE,
                            .ino = 6,
                            .parent = ROOT_INO,
                            .cookie = f.seq + 1,
                            .name = "link",
                            .name_len = 4,
                            .attrs = {.mode = S_IFLNK | 0777},
                            .value = "target",
                            .value_len = 6});
    apply_ok(&f);
    place(100, 1, 3);
    place(101, 4, 2);
    place(102, 7, 1);
    publish(5);
}

static void end(void)
{
    remote_done(&remote);
    fixture_close(&f);
}

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
    cr_assert(row_count <= ARRAY_LEN(rows) && row->key_len <= sizeof kept->key && row->value_len <= sizeof kept->value);
    memcpy(kept->key, row->key, kept->key_len = row->key_len);
    memcpy(kept->value, row->value, kept->value_len = row->value_len);
    return 0;
}

static void keep_rows(void)
{
    row_count = 0;
    cr_assert_eq(remote_rows(&remote, keep_row, NULL), 0);
    cr_assert_eq(row_count, 29);
}

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
    uint8_t *key = xmalloc(row->key_len), *value = xmalloc(row->value_len);
    memcpy(key, row->key, row->key_len);
    memcpy(value, row->value, row->value_len);
    int r = view_adopt_row(
        adoption, &(struct run_row){.key = key, .key_len = row->key_len, .value = value, .value_len = row->value_len});
    free(key);
    free(value);
    return r;
}

static uint64_t max_id = UINT64_MAX; /* of the head whose rows these are */

/* Fills a new view with rows[]. NULL `use`: it is thrown away. */
static int adopt_rows(const struct view_state *state, void (*use)(struct view *view))
{
    char *path = xasprintf("%s.hostile", f.path);
    struct view *view;
    struct view_adoption *adoption;
    int r = 0;
    open_view_at(path, &view);
    cr_assert_eq(view_adopt_begin(view, &adoption), 0);
    for (size_t i = 0; i < row_count && r == 0; i++)
        r = give(adoption, &rows[i]);
    if (r == 0)
        r = view_adopt_end(adoption, state, 1, max_id);
    view_adopt_done(adoption);
    if (r == 0 && use)
        use(view);
    view_close(view);
    remove_tree(path);
    free(path);
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
    cr_expect_eq(adopt_now(), -EUCLEAN, "type %c, byte %zu", row->key[0], at);
    row->value[at] = was;
}

/* --- rows that no view wrote -------------------------------------------------------------------------------------------- */

Test(view_adopt, rows_as_they_are)
{
    begin();
    keep_rows();
    cr_assert_eq(adopt_rows(&remote.state, expect_check_ok), 0);
    end();
}

Test(view_adopt, impossible_rows)
{
    begin();
    keep_rows();
    for (size_t i = 0; i < row_count; i++) {
        expect_bad(&rows[i], 0, VIEW_VALUE_VERSION + 1);
        rows[i].key_len++;
        if (strchr("DX", rows[i].key[0]) == NULL) /* a longer name is a name */
            cr_expect_eq(adopt_now(), -EUCLEAN, "a longer key of type %c", rows[i].key[0]);
        rows[i].key_len--;
        if (strchr("LNX", rows[i].key[0]) == NULL) { /* and so is a longer value */
            rows[i].value_len++;
            cr_expect(adopt_now() == -EUCLEAN || rows[i].key[0] == 'C', "a longer value of type %c", rows[i].key[0]);
            rows[i].value_len--;
        }
    }
    struct row *chunk = row_of('H', 0), *pack = row_of('Q', 0);
    expect_bad(chunk, 1, 0);        /* no references */
    expect_bad(chunk, 27, 0xff);    /* stored length */
    expect_bad(chunk, 31, 0xff);    /* raw length */
    expect_bad(chunk, 35, 200);     /* chunk references */
    expect_bad(chunk, 9, 99);       /* pack without a row */
    expect_bad(chunk, 9, 102);      /* doomed */
    expect_bad(chunk, 18, 0xff);    /* past the end of the pack */
    expect_bad(pack, 2, 0);         /* shorter than its chunks */
    expect_bad(pack, 9, 2);         /* fewer chunks */
    expect_bad(pack, 13, 1);        /* doomed */
    expect_bad(row_of('I', 1), 72, 0xff); /* version */
    end();
}

Test(view_adopt, rows_in_another_order)
{
    begin();
    keep_rows();
    static struct row kept[ARRAY_LEN(rows)];
    memcpy(kept, rows, sizeof kept);
    for (size_t i = 1; i < row_count; i++) {
        rows[i] = kept[i - 1];
        rows[i - 1] = kept[i];
        cr_assert_eq(adopt_now(), -EUCLEAN);
        memcpy(rows, kept, sizeof kept);
        rows[i] = kept[i - 1];
        cr_assert_eq(adopt_now(), -EUCLEAN, "twice");
        memcpy(rows, kept, sizeof kept);
    }
    end();
}

Test(view_adopt, rows_of_another_state)
{
    begin();
    keep_rows();
    struct view_state state = remote.state;
    state.files++;
    cr_assert_eq(adopt_rows(&state, NULL), -EUCLEAN);
    state = remote.state;
    state.logical_bytes--;
    cr_assert_eq(adopt_rows(&state, NULL), -EUCLEAN);
    row_of('I', 0)->key[8] = 200; /* no root */
    cr_assert_eq(adopt_now(), -EUCLEAN);
    end();
}

Test(view_adopt, numbers_after_the_heads)
{
    begin();
    keep_rows();
    struct view_state old_inode = remote.state, old_entry = remote.state;
    old_inode.max_ino = 1;
    old_entry.applied_seq = 0;
    cr_expect_eq(adopt_rows(&old_inode, NULL), -EUCLEAN);
    cr_expect_eq(adopt_rows(&old_entry, NULL), -EUCLEAN);
    max_id = 99;
    cr_expect_eq(adopt_now(), -EUCLEAN, "pack");
    end();
}

Test(view_adopt, keys_of_other_types)
{
    struct view_adoption *adoption;
    begin();
    for (int type = 0; type < 256; type++) {
        if (type && strchr("CDEHILNOQX", type))
            continue;
        keep_rows();
        char *path = xasprintf("%s.type", f.path);
        struct view *view;
        open_view_at(path, &view);
        cr_assert_eq(view_adopt_begin(view, &adoption), 0);
        rows[0].key[0] = (uint8_t)type;
        cr_assert_eq(give(adoption, &rows[0]), -EUCLEAN);
        cr_assert_eq(view_adopt_row(adoption, &(struct run_row){.key = "I", .key_len = 1}), -EUCLEAN, "removed");
        cr_assert_eq(view_adopt_row(adoption, &(struct run_row){.key = "", .value = "", .value_len = 0}), -EUCLEAN);
        view_adopt_done(adoption);
        view_close(view);
        remove_tree(path);
        free(path);
        if (type > 'Z')
            type += 30;
    }
    end();
}

/* --- rows at random ----------------------------------------------------------------------------------------------------- */

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
    struct record rec = {.type = REC_UNLINK, .seq = f.seq + 1, .time = 5, .ino = 3, .parent = 2, .name = "file", .name_len = 4};
    (void)!view_check(view, no_line, NULL);
    for (uint64_t ino = 1; ino < 8; ino++) {
        char text[300];
        (void)!view_readdir(view, ino, 0, no_entry, NULL);
        (void)!view_extents(view, ino, 0, 0, INT64_MAX, no_extent, NULL);
        (void)!view_listxattr(view, ino, no_name, NULL);
        (void)!view_readlink(view, ino, text, sizeof text);
        (void)!view_getxattr(view, ino, "user.x", 6, text, sizeof text);
        free(view_path(view, ino));
    }
    record_encode(&rec, buf);
    struct view_batch batch = {.records = buf, .records_len = record_encoded_len(&rec), .cut_seq = rec.seq};
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
        row->value_len = seeded_below(s, 2) ? seeded_below(s, sizeof row->value) : seeded_below(s, row->value_len + 1);
        break;
    default:
        if (row->value_len)
            row->value[seeded_below(s, row->value_len)] = (uint8_t)(seeded_below(s, 2) ? seeded_u64(s) : seeded_below(s, 4));
    }
}

Test(view_adopt, changed_rows)
{
    struct seeded s = {7};
    const char *text = getenv("CAIRN_VIEW_ROUNDS");
    unsigned long rounds = text ? strtoul(text, NULL, 10) : 150, taken = 0;
    begin();
    for (unsigned long i = 0; i < rounds; i++) {
        keep_rows();
        for (uint64_t n = 1 + seeded_below(&s, 2); n > 0; n--)
            change_row(&s, &rows[seeded_below(&s, row_count)]);
        int r = adopt_rows(&remote.state, use_hostile);
        cr_assert(r == 0 || r == -EUCLEAN, "%d", r);
        taken += r == 0;
    }
    cr_assert(taken > 0 && taken < rounds);
    end();
}

static void random_row(struct seeded *s, struct row *row)
{
    row->key_len = 1 + seeded_below(s, seeded_below(s, 2) ? 30 : sizeof row->key);
    row->value_len = seeded_below(s, seeded_below(s, 2) ? 60 : sizeof row->value);
    seeded_fill(s, row->key, row->key_len);
    seeded_fill(s, row->value, row->value_len);
    if (seeded_below(s, 8))
        row->key[0] = (uint8_t)"CDEHILNOQX"[seeded_below(s, 10)];
    if (row->value_len && seeded_below(s, 8))
        row->value[0] = VIEW_VALUE_VERSION;
}

Test(view_adopt, random_rows)
{
    struct seeded s = {8};
    struct view *view;
    struct view_adoption *adoption;
    begin();
    char *path = xasprintf("%s.random", f.path);
    open_view_at(path, &view);
    for (int round = 0; round < 2000; round++) {
        cr_assert_eq(view_adopt_begin(view, &adoption), 0);
        int r = 0;
        for (int i = 0; i < 20 && r == 0; i++) {
            random_row(&s, &rows[0]);
            r = give(adoption, &rows[0]);
        }
        cr_assert(r == 0 || r == -EUCLEAN);
        cr_assert_eq(view_adopt_end(adoption, &remote.state, 1, UINT64_MAX), -EUCLEAN);
        view_adopt_done(adoption);
    }
    view_close(view);
    remove_tree(path);
    free(path);
    end();
}

/* --- crashes ------------------------------------------------------------------------------------------------------------ */

Test(view_adopt, a_view_that_is_not_whole_cannot_be_opened)
{
    struct view_options options = {.cache_bytes = 48 * MIB, .create = true};
    begin();
    keep_rows();
    for (size_t count = 0; count <= row_count; count++) {
        char *path = xasprintf("%s.part", f.path);
        struct view *view;
        struct view_adoption *adoption;
        open_view_at(path, &view);
        cr_assert_eq(view_adopt_begin(view, &adoption), 0);
        for (size_t i = 0; i < count; i++)
            cr_assert_eq(give(adoption, &rows[i]), 0);
        view_adopt_done(adoption);
        view_close(view);
        cr_assert_eq(view_open(path, &options, T0, &view), -EUCLEAN);
        remove_tree(path);
        free(path);
    }
    end();
}

/* --- tables that do not agree ------------------------------------------------------------------------------------------- */

static void raw_put(const struct key *key, const void *value, size_t len)
{
    char *message = NULL;
    rocksdb_put(f.view->db, f.view->write, (const char *)key->bytes, key->len, value, len, &message);
    cr_assert_null(message);
}

static void raw_delete(const struct key *key)
{
    char *message = NULL;
    rocksdb_delete(f.view->db, f.view->write, (const char *)key->bytes, key->len, &message);
    cr_assert_null(message);
}

static void note_line(const char *line, void *arg)
{
    char *all = arg;
    if (strlen(all) + strlen(line) < 4000)
        strcat(strcat(all, line), "\n");
}

static struct value saved;

static void save(const struct key *key)
{
    int r = db_get(f.view, NULL, key, &saved);
    cr_assert(r == 0 || r == -ENOENT);
}

/* view_check() says `what`; then the row is as it was. */
static void expect_report(const struct key *key, const char *what)
{
    char all[4096] = "";
    int found = view_check(f.view, note_line, all);
    cr_expect(found > 0 && strstr(all, what), "%d, \"%s\" is not in: %s", found, what, all);
    if (saved.data)
        raw_put(key, saved.data, saved.len);
    else
        raw_delete(key);
    value_done(&saved);
    cr_assert_eq(check_count(f.view), 0);
}

static void expect_deletion(const struct key *key, const char *what)
{
    save(key);
    raw_delete(key);
    expect_report(key, what);
}

static void expect_value(const struct key *key, const void *value, size_t len, const char *what)
{
    save(key);
    raw_put(key, value, len);
    expect_report(key, what);
}

static void expect_byte(const struct key *key, size_t at, int add_to, const char *what)
{
    save(key);
    char *changed = xmalloc(saved.len);
    memcpy(changed, saved.data, saved.len);
    cr_assert_lt(at, saved.len);
    changed[at] = (char)(changed[at] + add_to);
    raw_put(key, changed, saved.len);
    free(changed);
    expect_report(key, what);
}

static void break_chunks(void)
{
    struct key key, far;
    uint8_t wanted[WANTED_VALUE_LEN];
    struct chunk_name one = chunk_of(1), six = chunk_of(6), nine = chunk_of(9);
    key_of_name(&far, KEY_FAR, &one);
    expect_deletion(&far, "lying in the remote or being wanted there is 0, counted 1");
    expect_deletion(&far, "place, as its remote pack's list says, is 0, counted 100");
    expect_byte(&far, 9, 1, "place, as its remote pack's list says, is 101, counted 100");
    expect_byte(&far, 9, 1, "being listed in its remote pack is 0, counted 1");
    expect_byte(&far, 1, 1, "an entry of type R does not decode");
    expect_byte(&far, 25, 1, "remote pack 100: live bytes");
    key_of_placed(&key, KEY_FAR_PLACED, 100, &one);
    expect_deletion(&key, "remote pack 100: listed chunks is 3, counted 2");
    key_of_placed(&key, KEY_FAR_PLACED, 777, &one);
    expect_value(&key, "\1", 1, "chunks in remote pack of 777, which does not exist");
    key_of_placed(&key, KEY_FAR_PLACED, 102, &one);
    expect_value(&key, "\1", 1, "remote pack 102: listed chunks is 0, counted 1");
    key_u64(&key, KEY_FAR_PACK, 102);
    expect_byte(&key, 25, 1, "remote pack 102: listed chunks, of a pack that goes, is 1, counted 0");
    key_of_name(&key, KEY_WANTED, &six);
    expect_deletion(&key, "lying in the remote or being wanted there is 0, counted 1");
    expect_deletion(&key, "number of wanted chunks is 1, counted 0");
    expect_byte(&key, 1, 1, "stored bytes that are wanted is 1007, counted 1006");
    expect_byte(&key, 1, 1, "bytes of wanted chunks is 1006, counted 1007");
    key_of_name(&key, KEY_WANTED, &one);
    expect_value(&key, wanted, wanted_encode(1001, wanted), "lying in the remote or being wanted there is 2, counted 1");
    key_of_name(&key, KEY_WANTED, &nine);
    expect_value(&key, wanted, wanted_encode(0, wanted), "being wanted is 1, counted 0");
}

static void break_packs_and_counters(void)
{
    struct key key, of, mark;
    struct chunk_name six = chunk_of(6);
    key_u64(&key, KEY_FAR_PACK, 100);
    expect_deletion(&key, "live bytes in remote pack of 100, which does not exist");
    expect_byte(&key, 1, 1, "remote: bytes of packs");
    expect_byte(&key, 13, 1, "remote pack 100: live bytes is");
    expect_byte(&key, 21, 1, "remote pack 100: live chunks is 4, counted 3");
    expect_byte(&key, 25, 1, "remote pack 100: listed chunks is 4, counted 3");
    expect_byte(&key, 41, 1, "remote: number of packs is 2, counted 1");
    expect_byte(&key, 49, 1, "remote: number of packs is 2, counted 1");
    key_type(&key, KEY_REMOTE);
    expect_byte(&key, 19, 1, "remote: number of packs is 3, counted 2");
    expect_byte(&key, 27, 1, "remote: bytes of packs");
    expect_byte(&key, 35, 1, "remote: number of wanted chunks is 2, counted 1");
    expect_byte(&key, 43, 1, "remote: bytes of wanted chunks is 1007, counted 1006");
    expect_byte(&key, 0, 1, "an entry of type W does not decode");
    expect_deletion(&key, "an entry of type R, but no remote is known");
    key_chunk(&of, &six);
    key_touched(&mark, of.bytes, of.len);
    expect_deletion(&mark, "being marked while it is wanted is 0, counted 1");
    expect_byte(&mark, 4, 1, "a row of type H changed with change");
    key_u64(&of, KEY_PACK, 10);
    key_touched(&mark, of.bytes, of.len);
    expect_value(&mark, "\1", 1, "an entry of type T does not decode");
}

Test(view_remote_check, each_broken_row_is_reported)
{
    begin();
    cr_assert_eq(check_count(f.view), 0);
    break_chunks();
    break_packs_and_counters();
    end();
}

/* --- marks -------------------------------------------------------------------------------------------------------------- */

Test(view_remote, many_marks_are_forgotten_in_parts)
{
    struct view_cut *cut;
    uint64_t cut_seq;
    begin();
    for (uint64_t i = 0; i < 15000; i++) {
        char name[16];
        sprintf(name, "%lu", (unsigned long)i);
        add_file(&f, 100 + i, ROOT_INO, name, 0);
    }
    apply_ok(&f);
    cr_assert_eq(view_cut_open(f.view, &cut), 0);
    add(&f, (struct record){.type = REC_SETATTR, .ino = 5000, .mask = ATTR_UID, .attrs = {.uid = 5}});
    apply_ok(&f);
    (void)remote_make(&remote, cut, 6);
    remote_publish(&remote, f.view, cut);
    view_cut_close(cut);
    for (uint64_t ino = 100; ino < 15100; ino++) {
        cr_assert_eq(view_unpublished(f.view, ino, &cut_seq), 0);
        cr_assert_eq(cut_seq, ino == 5000 ? f.seq : 0);
    }
    expect_check_ok(f.view);
    end();
}
