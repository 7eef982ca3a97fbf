/* What view_remote.h promises, each by itself. */
#include "test_remote.h"

#include <stdio.h>

#include "meta/view_db.h"

/* --- what the tests share ----------------------------------------------------------------------------------------------- */

static struct fixture f;
static struct test_remote remote;

static void begin(void)
{
    fixture_open(&f);
    remote = (struct test_remote){0};
}

static void end(void)
{
    expect_check_ok(f.view);
    remote_done(&remote);
    fixture_close(&f);
}

/* A file of one extent for each chunk. */
static void add_file_of(uint64_t ino, const char *name, const uint32_t *ids, uint32_t count)
{
    struct extent e[16];
    add_file(&f, ino, ROOT_INO, name, 0);
    for (uint32_t i = 0; i < count; i++)
        e[i] = chunk_extent(i * MIB, MIB, ids[i], 0);
    add_seal(&f, ino, 2, 0, count * MIB, e, count);
}

static struct chunk_entry far_entry(uint64_t pack, uint32_t id, uint64_t offset)
{
    return (struct chunk_entry){.name = chunk_of(id),
                                .pack = pack,
                                .offset = offset,
                                .stored_len = 1000 + id,
                                .raw_len = CHUNK_SIZE_MAX,
                                .encoding = ENCODING_LZ4};
}

static void place(uint64_t pack, const uint32_t *ids, uint32_t count)
{
    struct chunk_entry entries[16];
    for (uint32_t i = 0; i < count; i++)
        entries[i] = far_entry(pack, ids[i], 64 + 2000ull * i);
    cr_assert_eq(view_far_placed(f.view, pack, 64 + 2000ull * count, entries, count), 0);
}

#define PLACE(pack, ...) place(pack, (const uint32_t[]){__VA_ARGS__}, ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))
#define FILE_OF(ino, name, ...)                                                                                  \
    add_file_of(ino, name, (const uint32_t[]){__VA_ARGS__}, ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))
#define PACK_OF(pack, ...)                                                                                       \
    add_pack(&f, pack, (const uint32_t[]){__VA_ARGS__}, ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))

/* Pack of the chunk's place; 0: none. */
static uint64_t far_of(struct view *view, uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    bool published;
    int r = view_far_chunk(view, &name, &entry, &published);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? entry.pack : 0;
}

static bool is_published(uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    bool published = false;
    return view_far_chunk(f.view, &name, &entry, &published) == 0 && published;
}

static struct view_far_pack far_pack(uint64_t id)
{
    struct view_far_pack pack;
    cr_assert_eq(view_far_pack(f.view, id, &pack), 0);
    return pack;
}

static void expect_pack_forgotten(uint64_t id)
{
    struct view_far_pack pack;
    cr_assert_eq(view_far_pack(f.view, id, &pack), -ENOENT);
}

static struct view_cut *cut(void)
{
    struct view_cut *ret;
    cr_assert_eq(view_cut_open(f.view, &ret), 0);
    return ret;
}

static uint64_t publish(struct view_cut *c, int64_t now)
{
    uint64_t missing = remote_make(&remote, c, now);
    remote_publish(&remote, f.view, c);
    view_cut_close(c);
    expect_check_ok(f.view);
    return missing;
}

static void expect_adopted(void (*look)(struct view *view))
{
    char *path = xasprintf("%s.adopted", f.path);
    struct view *view;
    open_adopted(&remote, path, &view);
    expect_check_ok(view);
    look(view);
    view_close(view);
    remove_tree(path);
    free(path);
}

static void look_same(struct view *view)
{
    char *is = dump_shared(view), *expected = dump_shared(f.view);
    cr_assert_str_eq(is, expected);
    free(is);
    free(expected);
}

static void expect_same_adopted(void)
{
    expect_adopted(look_same);
}

static uint64_t unpublished(uint64_t ino)
{
    uint64_t cut_seq = 77;
    cr_assert_eq(view_unpublished(f.view, ino, &cut_seq), 0);
    return cut_seq;
}

