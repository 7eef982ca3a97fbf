/* What files mean, on a store, without FUSE. */
#include <fcntl.h>
#include <linux/falloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "../persist/shop.h"
#include "fs/fs.h"

static struct shop shop;
static struct fs *fs;
static const struct fs_caller root = {.uid = 0}, user = {.uid = 1000, .gid = 1000};

static void start(void)
{
    shop_open(&shop);
    fs = fs_new(shop.store, FS_FSYNC_NVME);
    fs_keep_atime(fs, true);
}

static void setup(void)
{
    shop_make(&shop);
    start();
}

static void stop(void)
{
    fs_free(fs);
    shop_close(&shop);
}

static void teardown(void)
{
    stop();
    cr_expect_eq(shop_fsck(&shop), 0);
    shop_remove(&shop);
}

static void restart(void)
{
    stop();
    start();
}

TestSuite(fs, .init = setup, .fini = teardown, .timeout = 600);

struct file {
    uint64_t ino, handle;
};

static struct file create(const char *name)
{
    struct stat st;
    struct fs_opened opened;
    cr_assert_eq(fs_create(fs, ROOT_INO, name, 0644, O_RDWR, &root, &st, &opened), 0);
    return (struct file){st.st_ino, opened.handle};
}

static void put_text(struct file file, uint64_t offset, const char *text)
{
    cr_assert_eq(fs_write(fs, file.ino, offset, (uint32_t)strlen(text), SLAB_NONE, text, &root), 0);
}

static void close_file(struct file file)
{
    cr_assert_eq(fs_flush(fs, file.ino, file.handle), 0);
    (void)fs_release(fs, file.handle, false);
}

static uint64_t make_file(const char *name, const char *text)
{
    struct file file = create(name);
    put_text(file, 0, text);
    close_file(file);
    return file.ino;
}

static uint64_t ino_of(const char *name)
{
    struct stat st;
    int r = fs_lookup(fs, ROOT_INO, name, &st);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? st.st_ino : 0;
}

static uint64_t make_dir(const char *name)
{
    struct stat st;
    cr_assert_eq(fs_mkdir(fs, ROOT_INO, name, 0755, &root, &st), 0);
    return st.st_ino;
}

/* '.' for each zero byte. */
static void expect_text(uint64_t ino, const char *text)
{
    char is[256] = "";
    ssize_t n = fs_read_slow(fs, ino, 0, is, sizeof is - 1, STORE_REACH_FAR, false);
    cr_assert_eq(n, (ssize_t)strlen(text), "is %zd", n);
    for (ssize_t i = 0; i < n; i++)
        is[i] = is[i] ? is[i] : '.';
    is[n] = '\0';
    cr_expect_str_eq(is, text, "is \"%s\", expected \"%s\"", is, text);
}

static struct stat stat_of(uint64_t ino)
{
    struct stat st;
    cr_assert_eq(fs_getattr(fs, ino, &st), 0);
    return st;
}

/* --- names ------------------------------------------------------------------------------------------------------------ */

Test(fs, a_rename_replaces)
{
    uint64_t a = make_file("a", "aaa");
    (void)make_file("b", "bbb");
    cr_assert_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "b", 0, &root), 0);
    cr_expect_eq(ino_of("a"), 0);
    cr_expect_eq(ino_of("b"), a);
    expect_text(a, "aaa");
    restart();
    expect_text(ino_of("b"), "aaa");
}

