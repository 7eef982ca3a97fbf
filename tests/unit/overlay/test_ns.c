// SPDX-License-Identifier: Apache-2.0
/* The overlay in the cases that matter most, one by one. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "../expect.h"
#include "../named.h"
#include "../numbered.h"
#include "../view/helpers.h"
#include "overlay/ns.h"

static struct fixture f;
static struct ns *ns;

static void setup(void)
{
    struct ns_inode inode;
    fixture_open(&f);
    ns = ns_new(f.view);
    assert_i64(ns_hold(ns, ROOT_INO, &inode), 0);
}

static void teardown(void)
{
    ns_drop(ns, ROOT_INO);
    ns_free(ns);
    fixture_close(&f);
}

TestSuite(ns, .init = setup, .fini = teardown, .timeout = 600);

static uint64_t perform(struct record rec, bool history)
{
    rec.seq = history ? add(&f, rec) : ++f.seq;
    rec.time = time_of(rec.seq);
    ns_apply(ns, &rec);
    return rec.seq;
}

static struct record named(uint16_t type, uint64_t ino, const char *name)
{
    return (struct record){.type = type,
                           .ino = ino,
                           .parent = ROOT_INO,
                           .cookie = f.seq + 1,
                           NAMED(name),
                           .attrs = {.mode = S_IFREG | 0600}};
}

static void make_file(uint64_t ino, const char *name)
{
    (void)perform(named(REC_NASCENT, ino, name), false);
}

static void seal(uint64_t ino, uint64_t version)
{
    struct ns_birth birth;
    struct record rec = {
        .type = REC_SEAL, .ino = ino, .version = version, .attrs = {.mode = S_IFREG | 0600}};
    if (ns_birth(ns, ino, &birth)) {
        rec.flags = RECORD_BIRTH;
        rec.parent = birth.parent;
        rec.cookie = birth.cookie;
        rec.name = birth.name;
        rec.name_len = birth.name_len;
    }
    (void)perform(rec, true);
}

static void hold(uint64_t ino)
{
    struct ns_inode inode;
    assert_i64(ns_hold(ns, ino, &inode), 0);
}

static void remove_name(uint64_t ino, const char *name, bool history)
{
    hold(ino);
    (void)perform(named(REC_UNLINK, ino, name), history);
    ns_drop(ns, ino);
}

static uint64_t ino_of(const char *name)
{
    struct view_entry entry;
    int r = ns_lookup(ns, ROOT_INO, name, strlen(name), &entry);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? entry.ino : 0;
}

static void follow(void)
{
    apply_ok(&f);
    ns_retire(ns, f.seq);
}

Test(ns, a_nascent_file_is_here_and_not_in_the_history)
{
    make_file(10, "a");
    struct ns_inode inode;
    assert_i64(ns_inode(ns, 10, &inode), 0);
    cr_expect(inode.nascent);
    expect_u64(inode.dirty_seq, 0);
    expect_u64(ino_of("a"), 10);
    expect_u64(lookup(&f, ROOT_INO, "a"), 0);
    follow();
    expect_u64(ino_of("a"), 10, "what is not history is not retired");
    seal(10, 1);
    assert_i64(ns_inode(ns, 10, &inode), 0);
    cr_expect_not(inode.nascent);
    follow();
    expect_u64(ino_of("a"), 10);
    expect_u64(lookup(&f, ROOT_INO, "a"), 10);
}

Test(ns, a_nascent_file_over_a_removed_name)
{
    make_file(10, "a");
    seal(10, 1);
    follow();
    remove_name(10, "a", true);
    make_file(11, "a");
    expect_u64(ino_of("a"), 11);
    remove_name(11, "a", false);
    expect_u64(ino_of("a"), 0, "the removal below is still not in the view");
    make_file(12, "a");
    follow();
    expect_u64(ino_of("a"), 12);
    remove_name(12, "a", false);
    expect_u64(ino_of("a"), 0);
    follow();
    expect_u64(ino_of("a"), 0);
}

Test(ns, retired_names_leave_the_overlay)
{
    for (uint64_t i = 0; i < 3; i++) {
        make_file(10 + i, i == 0 ? "a" : i == 1 ? "b" : "c");
        seal(10 + i, 1);
    }
    cr_expect_gt(ns_overlay_size(ns), 6);
    follow();
    expect_u64(ns_overlay_size(ns), 1, "the root is held");
    remove_name(11, "b", true);
    follow();
    expect_u64(ns_overlay_size(ns), 1);
}

static void seal_with_content(uint64_t ino)
{
    struct ns_birth birth;
    cr_assert(ns_birth(ns, ino, &birth));
    struct extent extent = {.length = 5, .kind = EXTENT_INLINE};
    struct record rec = {.type = REC_SEAL,
                         .flags = RECORD_BIRTH,
                         .ino = ino,
                         .version = 1,
                         .parent = ROOT_INO,
                         .cookie = birth.cookie,
                         NAMED("a"),
                         .attrs = {.mode = S_IFREG | 0600, .size = 5},
                         .extents = &extent,
                         .extent_count = 1,
                         VALUED("hello")};
    (void)perform(rec, true);
}

static void expect_blocks(uint64_t ino, uint64_t bytes)
{
    struct ns_inode inode;
    ns_stored(ns, ino);
    assert_i64(ns_inode(ns, ino, &inode), 0);
    expect_u64(inode.blocks_bytes, bytes);
}

Test(ns, an_open_file_counts_its_blocks_after_it_became_durable)
{
    make_file(10, "a");
    hold(10);
    seal_with_content(10);
    expect_blocks(10, 0);
    follow();
    expect_blocks(10, 5);
    ns_drop(ns, 10);
}

Test(ns, a_file_changed_since_counts_its_blocks_after_its_content_became_durable)
{
    make_file(10, "a");
    hold(10);
    seal_with_content(10);
    apply_ok(&f);
    uint64_t durable = f.seq;
    (void)perform(
        (struct record){
            .type = REC_SETATTR, .ino = 10, .mask = ATTR_MODE, .attrs = {.mode = S_IFREG | 0640}},
        true);
    ns_drop(ns, 10);
    ns_retire(ns, durable);
    expect_blocks(10, 5);
    follow();
    expect_blocks(10, 5);
    expect_u64(ns_overlay_size(ns), 1, "the root is held");
}

static int note_record(const struct record *rec, void *arg)
{
    char *at = arg;
    (void)strcat(at, rec->type == REC_NASCENT ? "N" : "x");
    return 0;
}

Test(ns, what_a_nascent_file_lost_again_is_not_history)
{
    make_file(10, "a");
    hold(10);
    struct record rec = {.type = REC_SETXATTR, .ino = 10, NAMED("user.k"), VALUED("v")};
    (void)perform(rec, false);
    rec = (struct record){.type = REC_REMOVEXATTR, .ino = 10, NAMED("user.k")};
    (void)perform(rec, false);
    expect_i64(ns_getxattr(ns, 10, "user.k", 6, NULL, 0), -ENODATA);
    seal(10, 1);
    char dumped[8] = "";
    assert_i64(ns_dump_xattrs(ns, 10, note_record, dumped), 0);
    expect_str(dumped, "");
    ns_drop(ns, 10);
}

Test(ns, a_dump_brings_nascent_files_back)
{
    make_file(10, "a");
    make_file(11, "b");
    hold(11);
    struct record xattr = {.type = REC_SETXATTR, .ino = 11, NAMED("user.k"), VALUED("v")};
    (void)perform(xattr, false);
    char dumped[8] = "";
    assert_i64(ns_dump_nascent(ns, false, note_record, dumped), 0);
    cr_expect(strcmp(dumped, "NNx") == 0 || strcmp(dumped, "NxN") == 0, "is %s", dumped);
    struct record gone = named(REC_UNLINK, 11, "b");
    gone.flags = RECORD_ORPHAN;
    (void)perform(gone, false);
    dumped[0] = '\0';
    assert_i64(ns_dump_nascent(ns, false, note_record, dumped), 0);
    expect_str(dumped, "N");
    struct record reap = {.type = REC_REAP, .ino = 11};
    (void)perform(reap, false);
    ns_drop(ns, 11);
    struct ns_inode inode;
    expect_i64(ns_inode(ns, 11, &inode), -ENOENT);
}

static struct record nascent_of_then(uint64_t ino, const char *name, int64_t time)
{
    struct record rec = named(REC_NASCENT, ino, name);
    rec.cookie = ++f.seq;
    rec.time = rec.attrs.btime = time;
    return rec;
}

static void expect_times(int64_t mtime, int64_t ctime)
{
    struct ns_inode inode;
    assert_i64(ns_inode(ns, ROOT_INO, &inode), 0);
    expect_i64(inode.attrs.mtime, mtime, "mtime is %lld", (long long)inode.attrs.mtime);
    expect_i64(inode.attrs.ctime, ctime, "ctime is %lld", (long long)inode.attrs.ctime);
}

/* The view, or records that a compacted log has before it, have more than there was when the file
 * was made. */
