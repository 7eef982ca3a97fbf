// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../expect.h"
#include "daemon/lifecycle.h"
#include "daemon/store_directory.h"

static char base[] = "/tmp/cairn-lifecycle-XXXXXX";
static char *store;
static struct store_directory directory;
static struct service_error error;

static void run(const char *fmt, const char *path)
{
    _cleanup_free_ char *command = xasprintf(fmt, path);
    assert_i64(system(command), 0, "%s", command);
}

static void begin(void)
{
    cr_assert_not_null(mkdtemp(base));
    store = xasprintf("%s/store", base);
}

static void end(void)
{
    run("rm -rf %s", base);
    free(error.text);
    free(store);
}

TestSuite(store, .init = begin, .fini = end);

static void expect_refused(int exit_code, const char *word)
{
    cr_assert_lt(store_directory_take(store, NULL, &directory, &error), 0);
    assert_i64(error.exit_code, exit_code, "%s", error.text);
    cr_assert_not_null(strstr(error.text, word), "'%s' does not say '%s'", error.text, word);
}

static void expect_taken(bool fresh)
{
    assert_i64(store_directory_take(store, NULL, &directory, &error), 0, "%s", error.text);
    assert_u64(directory.fresh, fresh);
}

Test(store, is_made_and_undone)
{
    struct stat st;
    expect_taken(true);
    cr_assert(directory.made);
    assert_i64(stat(store, &st), 0);
    assert_u64(st.st_mode & 07777, 0700);
    run("mkdir -p %s/packs/00", store);
    run("touch %s/packs/00/a", store);
    run("touch %s/superblock", store);
    store_directory_release(&directory, true);
    assert_i64(stat(store, &st), -1);
}

Test(store, an_empty_directory_is_taken_and_emptied_again)
{
    struct stat st;
    run("mkdir -m 700 %s", store);
    run("mkdir %s/lost+found", store);
    expect_taken(true);
    cr_assert_not(directory.made);
    run("touch %s/superblock", store);
    store_directory_release(&directory, true);
    run("test \"$(ls -A %s)\" = lost+found", store);
    assert_i64(stat(store, &st), 0);
}

Test(store, a_store_is_never_undone)
{
    run("mkdir -m 700 %s", store);
    run("touch %s/superblock", store);
    run("mkdir %s/packs", store);
    expect_taken(false);
    store_directory_release(&directory, true);
    run("test -e %s/superblock", store);
    run("test -e %s/packs", store);
}

Test(store, leftovers_of_a_killed_start_are_taken)
{
    run("mkdir -m 700 %s", store);
    run("cd %s && touch lock log superblock.new && mkdir packs", store);
    expect_taken(true);
    store_directory_release(&directory, false);
}

Test(store, what_is_no_store_is_refused_and_left_alone)
{
    run("mkdir -m 700 %s", store);
    run("echo precious > %s/thesis.txt", store);
    expect_refused(MOUNT_USAGE, "thesis.txt");
    run("test \"$(ls -A %s)\" = thesis.txt", store);
}

Test(store, packs_without_superblock_are_refused)
{
    run("mkdir -m 700 %s", store);
    run("mkdir %s/packs", store);
    run("touch %s/packs/a", store);
    expect_refused(MOUNT_USAGE, "packs");
}

Test(store, a_file_is_refused)
{
    run("touch %s", store);
    expect_refused(MOUNT_USAGE, "not a directory");
}

Test(store, open_modes_are_refused)
{
    run("mkdir -m 750 %s", store);
    run("touch %s/superblock", store);
    expect_refused(MOUNT_USAGE, "chmod 700");
}

Test(store, an_empty_open_directory_becomes_private_until_it_is_given_up)
{
    struct stat st;
    run("mkdir -m 755 %s", store);
    expect_taken(true);
    assert_i64(stat(store, &st), 0);
    assert_u64(st.st_mode & 07777, 0700);
    store_directory_release(&directory, true);
    assert_i64(stat(store, &st), 0);
    assert_u64(st.st_mode & 07777, 0755);
}

Test(store, of_another_user_is_refused)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    run("mkdir -m 700 %s", store);
    run("chown 65534 %s", store);
    expect_refused(MOUNT_USAGE, "65534");
}

static bool does_not_wait(void *arg)
{
    ++*(unsigned *)arg;
    return true;
}

Test(store, in_use_is_refused_by_name_of_the_process)
{
    unsigned asked = 0;
    struct store_waiter waiter = {.cancelled = does_not_wait, .arg = &asked};
    expect_taken(true);
    struct store_directory other;
    struct service_error refused = {0};
    _cleanup_free_ char *pid = xasprintf("pid %d", (int)getpid());
    assert_i64(store_directory_take(store, &waiter, &other, &refused), -EBUSY);
    assert_u64(asked, 1);
    assert_i64(refused.exit_code, MOUNT_FAILED);
    cr_assert_not_null(strstr(refused.text, pid), "%s", refused.text);
    free(refused.text);
    pid_t holder = 0;
    assert_i64(store_directory_lock_holder(store, &holder), STORE_IS_HELD);
    assert_i64(holder, getpid());
    store_directory_release(&directory, false);
    assert_i64(store_directory_lock_holder(store, &holder), STORE_IS_FREE);
}

Test(store, lock_dies_with_its_process)
{
    int ready[2], fd;
    pid_t holder = 0;
    run("mkdir -m 700 %s", store);
    assert_i64(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (store_directory_lock(store, &fd, &holder) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            (void)pause();
    }
    char byte;
    assert_i64(read(ready[0], &byte, 1), 1);
    assert_i64(store_directory_lock(store, &fd, &holder), -EBUSY);
    assert_i64(holder, child);
    assert_i64(kill(child, SIGKILL), 0);
    assert_i64(waitpid(child, NULL, 0), child);
    assert_i64(store_directory_lock(store, &fd, &holder), 0);
    (void)close(fd);
}
