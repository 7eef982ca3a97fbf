// SPDX-License-Identifier: Apache-2.0
/* A store as a whole: what it shows after a clean end, after a death, after a power loss, without
 * its view. */
#include <stdio.h>
#include <sys/stat.h>

#include "../expect.h"
#include "commit/internal.h"
#include "../fixtures/shop.h"

static struct shop shop;

static void setup(void)
{
    shop_make(&shop);
}

static void teardown(void)
{
    shop_remove(&shop);
}

TestSuite(store, .init = setup, .fini = teardown, .timeout = 600);

static const size_t lengths[] = {
    0, 1, 100, 16 * 1024, 16 * 1024 + 1, 1024 * 1024, 3 * 1024 * 1024 + 77};

static char *name_of(unsigned i)
{
    static char name[32];
    (void)snprintf(name, sizeof name, "file-%u", i);
    return name;
}

static void put_all(struct shop *s)
{
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++)
        shop_put(s, name_of(i), i, lengths[i]);
}

static void expect_all(struct shop *s)
{
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++)
        shop_expect(s, name_of(i), i, lengths[i]);
}

/* Closes, checks, and opens again. */
static void cycle(struct shop *s)
{
    shop_wait(s);
    shop_close(s);
    assert_i64(shop_fsck(s), 0);
    shop_open(s);
}

Test(store, content_after_a_clean_end)
{
    shop_open(&shop);
    put_all(&shop);
    expect_all(&shop);
    cycle(&shop);
    expect_all(&shop);
    struct store_status status;
    store_status(shop.store, &status);
    expect_u64(status.behind_bytes, 0);
    expect_u64(status.errors, 0);
    expect_u64(status.epoch, 2);
    cycle(&shop);
    expect_all(&shop);
}

static void die_with_everything_staged(struct shop *s)
{
    put_all(s);
    uint64_t draft = shop_create(s, "draft");
    shop_fill(s, draft, 0, 40, 700000);
    (void)shop_create(s, "nascent");
    uint64_t grown = shop_create(s, "grown");
    shop_fill(s, grown, 0, 41, 500000);
    shop_seal(s, grown);
    shop_fill(s, grown, 500000, 41, 500000);
}

static void die_with_some_durable(struct shop *s)
{
    shop_put(s, "old", 50, 400000);
    shop_wait(s);
    uint64_t old = shop_lookup(s, "old");
    shop_fill(s, old, 400000, 50, 100000);
    shop_seal(s, old);
    shop_wait(s);
    shop_fill(s, old, 500000, 50, 100000);
    die_with_everything_staged(s);
}

static void expect_after_death(struct shop *s)
{
    expect_all(s);
    shop_expect(s, "draft", 40, 700000);
    shop_expect(s, "nascent", 0, 0);
    shop_expect(s, "grown", 41, 1000000);
}

Test(store, content_after_a_death)
{
    shop.options.writeback_delay_ns = INT64_MAX / 2;
    shop_die_after(&shop, die_with_everything_staged);
    shop_open(&shop);
    expect_after_death(&shop);
    cycle(&shop);
    expect_after_death(&shop);
}

Test(store, content_after_a_death_in_the_middle)
{
    shop_die_after(&shop, die_with_some_durable);
    shop_open(&shop);
    shop_expect(&shop, "old", 50, 600000);
    expect_after_death(&shop);
    cycle(&shop);
    shop_expect(&shop, "old", 50, 600000);
    expect_after_death(&shop);
}

/* P4: the seal of one of these waited, and others were not closed at all: a cut that has one of
 * them has all. */
static void die_with_closed_and_open(struct shop *s)
{
    uint64_t marker = shop_create(s, "marker"), data = shop_create(s, "data");
    shop_fill(s, data, 0, 1, 400000);
    assert_i64(store_seal_later(s->store, data), 0);
    shop_fill(s, marker, 0, 2, 100);
}

Test(store, what_a_death_leaves_unsealed_is_one_cut)
{
    shop.options.writeback_delay_ns = INT64_MAX / 2;
    shop_die_after(&shop, die_with_closed_and_open);
    assert_i64(shop_open_only(&shop), 0);
    expect_u64(stage_drafts(store_stage(shop.store), NULL, 0), 0);
    expect_u64(stage_floor(store_stage(shop.store)), store_newest(shop.store),
               "no cut can be chosen before the last of them");
    shop_close(&shop);
    shop_open(&shop);
    shop_expect(&shop, "data", 1, 400000);
    shop_expect(&shop, "marker", 2, 100);
}

static void die_at_once(struct shop *s)
{
    (void)s;
}