Test(fs, rules_of_rename)
{
    (void)make_file("a", "a");
    (void)make_file("b", "b");
    uint64_t d = make_dir("d");
    (void)make_dir("e");
    struct stat st;
    cr_assert_eq(fs_mkdir(fs, d, "in", 0755, &root, &st), 0);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "none", ROOT_INO, "b", 0, &root), -ENOENT);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "b", RENAME_NOREPLACE, &root), -EEXIST);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "none", RENAME_EXCHANGE, &root), -ENOENT);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "d", 0, &root), -EISDIR);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "d", ROOT_INO, "a", 0, &root), -ENOTDIR);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "e", ROOT_INO, "d", 0, &root), -ENOTEMPTY);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "b", 1u << 10, &root), -EINVAL);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "a", 0, &root), 0);
    cr_assert_eq(fs_rename(fs, ROOT_INO, "d", ROOT_INO, "e", 0, &root), 0, "over an empty folder");
    cr_expect_eq(ino_of("e"), d);
    cr_expect_eq(stat_of(ROOT_INO).st_nlink, 3);
    uint64_t a = ino_of("a");
    cr_assert_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "e", RENAME_EXCHANGE, &root), 0);
    cr_expect_eq(ino_of("e"), a);
    cr_expect_eq(ino_of("a"), d);
}

Test(fs, a_rename_of_a_draft_seals_it_first)
{
    struct file file = create("tmp");
    put_text(file, 0, "content");
    cr_assert_eq(fs_rename(fs, ROOT_INO, "tmp", ROOT_INO, "model", 0, &root), 0);
    struct stage_file_state state;
    (void)stage_file_state(store_stage(shop.store), file.ino, &state);
    cr_expect_not(state.has_draft);
    put_text(file, 7, " more");
    close_file(file);
    expect_text(ino_of("model"), "content more");
}

Test(fs, a_rename_over_a_file_that_is_new_and_open)
{
    struct file target = create("b");
    put_text(target, 0, "old");
    (void)make_file("a", "new");
    cr_assert_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, "b", 0, &root), 0);
    expect_text(target.ino, "old");
    put_text(target, 3, "er");
    expect_text(target.ino, "older");
    close_file(target);
    cr_assert_eq(fs_forget(fs, target.ino), 0);
    struct stat st;
    cr_expect_eq(fs_getattr(fs, target.ino, &st), -ENOENT);
    expect_text(ino_of("b"), "new");
}

/* What has no name lives until nobody has it open and the kernel has forgotten it, whatever comes first. */
static void expect_end(struct file file, bool forgotten_first)
{
    struct stat st;
    if (forgotten_first)
        cr_assert_eq(fs_forget(fs, file.ino), 0);
    else
        close_file(file);
    expect_text(file.ino, "abcdef");
    if (forgotten_first)
        close_file(file);
    else
        cr_assert_eq(fs_forget(fs, file.ino), 0);
    cr_expect_eq(fs_getattr(fs, file.ino, &st), -ENOENT);
    shop_wait(&shop);
    cr_expect_eq(stage_usage(store_stage(shop.store)).dirty_bytes, 0);
}

Test(fs, unlinked_while_open)
{
    for (unsigned i = 0; i < 4; i++) {
        struct file file = create("a");
        put_text(file, 0, "abc");
        if (i & 1) {
            cr_assert_eq(fs_flush(fs, file.ino, file.handle), 0);
            shop_wait(&shop);
        }
        cr_assert_eq(fs_unlink(fs, ROOT_INO, "a", false), 0);
        cr_expect_eq(ino_of("a"), 0);
        cr_expect_eq(stat_of(file.ino).st_nlink, 0);
        put_text(file, 3, "def");
        expect_text(file.ino, "abcdef");
        shop_wait(&shop);
        expect_text(file.ino, "abcdef");
        struct stat st;
        cr_expect_eq(fs_link(fs, file.ino, ROOT_INO, "b", &st), -ENOENT);
        expect_end(file, i & 2);
    }
}

