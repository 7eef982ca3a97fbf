// SPDX-License-Identifier: Apache-2.0
/* Following: from the state of one head to that of a later one must end where adopting the later
 * one ends, whatever happened in between, by the rows that changed or by all of them. */
#include <stdio.h>

#include "../base/seeded.h"
#include "../expect.h"
#include "helpers.h"
#include "view/pack_list.h"
#include "view/remote.h"

#define FILES 60
#define CHUNKS 900
#define HEADS 14

/* --- rows in memory --------------------------------------------------------------------------- */

struct row {
    uint8_t *key, *value; /* value NULL: removed */
    size_t key_len, value_len;
};

struct rows {
    struct row *at;
    size_t count;
};

static int add_row(const struct run_row *from, void *arg)
{
    struct rows *rows = arg;
    if ((rows->count & (rows->count - 1)) == 0)
        rows->at = xrealloc(rows->at, (rows->count ? 2 * rows->count : 1) * sizeof *rows->at);
    struct row *row = &rows->at[rows->count++];
    *row = (struct row){.key_len = from->key_len, .value_len = from->value_len};
    row->key = xmalloc(from->key_len);
    memcpy(row->key, from->key, from->key_len);
    if (from->value) {
        row->value = xmalloc(from->value_len + 1);
        memcpy(row->value, from->value, from->value_len);
    }
    return 0;
}

static void rows_done(struct rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        free(rows->at[i].key);
        free(rows->at[i].value);
    }
    free(rows->at);
    *rows = (struct rows){0};
}

static int order_of(const struct row *a, const struct row *b)
{
    int order = memcmp(a->key, b->key, a->key_len < b->key_len ? a->key_len : b->key_len);
    return order ? order : (a->key_len > b->key_len) - (a->key_len < b->key_len);
}

static struct run_row as_run_row(const struct row *row)
{
    return (struct run_row){
        .key = row->key, .key_len = row->key_len, .value = row->value, .value_len = row->value_len};
}

/* Newer rows over older ones, as run_merge() does it. */
static struct rows merge(const struct rows *older, const struct rows *newer, bool drop_removed)
{
    struct rows merged = {0};
    for (size_t i = 0, j = 0; i < older->count || j < newer->count;) {
        int order = i == older->count   ? 1
                    : j == newer->count ? -1
                                        : order_of(&older->at[i], &newer->at[j]);
        const struct row *row = order < 0 ? &older->at[i] : &newer->at[j];
        struct run_row out = as_run_row(row);
        if (row->value || !drop_removed)
            (void)add_row(&out, &merged);
        i += order <= 0;
        j += order >= 0;
    }
    return merged;
}

/* --- a writer that publishes ------------------------------------------------------------------ */

struct shown_head {
    struct rows delta; /* since the head before; of the first everything */
    struct rows whole;
    struct view_state state;
};

static struct fixture f;
static uint64_t inos[FILES], versions[FILES], sizes[FILES];
static uint64_t next_ino, next_remote_pack, next_local_pack;
static uint32_t next_chunk;
static struct seeded seeded;
static struct shown_head heads[HEADS];
static size_t head_count;

static uint64_t rnd(uint64_t below)
{
    return seeded_below(&seeded, below);
}

static char *name_of(uint64_t i)
{
    static char name[32];
    sprintf(name, "file-%u", (unsigned)i);
    return name;
}

static void random_make(uint64_t i)
{
    inos[i] = next_ino++;
    versions[i] = 1;
    sizes[i] = 0;
    add_file(&f, inos[i], ROOT_INO, name_of(i), 0);
    if (rnd(3) == 0)
        add_xattr(&f, inos[i], "user.a", "bc");
}

