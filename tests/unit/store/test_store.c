// SPDX-License-Identifier: Apache-2.0
/* A store as a whole: what it shows after a clean end, after a death, after a power loss, without
 * its view. */
#include <stdio.h>
#include <rocksdb/c.h>
#include <sys/stat.h>

#include "../await.h"
#include "../expect.h"
#include "../named.h"
#include "../numbered.h"
#include "commit/shared.h"
#include "store/local_snapshots_internal.h"
#include "../fixtures/store_fixture.h"

static struct store_fixture fixture;

static void setup(void)
{
    fixture_make(&fixture);
}

static void teardown(void)
{
    fixture_remove(&fixture);
}

TestSuite(store, .init = setup, .fini = teardown, .timeout = 600);

static const size_t lengths[] = {
    0, 1, 100, 16 * 1024, 16 * 1024 + 1, 1024 * 1024, 3 * 1024 * 1024 + 77};

static void put_all(struct store_fixture *s)
{
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++)
        fixture_put(s, numbered("file-%u", i), i, lengths[i]);
}

static void expect_all(struct store_fixture *s)
{
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++)
        fixture_expect(s, numbered("file-%u", i), i, lengths[i]);
}

/* Closes, checks, and opens again. */
static void cycle(struct store_fixture *s)
{
    fixture_wait(s);
    fixture_close(s);
    assert_i64(fixture_fsck(s), 0);
    fixture_open(s);
}

Test(store, content_after_a_clean_end)
{
    fixture_open(&fixture);
    put_all(&fixture);
    expect_all(&fixture);
    cycle(&fixture);
    expect_all(&fixture);
    struct store_status status = fixture_status(&fixture);
    expect_u64(status.behind_bytes, 0);
    expect_u64(status.nvme.errors, 0);
    expect_u64(status.epoch, 2);
    cycle(&fixture);
    expect_all(&fixture);
}

static void die_with_everything_staged(struct store_fixture *s)
{
    put_all(s);
    uint64_t draft = fixture_create(s, "draft");
    fixture_fill(s, draft, 0, 40, 700000);
    (void)fixture_create(s, "nascent");
    uint64_t grown = fixture_create(s, "grown");
    fixture_fill(s, grown, 0, 41, 500000);
    fixture_seal(s, grown);
    fixture_fill(s, grown, 500000, 41, 500000);
}

static void die_with_some_durable(struct store_fixture *s)
{
    fixture_put(s, "old", 50, 400000);
    fixture_wait(s);
    uint64_t old = fixture_lookup(s, "old");
    fixture_fill(s, old, 400000, 50, 100000);
    fixture_seal(s, old);
    fixture_wait(s);
    fixture_fill(s, old, 500000, 50, 100000);
    die_with_everything_staged(s);
}

static void expect_after_death(struct store_fixture *s)
{
    expect_all(s);
    fixture_expect(s, "draft", 40, 700000);
    fixture_expect(s, "nascent", 0, 0);
    fixture_expect(s, "grown", 41, 1000000);
}

Test(store, content_after_a_death)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_die_after(&fixture, die_with_everything_staged);
    fixture_open(&fixture);
    expect_after_death(&fixture);
    cycle(&fixture);
    expect_after_death(&fixture);
}

Test(store, content_after_a_death_in_the_middle)
{
    fixture_die_after(&fixture, die_with_some_durable);
    fixture_open(&fixture);
    fixture_expect(&fixture, "old", 50, 600000);
    expect_after_death(&fixture);
    cycle(&fixture);
    fixture_expect(&fixture, "old", 50, 600000);
    expect_after_death(&fixture);
}

/* P4: the seal of one of these waited, and others were not closed at all: a cut that has one of
 * them has all. */
static void die_with_closed_and_open(struct store_fixture *s)
{
    uint64_t marker = fixture_create(s, "marker"), data = fixture_create(s, "data");
    fixture_fill(s, data, 0, 1, 400000);
    assert_i64(history_seal_later(store_commit(s->store)->history, data), 0);
    fixture_fill(s, marker, 0, 2, 100);
}

Test(store, what_a_death_leaves_unsealed_is_one_cut)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_die_after(&fixture, die_with_closed_and_open);
    assert_i64(fixture_open_only(&fixture), 0);
    expect_u64(stage_drafts(store_stage(fixture.store), NULL, 0), 0);
    expect_u64(stage_floor(store_stage(fixture.store)),
               history_newest(store_commit(fixture.store)->history),
               "no cut can be chosen before the last of them");
    fixture_close(&fixture);
    fixture_open(&fixture);
    fixture_expect(&fixture, "data", 1, 400000);
    fixture_expect(&fixture, "marker", 2, 100);
}