/* --- tracking ----------------------------------------------------------------------------------------------------------- */

Test(view_remote, tracking_begins_with_everything_wanted)
{
    begin();
    FILE_OF(2, "a", 1, 2);
    PACK_OF(10, 1, 3);
    apply_ok(&f);
    struct view_remote r = view_remote(f.view);
    struct view_cut *c;
    cr_assert_not(r.tracks);
    cr_assert_eq(view_cut_open(f.view, &c), -EINVAL);
    cr_assert_eq(view_track(f.view), 0);
    r = view_remote(f.view);
    cr_assert(r.tracks && r.is_whole && r.head == 0 && r.packs == 0);
    cr_assert_eq(r.wanted, 2);
    cr_assert_eq(r.wanted_bytes, 1001, "chunk 2 has no place here, chunk 3 no references");
    expect_check_ok(f.view);
    cr_assert_eq(view_track(f.view), 0);
    cr_assert_eq(view_remote(f.view).wanted, 2, "nothing the second time");
    fixture_reopen(&f);
    r = view_remote(f.view);
    cr_assert(r.tracks && r.is_whole && r.wanted == 2 && r.wanted_bytes == 1001);
    end();
}

/* What a crash leaves of a beginning: rows of chunks, some of which nobody refers to by now. */
static void leave_wanted(uint32_t first, uint32_t count)
{
    for (uint32_t id = first; id < first + count; id++) {
        struct key key;
        uint8_t value[WANTED_VALUE_LEN];
        char *message = NULL;
        struct chunk_name name = chunk_of(id);
        key_of_name(&key, KEY_WANTED, &name);
        (void)wanted_encode(77, value);
        rocksdb_put(f.view->db, f.view->write, (const char *)key.bytes, key.len, (const char *)value, sizeof value, &message);
        cr_assert_null(message);
    }
}

Test(view_remote, tracking_that_was_cut_short_begins_again)
{
    begin();
    FILE_OF(2, "a", 1, 2);
    PACK_OF(10, 1, 2);
    apply_ok(&f);
    leave_wanted(2, 3);
    expect_check_ok(f.view);
    fixture_reopen(&f);
    cr_assert_not(view_remote(f.view).tracks);
    FILE_OF(3, "b", 5);
    apply_ok(&f);
    cr_assert_eq(view_track(f.view), 0);
    cr_assert_eq(view_remote(f.view).wanted, 3);
    cr_assert_eq(view_remote(f.view).wanted_bytes, 2003);
    end();
}

/* More chunks than go into one write. */
Test(view_remote, many_are_wanted_in_steps)
{
    enum { FILES = 1300, EACH = 16 };
    begin();
    for (uint32_t i = 0; i < FILES; i++) {
        uint32_t ids[EACH];
        char name[16];
        for (uint32_t k = 0; k < EACH; k++)
            ids[k] = 1 + i * EACH + k;
        (void)snprintf(name, sizeof name, "f%u", i);
        add_file_of(2 + i, name, ids, EACH);
        if (i % 100 == 99 || i + 1 == FILES)
            apply_ok(&f);
    }
    cr_assert_eq(view_track(f.view), 0);
    cr_assert_eq(view_remote(f.view).wanted, FILES * EACH);
    expect_check_ok(f.view);
    cr_assert_eq(view_forget_remote(f.view), 0);
    cr_assert_eq(view_remote(f.view).wanted, FILES * EACH);
    fixture_reopen(&f);
    cr_assert_eq(view_remote(f.view).wanted, FILES * EACH);
    end();
}