Test(store, several_deaths_in_a_row)
{
    shop.options.writeback_delay_ns = INT64_MAX / 2;
    shop_die_after(&shop, die_with_some_durable);
    for (unsigned i = 0; i < 3; i++)
        shop_die_after(&shop, die_at_once);
    shop_open(&shop);
    shop_expect(&shop, "old", 50, 600000);
    expect_after_death(&shop);
    cycle(&shop);
    expect_after_death(&shop);
}

/* Files are sealed in another order than that of their inode numbers. */
static void die_with_mixed_order(struct shop *s)
{
    uint64_t inos[6];
    for (unsigned i = 0; i < 6; i++)
        inos[i] = shop_create(s, name_of(i));
    for (unsigned i = 6; i-- > 0;) {
        shop_fill(s, inos[i], 0, i, 300000);
        shop_seal(s, inos[i]);
    }
    shop_fill(s, inos[5], 300000, 5, 100);
    shop_seal(s, inos[5]);
}

Test(store, seals_of_a_dead_daemon_keep_their_content_in_any_order)
{
    shop.options.writeback_delay_ns = INT64_MAX / 2;
    shop_die_after(&shop, die_with_mixed_order);
    shop_open(&shop);
    cycle(&shop);
    for (unsigned i = 0; i < 5; i++)
        shop_expect(&shop, name_of(i), i, 300000);
    shop_expect(&shop, name_of(5), 5, 300100);
}

static void write_a_series(struct shop *s)
{
    for (unsigned i = 0; i < 40; i++) {
        shop_put(s, name_of(i), i, i % 3 ? 200000 : 500);
        if (i == 20)
            shop_wait(s);
    }
}

Test(store, after_a_power_loss_there_is_a_prefix)
{
    shop_die_after(&shop, write_a_series);
    shop_lose_power(&shop);
    assert_i64(shop_fsck(&shop), 0);
    shop_open(&shop);
    unsigned count = 0;
    while (count < 40 && shop_lookup(&shop, name_of(count)))
        count++;
    cr_expect_geq(count, 21, "what was waited for is there");
    for (unsigned i = 0; i < 40; i++) {
        if (i < count)
            shop_expect(&shop, name_of(i), i, i % 3 ? 200000 : 500);
        else
            expect_u64(shop_lookup(&shop, name_of(i)), 0);
    }
    cycle(&shop);
}

Test(store, the_view_is_rebuilt)
{
    shop_open(&shop);
    put_all(&shop);
    shop_wait(&shop);
    shop_unlink(&shop, name_of(5), 0);
    shop_wait(&shop);
    shop_close(&shop);
    shop_delete(&shop, "view");
    assert_i64(shop_fsck(&shop), 0);
    shop_open(&shop);
    for (unsigned i = 0; i < ARRAY_LEN(lengths); i++)
        if (i != 5)
            shop_expect(&shop, name_of(i), i, lengths[i]);
    expect_u64(shop_lookup(&shop, name_of(5)), 0);
    shop_close(&shop);
    shop_delete(&shop, "view/CURRENT");
    shop_open(&shop);
    shop_expect(&shop, name_of(6), 6, lengths[6]);
}

Test(store, equal_content_is_stored_once)
{
    shop_open(&shop);
    shop_put(&shop, "a", 7, 4 * MIB);
    shop_put(&shop, "b", 7, 4 * MIB);
    shop_wait(&shop);
    shop_put(&shop, "c", 7, 4 * MIB);
    cycle(&shop);
    shop_expect(&shop, "a", 7, 4 * MIB);
    shop_expect(&shop, "b", 7, 4 * MIB);
    shop_expect(&shop, "c", 7, 4 * MIB);
    struct store_status status;
    store_status(shop.store, &status);
    cr_expect_lt(status.view.pack_bytes, 5 * MIB);
    shop_unlink(&shop, "a", 0);
    shop_unlink(&shop, "b", 0);
    cycle(&shop);
    shop_expect(&shop, "c", 7, 4 * MIB);
}

Test(store, what_nothing_needs_is_dropped)
{
    shop_open(&shop);
    shop_put(&shop, "a", 1, 8 * MIB);
    shop_wait(&shop);
    shop_unlink(&shop, "a", 0);
    shop_wait(&shop);
    struct store_status status;
    for (unsigned i = 0; i < 2400; i++) {
        store_status(shop.store, &status);
        if (status.view.pack_bytes == 0)
            break;
        (void)usleep(50000);
    }
    expect_u64(status.view.pack_bytes, 0);
    shop_put(&shop, "b", 1, 8 * MIB);
    cycle(&shop);
    shop_expect(&shop, "b", 1, 8 * MIB);
    shop_close(&shop);
    shop_delete(&shop, "view");
    shop_open(&shop);
    shop_expect(&shop, "b", 1, 8 * MIB);
}

