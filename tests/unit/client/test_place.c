// SPDX-License-Identifier: Apache-2.0
/* src/client/place.c: where paths lead, as open(2) with O_CREAT finds it. */
#include "client/place.h"
#include "../expect.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

static void enter_new_directory(void)
{
    char directory[] = "/tmp/cairn-place-XXXXXX";
    cr_assert_not_null(mkdtemp(directory));
    assert_i64(chdir(directory), 0);
}

/* The directory goes with what is in it. */
static void leave_directory(void)
{
    _cleanup_free_ char *here = getcwd(NULL, 0);
    _cleanup_free_ char *command = xasprintf("rm -rf '%s'", here);
    assert_i64(chdir("/"), 0);
    assert_i64(system(command), 0);
}

TestSuite(place, .init = enter_new_directory, .fini = leave_directory);

static void expect_same(const char *path, const char *wanted)
{
    struct place place;
    assert_i64(place_find(path, &place), 0, "%s", path);
    int fd = open(place.directory, O_RDONLY | O_DIRECTORY);
    cr_assert_geq(fd, 0, "%s", place.directory);
    struct stat made, st;
    int file = openat(fd, place.name, O_WRONLY | O_CREAT, 0600);
    cr_assert_geq(file, 0);
    assert_i64(fstat(file, &made), 0);
    assert_i64(stat(wanted, &st), 0, "%s leads elsewhere than to %s", path, wanted);
    assert_u64(st.st_ino, made.st_ino);
    (void)close(file);
    (void)close(fd);
    place_done(&place);
}

Test(place, follows_links_as_open_does)
{
    assert_i64(mkdir("d", 0700), 0);
    assert_i64(symlink("d/target", "dangling"), 0);
    assert_i64(symlink("dangling", "second"), 0);
    assert_i64(symlink("../up", "d/back"), 0);
    assert_i64(symlink("d", "directory"), 0);
    expect_same("plain", "plain");
    expect_same("./d/../other", "other");
    expect_same("second", "d/target");
    expect_same("d/back", "up");
    expect_same("directory/inside", "d/inside");
    _cleanup_free_ char *here = getcwd(NULL, 0);
    _cleanup_free_ char *absolute = xasprintf("%s/absolute", here);
    expect_same(absolute, "absolute");
    assert_i64(symlink(absolute, "to-absolute"), 0);
    expect_same("to-absolute", "absolute");
}

/* Whatever the path: the same error as open(2) has. */
Test(place, errors_are_those_of_open)
{
    static char name[300];
    memset(name, 'n', sizeof name - 1);
    assert_i64(mkdir("d", 0700), 0);
    assert_i64(close(open("file", O_WRONLY | O_CREAT, 0600)), 0);
    assert_i64(symlink("loop", "loop"), 0);
    assert_i64(symlink("gone/x", "to-nothing"), 0);
    const char *const paths[] = {"",       "d",     "d/",   "d/.",    ".",  "..",  "/",
                                 "file/x", "file/", "loop", "loop/x", name, "new/"};
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct place place;
        int fd = open(paths[i], O_WRONLY | O_CREAT, 0600), wanted = fd < 0 ? -errno : 0;
        int r = place_find(paths[i], &place);
        assert_i64(r, wanted, "%.20s: %s, open says %s", paths[i], strerror(-r), strerror(-wanted));
        if (r == 0)
            place_done(&place);
    }
}

Test(place, what_is_no_file_stays_as_it_is)
{
    struct place place;
    char path[64];
    int pipes[2];
    assert_i64(pipe(pipes), 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", pipes[1]);
    assert_i64(place_find(path, &place), 0);
    cr_assert(place.exists && S_ISFIFO(place.st.st_mode));
    assert_str(place.path, path);
    place_done(&place);
    int fd = open(".", O_TMPFILE | O_RDWR, 0600);
    cr_assert_geq(fd, 0);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    assert_i64(place_find(path, &place), 0);
    cr_assert(place.exists && !S_ISREG(place.st.st_mode),
              "a file without a name has to be opened as it is");
    place_done(&place);
}