Test(view_remote, wanted_follows_references_and_local_places)
{
    begin();
    cr_assert_eq(view_track(f.view), 0);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    cr_assert_eq(view_remote(f.view).wanted, 2);
    cr_assert_eq(view_remote(f.view).wanted_bytes, 0);
    PACK_OF(10, 1, 2, 3);
    apply_ok(&f);
    cr_assert_eq(view_remote(f.view).wanted_bytes, 2003);
    FILE_OF(3, "b", 2);
    apply_ok(&f);
    cr_assert_eq(view_remote(f.view).wanted, 2);
    add(&f, (struct record){.type = REC_DROP, .flags = RECORD_EVICTED, .pack = 10});
    apply_ok(&f);
    expect_check_ok(f.view);
    cr_assert_eq(view_remote(f.view).wanted_bytes, 0);
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    cr_assert_eq(view_remote(f.view).wanted, 1);
    end();
}

Test(view_remote, forgetting_the_remote_wants_everything_again)
{
    begin();
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    struct view_cut *c = cut();
    PLACE(100, 1, 2);
    cr_assert_eq(publish(c, 5), 0);
    cr_assert_eq(view_remote(f.view).wanted, 0);
    cr_assert_eq(view_forget_remote(f.view), 0);
    struct view_remote r = view_remote(f.view);
    cr_assert(r.tracks && r.is_whole && r.head == 0 && r.cut == 0 && r.packs == 0 && r.pack_bytes == 0);
    cr_assert(r.wanted == 2 && r.wanted_bytes == 2003);
    cr_assert_eq(far_of(f.view, 1), 0);
    expect_check_ok(f.view);
    c = cut();
    cr_assert(view_cut_is_whole(c));
    PLACE(101, 1, 2);
    cr_assert_eq(publish(c, 6), 0);
    cr_assert_eq(remote.count, 1);
    expect_same_adopted();
    end();
}

/* --- places ------------------------------------------------------------------------------------------------------------- */

Test(view_remote, placed_chunks_have_their_place_there)
{
    begin();
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    cr_assert_eq(view_track(f.view), 0);
    cr_assert_eq(far_of(f.view, 1), 0);
    PLACE(100, 1, 7); /* 7 is dead, or was never here */
    struct view_far_pack p = far_pack(100);
    cr_assert(p.length == 64 + 4000 && p.count == 2 && p.live_count == 1 && p.live_bytes == 1001);
    cr_assert(p.head == 0 && p.doomed == 0 && p.gone == false);
    cr_assert(far_of(f.view, 1) == 100 && far_of(f.view, 7) == 100 && far_of(f.view, 2) == 0);
    cr_assert_eq(view_remote(f.view).wanted, 1);
    cr_assert_eq(view_remote(f.view).pack_bytes, p.length);
    PLACE(101, 1, 2); /* also those that had another */
    cr_assert(far_of(f.view, 1) == 101 && far_pack(100).live_count == 0 && far_pack(101).live_bytes == 2003);
    struct chunk_entry e = far_entry(101, 3, 64);
    cr_assert_eq(view_far_placed(f.view, 101, 100, &e, 1), -EUCLEAN, "known already");
    cr_assert_eq(view_remote(f.view).packs, 2);
    FILE_OF(3, "b", 7);
    apply_ok(&f);
    cr_assert_eq(far_pack(100).live_count, 1, "it lies in the remote already");
    cr_assert_eq(view_remote(f.view).wanted, 0);
    end();
}

static int count_pack(const struct view_far_pack *pack, void *arg)
{
    uint64_t *sum = arg;
    *sum = *sum * 1000 + pack->pack;
    return pack->pack == 101;
}

static int count_chunk(const struct chunk_entry *entry, uint64_t refs, void *arg)
{
    uint64_t *sum = arg;
    *sum += chunk_id(&entry->name) * 100 + refs;
    return refs == 2;
}

