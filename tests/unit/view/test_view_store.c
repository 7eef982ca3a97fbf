// SPDX-License-Identifier: Apache-2.0
/* The database itself: opening, closing, being killed, damage. */
#include "../await.h"
#include "../numbered.h"
#include "../shell.h"
#include "remote_fixture.h"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#include "view/db.h"
#include "view/pack_list.h"

static void close_view(void)
{
    fixture_close(&f);
}

TestSuite(store, .init = begin_view, .fini = close_view);

static void fill(void)
{
    struct extent e[] = {chunk_extent(0, 1000, 1, 0), chunk_extent(1000, 1000, 2, 0)};
    add_pack(&f, 1, (uint32_t[]){1, 2, 3}, 3);
    add_dir(&f, 2, ROOT_INO, "d");
    add_file(&f, 3, 2, "f", 0);
    add_seal(&f, 3, 2, 0, 2000, e, 2);
    add_file(&f, 4, ROOT_INO, "g", 0);
    add_seal_inline(&f, 4, 2, 0, 5, 0, "hello");
    add_xattr(&f, 4, "user.x", "");
    add_file(&f, 5, ROOT_INO, "o", 0);
    add_unlink(&f, 5, ROOT_INO, "o", RECORD_ORPHAN);
    apply_ok(&f);
}

Test(store, reopen_after_close_and_flush)
{
    fill();
    _cleanup_free_ char *before = dump(f.view);
    fixture_reopen(&f);
    char *after = dump(f.view);
    expect_str(before, after);
    assert_i64(view_flush(f.view), 0);
    fixture_reopen(&f);
    free(after);
    after = dump(f.view);
    expect_str(before, after);
    expect_check_ok(f.view);
    free(after);
}

/* WAL writes of a process that dies without closing are in the file. */
Test(store, reopen_after_being_killed)
{
    char path[80];
    sprintf(path, "%s.killed", f.path);
    fill();
    pid_t child = fork();
    if (child == 0) {
        struct fixture other = {.seq = 1ull << SEQ_EPOCH_SHIFT};
        strcpy(other.path, path);
        open_view_at(path, &other.view);
        f = other;
        fill();
        _exit(0);
    }
    int status;
    assert_i64(waitpid(child, &status, 0), child);
    assert_i64(status, 0);
    struct view *view;
    open_view_at(path, &view);
    _cleanup_free_ char *expected = dump(f.view), *is = dump(view);
    expect_str(expected, is);
    expect_check_ok(view);
    view_close(view);
    remove_tree(path);
}

Test(store, open_fails_cleanly)
{
    struct view *view;
    struct view_options options = {.cache_bytes = 0};
    expect_i64(view_open("/nonexistent/view", &options, 0, &view), -ENOENT);
    options.create = true;
    expect_i64(view_open("/dev/null/view", &options, 0, &view), -EIO);
    expect_i64(view_open(f.path, &options, 0, &view), -EIO); /* in use */
    view_close(NULL);
}

static int table_files(void)
{
    int count = 0;
    DIR *directory = opendir(f.path);
    cr_assert_not_null(directory);
    for (struct dirent *entry; (entry = readdir(directory));)
        count += strstr(entry->d_name, ".sst") != NULL;
    (void)closedir(directory);
    return count;
}

/* What a short session does: it opens quietly, applies something, and flushes at its end; or it
 * dies. */
static void short_session(uint64_t ino, bool dies)
{
    struct view_options options = {.cache_bytes = 0, .create = true, .begins_quietly = true};
    view_close(f.view);
    assert_i64(view_open(f.path, &options, T0, &f.view), 0);
    add_file(&f, ino, ROOT_INO, numbered("f%llu", (unsigned long long)ino), 0);
    apply_ok(&f);
    if (!dies) {
        assert_i64(view_flush(f.view), 0);
        view_compact_leftovers(f.view);
    }
}