static void die_at_once(struct store_fixture *s)
{
    (void)s;
}

Test(store, several_deaths_in_a_row)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_die_after(&fixture, die_with_some_durable);
    for (unsigned i = 0; i < 3; i++)
        fixture_die_after(&fixture, die_at_once);
    fixture_open(&fixture);
    fixture_expect(&fixture, "old", 50, 600000);
    expect_after_death(&fixture);
    cycle(&fixture);
    expect_after_death(&fixture);
}

/* Files are sealed in another order than that of their inode numbers. */
static void die_with_mixed_order(struct store_fixture *s)
{
    uint64_t inos[6];
    for (unsigned i = 0; i < 6; i++)
        inos[i] = fixture_create(s, numbered("file-%u", i));
    for (unsigned i = 6; i-- > 0;) {
        fixture_fill(s, inos[i], 0, i, 300000);
        fixture_seal(s, inos[i]);
    }
    fixture_fill(s, inos[5], 300000, 5, 100);
    fixture_seal(s, inos[5]);
}

Test(store, seals_of_a_dead_daemon_keep_their_content_in_any_order)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_die_after(&fixture, die_with_mixed_order);
    fixture_open(&fixture);
    cycle(&fixture);
    for (unsigned i = 0; i < 5; i++)
        fixture_expect(&fixture, numbered("file-%u", i), i, 300000);
    fixture_expect(&fixture, numbered("file-%u", 5), 5, 300100);
}

static void write_a_series(struct store_fixture *s)
{
    for (unsigned i = 0; i < 40; i++) {
        fixture_put(s, numbered("file-%u", i), i, i % 3 ? 200000 : 500);
        if (i == 20)
            fixture_wait(s);
    }
}

Test(store, after_a_power_loss_there_is_a_prefix)
{
    fixture_die_after(&fixture, write_a_series);
    fixture_lose_power(&fixture);
    assert_i64(fixture_fsck(&fixture), 0);
    fixture_open(&fixture);
    unsigned count = 0;
    while (count < 40 && fixture_lookup(&fixture, numbered("file-%u", count)))
        count++;
    cr_expect_geq(count, 21, "what was waited for is there");
    for (unsigned i = 0; i < 40; i++) {
        if (i < count)
            fixture_expect(&fixture, numbered("file-%u", i), i, i % 3 ? 200000 : 500);
        else
            expect_u64(fixture_lookup(&fixture, numbered("file-%u", i)), 0);
    }
    cycle(&fixture);
}

Test(store, the_view_is_rebuilt)
{
    fixture_open(&fixture);
    put_all(&fixture);
    fixture_wait(&fixture);
    fixture_unlink(&fixture, numbered("file-%u", 5), 0);
    fixture_wait(&fixture);
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    assert_i64(fixture_fsck(&fixture), 0);
    fixture_open(&fixture);
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++)
        if (i != 5)
            fixture_expect(&fixture, numbered("file-%u", i), i, lengths[i]);
    expect_u64(fixture_lookup(&fixture, numbered("file-%u", 5)), 0);
    fixture_close(&fixture);
    fixture_delete(&fixture, "view/CURRENT");
    fixture_open(&fixture);
    fixture_expect(&fixture, numbered("file-%u", 6), 6, lengths[6]);
}

/* As an earlier cairn left it: only the state's version says so. */
static void age_view(const char *path)
{
    char *message = NULL, *state;
    size_t len;
    rocksdb_options_t *options = rocksdb_options_create();
    rocksdb_readoptions_t *read = rocksdb_readoptions_create();
    rocksdb_writeoptions_t *write = rocksdb_writeoptions_create();
    rocksdb_t *db = rocksdb_open(options, path, &message);
    cr_assert_null(message);
    state = rocksdb_get(db, read, "M", 1, &len, &message);
    cr_assert(state && len > 1 && state[0] == 2);
    state[0] = 1;
    rocksdb_put(db, write, "M", 1, state, len, &message);
    cr_assert_null(message);
    rocksdb_close(db);
    rocksdb_free(state);
    rocksdb_writeoptions_destroy(write);
    rocksdb_readoptions_destroy(read);
    rocksdb_options_destroy(options);
}