static void random_seal(uint64_t i)
{
    struct extent e[6];
    uint32_t count = (uint32_t)rnd(ARRAY_LEN(e));
    for (uint32_t n = 0; n < count; n++) {
        uint32_t chunk = next_chunk < CHUNKS && rnd(2) ? next_chunk++ : (uint32_t)rnd(next_chunk);
        e[n] = chunk_extent(n * MIB, MIB, chunk, 0);
    }
    sizes[i] = count * MIB;
    if (rnd(4) == 0)
        add_seal_inline(&f, inos[i], ++versions[i], 0, sizes[i] = 40, 3, "short and inline");
    else
        add_seal(&f, inos[i], ++versions[i], 0, sizes[i], e, count);
}

static void random_op(void)
{
    uint64_t i = rnd(FILES), what = rnd(8);
    if (!inos[i]) {
        random_make(i);
    } else if (what < 5) {
        random_seal(i);
    } else if (what == 5) {
        add_unlink(&f, inos[i], ROOT_INO, name_of(i), 0);
        inos[i] = 0;
    } else if (what == 6) {
        add(&f, (struct record){.type = REC_SETATTR,
                                .ino = inos[i],
                                .mask = ATTR_MODE,
                                .attrs = {.mode = (uint32_t)rnd(0777)}});
    } else {
        uint64_t to = rnd(FILES);
        if (to == i)
            return;
        _cleanup_free_ char *old = xstrdup(name_of(i));
        add_rename(&f, inos[i], ROOT_INO, old, ROOT_INO, name_of(to), inos[to], 0);
        inos[to] = inos[i];
        versions[to] = versions[i];
        sizes[to] = sizes[i];
        inos[i] = 0;
    }
}

struct pending {
    struct chunk_entry list[CHUNKS];
    uint32_t count;
};

static int note_pending(const struct chunk_entry *entry, void *arg)
{
    struct pending *w = arg;
    w->list[w->count++] = *entry;
    return 0;
}

/* Some chunks may stay without a place in the remote, as damaged ones do. */
static void upload(struct view_cut *cut)
{
    static struct pending w;
    w.count = 0;
    assert_i64(view_cut_pending(cut, NULL, note_pending, &w), 0);
    for (uint32_t at = 0; at < w.count;) {
        uint32_t count = (uint32_t)min_u64(1 + rnd(40), w.count - at), kept = 0;
        struct chunk_entry entries[40];
        for (uint32_t i = 0; i < count; i++) {
            if (rnd(50) == 0)
                continue;
            entries[kept] = w.list[at + i];
            entries[kept].raw_len = CHUNK_SIZE_MAX;
            entries[kept].stored_len = 1000;
            entries[kept].offset = 64 + kept * 1000;
            kept++;
        }
        if (kept)
            assert_i64(view_remote_placed(f.view, next_remote_pack++, 1 << 20, entries, kept), 0);
        at += count;
    }
}

static int mark_gone(const struct view_remote_pack *pack, void *arg)
{
    (void)arg;
    if (pack->unreferenced && !pack->gone && rnd(2))
        assert_i64(view_remote_pack_gone(f.view, pack->pack), 0);
    return 0;
}

static void publish(void)
{
    struct view_cut *cut = NULL;
    struct shown_head *head = &heads[head_count];
    uint64_t missing;
    assert_i64(view_track(f.view), 0);
    assert_i64(view_cut_open(f.view, &cut), 0);
    upload(cut);
    *head = (struct shown_head){.state = view_cut_state(cut)};
    assert_i64(view_cut_rows(cut, (int64_t)head_count + 5, add_row, &head->delta, &missing), 0);
    assert_i64(view_published(f.view, cut, ++head_count), 0);
    view_cut_close(cut);
    static const struct rows nothing;
    head->whole =
        merge(head_count > 1 ? &heads[head_count - 2].whole : &nothing, &head->delta, true);
    assert_i64(view_remote_packs(f.view, mark_gone, NULL), 0);
}

static void make_history(uint64_t seed)
{
    fixture_open(&f);
    seeded = (struct seeded){seed};
    memset(inos, 0, sizeof inos);
    next_ino = 100;
    next_remote_pack = 1000;
    next_local_pack = 1;
    next_chunk = 1;
    for (head_count = 0; head_count < HEADS;) {
        for (uint64_t n = 1 + rnd(60); n > 0; n--)
            random_op();
        apply_ok(&f);
        publish();
    }
}