Test(fs, known_without_a_name)
{
    struct fs_opened opened;
    struct stat st, set = {.st_size = 2};
    uint64_t file = make_file("a", "text"), dir = make_dir("d"), other = make_file("b", "other");
    shop_wait(&shop);
    cr_assert_eq(fs_unlink(fs, ROOT_INO, "a", false), 0);
    cr_assert_eq(fs_rmdir(fs, ROOT_INO, "d"), 0);
    cr_assert_eq(fs_forget(fs, other), 0, "it has a name");
    expect_text(other, "other");
    shop_wait(&shop);
    for (unsigned i = 0; i < 2; i++) { /* again and again */
        cr_assert_eq(fs_open(fs, file, O_RDWR, &opened), 0);
        expect_text(file, i ? "te" : "text");
        cr_assert_eq(fs_setattr(fs, file, FS_SET_SIZE, &set, &root, &st), 0);
        cr_expect_eq(fs_release(fs, opened.handle, false), 0);
    }
    cr_assert_eq(fs_setxattr(fs, dir, "user.x", "1", 1, 0), 0);
    cr_expect_eq(fs_mkdir(fs, dir, "below", 0755, &root, &st), -ENOENT);
    cr_assert_eq(fs_forget(fs, file), 0);
    cr_assert_eq(fs_forget(fs, dir), 0);
    cr_expect_eq(fs_getattr(fs, file, &st), -ENOENT);
    cr_expect_eq(fs_getattr(fs, dir, &st), -ENOENT);
    cr_assert_eq(fs_forget(fs, file), 0, "twice");
    shop_wait(&shop);
    cr_expect_eq(stage_usage(store_stage(shop.store)).dirty_bytes, 0);
}

Test(fs, made_without_a_name)
{
    struct fs_opened opened;
    struct stat st;
    uint64_t dir = make_dir("d");
    for (unsigned i = 0; i < 3; i++) { /* forgotten, named, named and removed */
        cr_assert_eq(fs_create(fs, dir, NULL, 0640, O_RDWR, &root, &st, &opened), 0);
        struct file file = {.ino = st.st_ino, .handle = opened.handle};
        cr_expect_eq(st.st_nlink, 0);
        put_text(file, 0, "abcdef");
        cr_assert_eq(fs_setxattr(fs, file.ino, "user.x", "1", 1, 0), 0);
        shop_wait(&shop);
        cr_assert_eq(fs_rmdir(fs, ROOT_INO, "d"), 0, "nothing is in it");
        dir = make_dir("d");
        if (i > 0) {
            cr_assert_eq(fs_link(fs, file.ino, dir, "name", &st), 0);
            cr_expect_eq(st.st_nlink, 1);
            cr_expect_eq(fs_link(fs, file.ino, dir, "name", &st), -EEXIST);
            cr_assert_eq(fs_lookup(fs, dir, "name", &st), 0);
            cr_expect_eq(st.st_ino, file.ino);
            cr_assert_eq(fs_forget(fs, file.ino), 0, "it has a name");
            shop_wait(&shop);
            expect_text(file.ino, "abcdef");
        }
        if (i == 1) {
            close_file(file);
            expect_text(file.ino, "abcdef");
        }
        cr_assert(i == 0 || fs_unlink(fs, dir, "name", false) == 0);
        if (i == 1)
            cr_assert_eq(fs_forget(fs, file.ino), 0);
        else
            expect_end(file, i & 2);
        cr_expect_eq(fs_getattr(fs, file.ino, &st), -ENOENT);
    }
}

/* It was closed, and is known still. */
Test(fs, named_after_it_was_closed)
{
    struct fs_opened opened;
    struct stat st, after;
    cr_assert_eq(fs_create(fs, ROOT_INO, NULL, 0640, O_RDWR, &root, &st, &opened), 0);
    struct file file = {.ino = st.st_ino, .handle = opened.handle};
    put_text(file, 0, "text");
    close_file(file);
    struct stat before = stat_of(ROOT_INO);
    cr_assert_eq(fs_link(fs, file.ino, ROOT_INO, "a", &st), 0);
    after = stat_of(ROOT_INO);
    cr_expect(after.st_mtim.tv_sec > before.st_mtim.tv_sec || after.st_mtim.tv_nsec > before.st_mtim.tv_nsec);
    cr_assert_eq(fs_forget(fs, file.ino), 0);
    expect_text(file.ino, "text");
    cr_assert_not(fs_is_nameless(fs, file.ino));
}