/* It is no damage: nothing is set aside. */
Test(store, a_view_of_an_earlier_version_is_made_anew)
{
    fixture_open(&fixture);
    put_all(&fixture);
    cycle(&fixture);
    fixture_close(&fixture);
    _cleanup_free_ char *view = xasprintf("%s/view", fixture.path);
    age_view(view);
    fixture_open(&fixture);
    expect_all(&fixture);
    _cleanup_free_ char *aside = xasprintf("%s/lost+found", fixture.path);
    cr_expect(access(aside, F_OK) < 0, "%s exists", aside);
    cycle(&fixture);
    expect_all(&fixture);
}

static unsigned notes_of_older;

static void count_notes(const char *line, bool is_problem, void *arg)
{
    (void)arg;
    notes_of_older += !is_problem && strstr(line, "snapshot x is of an earlier version");
}

/* Nor is such a snapshot, which that version can read. */
Test(store, a_snapshot_of_an_earlier_version_is_no_problem)
{
    struct local_snapshot_list list = {0};
    const struct naming naming = {.kind = NAMING_CREATE, .name = "x"};
    uint64_t ignored;
    fixture_open(&fixture);
    put_all(&fixture);
    fixture_wait(&fixture);
    assert_i64(local_snapshots_ask(fixture.store->own->snapshots, &naming, &ignored), 0);
    AWAIT(store_snapshots_cost(fixture.store).count == 1, "the snapshot is not there");
    fixture_close(&fixture);
    assert_i64(local_snapshots_read(fixture.path, &list), 0);
    assert_u64(list.count, 1);
    _cleanup_free_ char *view =
        xasprintf("%s/snapshots/%llu/view", fixture.path, (unsigned long long)list.at[0].number);
    vector_free(&list);
    assert_i64(store_fsck(fixture.path, count_notes, NULL), 0);
    expect_u64(notes_of_older, 0);
    age_view(view);
    assert_i64(store_fsck(fixture.path, count_notes, NULL), 0);
    expect_u64(notes_of_older, 1);
}

Test(store, equal_content_is_stored_once)
{
    fixture_open(&fixture);
    fixture_put(&fixture, "a", 7, 4 * MIB);
    fixture_put(&fixture, "b", 7, 4 * MIB);
    fixture_wait(&fixture);
    fixture_put(&fixture, "c", 7, 4 * MIB);
    cycle(&fixture);
    fixture_expect(&fixture, "a", 7, 4 * MIB);
    fixture_expect(&fixture, "b", 7, 4 * MIB);
    fixture_expect(&fixture, "c", 7, 4 * MIB);
    cr_expect_lt(fixture_status(&fixture).view.pack_bytes, 5 * MIB);
    fixture_unlink(&fixture, "a", 0);
    fixture_unlink(&fixture, "b", 0);
    cycle(&fixture);
    fixture_expect(&fixture, "c", 7, 4 * MIB);
}

Test(store, what_nothing_needs_is_dropped)
{
    fixture_open(&fixture);
    fixture_put(&fixture, "a", 1, 8 * MIB);
    fixture_wait(&fixture);
    fixture_unlink(&fixture, "a", 0);
    fixture_wait(&fixture);
    AWAIT(fixture_status(&fixture).view.pack_bytes == 0, "it is dropped");
    fixture_put(&fixture, "b", 1, 8 * MIB);
    cycle(&fixture);
    fixture_expect(&fixture, "b", 1, 8 * MIB);
    fixture_close(&fixture);
    fixture_delete(&fixture, "view");
    fixture_open(&fixture);
    fixture_expect(&fixture, "b", 1, 8 * MIB);
}

static void write_more_than_the_stage(struct store_fixture *s)
{
    uint64_t ino = fixture_create(s, "large");
    fixture_fill(s, ino, 0, 9, 150 * MIB);
    fixture_fill(s, ino, 3 * MIB, 10, 2 * MIB);
}

Test(store, a_draft_larger_than_the_stage_survives_a_death)
{
    fixture_die_after(&fixture, write_more_than_the_stage);
    fixture_open(&fixture);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t ino = fixture_lookup(&fixture, "large");
        assert_u64(fixture_size(&fixture, ino), 150 * MIB);
        fixture_expect_fill(&fixture, ino, 0, 9, 3 * MIB);
        fixture_expect_fill(&fixture, ino, 3 * MIB, 10, 2 * MIB);
        fixture_expect_fill(&fixture, ino, 5 * MIB, 9, 145 * MIB);
        cycle(&fixture);
    }
}

/* --- nascent files ---------------------------------------------------------------------------- */