static void forget_history(void)
{
    for (size_t i = 0; i < head_count; i++) {
        rows_done(&heads[i].delta);
        rows_done(&heads[i].whole);
    }
    fixture_close(&f);
}

/* --- followers -------------------------------------------------------------------------------- */

struct follower {
    char path[64];
    struct view *view;
};

static void follower_adopt(struct follower *w, size_t n)
{
    struct view_adoption *adoption = NULL;
    strcpy(w->path, "/tmp/cairn-view-XXXXXX");
    cr_assert_not_null(mkdtemp(w->path));
    open_view_at(w->path, &w->view);
    assert_i64(view_adopt_begin(w->view, &adoption), 0);
    for (size_t i = 0; i < heads[n].whole.count; i++) {
        struct run_row row = as_run_row(&heads[n].whole.at[i]);
        assert_i64(view_adopt_row(adoption, &row), 0);
    }
    assert_i64(view_adopt_end(adoption, &heads[n].state,
                              &(struct view_head){.number = n + 1, .max_id = UINT64_MAX}),
               0);
    view_adopt_done(adoption);
}

static void follower_done(struct follower *w)
{
    view_close(w->view);
    remove_tree(w->path);
}

static void count_changed(uint64_t ino, void *arg)
{
    (void)ino;
    ++*(uint64_t *)arg;
}

static int follow_rows(struct view *view, const struct rows *rows, bool is_whole,
                       const struct view_state *state, uint64_t head, uint64_t *changed)
{
    struct view_follow *follow = NULL;
    int r = view_follow_begin(view, is_whole, count_changed, changed, &follow);
    for (size_t i = 0; i < rows->count && r == 0; i++) {
        struct run_row row = as_run_row(&rows->at[i]);
        r = view_follow_row(follow, &row);
    }
    if (r == 0)
        r = view_follow_end(follow, state,
                            &(struct view_head){.number = head, .max_id = UINT64_MAX});
    view_follow_done(follow);
    return r;
}

/* To head `to`, by the rows of the runs after `from` merged into one, or by all. */
static void follower_go(struct follower *w, size_t from, size_t to, bool is_whole)
{
    uint64_t changed = 0;
    struct rows rows = {0};
    for (size_t i = from + 1; i <= to; i++) {
        struct rows merged = merge(&rows, &heads[i].delta, false);
        rows_done(&rows);
        rows = merged;
    }
    assert_i64(follow_rows(w->view, is_whole ? &heads[to].whole : &rows, is_whole, &heads[to].state,
                           to + 1, &changed),
               0);
    cr_assert(changed > 0 || from == to);
    rows_done(&rows);
}

/* Every key but those of what is the view's own: change numbers, and local packs where
 * it has some. */
static size_t same_rows(struct view *a, struct view *b, const char *types)
{
    size_t count = 0;
    struct snap sa, sb;
    snap_begin(&sa, a);
    snap_begin(&sb, b);
    for (; *types; types++) {
        struct key prefix;
        struct scan x, y;
        key_type(&prefix, (enum key_type) * types);
        scan_open(&x, &sa, &prefix);
        scan_open(&y, &sb, &prefix);
        while (scan_valid(&x) && scan_valid(&y)) {
            cr_assert(x.key_len == y.key_len && memcmp(x.key, y.key, x.key_len) == 0,
                      "type %c: other keys", *types);
            cr_assert(x.value_len == y.value_len && memcmp(x.value, y.value, x.value_len) == 0,
                      "type %c: other values", *types);
            scan_next(&x);
            scan_next(&y);
            count++;
        }
        assert_i64(scan_valid(&x) || scan_valid(&y), false, "type %c: other numbers of rows",
                   *types);
        scan_close(&x);
        scan_close(&y);
    }
    snap_end(&sa);
    snap_end(&sb);
    return count;
}