Test(fs, xattrs_without_a_name_are_bounded)
{
    static char value[65536];
    struct fs_opened opened;
    struct stat st;
    char name[32];
    int r = 0;
    cr_assert_eq(fs_create(fs, ROOT_INO, NULL, 0640, O_RDWR, &root, &st, &opened), 0);
    unsigned count = 0;
    for (; count < 100 && r == 0; count++) {
        (void)snprintf(name, sizeof name, "user.%u", count);
        r = fs_setxattr(fs, st.st_ino, name, value, sizeof value, 0);
    }
    cr_expect_eq(r, -ENOSPC);
    cr_assert_eq(fs_link(fs, st.st_ino, ROOT_INO, "a", &st), 0, "with all that it took");
    cr_expect_eq(fs_getxattr(fs, st.st_ino, "user.0", NULL, 0), sizeof value);
    cr_expect_eq(fs_setxattr(fs, st.st_ino, name, value, sizeof value, 0), 0);
    cr_expect_eq(fs_release(fs, opened.handle, false), 0);
}

Test(fs, nothing_without_a_name_is_left_at_the_end)
{
    struct fs_opened opened;
    struct stat st;
    struct file open = create("open");
    uint64_t known = make_file("known", "text"), dir = make_dir("d");
    cr_assert_eq(fs_create(fs, ROOT_INO, NULL, 0640, O_RDWR, &root, &st, &opened), 0);
    cr_assert_eq(fs_unlink(fs, ROOT_INO, "open", false), 0);
    cr_assert_eq(fs_unlink(fs, ROOT_INO, "known", false), 0);
    cr_assert_eq(fs_rmdir(fs, ROOT_INO, "d"), 0);
    fs_settle(fs);
    const uint64_t inos[] = {open.ino, known, dir, st.st_ino};
    for (unsigned i = 0; i < 4; i++)
        cr_expect_eq(fs_getattr(fs, inos[i], &st), -ENOENT);
    shop_wait(&shop);
    cr_expect_eq(stage_usage(store_stage(shop.store)).dirty_bytes, 0);
}

Test(fs, hard_links)
{
    struct stat st;
    uint64_t a = make_file("a", "text"), d = make_dir("d");
    cr_assert_eq(fs_link(fs, a, d, "b", &st), 0);
    cr_expect_eq(st.st_nlink, 2);
    cr_expect_eq(fs_link(fs, a, d, "b", &st), -EEXIST);
    cr_expect_eq(fs_link(fs, d, ROOT_INO, "dd", &st), -EPERM);
    cr_expect_eq(fs_rmdir(fs, ROOT_INO, "d"), -ENOTEMPTY);
    cr_expect_eq(fs_rmdir(fs, ROOT_INO, "a"), -ENOTDIR);
    cr_expect_eq(fs_unlink(fs, ROOT_INO, "d", false), -EISDIR);
    cr_assert_eq(fs_unlink(fs, ROOT_INO, "a", false), 0);
    cr_assert_eq(fs_lookup(fs, d, "b", &st), 0);
    cr_expect_eq(st.st_nlink, 1);
    expect_text(st.st_ino, "text");
}

Test(fs, long_names)
{
    char name[258];
    struct stat st;
    memset(name, 'n', sizeof name);
    name[256] = '\0';
    cr_expect_eq(fs_mkdir(fs, ROOT_INO, name, 0755, &root, &st), -ENAMETOOLONG);
    cr_expect_eq(fs_lookup(fs, ROOT_INO, name, &st), -ENAMETOOLONG);
    cr_expect_eq(fs_rename(fs, ROOT_INO, "a", ROOT_INO, name, 0, &root), -ENAMETOOLONG);
    name[255] = '\0';
    cr_expect_eq(fs_mkdir(fs, ROOT_INO, name, 0755, &root, &st), 0);
    cr_expect_eq(fs_mkdir(fs, ROOT_INO, name, 0755, &root, &st), -EEXIST);
}

static int count_name(const struct fs_entry *entry, void *arg)
{
    unsigned *count = arg;
    cr_expect(strcmp(entry->name, ".") == 0 ? entry->ino == ROOT_INO : entry->offset > 1);
    (*count)++;
    return 0;
}

