// SPDX-License-Identifier: Apache-2.0
#include "fs_fixture.h"
#include "../expect.h"

#include <fcntl.h>
#include <semaphore.h>

struct store_fixture fixture;
struct fs *fs;
const struct fs_caller root = {.uid = 0}, user = {.uid = 1000, .gid = 1000};

static void start(void)
{
    fixture_open(&fixture);
    fs = fs_new(fixture.store, FS_FSYNC_NVME);
    fs_update_atime(fs, true);
}

void fs_fixture_setup(void)
{
    fixture_make(&fixture);
    start();
}

static void stop(void)
{
    fs_free(fs);
    fixture_close(&fixture);
}

void fs_fixture_teardown(void)
{
    stop();
    expect_i64(fixture_fsck(&fixture), 0);
    fixture_remove(&fixture);
}

void fs_fixture_restart(void)
{
    stop();
    start();
}

int create_in(uint64_t dir, const char *name, int flags, struct stat *ret_stat,
              struct fs_opened *ret)
{
    const struct fs_new_inode new = {.parent = dir, .name = name, .mode = 0644, .caller = &root};
    return fs_create(fs, &new, flags, ret_stat, ret);
}

struct file create(const char *name)
{
    struct stat st;
    struct fs_opened opened;
    assert_i64(create_in(ROOT_INO, name, O_RDWR, &st, &opened), 0);
    return (struct file){st.st_ino, opened.handle};
}

int write_as(const struct fs_caller *caller, uint64_t ino, uint64_t offset, const void *data,
             uint32_t length)
{
    const struct fs_write w = {
        .ino = ino, .offset = offset, .length = length, .slab = SLAB_NONE, .data = data};
    return fs_write(fs, &w, caller);
}

void put_text(struct file file, uint64_t offset, const char *text)
{
    assert_i64(write_as(&root, file.ino, offset, text, (uint32_t)strlen(text)), 0);
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
    const struct fs_new_inode new = {ROOT_INO, name, 0755, 0, &root};
    struct stat st;
    assert_i64(fs_mkdir(fs, &new, &st), 0);
    return st.st_ino;
}

int rename_file(const char *name, const char *name2, unsigned flags)
{
    const struct fs_rename names = {ROOT_INO, name, ROOT_INO, name2, flags};
    struct fs_renamed renamed;
    return fs_rename(fs, &names, &root, &renamed);
}

int remove_dir(const char *name)
{
    uint64_t removed;
    return fs_rmdir(fs, ROOT_INO, name, &removed);
}

struct reading {
    struct got *got;
    void *buf;
    sem_t done;
};

static void take_answer(const struct fetch_answer *answer, void *arg)
{
    struct reading *reading = arg;
    uint8_t *to = reading->buf;
    *reading->got = (struct got){
        .error = answer->error, .length = answer->length, .iov_count = answer->iov_count};
    for (size_t i = 0; i < answer->iov_count; i++) {
        memcpy(to, answer->iov[i].iov_base, answer->iov[i].iov_len);
        to += answer->iov[i].iov_len;
    }
    (void)sem_post(&reading->done);
}

ssize_t read_file(uint64_t ino, uint64_t offset, void *buf, size_t length, struct got *ret)
{
    struct got got = {0};
    struct reading reading = {.got = ret ? ret : &got, .buf = buf};
    struct fetch_read_request request = {
        .ino = ino, .offset = offset, .length = length, .reply = take_answer, .arg = &reading};
    assert_i64(sem_init(&reading.done, 0, 0), 0);
    fs_read(fs, &request, false);
    bool at_once = sem_trywait(&reading.done) == 0;
    if (!at_once)
        (void)sem_wait(&reading.done);
    (void)sem_destroy(&reading.done);
    reading.got->at_once = at_once;
    return reading.got->error < 0 ? reading.got->error : (ssize_t)reading.got->length;
}

/* '.' for each zero byte. */
void expect_text(uint64_t ino, const char *text)
{
    char is[256] = "";
    ssize_t n = read_file(ino, 0, is, sizeof is - 1, NULL);
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