Test(ns, a_nascent_file_that_is_brought_back_moves_no_times_back)
{
    int64_t made = time_of(f.seq + 1), now = time_of(1000);
    f.seq++;
    struct record dir = named(REC_MAKE, 20, "dir");
    dir.attrs.mode = S_IFDIR | 0700;
    int64_t later = time_of(perform(dir, true));
    cr_assert_lt(made, later);
    struct record back = nascent_of_then(10, "a", made);
    ns_restore_nascent(ns, &back, now);
    expect_times(later, later);
    struct record set = {.type = REC_SETATTR,
                         .ino = ROOT_INO,
                         .mask = ATTR_MTIME | ATTR_CTIME,
                         .attrs = {.mtime = 7, .ctime = later + 1}};
    (void)perform(set, true);
    back = nascent_of_then(11, "b", made + 1);
    ns_restore_nascent(ns, &back, now);
    expect_times(7, later + 1);
    back = nascent_of_then(12, "c", later + 2);
    ns_restore_nascent(ns, &back, now);
    expect_times(later + 2, later + 2);
}

Test(ns, times_that_no_clock_has_reached_do_not_stay)
{
    int64_t made = time_of(f.seq + 1), ahead = time_of(1000);
    struct record set = {.type = REC_SETATTR,
                         .ino = ROOT_INO,
                         .mask = ATTR_MTIME | ATTR_CTIME,
                         .attrs = {.mtime = ahead, .ctime = ahead}};
    (void)perform(set, true);
    struct record back = nascent_of_then(10, "a", made);
    ns_restore_nascent(ns, &back, ahead - 1);
    expect_times(made, made);
}