/* Lists of packs: a view that follows may know of chunks that have left. */
static void includes_lists(struct view *a, struct view *b)
{
    struct snap sa, sb;
    struct key prefix;
    struct scan y;
    snap_begin(&sa, a);
    snap_begin(&sb, b);
    key_type(&prefix, KEY_REMOTE_PLACED);
    for (scan_open(&y, &sb, &prefix); scan_valid(&y); scan_next(&y)) {
        struct listed_chunks x_list = {0}, y_list = {0};
        struct key key = {0};
        struct value x = {0};
        key_add_bytes(&key, y.key, y.key_len);
        assert_i64(db_get(a, &sa, &key, &x), 0);
        assert_i64(list_decode(x.data, x.len, &x_list), 0);
        assert_i64(list_decode(y.value, y.value_len, &y_list), 0);
        for (size_t i = 0; i < y_list.count; i++)
            cr_assert_not_null(vector_search(&x_list, &y_list.at[i], compare_listed));
        vector_free(&x_list);
        vector_free(&y_list);
        value_done(&x);
    }
    scan_close(&y);
    snap_end(&sa);
    snap_end(&sb);
}

static void expect_same(struct view *a, struct view *b, const char *types, bool with_local)
{
    struct view_state sa = view_state(a), sb = view_state(b);
    struct view_remote ra = view_remote(a), rb = view_remote(b);
    if (with_local) {
        sa.stored_bytes = sa.packs = sa.pack_bytes = 0;
        ra.pending_bytes = rb.pending_bytes = 0;
    }
    cr_assert_arr_eq(&sa, &sb, sizeof sa);
    assert_u64(ra.tracks, rb.tracks);
    assert_u64(ra.is_whole, rb.is_whole);
    assert_u64(ra.head, rb.head);
    assert_u64(ra.cut, rb.cut);
    assert_u64(ra.packs, rb.packs);
    assert_u64(ra.pack_bytes, rb.pack_bytes);
    assert_u64(ra.pending_chunks, rb.pending_chunks);
    assert_u64(ra.pending_bytes, rb.pending_bytes);
    cr_assert_gt(same_rows(a, b, types), 10);
    includes_lists(a, b);
    expect_check_ok(a);
}

static void follow_at_random(uint64_t seed)
{
    make_history(seed);
    struct follower w;
    size_t at = rnd(3);
    follower_adopt(&w, at);
    while (at + 1 < head_count) {
        size_t to = at + 1 + rnd(min_u64(3, head_count - at - 1));
        bool is_whole = rnd(2);
        struct follower other;
        follower_go(&w, at, to, is_whole);
        follower_adopt(&other, to);
        expect_same(w.view, other.view, "CDEHIKLNOPQRTUX", false);
        follower_done(&other);
        if (rnd(3) == 0) {
            view_close(w.view);
            open_view_at(w.path, &w.view);
        }
        at = to;
    }
    follower_done(&w);
    forget_history();
}

Test(follow, ends_where_adopting_ends)
{
    for (uint64_t seed = 1; seed <= 8; seed++)
        follow_at_random(seed);
}

/* Packs on NVMe with chunks that are referred to, that were, and that never were. */
static void add_local_pack(struct follower *w, uint32_t first)
{
    uint32_t ids[50];
    struct view *writer = f.view;
    for (uint32_t i = 0; i < ARRAY_LEN(ids); i++)
        ids[i] = first + i;
    f.view = w->view;
    f.seq = view_state(w->view).applied_seq;
    add_pack(&f, next_local_pack++, ids, ARRAY_LEN(ids));
    assert_i64(apply(&f), 0);
    f.view = writer;
}

Test(follow, local_packs_stay)
{
    for (uint64_t seed = 21; seed <= 25; seed++) {
        make_history(seed);
        struct follower w, other;
        follower_adopt(&w, 0);
        for (size_t at = 0; at + 1 < head_count; at++) {
            if (at % 3 == 0)
                add_local_pack(&w, (uint32_t)(1 + at * 50));
            uint64_t packs = view_state(w.view).packs;
            follower_go(&w, at, at + 1, at % 2);
            assert_u64(view_state(w.view).packs, packs);
            follower_adopt(&other, at + 1);
            expect_same(w.view, other.view, "CDEILNOQRTX", true);
            follower_done(&other);
        }
        follower_done(&w);
        forget_history();
    }
}