Test(view_remote, packs_and_their_chunks_are_listed)
{
    begin();
    uint64_t sum = 0;
    struct view_far_pack pack;
    cr_assert_eq(view_track(f.view), 0);
    FILE_OF(2, "a", 1, 2, 2);
    apply_ok(&f);
    PLACE(100, 1, 9);
    PLACE(101, 2);
    PLACE(102, 5);
    cr_assert_eq(view_far_packs(f.view, count_pack, &sum), 0);
    cr_assert_eq(sum, 100101, "ended by 1");
    sum = 0;
    cr_assert_eq(view_far_pack_chunks(f.view, 100, count_chunk, &sum), 0);
    cr_assert_eq(sum, 101 + 900);
    sum = 0;
    cr_assert_eq(view_far_pack_chunks(f.view, 101, count_chunk, &sum), 0);
    cr_assert_eq(sum, 202);
    sum = 0;
    cr_assert_eq(view_far_pack_chunks(f.view, 103, count_chunk, &sum), 0);
    cr_assert_eq(sum, 0);
    cr_assert_eq(view_far_pack(f.view, 103, &pack), -ENOENT);
    end();
}

Test(view_remote, lost_chunks_are_wanted_again)
{
    begin();
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    cr_assert_eq(view_track(f.view), 0);
    struct view_cut *c = cut();
    PLACE(100, 1, 2);
    (void)publish(c, 5);
    cr_assert_eq(view_far_lost(f.view, 99), -ENOENT);
    cr_assert_eq(view_far_lost(f.view, 100), 0);
    cr_assert(far_of(f.view, 1) == 0 && far_of(f.view, 2) == 0 && far_pack(100).gone);
    struct view_remote r = view_remote(f.view);
    cr_assert(r.wanted == 1 && r.wanted_bytes == 1001 && r.packs == 0 && r.pack_bytes == 0);
    expect_check_ok(f.view);
    cr_assert_eq(view_far_lost(f.view, 100), 0, "twice");
    cr_assert_eq(view_remote(f.view).packs, 0);
    c = cut();
    PLACE(101, 1);
    cr_assert_eq(publish(c, 6), 0);
    expect_pack_forgotten(100);
    expect_same_adopted();
    end();
}

static void look_lost_after(struct view *view)
{
    cr_assert_eq(far_of(view, 1), 100, "the cut was taken before");
}

Test(view_remote, a_pack_lost_after_the_cut_is_removed_by_the_next)
{
    begin();
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    cr_assert_eq(view_track(f.view), 0);
    struct view_cut *c = cut();
    PLACE(100, 1);
    (void)publish(c, 5);
    add_dir(&f, 3, ROOT_INO, "d");
    apply_ok(&f);
    c = cut();
    cr_assert_eq(view_far_lost(f.view, 100), 0);
    cr_assert_eq(publish(c, 6), 0);
    expect_adopted(look_lost_after);
    c = cut();
    PLACE(101, 1);
    cr_assert_eq(publish(c, 7), 0);
    expect_same_adopted();
    expect_pack_forgotten(100);
    end();
}

Test(view_remote, gone_is_for_doomed_packs)
{
    begin();
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    cr_assert_eq(view_track(f.view), 0);
    struct view_cut *c = cut();
    PLACE(100, 1);
    (void)publish(c, 5);
    cr_assert_eq(view_far_gone(f.view, 100), -EINVAL);
    cr_assert_eq(view_far_gone(f.view, 99), -ENOENT);
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    (void)publish(cut(), 6);
    cr_assert_eq(far_pack(100).doomed, 6);
    cr_assert_eq(view_remote(f.view).packs, 0);
    cr_assert_eq(view_far_gone(f.view, 100), 0);
    cr_assert(far_pack(100).gone);
    struct key key;
    uint8_t value[256];
    key_u64(&key, KEY_FAR_PACK, 100);
    cr_assert_eq(remote_row(&remote, key.bytes, key.len, value), (ssize_t)FAR_RUN_VALUE_LEN);
    add_dir(&f, 3, ROOT_INO, "d");
    apply_ok(&f);
    (void)publish(cut(), 7);
    cr_assert_eq(remote_row(&remote, key.bytes, key.len, value), -1);
    expect_same_adopted();
    end();
}

/* --- cuts --------------------------------------------------------------------------------------------------------------- */

struct names {
    struct chunk_name at[16];
    uint64_t packs;
    size_t count, stop;
};