Test(fs, special_files_and_listing)
{
    struct stat st;
    char target[4096];
    cr_assert_eq(fs_symlink(fs, "to/there", ROOT_INO, "link", &user, &st), 0);
    cr_expect_eq(st.st_size, 8);
    cr_expect_eq(st.st_uid, 1000);
    cr_assert_eq(fs_readlink(fs, st.st_ino, target), 8);
    cr_assert_eq(fs_mknod(fs, ROOT_INO, "fifo", S_IFIFO | 0600, 0, &root, &st), 0);
    cr_assert_eq(fs_mknod(fs, ROOT_INO, "plain", S_IFREG | 0600, 0, &root, &st), 0);
    unsigned count = 0;
    cr_assert_eq(fs_readdir(fs, ROOT_INO, 0, 64, count_name, &count), 0);
    cr_expect_eq(count, 5);
    restart();
    cr_assert_eq(fs_readlink(fs, ino_of("link"), target), 8);
    cr_expect_eq(stat_of(ino_of("fifo")).st_mode, S_IFIFO | 0600);
    cr_expect_eq(stat_of(ino_of("plain")).st_size, 0);
}

/* --- content ---------------------------------------------------------------------------------------------------------- */

Test(fs, truncation)
{
    struct file file = create("a");
    struct stat st = {.st_size = 3};
    put_text(file, 0, "abcdef");
    shop_wait(&shop);
    cr_assert_eq(fs_setattr(fs, file.ino, FS_SET_SIZE, &st, &root, &st), 0);
    cr_expect_eq(st.st_size, 3);
    st.st_size = 5;
    cr_assert_eq(fs_setattr(fs, file.ino, FS_SET_SIZE, &st, &root, &st), 0);
    expect_text(file.ino, "abc..");
    close_file(file);
    struct fs_opened opened;
    cr_assert_eq(fs_open(fs, file.ino, O_WRONLY, &opened), 0);
    st.st_size = 0;
    cr_assert_eq(fs_setattr(fs, file.ino, FS_SET_SIZE, &st, &root, &st), 0);
    cr_expect_eq(stat_of(file.ino).st_size, 0);
    (void)fs_release(fs, opened.handle, false);
    restart();
    cr_expect_eq(stat_of(ino_of("a")).st_size, 0);
}

Test(fs, fallocate)
{
    struct file file = create("a");
    put_text(file, 0, "abcdefgh");
    const int keep = FALLOC_FL_KEEP_SIZE, punch = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    cr_expect_eq(fs_fallocate(fs, file.ino, 0, 0, 10, &root), 0);
    expect_text(file.ino, "abcdefgh..");
    cr_expect_eq(fs_fallocate(fs, file.ino, keep, 0, 100, &root), 0);
    cr_expect_eq(stat_of(file.ino).st_size, 10);
    cr_expect_eq(fs_fallocate(fs, file.ino, punch, 2, 2, &root), 0);
    expect_text(file.ino, "ab..efgh..");
    cr_expect_eq(fs_fallocate(fs, file.ino, punch, 7, 100, &root), 0);
    expect_text(file.ino, "ab..efg...");
    cr_expect_eq(fs_fallocate(fs, file.ino, FALLOC_FL_ZERO_RANGE, 6, 6, &root), 0);
    expect_text(file.ino, "ab..ef......");
    cr_expect_eq(fs_fallocate(fs, file.ino, punch, 50, 5, &root), 0);
    cr_expect_eq(stat_of(file.ino).st_size, 12);
    cr_expect_eq(fs_fallocate(fs, file.ino, FALLOC_FL_PUNCH_HOLE, 0, 1, &root), -EOPNOTSUPP);
    cr_expect_eq(fs_fallocate(fs, file.ino, FALLOC_FL_COLLAPSE_RANGE, 0, 1, &root), -EOPNOTSUPP);
    cr_expect_eq(fs_fallocate(fs, file.ino, 0, 0, 0, &root), -EINVAL);
    cr_expect_eq(fs_fallocate(fs, file.ino, 0, INT64_MAX, 10, &root), -EFBIG);
    cr_expect_eq(fs_fallocate(fs, ROOT_INO, 0, 0, 10, &root), -ENODEV);
    close_file(file);
    restart();
    expect_text(ino_of("a"), "ab..ef......");
}