Test(follow, back_to_an_older_head_is_only_another_state)
{
    make_history(31);
    struct follower w, other;
    follower_adopt(&w, HEADS - 1);
    uint64_t changed = 0;
    assert_i64(follow_rows(w.view, &heads[2].whole, true, &heads[2].state, 3, &changed), 0);
    follower_adopt(&other, 2);
    struct view_state a = view_state(w.view), b = view_state(other.view);
    assert_u64(a.files, b.files);
    cr_assert_gt(same_rows(w.view, other.view, "CDEHIKLNOPQRSTUX"), 10);
    follower_done(&other);
    follower_done(&w);
    forget_history();
}

/* Rows that no view wrote, or of another state: nothing changes. */
Test(follow, damaged_rows_change_nothing)
{
    make_history(41);
    struct follower w, other;
    uint64_t changed = 0, refused = 0;
    follower_adopt(&w, 3);
    follower_adopt(&other, 3);
    for (int i = 0; i < 400; i++) {
        const struct rows *rows = i % 2 ? &heads[4].delta : &heads[4].whole;
        struct row *row = &rows->at[rnd(rows->count)];
        uint8_t *byte = row->value && row->value_len && rnd(2) ? &row->value[rnd(row->value_len)]
                                                               : &row->key[rnd(row->key_len)];
        uint8_t was = *byte;
        *byte ^= (uint8_t)(1 << rnd(8));
        struct view_state state = heads[4].state;
        state.files += rnd(4) == 0; /* what would be taken is of another state then */
        int r = follow_rows(w.view, rows, i % 2 == 0, &state, 5, &changed);
        *byte = was;
        if (r == 0) { /* a time, a mode: no damage that could be told */
            follower_done(&w);
            follower_adopt(&w, 3);
            continue;
        }
        assert_i64(r, -EUCLEAN, "%s", strerror(-r));
        refused++;
        cr_assert_gt(same_rows(w.view, other.view, "CDEHIKLNOPQRSTUX"), 10);
    }
    cr_assert_gt(refused, 100);
    follower_done(&other);
    follower_done(&w);
    forget_history();
}

/* A view has its root, whatever a head says. */
Test(follow, root_stays)
{
    static const struct rows nothing;
    struct rows rows = {0};
    struct view_state empty = {.applied_seq = 1, .max_ino = ROOT_INO};
    struct follower w, other;
    struct key key;
    uint64_t changed = 0;
    make_history(61);
    follower_adopt(&w, 3);
    follower_adopt(&other, 3);
    key_u64(&key, KEY_INODE, ROOT_INO);
    (void)add_row(&(struct run_row){.key = key.bytes, .key_len = key.len}, &rows);
    assert_i64(follow_rows(w.view, &nothing, true, &empty, 4, &changed), -EUCLEAN);
    assert_i64(follow_rows(w.view, &rows, false, &heads[3].state, 4, &changed), -EUCLEAN);
    expect_same(w.view, other.view, "CDEHIKLNOPQRTUX", true);
    rows_done(&rows);
    follower_done(&other);
    follower_done(&w);
    forget_history();
}

Test(follow, own_changes_are_told)
{
    bool own;
    make_history(51);
    struct follower w;
    follower_adopt(&w, 5);
    assert_i64(view_has_own_changes(w.view, &own), 0);
    assert_u64(own, false);
    struct view *writer = f.view;
    f.view = w.view;
    f.seq = view_state(w.view).applied_seq;
    add_file(&f, 90000, ROOT_INO, "of-its-own", 0);
    apply_ok(&f);
    assert_i64(view_has_own_changes(w.view, &own), 0);
    assert_u64(own, true);
    f.view = writer;
    follower_done(&w);
    forget_history();
}
