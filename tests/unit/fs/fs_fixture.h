// SPDX-License-Identifier: Apache-2.0
/* What the tests of fs/ stand on: a store, the files over it without FUSE, and short words for what
 * they do all the time. Each test has its own, in a process of its own. */
#pragma once

#include "../fixtures/store_fixture.h"
#include "fs/fs.h"

extern struct store_fixture fixture;
extern struct fs *fs;
extern const struct fs_caller root, user;

void fs_fixture_setup(void);
void fs_fixture_teardown(void);
void fs_fixture_restart(void); /* a clean end, and the same store again */

/* An open file. */
struct file {
    uint64_t ino, handle;
};

struct file create(const char *name);
/* As fs_create() by root, mode 0644. */
int create_in(uint64_t dir, const char *name, int flags, struct stat *ret_stat,
              struct fs_opened *ret);
int write_as(const struct fs_caller *caller, uint64_t ino, uint64_t offset, const void *data,
             uint32_t length);
void put_text(struct file file, uint64_t offset, const char *text);
void close_file(struct file file);
/* These return inode numbers; names are in the root. */
uint64_t make_file(const char *name, const char *text);
uint64_t make_dir(const char *name);
uint64_t ino_of(const char *name); /* 0: not there */
/* These return what fs_rename() and fs_rmdir() do; names are in the root. */
int rename_file(const char *name, const char *name2, unsigned flags);
int remove_dir(const char *name);
/* How a read was answered. */
struct got {
    int error;
    size_t length, iov_count;
    bool at_once; /* before the call returned */
};
/* Reads into `buf`, and waits for the answer: its length, or an error. `ret` may be NULL. */
ssize_t read_file(uint64_t ino, uint64_t offset, void *buf, size_t length, struct got *ret);
/* '.' for each zero byte. */
void expect_text(uint64_t ino, const char *text);
struct stat stat_of(uint64_t ino);
