// SPDX-License-Identifier: Apache-2.0
/* The verbs as a user runs them, around a service that is faked (fake_service.c) on a real FUSE
 * mount. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "../expect.h"
#include "base/base.h"

static char base[] = "/tmp/cairn-verbs-XXXXXX";
/* Of the last command, both streams: `status` tells of all mounts that there are. */
static char output[1 << 20];

/* Runs a shell command in the test's directory, where $cairn is the program; returns its exit code.
 */
static int run(const char *command)
{
    _cleanup_free_ char *whole = xasprintf("cd %s && cairn=$CAIRN_FAKE; (%s) 2>&1", base, command);
    FILE *pipe = popen(whole, "r");
    cr_assert_not_null(pipe);
    size_t n = fread(output, 1, sizeof output - 1, pipe);
    output[n] = '\0';
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect(int code, const char *command, const char *word)
{
    int got = run(command);
    assert_i64(got, code, "%s: exit code %d, not %d: %s", command, got, code, output);
    cr_assert_not_null(strstr(output, word), "%s: '%s' does not say '%s'", command, output, word);
}

/* An error: one line that begins as all do. */
static void expect_line(int code, const char *command, const char *word)
{
    expect(code, command, word);
    assert_i64(strncmp(output, "cairn", 5), 0, "%s: %s", command, output);
    assert_ptr(strchr(output, '\n'), output + strlen(output) - 1, "%s: more than a line: %s",
               command, output);
}

static void begin(void)
{
    if (!getenv("CAIRN_FAKE"))
        cr_skip_test("needs CAIRN_FAKE");
    cr_assert_not_null(mkdtemp(base));
    assert_i64(run("mkdir mnt"), 0);
}

static void end(void)
{
    if (!getenv("CAIRN_FAKE"))
        return;
    (void)run("kill $(cat store/lock); sleep 0.3; umount -l mnt");
    assert_i64(run("cd / && rm -rf --one-file-system $OLDPWD"), 0, "%s", output);
}

static void begin_mounts(void)
{
    begin();
    int fd = open("/dev/fuse", O_RDWR);
    if (fd < 0)
        cr_skip_test("needs /dev/fuse");
    (void)close(fd);
}

TestSuite(verbs, .init = begin, .fini = end, .timeout = 600);
TestSuite(mounts, .init = begin_mounts, .fini = end, .timeout = 600);

/* Wrong arguments: tests/mount/test_verbs.py. */
Test(verbs, usage)
{
    expect(2, "$cairn", "cairn mount");
    expect(0, "$cairn help", "umount");
    expect(0, "$cairn help mount", "stage=SIZE");
    expect(0, "$cairn help mount", "\nRemote:\n  remote=TEXT");
    expect(0, "$cairn version", "cairn ");
    expect_line(1, "$cairn mount store", "MOUNTPOINT");
    expect_line(2, "$cairn wait mnt", "not on a CairnFS mount");
    expect_line(16, "$cairn fsck mnt", "mnt");
    expect(1, "test -e store", "");
}

Test(mounts, bad_mounts_leave_nothing)
{
    expect_line(32, "$cairn mount store /proc", "already");
    expect_line(32, "FAKE_FAIL='it is broken' $cairn mount store mnt", "it is broken");
    expect_line(2, "FAKE_DIE=1 $cairn mount store mnt", "exited while starting");
    expect(0, "rm -r store", "");
    expect_line(32, "FAKE_FAIL='it is broken' $cairn mount store mnt -f", "it is broken");
    expect_line(2, "$cairn mount store mnt -o log=/nonexistent/log", "log=FILE");
    expect(1, "test -e store", "");
}

Test(mounts, a_life)
{
    expect(0, "FAKE_WARN='the stage is small' $cairn mount store mnt --stage=64M -o x-a=b",
           "is mounted at");
    cr_assert_not_null(strstr(output, "stage + 256 MiB"), "%s", output);
    cr_assert_not_null(strstr(output, "warning: the stage is small"), "%s", output);
    expect_line(32, "$cairn mount store mnt", "already");
    expect_line(32, "mkdir mnt2; $cairn mount store mnt2", "in use by pid");
    expect(0, "$cairn status mnt", "version fake");
    expect(0, "$cairn status store", "version fake");
    (void)run("$cairn status"); /* of other tests' mounts, too */
    cr_assert_not_null(strstr(output, strrchr(base, '/')), "%s", output);
    expect(0, "$cairn status --json mnt", "\"formula\"");
    expect_line(8, "$cairn fsck store", "in use by pid");
    expect(0, "$cairn wait mnt --level nvme --timeout 10s", "");
    expect(0, "$cairn wait mnt mnt --level stage", "");
    expect(1, "cd mnt && $cairn umount ../mnt; code=$?; cd ..; exit $code", "in use");
}

/* The number of a device that is gone is soon another's. (That of the mount would be, too: a bind
 * mount takes it.) */
Test(mounts, umount_takes_no_other_mount_for_a_copy)
{
    if (geteuid() != 0)
        cr_skip_test("needs root");
    expect(0, "FAKE_LAST=2 $cairn mount store mnt && stat -c %d mnt >device", "is mounted at");
    int code = run("mkdir other; $cairn umount mnt >said 2>&1 & while mountpoint -q mnt; do sleep "
                   "0.01; done; mount --bind mnt mnt; "
                   "$cairn mount s2 other || exit 1; test $(stat -c %d other) = $(cat device); "
                   "same=$?; wait $!; "
                   "code=$?; $cairn umount other; umount mnt; cat said; test $same = 0 || exit 77; "
                   "exit $code");
    if (code == 77)
        cr_skip_test("something else took the number of the device");
    assert_i64(code, 0, "%d: %s", code, output);
    cr_assert_null(strstr(output, "other mount namespaces"), "%s", output);
}

Test(mounts, umount_names_holders_then_works)
{
    expect(0, "$cairn mount store mnt", "is mounted at");
    expect(1,
           "(cd mnt && touch ../in && exec sleep 600) & while ! test -e in; do sleep 0.05; done; "
           "$cairn umount mnt; code=$?; kill $!; wait; exit $code",
           "working directory");
    expect(0, "$cairn umount mnt --timeout 60s", "");
    expect(1, "test -e store/control", "");
    expect(0, "$cairn status store", "not mounted");
    expect(0, "$cairn fsck store", "clean");
    expect(4, "FAKE_FAIL=1 $cairn fsck store", "problem: a flipped byte");
    expect(0, "$cairn mount store mnt && $cairn umount mnt", "is mounted at");
}

Test(mounts, time_runs_out)
{
    expect(0, "FAKE_STUCK=1 $cairn mount store mnt", "is mounted at");
    expect(3, "$cairn wait mnt -t 300ms", "timed out");
    cr_assert_not_null(strstr(output, "the disk is slow"), "%s", output);
    expect(3, "$cairn umount mnt -t 300ms", "stays mounted");
    expect(0, "$cairn status mnt", "version fake");
    expect(130, "timeout --foreground -s INT --preserve-status 0.5 $cairn wait mnt", "");
}

Test(mounts, starts_tell_what_they_wait_for)
{
    expect(0, "FAKE_PROGRESS='waiting for node7' $cairn mount store mnt",
           "cairn mount: waiting for node7 1\ncairn mount: waiting for node7 2\ncairn mount: ");
    cr_assert_not_null(strstr(output, "is mounted at"), "%s", output);
    expect(0, "$cairn umount mnt", "");
    expect(32, "FAKE_PROGRESS=waiting FAKE_FAIL='it is broken' $cairn mount store mnt",
           "waiting 2\ncairn mount: it is broken\n");
    expect(32, "FAKE_PROGRESS=waiting FAKE_FAIL='it is broken' $cairn mount store mnt -f",
           "waiting 2\ncairn mount: it is broken\n");
}

Test(mounts, the_remote_s_horizon_is_another)
{
    expect(0, "$cairn mount store mnt", "is mounted at");
    expect(0, "$cairn wait mnt --level remote --timeout 10s", "");
    expect(0, "$cairn umount mnt --drain remote --timeout 10s", "");
    expect(0, "grep -c 'the end waits for the remote' store/log", "1");
    expect(0, "FAKE_FENCED='node7 took it' $cairn mount store mnt", "is mounted at");
    expect_line(1, "$cairn wait mnt --level remote", "node7 took it");
    expect_line(1, "$cairn umount mnt --drain remote", "node7 took it");
    expect(0, "$cairn umount mnt --drain nvme", "");
}

Test(mounts, a_dead_daemon_is_cleared_away)
{
    expect(0, "$cairn mount -o successor=off store mnt", "is mounted at");
    expect(0, "kill -9 $(cat store/lock); sleep 0.2", "");
    expect(1, "$cairn status mnt", "is dead");
    expect(0, "$cairn mount -o successor=off store mnt", "cleared the mount of a dead daemon");
    expect(0, "kill -9 $(cat store/lock); sleep 0.2", "");
    expect_line(4, "$cairn umount mnt", "had died before all data was on NVMe");
    expect(0, "! mountpoint -q mnt", "");
    expect(0, "$cairn mount -o successor=off store mnt", "is mounted at");
}

/* 0 says that everything came down: not that the mount is gone. */
Test(mounts, umount_believes_no_daemon_that_did_not_end_well)
{
    expect(0, "FAKE_LAST=60 $cairn mount -o successor=off store mnt", "is mounted at");
    expect_line(4,
                "$cairn umount mnt & while mountpoint -q mnt; do sleep 0.01; done; "
                "kill -9 $(cat store/lock); wait $!",
                "had died before all data was on NVMe");
    expect(0, "$cairn mount store mnt", "is mounted at");
    expect_line(4, "FAKE_UNPUBLISHED=1 $cairn umount mnt --drain remote",
                "1.0 MiB is not in the remote yet");
    expect(0, "$cairn mount store mnt", "is mounted at");
    expect(0, "FAKE_UNPUBLISHED=1 $cairn umount mnt --drain nvme", "");
}

Test(mounts, signals_end_it)
{
    expect(0,
           "$cairn mount store mnt -f >out 2>&1 & until grep 'is mounted at' out; do sleep 0.05; "
           "done; kill $(cat store/lock); wait",
           "is mounted at");
    expect(0, "test -e store/superblock && ! mountpoint -q mnt", "");
    expect(0,
           "$cairn mount store mnt && kill -INT $(cat store/lock); while mountpoint -q mnt; do "
           "sleep 0.05; done",
           "");
}

Test(mounts, helper_of_mount_8)
{
    expect(0, "ln -s $cairn mount.cairnfs; ./mount.cairnfs store mnt -f -o rw", "");
    expect(1, "test -e store", "");
    expect(0, "./mount.cairnfs store mnt -n -v -o rw,_netdev,nofail", "is mounted at");
}