Test(ns, times_of_a_nascent_file_are_told_from_others)
{
    int64_t time = 0;
    cr_expect_not(ns_has_times_of_nascent(ns, ROOT_INO, &time));
    struct record rec = nascent_of_then(10, "a", time_of(f.seq + 1));
    rec.seq = f.seq;
    ns_apply(ns, &rec);
    cr_expect(ns_has_times_of_nascent(ns, ROOT_INO, &time));
    expect_i64(time, rec.time);
    struct record set = {
        .type = REC_SETATTR, .ino = ROOT_INO, .mask = ATTR_CTIME, .attrs = {.ctime = time + 1}};
    (void)perform(set, true);
    cr_expect_not(ns_has_times_of_nascent(ns, ROOT_INO, &time), "its own are gone");
    rec = nascent_of_then(11, "b", time + 2);
    ns_apply(ns, &rec);
    cr_expect(ns_has_times_of_nascent(ns, ROOT_INO, &time));
    seal(10, 1);
    remove_name(11, "b", false);
    cr_expect_not(ns_has_times_of_nascent(ns, ROOT_INO, &time), "there is none");
}

static int count_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    uint64_t *last = arg;
    cr_assert_gt(entry->cookie, *last);
    *last = entry->cookie;
    last[1]++;
    return 0;
}

/* More entries than one step of a listing takes, on both sides. */
Test(ns, a_large_directory_is_listed_whole)
{
    uint64_t at[2];
    for (uint64_t i = 0; i < 1500; i++) {
        make_file(1000 + i, numbered("old%u", (unsigned)i));
        seal(1000 + i, 1);
    }
    follow();
    for (uint64_t i = 0; i < 1500; i++) {
        make_file(5000 + i, numbered("new%u", (unsigned)i));
        if (i % 2)
            seal(5000 + i, 1);
    }
    for (uint64_t i = 0; i < 1200; i++)
        remove_name(1000 + i, numbered("old%u", (unsigned)i), true);
    for (unsigned round = 0; round < 3; round++) {
        memset(at, 0, sizeof at);
        assert_i64(ns_readdir(ns, ROOT_INO, 0, SIZE_MAX, count_entry, at), 0);
        expect_u64(at[1], 1800);
        follow();
    }
}

static void list_root(uint64_t expected)
{
    uint64_t at[2] = {0};
    assert_i64(ns_readdir(ns, ROOT_INO, 0, SIZE_MAX, count_entry, at), 0);
    expect_u64(at[1], expected);
}

