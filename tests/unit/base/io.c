// SPDX-License-Identifier: Apache-2.0
#include "base/io.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>

static char folder[64];

static void make_folder(void)
{
    strcpy(folder, "/tmp/cairn-io-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
}

static void remove_folder(void)
{
    _cleanup_free_ char *command = xasprintf("rm -rf %s", folder);
    cr_assert_eq(system(command), 0);
}

TestSuite(io, .init = make_folder, .fini = remove_folder);

Test(io, full_reads_and_writes)
{
    _cleanup_free_ char *path = xasprintf("%s/f", folder);
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT, 0600);
    char in[10] = {0};
    cr_assert_eq(io_pwrite_full(fd, "0123456789", 10, 5), 0);
    cr_assert_eq(io_pread_full(fd, in, 10, 5), 0);
    cr_assert_arr_eq(in, "0123456789", 10);
    cr_assert_eq(io_pread_full(fd, in, 10, 6), -EUCLEAN, "the file ends before");
    cr_assert_eq(io_pread_full(fd, in, 0, 1000), 0);
    cr_assert_eq(io_pread_full(-1, in, 1, 0), -EBADF);
    cr_assert_eq(io_pwrite_full(-1, in, 1, 0), -EBADF);
}

Test(io, small_files)
{
    _cleanup_free_ char *path = xasprintf("%s/f", folder);
    _cleanup_free_ char *data = NULL;
    size_t len;
    cr_assert_eq(io_read_file(path, 100, &data, &len), -ENOENT);
    cr_assert_eq(io_write_file_durable(path, "first", 5), 0);
    cr_assert_eq(io_write_file_durable(path, "second one", 10), 0);
    cr_assert_eq(io_read_file(path, 9, &data, &len), -EFBIG);
    cr_assert_eq(io_read_file(path, 10, &data, &len), 0);
    cr_assert_eq(len, 10);
    cr_assert_str_eq(data, "second one");
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    _cleanup_free_ char *tmp = xasprintf("%s.new", path);
    cr_assert_eq(access(tmp, F_OK), -1);
}

Test(io, durable_write_takes_no_symbolic_link)
{
    _cleanup_free_ char *path = xasprintf("%s/f", folder);
    _cleanup_free_ char *tmp = xasprintf("%s.new", path);
    _cleanup_free_ char *victim = xasprintf("%s/victim", folder);
    cr_assert_eq(symlink(victim, tmp), 0);
    cr_assert_eq(io_write_file_durable(path, "x", 1), 0);
    cr_assert_eq(access(victim, F_OK), -1);
    cr_assert_eq(symlink(path, victim), 0);
    _cleanup_free_ char *data = NULL;
    cr_assert_eq(io_read_file(victim, 10, &data, NULL), -ELOOP);
}

Test(io, folders)
{
    cr_assert_eq(io_fsync_dir(folder), 0);
    cr_assert_eq(io_fsync_dir("/nowhere/at/all"), -ENOENT);
    _cleanup_free_ char *path = xasprintf("%s/none/f", folder);
    cr_assert_eq(io_write_file_durable(path, "x", 1), -ENOENT);
}