Test(fs, seeking)
{
    struct file file = create("a");
    put_text(file, 0, "abc");
    put_text(file, 100, "xyz");
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(fs_lseek(fs, file.ino, 0, SEEK_DATA), 0);
        cr_expect_eq(fs_lseek(fs, file.ino, 1, SEEK_HOLE), 3);
        cr_expect_eq(fs_lseek(fs, file.ino, 3, SEEK_DATA), 100);
        cr_expect_eq(fs_lseek(fs, file.ino, 50, SEEK_HOLE), 50);
        cr_expect_eq(fs_lseek(fs, file.ino, 100, SEEK_HOLE), 103);
        cr_expect_eq(fs_lseek(fs, file.ino, 103, SEEK_DATA), -ENXIO);
        cr_expect_eq(fs_lseek(fs, file.ino, 103, SEEK_HOLE), -ENXIO);
        if (i)
            break;
        close_file(file);
        restart();
        file.ino = ino_of("a");
    }
    cr_expect_eq(fs_lseek(fs, file.ino, 0, SEEK_SET), -EINVAL);
}

static ssize_t copy_whole(uint64_t from, uint64_t to, size_t length)
{
    size_t done = 0;
    while (done < length) {
        ssize_t n = fs_copy(fs, from, done, to, done, length - done, &root);
        if (n <= 0)
            return n;
        done += (size_t)n;
    }
    return (ssize_t)done;
}

Test(fs, copying)
{
    struct file from = create("from");
    shop_fill(&shop, from.ino, 0, 3, 3 * MIB);
    shop_fill(&shop, from.ino, 4 * MIB, 3, 1000);
    for (unsigned i = 0; i < 2; i++) {
        struct file to = create(i ? "to-1" : "to-0");
        cr_assert_eq(copy_whole(from.ino, to.ino, 4 * MIB + 1000), (ssize_t)(4 * MIB + 1000));
        put_text(to, 5, "x");
        close_file(to);
        cr_assert_eq(fs_flush(fs, from.ino, from.handle), 0);
        shop_wait(&shop);
    }
    (void)fs_release(fs, from.handle, false);
    restart();
    for (unsigned i = 0; i < 2; i++) {
        uint64_t to = ino_of(i ? "to-1" : "to-0");
        char byte = 0;
        cr_assert_eq(stat_of(to).st_size, 4 * MIB + 1000);
        shop_expect_fill(&shop, to, 0, 3, 5);
        cr_assert_eq(fs_read_slow(fs, to, 5, &byte, 1, STORE_REACH_FAR, false), 1);
        cr_expect_eq(byte, 'x');
        shop_expect_fill(&shop, to, 6, 3, 3 * MIB - 6);
        cr_assert_eq(fs_read_slow(fs, to, 3 * MIB + 5, &byte, 1, STORE_REACH_FAR, false), 1);
        cr_expect_eq(byte, 0);
        shop_expect_fill(&shop, to, 4 * MIB, 3, 1000);
    }
    struct store_status status;
    store_status(shop.store, &status);
    cr_expect_lt(status.view.pack_bytes, 8 * MIB, "what was durable is copied by reference");
}