static int note_name(const struct chunk_entry *entry, void *arg)
{
    struct names *names = arg;
    if (names->count)
        cr_assert_lt(memcmp(&names->at[names->count - 1], &entry->name, sizeof entry->name), 0);
    names->at[names->count++] = entry->name;
    names->packs += entry->pack;
    return names->count == names->stop;
}

Test(view_remote, wanted_at_the_cut_whatever_comes_after)
{
    begin();
    struct names names = {.stop = 3}, rest = {0}, error = {0};
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1, 2, 3, 4);
    FILE_OF(2, "a", 1, 2, 3, 4, 5);
    apply_ok(&f);
    struct view_cut *c = cut();
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    add_drop(&f, 10);
    FILE_OF(3, "b", 6);
    apply_ok(&f);
    PLACE(100, 1, 2, 3, 4, 5, 6);
    cr_assert_eq(view_cut_wanted(c, NULL, note_name, &names), 0);
    cr_assert_eq(names.count, 3);
    cr_assert_eq(view_cut_wanted(c, &names.at[2], note_name, &rest), 0);
    cr_assert_eq(rest.count, 2);
    cr_assert_lt(memcmp(&names.at[2], &rest.at[0], sizeof rest.at[0]), 0);
    cr_assert_eq(names.packs + rest.packs, 40, "where they lay; 5 lay nowhere");
    cr_assert_eq(view_cut_wanted(c, &rest.at[1], note_name, &error), 0);
    cr_assert_eq(error.count, 0);
    cr_assert_eq(view_cut_state(c).chunks, 5);
    cr_assert_eq(publish(c, 5), 0);
    end();
}

static int note_row(const struct run_row *row, void *arg)
{
    char *text = arg;
    const char *key = row->key;
    sprintf(text + strlen(text), "%c%s", key[0], row->value ? "" : "-");
    return 0;
}

Test(view_remote, a_run_has_what_changed)
{
    begin();
    char text[200] = "";
    uint64_t missing;
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    struct view_cut *c = cut();
    PLACE(100, 1);
    cr_assert_eq(view_cut_rows(c, 5, note_row, text, &missing), 0);
    cr_assert_str_eq(text, "CDEHIIQ");
    (void)publish(c, 5);
    c = cut();
    text[0] = 0;
    cr_assert_eq(view_cut_rows(c, 6, note_row, text, &missing), 0);
    cr_assert_str_eq(text, "", "nothing changed");
    view_cut_close(c);
    add(&f, (struct record){.type = REC_SETXATTR, .ino = 2, .name = "user.x", .name_len = 6, .value = "v", .value_len = 1});
    apply_ok(&f);
    c = cut();
    add_unlink(&f, 2, ROOT_INO, "a", 0); /* comes too late */
    apply_ok(&f);
    text[0] = 0;
    cr_assert_eq(view_cut_rows(c, 7, note_row, text, &missing), 0);
    cr_assert_str_eq(text, "IX");
    (void)publish(c, 7);
    c = cut();
    text[0] = 0;
    cr_assert_eq(view_cut_rows(c, 8, note_row, text, &missing), 0);
    cr_assert_str_eq(text, "C-D-E-H-II-QX-");
    (void)publish(c, 8);
    expect_same_adopted();
    end();
}

static int fail_row(const struct run_row *row, void *arg)
{
    (void)row;
    return --*(int *)arg == 0 ? -EDQUOT : 0;
}

Test(view_remote, an_abandoned_cut_changes_nothing)
{
    begin();
    int rows = 3;
    uint64_t missing;
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1);
    apply_ok(&f);
    struct view_cut *c = cut();
    PLACE(100, 1);
    cr_assert_eq(view_cut_rows(c, 5, fail_row, &rows, &missing), -EDQUOT);
    view_cut_close(c);
    view_cut_close(NULL);
    cr_assert(view_remote(f.view).is_whole && far_pack(100).head == 0);
    (void)publish(cut(), 6);
    cr_assert(far_pack(100).head == 1 && !view_remote(f.view).is_whole);
    cr_assert_eq(view_remote(f.view).cut, f.seq);
    expect_same_adopted();
    end();
}

