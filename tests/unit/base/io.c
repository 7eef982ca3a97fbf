// SPDX-License-Identifier: Apache-2.0
#include "base/io.h"
#include "../../remove_tree.h"
#include "../expect.h"

#include <fcntl.h>
#include <sys/stat.h>

static char directory[64];

static void make_directory(void)
{
    strcpy(directory, "/tmp/cairn-io-XXXXXX");
    cr_assert_not_null(mkdtemp(directory));
}

static void remove_directory(void)
{
    remove_tree(directory);
}

TestSuite(io, .init = make_directory, .fini = remove_directory);

Test(io, full_reads_and_writes)
{
    _cleanup_free_ char *path = xasprintf("%s/f", directory);
    _cleanup_close_ int fd = open(path, O_RDWR | O_CREAT, 0600);
    char in[10] = {0};
    assert_i64(io_pwrite_full(fd, "0123456789", 10, 5), 0);
    assert_i64(io_pread_full(fd, in, 10, 5), 0);
    cr_assert_arr_eq(in, "0123456789", 10);
    assert_i64(io_pread_full(fd, in, 10, 6), -EUCLEAN, "the file ends before");
    assert_i64(io_pread_full(fd, in, 0, 1000), 0);
    assert_i64(io_pread_full(-1, in, 1, 0), -EBADF);
    assert_i64(io_pwrite_full(-1, in, 1, 0), -EBADF);
}

Test(io, small_files)
{
    _cleanup_free_ char *path = xasprintf("%s/f", directory);
    _cleanup_free_ char *data = NULL;
    size_t len;
    assert_i64(io_read_file(path, 100, &data, &len), -ENOENT);
    assert_i64(io_write_file_durable(path, "first", 5), 0);
    assert_i64(io_write_file_durable(path, "second one", 10), 0);
    assert_i64(io_read_file(path, 9, &data, &len), -EFBIG);
    assert_i64(io_read_file(path, 10, &data, &len), 0);
    assert_u64(len, 10);
    assert_str(data, "second one");
    struct stat st;
    assert_i64(stat(path, &st), 0);
    assert_u64(st.st_mode & 0777, 0600);
    _cleanup_free_ char *tmp = xasprintf("%s.new", path);
    assert_i64(access(tmp, F_OK), -1);
}

Test(io, durable_write_takes_no_symbolic_link)
{
    _cleanup_free_ char *path = xasprintf("%s/f", directory);
    _cleanup_free_ char *tmp = xasprintf("%s.new", path);
    _cleanup_free_ char *victim = xasprintf("%s/victim", directory);
    assert_i64(symlink(victim, tmp), 0);
    assert_i64(io_write_file_durable(path, "x", 1), 0);
    assert_i64(access(victim, F_OK), -1);
    assert_i64(symlink(path, victim), 0);
    _cleanup_free_ char *data = NULL;
    assert_i64(io_read_file(victim, 10, &data, NULL), -ELOOP);
}

Test(io, directories)
{
    assert_i64(io_fsync_dir(directory), 0);
    assert_i64(io_fsync_dir("/nowhere/at/all"), -ENOENT);
    _cleanup_free_ char *path = xasprintf("%s/none/f", directory);
    assert_i64(io_write_file_durable(path, "x", 1), -ENOENT);
}

Test(io, a_path_is_resolved_up_to_a_name_that_is_missing)
{
    _cleanup_free_ char *path = NULL;
    _cleanup_free_ char *real = realpath(directory, NULL);
    _cleanup_free_ char *expected = xasprintf("%s/new", real);
    _cleanup_free_ char *twisted = xasprintf("%s/./../%s/new/", real, strrchr(real, '/') + 1);
    _cleanup_free_ char *deep = xasprintf("%s/a/b", real);
    assert_i64(io_resolve_path(twisted, &path), 0);
    assert_str(path, expected);
    free(path);
    assert_i64(io_resolve_path(deep, &path), -ENOENT, "its parent is missing, too");
    assert_i64(io_resolve_path("/proc/self/status/x", &path), -ENOTDIR);
}

Test(io, a_directory_is_opened_and_a_link_to_one_is_not)
{
    DIR *dir;
    _cleanup_free_ char *link = xasprintf("%s/link", directory);
    assert_i64(symlink(".", link), 0);
    assert_i64(io_open_dir(AT_FDCWD, directory, &dir), 0);
    (void)closedir(dir);
    assert_i64(io_open_dir(AT_FDCWD, link, &dir), -ENOTDIR);
    assert_i64(io_open_dir(-1, "missing", &dir), -EBADF);
    (void)unlink(link);
}