static void write_more_than_the_stage(struct shop *s)
{
    uint64_t ino = shop_create(s, "large");
    shop_fill(s, ino, 0, 9, 150 * MIB);
    shop_fill(s, ino, 3 * MIB, 10, 2 * MIB);
}

Test(store, a_draft_larger_than_the_stage_survives_a_death)
{
    shop_die_after(&shop, write_more_than_the_stage);
    shop_open(&shop);
    for (unsigned i = 0; i < 2; i++) {
        uint64_t ino = shop_lookup(&shop, "large");
        assert_u64(shop_size(&shop, ino), 150 * MIB);
        shop_expect_fill(&shop, ino, 0, 9, 3 * MIB);
        shop_expect_fill(&shop, ino, 3 * MIB, 10, 2 * MIB);
        shop_expect_fill(&shop, ino, 5 * MIB, 9, 145 * MIB);
        cycle(&shop);
    }
}

/* --- nascent files ---------------------------------------------------------------------------- */

/* A file without a name, of which a compacted log says nothing any more. */
static void die_after_a_temporary_file(struct shop *s)
{
    uint64_t ino = shop_create(s, "tmp");
    shop_fill(s, ino, 0, 1, 1000);
    shop_unlink(s, "tmp", RECORD_ORPHAN);
    assert_i64(history_compact(s->store), 0);
    struct record attrs = {
        .type = REC_SETATTR, .ino = ino, .mask = ATTR_MODE, .attrs = {.mode = 0644}};
    shop_commit(s, attrs);
    struct record reap = {.type = REC_REAP, .ino = ino};
    shop_commit(s, reap);
    shop_put(s, "after", 2, 1000);
}

Test(store, a_temporary_file_does_not_stop_a_recovery)
{
    shop.options.writeback_delay_ns = INT64_MAX / 2;
    shop_die_after(&shop, die_after_a_temporary_file);
    shop_open(&shop);
    shop_expect(&shop, "after", 2, 1000);
    expect_u64(shop_lookup(&shop, "tmp"), 0);
    cycle(&shop);
}

static void make_dir(struct shop *s, uint64_t ino, const char *name)
{
    struct record rec = {.type = REC_MAKE,
                         .ino = ino,
                         .parent = ROOT_INO,
                         .name = name,
                         .name_len = (uint16_t)strlen(name),
                         .attrs = {.mode = S_IFDIR | 0700}};
    shop_commit(s, rec);
}

static void die_after_a_temporary_folder(struct shop *s)
{
    uint64_t dir = store_new_ino(s->store), ino = store_new_ino(s->store);
    struct ns_inode inode;
    make_dir(s, dir, "dir");
    struct record make = {.type = REC_NASCENT,
                          .ino = ino,
                          .parent = dir,
                          .name = "f",
                          .name_len = 1,
                          .attrs = {.mode = S_IFREG | 0600}};
    shop_commit(s, make);
    assert_i64(ns_hold(store_ns(s->store), ino, &inode), 0);
    struct record unlink = {.type = REC_UNLINK,
                            .flags = RECORD_ORPHAN,
                            .ino = ino,
                            .parent = dir,
                            .name = "f",
                            .name_len = 1};
    shop_commit(s, unlink);
    struct record rmdir = {
        .type = REC_UNLINK, .ino = dir, .parent = ROOT_INO, .name = "dir", .name_len = 3};
    shop_commit(s, rmdir);
    shop_wait(s);
    struct record reap = {.type = REC_REAP, .ino = ino};
    shop_commit(s, reap);
    shop_put(s, "after", 2, 1000);
}

Test(store, a_temporary_folder_does_not_stop_a_recovery)
{
    shop_die_after(&shop, die_after_a_temporary_folder);
    shop_open(&shop);
    shop_expect(&shop, "after", 2, 1000);
    cycle(&shop);
}

/* --- a log that is nearly full ---------------------------------------------------------------- */

static int set_xattr(uint64_t ino, const char *name, size_t length)
{
    static const char value[60000];
    struct record rec = {.type = REC_SETXATTR,
                         .ino = ino,
                         .name = name,
                         .name_len = (uint16_t)strlen(name),
                         .value = value,
                         .value_len = (uint32_t)length};
    return store_commit(shop.store, &rec);
}

/* Operations that nobody carries down, until the log has at most `room` bytes. */
static void fill_log(uint64_t ino, uint64_t room)
{
    struct stage *stage = store_stage(shop.store);
    while (stage_log_room(stage) > room) {
        size_t length = (size_t)min_u64(stage_log_room(stage) - room, 50000);
        assert_i64(set_xattr(ino, "user.filler", length), 0);
    }
}

#define MANY 6u