Test(ns, a_listed_directory_is_kept_up_to_a_bound)
{
    for (uint64_t i = 0; i < 2000; i++) {
        make_file(1000 + i, numbered("file%u", (unsigned)i));
        seal(1000 + i, 1);
    }
    follow();
    expect_u64(ns_clean_bytes(ns), 0);
    list_root(2000);
    size_t whole = ns_clean_bytes(ns);
    cr_expect_gt(whole, 2000 * sizeof(struct view_entry));
    expect_u64(ns_overlay_size(ns), 1, "clean entries are not counted as changes");

    make_file(5000, "later");
    seal(5000, 1);
    follow();
    cr_expect_gt(ns_clean_bytes(ns), whole, "what is new in a directory that is known stays");
    list_root(2001);
    remove_name(5000, "later", true);
    follow();
    expect_u64(ns_clean_bytes(ns), whole);

    ns_set_clean_max(ns, whole);
    expect_u64(ns_clean_bytes(ns), whole);
    ns_set_clean_max(ns, whole - 1);
    cr_expect_lt(ns_clean_bytes(ns), whole, "its end is forgotten");
    cr_expect_gt(ns_clean_bytes(ns), whole / 2);
    list_root(2000);
    ns_set_clean_max(ns, 0);
    expect_u64(ns_clean_bytes(ns), 0);
    ns_set_clean_max(ns, whole - 1);
    list_root(2000);
    cr_expect_lt(ns_clean_bytes(ns), whole / 2 + 1000, "one directory has a half at most");
    cr_expect_gt(ns_clean_bytes(ns), whole / 2 - 1000);
    list_root(2000);
    remove_name(1000, "file0", true);
    list_root(1999);
    ns_set_clean_max(ns, 0);
    list_root(1999);
    expect_u64(ns_clean_bytes(ns), 0);
}

/* A directory that was made here is known from the beginning: nothing of it has to be read from the
 * view. */
Test(ns, a_new_directory_is_known)
{
    struct record rec = named(REC_MAKE, 10, "directory");
    rec.attrs.mode = S_IFDIR | 0700;
    (void)perform(rec, true);
    hold(10);
    for (uint64_t i = 0; i < 300; i++) {
        rec = named(REC_MAKE, 1000 + i, numbered("file%u", (unsigned)i));
        rec.parent = 10;
        rec.attrs.mode = S_IFREG | 0600;
        (void)perform(rec, true);
        if (i % 100 == 50)
            follow();
    }
    follow();
    cr_expect_gt(ns_clean_bytes(ns), 300 * sizeof(struct view_entry));
    for (unsigned round = 0; round < 2; round++) {
        uint64_t at[2] = {0};
        struct view_entry entry;
        assert_i64(ns_readdir(ns, 10, 0, SIZE_MAX, count_entry, at), 0);
        expect_u64(at[1], 300);
        expect_i64(ns_lookup(ns, 10, "file299", 7, &entry), 0);
        expect_i64(ns_lookup(ns, 10, "file300", 7, &entry), -ENOENT);
        ns_set_clean_max(ns, 0); /* then the view says it */
    }
    ns_drop(ns, 10);
}

#define STAYING 60u

static atomic_bool is_over;

static int count_staying(const struct view_entry *entry, const char *name, size_t name_len,
                         void *arg)
{
    (void)entry;
    *(unsigned *)arg += name_len > 5 && memcmp(name, "stays", 5) == 0;
    return 0;
}

/* Returns NULL, or `arg`: a listing lacked something. */
static void *list_and_forget(void *arg)
{
    static const size_t bytes[] = {0, 3000, NS_CLEAN_BYTES};
    for (unsigned i = 0; !atomic_load(&is_over); i++) {
        unsigned count = 0;
        ns_set_clean_max(ns, bytes[i % 7 % 3]);
        if (ns_readdir(ns, ROOT_INO, 0, 16, count_staying, &count) != 0 || count != STAYING)
            return arg;
    }
    return NULL;
}

/* Gives a file another name in the same place of its directory. */
static void rename_in_place(uint64_t ino, const char *name, const char *name2)
{
    struct view_entry entry;
    assert_i64(ns_lookup(ns, ROOT_INO, name, strlen(name), &entry), 0);
    struct record rec = named(REC_RENAME, ino, name);
    rec.cookie = entry.cookie;
    rec.parent2 = ROOT_INO;
    rec.name2 = name2;
    rec.name2_len = (uint16_t)strlen(name2);
    hold(ino);
    (void)perform(rec, true);
    ns_drop(ns, ino);
}