Test(store, compactions_that_are_due_wait_until_they_are_let)
{
    const int sessions = 12; /* RocksDB compacts from 4 files on */
    for (int i = 0; i < sessions; i++)
        short_session(10 + (uint64_t)i, false);
    usleep(200000); /* what would not wait has begun by then */
    cr_expect_geq(table_files(), sessions);
    view_begin_compactions(f.view);
    AWAIT(table_files() < sessions, "no compaction");
    expect_check_ok(f.view);
}

/* After a compaction RocksDB removes what it merged in a thread of its own: that is given some
 * time. */
static int files_left(int limit)
{
    int count = table_files();
    for (int i = 0; count > limit && i < 1000; i++) {
        usleep(10000);
        count = table_files();
    }
    return count;
}

static int most_files(bool dies, int limit)
{
    int most = 0;
    for (uint64_t ino = 10; ino < 100 && most <= limit; ino++) {
        short_session(ino, dies);
        int count = files_left(limit);
        most = most > count ? most : count;
    }
    expect_check_ok(f.view);
    return most;
}

Test(store, sessions_that_are_all_short_leave_few_files)
{
    cr_expect_leq(most_files(false, 21), 21);
}

/* Here the compaction runs beside what comes next. */
Test(store, sessions_that_all_die_leave_few_files)
{
    cr_expect_leq(most_files(true, 40), 40);
}

static int reopen(void)
{
    struct view_options options = {.cache_bytes = 0, .create = true};
    view_close(f.view);
    f.view = NULL;
    return view_open(f.path, &options, 0, &f.view);
}

Test(store, damaged_files_are_found)
{
    fill();
    assert_i64(view_flush(f.view), 0);
    view_close(f.view);
    f.view = NULL;
    shell("for x in %s/*.sst; do printf garbage-garbage-garbage > $x; done", f.path);
    expect_i64(reopen(), -EUCLEAN);
    f.view = NULL;
}

/* Writes to the database behind the view's back; NULL: deletes. */
static void plant(const struct key *key, const void *value, size_t len)
{
    if (value)
        raw_put(key, value, len);
    else
        raw_delete(key);
    assert_i64(reopen(), 0);
}

static void plant_byte(const struct key *key, size_t at, uint8_t by, const char *what)
{
    _cleanup_value_ struct value value = {0};
    assert_i64(db_get(f.view, NULL, key, &value), 0, "%s", what);
    cr_assert(at < value.len, "%s", what);
    value.data[at] = (char)(value.data[at] + by);
    plant(key, value.data, value.len);
    cr_expect_gt(check_count(f.view), 0, "%s", what);
    value.data[at] = (char)(value.data[at] - by);
    plant(key, value.data, value.len);
    expect_check_ok(f.view);
}

Test(store, check_finds_changed_values)
{
    fill();
    struct key key;
    struct chunk_name one = chunk_of(1), three = chunk_of(3);
    key_chunk(&key, &one);
    plant_byte(&key, 4, 1, "references");
    plant_byte(&key, 14, 1, "pack of a chunk");
    plant_byte(&key, 16, 1, "stored length");
    plant_byte(&key, 0, 1, "version of a value");
    key_chunk(&key, &three);
    plant_byte(&key, 4, 1, "references of an unused chunk");
    key_u64(&key, KEY_PACK, 1);
    plant_byte(&key, 1, 1, "length of a pack");
    plant_byte(&key, 13, 1, "live bytes");
    plant_byte(&key, 21, 1, "live count");
    plant_byte(&key, 25, 1, "placed");
    key_u64(&key, KEY_INODE, 3);
    plant_byte(&key, 17, 1, "size");
    plant_byte(&key, 57, 1, "nlink");
    plant_byte(&key, 81, 1, "blocks");
    plant_byte(&key, 89, 1, "pages");
    plant_byte(&key, 97, 1, "xattrs");
    plant_byte(&key, 105, 1, "entries");
    plant_byte(&key, 2, 0x40 - 0x80, "type"); /* a file becomes something else */
    key_u64(&key, KEY_INODE, 2);
    plant_byte(&key, 57, 1, "nlink of a directory");
    plant_byte(&key, 73, 1, "parent of a directory");
    plant_byte(&key, 105, 1, "entries of a directory");
    key_named(&key, KEY_NAME, 2, "f", 1);
    plant_byte(&key, 1, 1, "inode of a name");
    plant_byte(&key, 9, 1, "cookie of a name");
    plant_byte(&key, 18, 1, "type of a name");
    key_page(&key, 3, 0, 2);
    plant_byte(&key, 5, 1, "offset of an extent");
    plant_byte(&key, 9, 1, "length of an extent");
    plant_byte(&key, 20, 1, "chunk of an extent");
    plant_byte(&key, 1, 1, "number of extents");
    key_blob(&key, 4, 2, 0);
    plant_byte(&key, 0, 1, "version of a blob");
    key_type(&key, KEY_STATE);
    for (size_t at = 41; at < STATE_VALUE_LEN_MAX - 8;
         at += 8) /* without held bytes, of which there are none */
        plant_byte(&key, at, at == 41 ? (uint8_t)-1 : 1, "counter");
}