static uint64_t create_with_xattrs(const char *name)
{
    uint64_t ino = shop_create(&shop, name);
    for (unsigned i = 0; i < MANY; i++) {
        char xattr[16];
        (void)snprintf(xattr, sizeof xattr, "user.%u", i);
        assert_i64(set_xattr(ino, xattr, 40000), 0);
    }
    return ino;
}

static void expect_xattrs(uint64_t ino, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[16];
        (void)snprintf(name, sizeof name, "user.%u", i);
        expect_i64(ns_getxattr(store_ns(shop.store), ino, name, strlen(name), NULL, 0), 40000, "%s",
                   name);
    }
}

Test(store, a_first_seal_and_its_xattrs_enter_the_log_together)
{
    assert_i64(shop_open_only(&shop), 0);
    uint64_t other = shop_create(&shop, "other"), ino = create_with_xattrs("file");
    assert_i64(store_seal(shop.store, other), 0);
    fill_log(other, STAGE_LOG_MARGIN / 2 + 100000);
    expect_i64(store_seal(shop.store, ino), -EAGAIN,
               "there is room for the seal and not for all xattrs");
    struct ns_inode inode;
    assert_i64(ns_inode(store_ns(shop.store), ino, &inode), 0);
    cr_expect(inode.nascent);
    shop_start(&shop);
    shop_seal(&shop, ino);
    shop_drop(&shop, ino);
    shop_drop(&shop, other);
    cycle(&shop);
    expect_xattrs(shop_lookup(&shop, "file"), MANY);
}

Test(store, more_xattrs_than_enter_the_log_together)
{
    shop_open(&shop);
    uint64_t ino = shop_create(&shop, "file");
    unsigned count = 0;
    struct ns_inode inode;
    do {
        char name[16];
        (void)snprintf(name, sizeof name, "user.%u", count);
        assert_i64(set_xattr(ino, name, 40000), 0);
        assert_i64(ns_inode(store_ns(shop.store), ino, &inode), 0);
        count++;
    } while (inode.nascent && count < 100);
    cr_expect_lt(count, 30, "it has become part of the history");
    shop_drop(&shop, ino);
    cycle(&shop);
    expect_xattrs(shop_lookup(&shop, "file"), count);
}

/* A new file with a name as long as `len`, not held. */
static int try_create(unsigned i, size_t len, uint64_t *ret_ino)
{
    char name[NAME_LEN_MAX + 1];
    (void)snprintf(name, sizeof name, "%0*u", (int)len, i);
    struct record rec = {.type = REC_NASCENT,
                         .ino = store_new_ino(shop.store),
                         .parent = ROOT_INO,
                         .name = name,
                         .name_len = (uint16_t)len,
                         .attrs = {.mode = S_IFREG | 0600, .mtime = 5, .ctime = 5, .btime = 5}};
    *ret_ino = rec.ino;
    return store_commit(shop.store, &rec);
}

/* Only seals make room in a log that is full of new files. */
static void fill_log_with_new_files(size_t name_len)
{
    enum { MOST = 200000 };
    uint64_t *inos = xcalloc(MOST, sizeof *inos);
    assert_i64(shop_open_only(&shop), 0);
    struct ns_inode root;
    assert_i64(ns_hold(store_ns(shop.store), ROOT_INO, &root), 0);
    unsigned count = 0;
    while (count < MOST && try_create(count, name_len, &inos[count]) == 0)
        count++;
    cr_expect_gt(count, 1000);
    cr_expect_lt(count, MOST, "the log is full");
    for (unsigned i = 0; i < count && i < 5000; i++) { /* the table of ranges has 16,384 */
        uint8_t byte = 1;
        struct stage_write w = {.ino = inos[i], .length = 1, .slab = SLAB_NONE, .data = &byte};
        assert_i64(store_write(shop.store, &w), 0, "write to %u of %u", i, count);
    }
    for (unsigned i = 0; i < count; i++)
        assert_i64(store_seal(shop.store, inos[i]), 0, "seal %u of %u", i, count);
    shop_drop(&shop, ROOT_INO);
    shop_start(&shop);
    cycle(&shop);
    expect_u64(view_state(shop.store->view).files, count);
    free(inos);
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
    shop_open(&shop);
    shop_put(&shop, "file", 1, 1000);
    uint64_t ino = shop_lookup(&shop, "file");
    struct ns_inode inode;
    assert_i64(ns_hold(store_ns(shop.store), ino, &inode), 0);
    shop_unlink(&shop, "file", 0);
    struct record rec = {
        .type = REC_SETATTR, .ino = ino, .mask = ATTR_MODE, .attrs = {.mode = S_IFREG | 0644}};
    expect_i64(store_commit(shop.store, &rec), -ENOENT);
    expect_i64(set_xattr(ino, "user.k", 3), -ENOENT);
    shop_drop(&shop, ino);
    cycle(&shop);
}