/* More than the stage holds: what fits is copied, for the rest it waits. */
Test(fs, copying_while_there_is_little_room)
{
    struct file from = create("from"), to = create("to");
    shop_fill(&shop, from.ino, 0, 4, 20 * MIB);
    for (uint64_t done = 0; done < 100 * MIB;) {
        uint64_t at = done % (20 * MIB);
        ssize_t n = fs_copy(fs, from.ino, at, to.ino, done, 20 * MIB - at, &root);
        cr_assert(n > 0 || n == -EAGAIN, "is %zd", n);
        store_note_waiting(shop.store, n < 0);
        done += n > 0 ? (uint64_t)n : 0;
        if (n < 0)
            (void)usleep(1000);
    }
    store_note_waiting(shop.store, 0);
    close_file(from);
    close_file(to);
    restart();
    static uint8_t is[4096], expected[4096];
    for (uint64_t at = 0; at < 100 * MIB - sizeof is; at += 999999) {
        shop_read(&shop, ino_of("to"), at, is, sizeof is);
        for (size_t i = 0; i < sizeof is; i++)
            shop_read(&shop, ino_of("from"), (at + i) % (20 * MIB), &expected[i], i % 512 == 0);
        for (size_t i = 0; i < sizeof is; i += 512)
            cr_assert_eq(is[i], expected[i], "byte %llu", (unsigned long long)(at + i));
    }
}

/* What is large is copied in slabs of its own: a piece is as large as a request. */
Test(fs, copying_what_is_not_durable)
{
    struct file from = create("from"), to = create("to");
    shop_fill(&shop, from.ino, 0, 4, 12 * MIB + 300);
    cr_assert_eq(fs_copy(fs, from.ino, 100, to.ino, 7, 12 * MIB + 200, &root), (ssize_t)(12 * MIB + 200));
    static struct fs_read got;
    cr_assert_eq(fs_read_fast(fs, to.ino, 0, 12 * MIB, &got), 0);
    cr_expect_lt(got.part_count, 30, "is %zu", got.part_count);
    fs_read_done(fs, &got);
    static uint8_t is[4096], expected[4096];
    for (uint64_t at = 0; at < 12 * MIB; at += 999999) {
        shop_read(&shop, from.ino, 100 + at, expected, sizeof expected);
        shop_read(&shop, to.ino, 7 + at, is, sizeof is);
        cr_assert_eq(memcmp(is, expected, sizeof is), 0);
    }
    close_file(from);
    close_file(to);
    shop_wait(&shop);
}

Test(fs, reading_from_memory)
{
    struct file file = create("a");
    static struct fs_read got;
    put_text(file, 0, "abc");
    put_text(file, 5, "d");
    cr_assert_eq(fs_read_fast(fs, file.ino, 1, 100, &got), 0);
    cr_expect_eq(got.length, 5);
    cr_expect_eq(got.iov_count, 3);
    cr_expect_eq(memcmp(got.iov[0].iov_base, "bc", 2), 0);
    fs_read_done(fs, &got);
    cr_assert_eq(fs_read_fast(fs, file.ino, 6, 100, &got), 0);
    cr_expect_eq(got.length, 0);
    close_file(file);
    shop_wait(&shop);
    restart();
    cr_expect_eq(fs_read_fast(fs, ino_of("a"), 0, 100, &got), 1);
    expect_text(ino_of("a"), "abc..d");
}

/* --- attributes ------------------------------------------------------------------------------------------------------- */

Test(fs, attributes)
{
    uint64_t ino = make_file("a", "text");
    struct stat st = {.st_mode = S_IFREG | 04755, .st_uid = 5, .st_mtim = {.tv_sec = 77}};
    cr_assert_eq(fs_setattr(fs, ino, FS_SET_MODE | FS_SET_MTIME, &st, &root, &st), 0);
    cr_expect_eq(st.st_mode, S_IFREG | 04755);
    struct fs_opened opened;
    cr_assert_eq(fs_open(fs, ino, O_WRONLY, &opened), 0);
    cr_assert_eq(fs_write(fs, ino, 0, 1, SLAB_NONE, "T", &user), 0);
    cr_expect_eq(stat_of(ino).st_mode, S_IFREG | 0755, "a write clears the privilege");
    st.st_mtim.tv_sec = 77;
    cr_assert_eq(fs_setattr(fs, ino, FS_SET_MTIME, &st, &user, &st), 0);
    cr_expect_eq(st.st_mtim.tv_sec, 77);
    (void)fs_release(fs, opened.handle, false);
    restart();
    cr_expect_eq(stat_of(ino_of("a")).st_mtim.tv_sec, 77);
    cr_expect_eq(stat_of(ino_of("a")).st_blocks, 8, "as on other filesystems: whole blocks");
}