/* A file without a name, of which a compacted log says nothing any more. */
static void die_after_a_temporary_file(struct store_fixture *s)
{
    uint64_t ino = fixture_create(s, "tmp");
    fixture_fill(s, ino, 0, 1, 1000);
    fixture_unlink(s, "tmp", RECORD_ORPHAN);
    assert_i64(history_compact(store_commit(s->store)->history), 0);
    struct record attrs = {
        .type = REC_SETATTR, .ino = ino, .mask = ATTR_MODE, .attrs = {.mode = 0644}};
    fixture_commit(s, attrs);
    struct record reap = {.type = REC_REAP, .ino = ino};
    fixture_commit(s, reap);
    fixture_put(s, "after", 2, 1000);
}

Test(store, a_temporary_file_does_not_stop_a_recovery)
{
    fixture.options.writeback_delay_ns = INT64_MAX / 2;
    fixture_die_after(&fixture, die_after_a_temporary_file);
    fixture_open(&fixture);
    fixture_expect(&fixture, "after", 2, 1000);
    expect_u64(fixture_lookup(&fixture, "tmp"), 0);
    cycle(&fixture);
}

static void make_dir(struct store_fixture *s, uint64_t ino, const char *name)
{
    struct record rec = {.type = REC_MAKE,
                         .ino = ino,
                         .parent = ROOT_INO,
                         NAMED(name),
                         .attrs = {.mode = S_IFDIR | 0700}};
    fixture_commit(s, rec);
}

static void die_after_a_temporary_directory(struct store_fixture *s)
{
    uint64_t dir = store_new_ino(s->store), ino = store_new_ino(s->store);
    struct ns_inode inode;
    make_dir(s, dir, "dir");
    struct record make = {.type = REC_NASCENT,
                          .ino = ino,
                          .parent = dir,
                          NAMED("f"),
                          .attrs = {.mode = S_IFREG | 0600}};
    fixture_commit(s, make);
    assert_i64(ns_hold(store_ns(s->store), ino, &inode), 0);
    struct record unlink = {
        .type = REC_UNLINK, .flags = RECORD_ORPHAN, .ino = ino, .parent = dir, NAMED("f")};
    fixture_commit(s, unlink);
    struct record rmdir = {.type = REC_UNLINK, .ino = dir, .parent = ROOT_INO, NAMED("dir")};
    fixture_commit(s, rmdir);
    fixture_wait(s);
    struct record reap = {.type = REC_REAP, .ino = ino};
    fixture_commit(s, reap);
    fixture_put(s, "after", 2, 1000);
}

Test(store, a_temporary_directory_does_not_stop_a_recovery)
{
    fixture_die_after(&fixture, die_after_a_temporary_directory);
    fixture_open(&fixture);
    fixture_expect(&fixture, "after", 2, 1000);
    cycle(&fixture);
}

/* --- a log that is nearly full ---------------------------------------------------------------- */

static int set_xattr(uint64_t ino, const char *name, size_t length)
{
    static const char value[60000];
    struct record rec = {.type = REC_SETXATTR,
                         .ino = ino,
                         NAMED(name),
                         .value = value,
                         .value_len = (uint32_t)length};
    return history_commit(store_commit(fixture.store)->history, &rec);
}

/* Operations that are not carried down, until the log has at most `room` bytes. */
static void fill_log(uint64_t ino, uint64_t room)
{
    struct stage *stage = store_stage(fixture.store);
    while (stage_log_room(stage) > room) {
        size_t length = (size_t)min_u64(stage_log_room(stage) - room, 50000);
        assert_i64(set_xattr(ino, "user.filler", length), 0);
    }
}

#define MANY 6u

static uint64_t create_with_xattrs(const char *name)
{
    uint64_t ino = fixture_create(&fixture, name);
    for (unsigned i = 0; i < MANY; i++)
        assert_i64(set_xattr(ino, numbered("user.%u", i), 40000), 0);
    return ino;
}

static void expect_xattrs(uint64_t ino, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        const char *name = numbered("user.%u", i);
        expect_i64(ns_getxattr(store_ns(fixture.store), ino, name, strlen(name), NULL, 0), 40000,
                   "%s", name);
    }
}

