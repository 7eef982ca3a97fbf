// SPDX-License-Identifier: Apache-2.0
#include "ground.h"
#include "../expect.h"

#include <fcntl.h>

struct shop shop;
struct fs *fs;
const struct fs_caller root = {.uid = 0}, user = {.uid = 1000, .gid = 1000};

static void start(void)
{
    shop_open(&shop);
    fs = fs_new(shop.store, FS_FSYNC_NVME);
    fs_keep_atime(fs, true);
}

void ground_setup(void)
{
    shop_make(&shop);
    start();
}

static void stop(void)
{
    fs_free(fs);
    shop_close(&shop);
}

void ground_teardown(void)
{
    stop();
    expect_i64(shop_fsck(&shop), 0);
    shop_remove(&shop);
}

void ground_restart(void)
{
    stop();
    start();
}

struct file create(const char *name)
{
    struct stat st;
    struct fs_opened opened;
    assert_i64(fs_create(fs, ROOT_INO, name, 0644, O_RDWR, &root, &st, &opened), 0);
    return (struct file){st.st_ino, opened.handle};
}

void put_text(struct file file, uint64_t offset, const char *text)
{
    assert_i64(fs_write(fs, file.ino, offset, (uint32_t)strlen(text), SLAB_NONE, text, &root), 0);
}

void close_file(struct file file)
{
    assert_i64(fs_flush(fs, file.ino, file.handle), 0);
    (void)fs_release(fs, file.handle, false);
}

uint64_t make_file(const char *name, const char *text)
{
    struct file file = create(name);
    put_text(file, 0, text);
    close_file(file);
    return file.ino;
}

uint64_t ino_of(const char *name)
{
    struct stat st;
    int r = fs_lookup(fs, ROOT_INO, name, &st);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? st.st_ino : 0;
}

uint64_t make_dir(const char *name)
{
    struct stat st;
    assert_i64(fs_mkdir(fs, ROOT_INO, name, 0755, &root, &st), 0);
    return st.st_ino;
}

/* '.' for each zero byte. */
void expect_text(uint64_t ino, const char *text)
{
    char is[256] = "";
    ssize_t n = fs_read_slow(fs, ino, 0, is, sizeof is - 1, STORE_REACH_FAR, false);
    assert_i64(n, (ssize_t)strlen(text), "is %zd", n);
    for (ssize_t i = 0; i < n; i++)
        is[i] = is[i] ? is[i] : '.';
    is[n] = '\0';
    expect_str(is, text, "is \"%s\", expected \"%s\"", is, text);
}

struct stat stat_of(uint64_t ino)
{
    struct stat st;
    assert_i64(fs_getattr(fs, ino, &st), 0);
    return st;
}