static void plant_row(const struct key *key, const void *value, size_t len, const char *what)
{
    plant(key, value, len);
    cr_expect_gt(check_count(f.view), 0, "%s", what);
    plant(key, NULL, 0);
    expect_check_ok(f.view);
}

static void plant_key(const struct key *key, const char *what)
{
    plant_row(key, "\1", 1, what);
}

/* The list of a pack: of one chunk, which it may have had. */
static void plant_list(const struct key *key, uint32_t id, const char *what)
{
    struct chunk_name name = chunk_of(id);
    struct listed_chunks listed = {0};
    struct bytes value = {0};
    vector_add(&listed, listed_of(&name));
    list_encode(&listed, &value);
    plant_row(key, value.at, value.count, what);
    vector_free(&listed);
    vector_free(&value);
}

Test(store, check_finds_keys_that_belong_to_nothing)
{
    fill();
    struct key key;
    key_named(&key, KEY_XATTR, 99, "user.x", 6);
    plant_key(&key, "xattr of nothing");
    key_named(&key, KEY_XATTR, 3, "user.x", 6);
    plant_key(&key, "xattr that is not counted");
    key_u64(&key, KEY_LINK, 3);
    plant_key(&key, "link target of a file");
    key_u64(&key, KEY_ORPHAN, 3);
    plant_key(&key, "orphan that has a name");
    key_blob(&key, 3, 1, 0);
    plant_key(&key, "blob");
    key_u64(&key, KEY_PLACED, 2);
    plant_list(&key, 1, "list of a pack");
    key_page(&key, 99, 0, 1);
    plant_key(&key, "page");
    key_u64_u64(&key, KEY_COOKIE, 2, 77);
    plant_key(&key, "cookie");
    key_named(&key, KEY_NAME, 2, "ghost", 5);
    plant_key(&key, "name");
}

static void count_unknown(const char *line, void *arg)
{
    *(int *)arg += strstr(line, "unknown chunk") != NULL;
}

Test(store, check_finds_missing_keys)
{
    fill();
    struct key key;
    struct chunk_name one = chunk_of(1), two = chunk_of(2);
    key_blob(&key, 4, 2, 0);
    plant(&key, NULL, 0);
    expect_i64(check_count(f.view), 1);
    key_chunk(&key, &one);
    plant(&key, NULL, 0);
    cr_expect_gt(check_count(f.view), 4);
    int differences = check_count(f.view);
    key_chunk(&key, &two);
    plant(&key, NULL, 0);
    int unknown = 0;
    cr_expect_gt(view_check(f.view, count_unknown, &unknown), differences);
    expect_i64(unknown, 2);
    key_u64(&key, KEY_INODE, 3);
    plant(&key, NULL, 0);
    cr_expect_gt(check_count(f.view), differences + 2);
    key_type(&key, KEY_STATE);
    raw_delete(&key);
    expect_i64(reopen(), -EUCLEAN);
    f.view = NULL;
}