static void look_missing(struct view *view)
{
    cr_assert(far_of(view, 1) == 100 && far_of(view, 2) == 0);
    cr_assert(view_remote(view).wanted == 1 && view_remote(view).wanted_bytes == 0);
}

static void look_found(struct view *view)
{
    cr_assert(far_of(view, 2) == 101 && view_remote(view).wanted == 0);
}

Test(view_remote, missing_chunks_are_told_until_they_have_a_place)
{
    begin();
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    struct view_cut *c = cut();
    PLACE(100, 1);
    cr_assert_eq(publish(c, 5), 1);
    expect_adopted(look_missing);
    cr_assert_eq(publish(cut(), 6), 1);
    c = cut();
    PLACE(101, 2);
    cr_assert_eq(publish(c, 7), 0);
    expect_adopted(look_found);
    expect_same_adopted();
    end();
}

Test(view_remote, dead_packs_are_doomed_and_what_comes_to_life_is_wanted)
{
    begin();
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1);
    FILE_OF(3, "b", 2);
    apply_ok(&f);
    struct view_cut *c = cut();
    PLACE(100, 1);
    PLACE(101, 2);
    (void)publish(c, 5);
    cr_assert(far_pack(100).doomed == 0 && far_pack(100).head == 1 && is_published(1));
    add_unlink(&f, 2, ROOT_INO, "a", 0);
    apply_ok(&f);
    c = cut();
    FILE_OF(4, "c", 1);
    apply_ok(&f);
    cr_assert_eq(far_of(f.view, 1), 100);
    cr_assert_not(is_published(1), "the open cut may doom its pack");
    cr_assert(is_published(2));
    (void)publish(c, 6);
    cr_assert(far_pack(100).doomed == 6 && far_pack(101).doomed == 0 && far_of(f.view, 1) == 0);
    cr_assert_eq(view_remote(f.view).wanted, 1);
    cr_assert_eq(view_remote(f.view).packs, 1);
    c = cut();
    PLACE(102, 1);
    (void)publish(c, 7);
    cr_assert(is_published(1) && far_pack(102).head == 3);
    expect_same_adopted();
    end();
}

Test(view_remote, a_chunk_that_moves_is_told_by_the_next_run)
{
    begin();
    cr_assert_eq(view_track(f.view), 0);
    PACK_OF(10, 1, 2);
    FILE_OF(2, "a", 1, 2);
    apply_ok(&f);
    struct view_cut *c = cut();
    PLACE(100, 1, 2);
    (void)publish(c, 5);
    c = cut();
    PLACE(101, 1, 2);
    cr_assert_not(is_published(1));
    (void)publish(c, 6);
    cr_assert_eq(far_pack(100).doomed, 0, "the head still says that they lie there");
    expect_same_adopted();
    (void)publish(cut(), 7);
    cr_assert_eq(far_pack(100).doomed, 7);
    cr_assert(is_published(1));
    expect_same_adopted();
    end();
}

Test(view_remote, unpublished_changes_of_an_inode)
{
    begin();
    add_dir(&f, 2, ROOT_INO, "d");
    add_dir(&f, 3, 2, "e");
    apply_ok(&f);
    uint64_t before = f.seq;
    cr_assert_eq(unpublished(2), before, "nothing is published");
    cr_assert_eq(view_track(f.view), 0);
    cr_assert_eq(unpublished(2), before);
    cr_assert_eq(unpublished(99), 0);
    struct view_cut *c = cut();
    add_file(&f, 4, 2, "x", 0);
    apply_ok(&f);
    cr_assert_eq(unpublished(2), f.seq);
    (void)publish(c, 5);
    cr_assert_eq(unpublished(3), 0);
    cr_assert(unpublished(2) == f.seq && unpublished(4) == f.seq);
    (void)publish(cut(), 6);
    cr_assert(unpublished(2) == 0 && unpublished(4) == 0);
    end();
}