Test(fs, xattrs)
{
    struct file file = create("a");
    char value[64], list[64];
    for (unsigned i = 0; i < 2; i++) {
        cr_expect_eq(fs_setxattr(fs, file.ino, "user.k", "v1", 2, 0), 0);
        cr_expect_eq(fs_setxattr(fs, file.ino, "user.gone", "v", 1, 0), 0);
        cr_expect_eq(fs_removexattr(fs, file.ino, "user.gone"), 0);
        cr_expect_eq(fs_removexattr(fs, file.ino, "user.gone"), -ENODATA);
        cr_expect_eq(fs_getxattr(fs, file.ino, "user.k", value, sizeof value), 2);
        cr_expect_eq(fs_getxattr(fs, file.ino, "user.gone", value, sizeof value), -ENODATA);
        cr_expect_eq(fs_listxattr(fs, file.ino, &root, list, sizeof list), 7);
        if (i == 0)
            close_file(file);
        shop_wait(&shop);
    }
    restart();
    cr_expect_eq(fs_getxattr(fs, ino_of("a"), "user.k", value, sizeof value), 2);
}

/* --- handles ---------------------------------------------------------------------------------------------------------- */

Test(fs, a_file_that_no_handle_is_left_for_is_not_made)
{
    struct stage *stage = store_stage(shop.store);
    uint64_t handle, ino = make_file("old", "text");
    uint32_t flags;
    struct stat st;
    struct fs_opened opened;
    while (stage_handle_open(stage, 1, 0, &handle) == 0)
        ;
    cr_expect_eq(fs_create(fs, ROOT_INO, "new", 0644, O_RDWR, &root, &st, &opened), -ENFILE);
    cr_expect_eq(ino_of("new"), 0);
    cr_expect_eq(fs_open(fs, ino, O_RDWR, &opened), -ENFILE);
    expect_text(ino, "text");
    (void)stage_handle_close(stage, 7, &flags);
    cr_expect_eq(fs_create(fs, ROOT_INO, "old", 0644, O_RDWR, &root, &st, &opened), -EEXIST);
    cr_assert_eq(fs_create(fs, ROOT_INO, "new", 0644, O_RDWR, &root, &st, &opened), 0, "the handle was given back");
    cr_assert_eq(fs_unlink(fs, ROOT_INO, "new", false), 0);
    (void)fs_release(fs, opened.handle, false);
    cr_assert_eq(fs_forget(fs, st.st_ino), 0);
    cr_expect_eq(fs_getattr(fs, st.st_ino, &st), -ENOENT);
}

/* --- against the background ------------------------------------------------------------------------------------------- */

static void *seal_again_and_again(void *arg)
{
    while (!atomic_load((_Atomic bool *)arg))
        cr_assert(store_seal_below(shop.store, ROOT_INO) <= 0);
    return NULL;
}

/* A seal moves what is known of a file from one place to another: it must not be seen in neither. */
Test(fs, size_and_time_while_it_is_sealed)
{
    struct file file = create("a");
    _Atomic bool stop = false;
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, seal_again_and_again, &stop), 0);
    struct stat before = {0};
    for (unsigned i = 1; i < 30000; i++) {
        int r;
        while ((r = fs_write(fs, file.ino, i - 1, 1, SLAB_NONE, "x", &root)) == -EAGAIN)
            (void)usleep(1000);
        cr_assert_eq(r, 0);
        for (unsigned look = 0; look < 3; look++) {
            struct stat st = stat_of(file.ino);
            cr_assert_eq(st.st_size, i);
            cr_assert_geq(st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec,
                          before.st_mtim.tv_sec * 1000000000 + before.st_mtim.tv_nsec);
            before = st;
        }
    }
    atomic_store(&stop, true);
    (void)pthread_join(thread, NULL);
    close_file(file);
}