Test(store, a_first_seal_and_its_xattrs_enter_the_log_together)
{
    assert_i64(fixture_open_only(&fixture), 0);
    uint64_t other = fixture_create(&fixture, "other"), ino = create_with_xattrs("file");
    assert_i64(history_seal(store_commit(fixture.store)->history, other), 0);
    fill_log(other, STAGE_LOG_MARGIN / 2 + 100000);
    expect_i64(history_seal(store_commit(fixture.store)->history, ino), -EAGAIN,
               "there is room for the seal and not for all xattrs");
    struct ns_inode inode;
    assert_i64(ns_inode(store_ns(fixture.store), ino, &inode), 0);
    cr_expect(inode.nascent);
    fixture_start(&fixture);
    fixture_seal(&fixture, ino);
    fixture_drop(&fixture, ino);
    fixture_drop(&fixture, other);
    cycle(&fixture);
    expect_xattrs(fixture_lookup(&fixture, "file"), MANY);
}

Test(store, more_xattrs_than_enter_the_log_together)
{
    fixture_open(&fixture);
    uint64_t ino = fixture_create(&fixture, "file");
    unsigned count = 0;
    struct ns_inode inode;
    do {
        assert_i64(set_xattr(ino, numbered("user.%u", count), 40000), 0);
        assert_i64(ns_inode(store_ns(fixture.store), ino, &inode), 0);
        count++;
    } while (inode.nascent && count < 100);
    cr_expect_lt(count, 30, "it has become part of the history");
    fixture_drop(&fixture, ino);
    cycle(&fixture);
    expect_xattrs(fixture_lookup(&fixture, "file"), count);
}

/* A new file with a name as long as `len`, not held. */
static int try_create(unsigned i, size_t len, uint64_t *ret_ino)
{
    char name[NAME_LEN_MAX + 1];
    (void)snprintf(name, sizeof name, "%0*u", (int)len, i);
    struct record rec = {.type = REC_NASCENT,
                         .ino = store_new_ino(fixture.store),
                         .parent = ROOT_INO,
                         .name = name,
                         .name_len = (uint16_t)len,
                         .attrs = {.mode = S_IFREG | 0600, .mtime = 5, .ctime = 5, .btime = 5}};
    *ret_ino = rec.ino;
    return history_commit(store_commit(fixture.store)->history, &rec);
}

/* Only seals make room in a log that is full of new files. */
static void fill_log_with_new_files(size_t name_len)
{
    enum { MOST = 200000 };
    _cleanup_free_ uint64_t *inos = xcalloc(MOST, sizeof *inos);
    assert_i64(fixture_open_only(&fixture), 0);
    struct ns_inode root;
    assert_i64(ns_hold(store_ns(fixture.store), ROOT_INO, &root), 0);
    unsigned count = 0;
    while (count < MOST && try_create(count, name_len, &inos[count]) == 0)
        count++;
    cr_expect_gt(count, 1000);
    cr_expect_lt(count, MOST, "the log is full");
    for (unsigned i = 0; i < count && i < 5000; i++) { /* the table of ranges has 16,384 */
        uint8_t byte = 1;
        struct stage_write w = {.ino = inos[i], .length = 1, .slab = SLAB_NONE, .data = &byte};
        assert_i64(history_write(store_commit(fixture.store)->history, &w), 0, "write to %u of %u",
                   i, count);
    }
    for (unsigned i = 0; i < count; i++)
        assert_i64(history_seal(store_commit(fixture.store)->history, inos[i]), 0, "seal %u of %u",
                   i, count);
    fixture_drop(&fixture, ROOT_INO);
    fixture_start(&fixture);
    cycle(&fixture);
    expect_u64(view_state(fixture.store->local.view).files, count);
}

Test(store, a_log_full_of_new_files)
{
    fill_log_with_new_files(6);
}

Test(store, a_log_full_of_new_files_with_long_names)
{
    fill_log_with_new_files(NAME_LEN_MAX);
}

/* Between the look and the operation another may have removed it. */
Test(store, what_is_gone_does_not_change)
{
    fixture_open(&fixture);
    fixture_put(&fixture, "file", 1, 1000);
    uint64_t ino = fixture_lookup(&fixture, "file");
    struct ns_inode inode;
    assert_i64(ns_hold(store_ns(fixture.store), ino, &inode), 0);
    fixture_unlink(&fixture, "file", 0);
    struct record rec = {
        .type = REC_SETATTR, .ino = ino, .mask = ATTR_MODE, .attrs = {.mode = S_IFREG | 0644}};
    expect_i64(history_commit(store_commit(fixture.store)->history, &rec), -ENOENT);
    expect_i64(set_xattr(ino, "user.k", 3), -ENOENT);
    fixture_drop(&fixture, ino);
    cycle(&fixture);
}