/* The whole of a view has a version, which the state says. */
static int open_as_version(uint8_t version)
{
    _cleanup_value_ struct value state = {0};
    struct key key;
    key_type(&key, KEY_STATE);
    assert_i64(db_get(f.view, NULL, &key, &state), 0);
    assert_i64(state.data[0], VIEW_VERSION);
    state.data[0] = (char)version;
    raw_put(&key, state.data, state.len);
    return reopen();
}

Test(store, views_of_other_versions_are_not_opened)
{
    fill();
    assert_i64(open_as_version(VIEW_VERSION), 0);
    assert_i64(open_as_version(1), -ESTALE);
    remove_tree(f.path);
    assert_i64(mkdir(f.path, 0700), 0);
    open_view_at(f.path, &f.view);
    assert_i64(open_as_version(VIEW_VERSION + 1), -EUCLEAN);
}

Test(store, check_finds_a_missing_list)
{
    fill();
    struct key key;
    key_u64(&key, KEY_PLACED, 1);
    plant(&key, NULL, 0);
    expect_i64(check_count(f.view), 3, "one for each chunk of the pack");
    add_drop(&f, 1);
    apply_bad(&f);
}

Test(store, damaged_batches)
{
    fill();
    add_dir(&f, 20, ROOT_INO, "x");
    f.buf[40] ^= 1; /* checksum */
    apply_bad(&f);
    add_dir(&f, 20, ROOT_INO, "x");
    f.len -= 8; /* torn */
    apply_bad(&f);
    add_dir(&f, 20, ROOT_INO, "x");
    f.seq = 5; /* older than what is applied */
    apply_bad(&f);
}

struct reader {
    bool stop;
    pthread_t thread;
};

/* In every whole state the size of inode 3 is what its extents cover. */
static int add_length(const struct view_extent *part, void *arg)
{
    *(uint64_t *)arg += part->extent.kind == EXTENT_CHUNK ? part->extent.length : 0;
    return 0;
}

static int count_entry(const struct view_entry *entry, const char *name, size_t len, void *arg)
{
    (void)entry;
    (void)name;
    (void)len;
    ++*(int *)arg;
    return 0;
}

static void *read_all_the_time(void *arg)
{
    struct reader *reader = arg;
    while (!__atomic_load_n(&reader->stop, __ATOMIC_RELAXED)) {
        uint64_t covered = 0;
        int entries = 0;
        assert_i64(view_extents(f.view, 3, 0, INT64_MAX, add_length, &covered), 0);
        assert_u64(covered % 1000, 0);
        assert_i64(view_readdir(f.view, ROOT_INO, 0, count_entry, &entries), 0);
        assert_i64(entries, 3);
        (void)view_state(f.view);
    }
    return NULL;
}

Test(store, reads_during_applies_see_whole_states)
{
    fill();
    add_file(&f, 30, ROOT_INO, "t0", 0);
    apply_ok(&f);
    struct reader reader = {0};
    assert_i64(pthread_create(&reader.thread, NULL, read_all_the_time, &reader), 0);
    for (uint32_t i = 0; i < 500; i++) {
        char name[16], next[16];
        struct extent e[] = {chunk_extent(0, 1000, i + 10, 0),
                             chunk_extent(TEST_PAGE, 1000 * (1 + i % 3), i + 11, 0)};
        add_seal(&f, 3, 3 + i, 0, TEST_PAGE + 1000 * (1 + i % 3), e, 2);
        sprintf(name, "t%u", i);
        sprintf(next, "t%u", i + 1);
        add_rename(&f, 30, ROOT_INO, name, ROOT_INO, next, 0, 0);
        apply_ok(&f);
    }
    __atomic_store_n(&reader.stop, true, __ATOMIC_RELAXED);
    pthread_join(reader.thread, NULL);
    expect_check_ok(f.view);
}