/* What was read is not remembered if it came or went meanwhile, in the overlay or in the view; and
 * what only gets another name is never missed. */
Test(ns, names_come_and_go_while_a_directory_is_listed)
{
    pthread_t threads[2];
    void *failed;
    char name[16];
    for (uint64_t i = 0; i < STAYING; i++) {
        make_file(1000 + i, numbered("stays%u", (unsigned)i));
        seal(1000 + i, 1);
    }
    follow();
    atomic_store(&is_over, false);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_i64(pthread_create(&threads[i], NULL, list_and_forget, &failed), 0);
    for (uint64_t i = 0; i < 10000; i++) {
        bool history = i % 2;
        (void)snprintf(name, sizeof name, "goes%u", (unsigned)i);
        make_file(5000 + i, name);
        if (history) {
            seal(5000 + i, 1);
            follow();
        }
        for (uint64_t before = i < 8 ? 0 : i - 8; before < i; before++) {
            const char *gone = numbered("goes%u", (unsigned)before);
            assert_u64(ino_of(gone), 0, "%s", gone);
        }
        remove_name(5000 + i, name, history);
        unsigned stays = (unsigned)(i / 2 % STAYING);
        rename_in_place(1000 + stays, numbered("stays%u%s", stays, i % 2 ? "x" : ""),
                        numbered("stays%u%s", stays, i % 2 ? "" : "x"));
        if (i % 5 == 0)
            follow();
    }
    atomic_store(&is_over, true);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++) {
        assert_i64(pthread_join(threads[i], &failed), 0);
        cr_expect_null(failed, "a listing lacked what was there all the time");
    }
    list_root(STAYING);
    follow();
    list_root(STAYING);
}

static struct record xattr_of(uint64_t ino, const char *name)
{
    return (struct record){.type = REC_SETXATTR, .ino = ino, NAMED(name), VALUED("v")};
}

static int note_and_follow(const char *name, size_t name_len, void *arg)
{
    (void)strncat(arg, name, name_len);
    follow();
    return 0;
}

/* What the overlay had when the list began is in it, also if the view takes it over meanwhile. */
Test(ns, xattrs_that_become_durable_while_they_are_listed)
{
    char names[64] = "";
    make_file(10, "a");
    seal(10, 1);
    hold(10);
    (void)perform(xattr_of(10, "user.1 "), true);
    follow();
    (void)perform(xattr_of(10, "user.2 "), true);
    assert_i64(ns_listxattr(ns, 10, note_and_follow, names), 0);
    ns_drop(ns, 10);
    expect_str(names, "user.1 user.2 ");
}

static struct record taken(const char *name)
{
    struct record rec = named(REC_VERSION, 30, name);
    rec.flags = RECORD_TAKEN | RECORD_BIRTH;
    rec.version = 1 << 24 | 7;
    rec.attrs.size = rec.length = 5000;
    rec.count = VIEW_COUNT_ELSEWHERE;
    return rec;
}

/* A file of another node: as the view will have it; and again after it was gone, before the view
 * knows of either. */
Test(ns, a_file_of_another_node_comes_and_goes)
{
    struct ns_inode inode;
    struct view_entry entry;
    (void)perform(taken("theirs"), true);
    assert_i64(ns_hold(ns, 30, &inode), 0);
    expect_u64(inode.is_elsewhere, true);
    expect_u64(inode.attrs.size, 5000);
    expect_u64(inode.blocks_bytes, 5000);
    (void)perform(named(REC_UNLINK, 30, "theirs"), true);
    ns_drop(ns, 30);
    expect_i64(ns_inode(ns, 30, &inode), -ENOENT);
    uint64_t last = perform(taken("moved"), true);
    expect_i64(ns_lookup(ns, ROOT_INO, "theirs", 6, &entry), -ENOENT);
    expect_i64(ns_lookup(ns, ROOT_INO, "moved", 5, &entry), 0);
    expect_u64(entry.ino, 30);
    apply_ok(&f);
    ns_retire(ns, last);
    expect_i64(ns_inode(ns, 30, &inode), 0);
    expect_u64(inode.is_elsewhere, true);
    expect_u64(inode.nlink, 1);
    expect_check_ok(f.view);
}
