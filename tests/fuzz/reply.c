// SPDX-License-Identifier: Apache-2.0
/* Answers of a daemon that is none, for every command that asks one. The first byte chooses the
 * command; each line after it is the answer to one request, and when none is left the daemon is
 * gone. */
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <time.h>

#include "base/lock.h"
#include "base/pool.h"
#include "cli/command.h"
#include "cli/mounts.h"
#include "fuzz.h"

#define ARGUMENTS_MAX 6

static char store[128];
static char *mounts_path, *superblock;
static int listen_fd;
static struct {
    struct cairn_mutex lock;
    struct input left;
} answers;

/* PATH, if a command takes one, is the directory of the store: the mount in the list lies there. */
static const char *const calls[][ARGUMENTS_MAX] = {
    {"status"},
    {"status", "--json"},
    {"stats", "--count", "3"},
    {"stats", "--count", "3", "--json"},
    {"metrics"},
    {"info"},
    {"info", "--json"},
    {"du"},
    {"wait"},
    {"wait", "--level=remote", "--timeout=1s"},
    {"umount"},
    {"umount", "--drain=remote", "--timeout=1s"},
    {"scrub"},
    {"gc"},
    {"warmup"},
    {"evict", "--timeout=1s"},
};

/* A command's pauses move its clock instead of passing; bounded, since the fuzzer may read it
 * within a command. */
#define AHEAD_MAX_NS 10000000000ll

static _Thread_local struct {
    bool in_command;
    int64_t ahead_ns;
} command_clock;

/* In the place of the real ones (--wrap, tests/fuzz/meson.build). */
int __real_mounts_read(const char *path, struct mount_list *ret);
int __real_clock_gettime(clockid_t clock, struct timespec *ret);
int __real_nanosleep(const struct timespec *time, struct timespec *rest);
int __wrap_mounts_read(const char *path, struct mount_list *ret);
int __wrap_clock_gettime(clockid_t clock, struct timespec *ret);
int __wrap_nanosleep(const struct timespec *time, struct timespec *rest);

int __wrap_mounts_read(const char *path, struct mount_list *ret)
{
    (void)path;
    return __real_mounts_read(mounts_path, ret);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *ret)
{
    int r = __real_clock_gettime(clock, ret);
    int64_t ns = r == 0 && command_clock.in_command ? ret->tv_nsec + command_clock.ahead_ns : 0;
    if (ns) {
        ret->tv_sec += ns / 1000000000;
        ret->tv_nsec = ns % 1000000000;
    }
    return r;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *rest)
{
    if (!command_clock.in_command)
        return __real_nanosleep(time, rest);
    int64_t ahead_ns = command_clock.ahead_ns + (int64_t)time->tv_sec * 1000000000 + time->tv_nsec;
    command_clock.ahead_ns = ahead_ns < AHEAD_MAX_NS ? ahead_ns : AHEAD_MAX_NS;
    return 0;
}

static void leave(void)
{
    _cleanup_free_ char *control = xasprintf("%s/control", store);
    (void)unlink(control);
    (void)unlink(superblock);
    (void)unlink(mounts_path);
    (void)rmdir(store);
}

/* The next line, with its end if it has one. */
static size_t take_line(const uint8_t **ret)
{
    struct input *in = &answers.left;
    const uint8_t *end = in->left ? memchr(in->at, '\n', in->left) : NULL;
    size_t len = end ? (size_t)(end + 1 - in->at) : in->left;
    *ret = input_bytes(in, len);
    return len;
}

/* Reads the request, or its sender would not read the answer to its end. */
static void serve(int fd)
{
    char request[4096];
    const uint8_t *line;
    ssize_t n;
    do
        n = recv(fd, request, sizeof request, 0);
    while (n > 0 && request[n - 1] != '\n');
    LOCK_SCOPE(&answers.lock);
    size_t len = take_line(&line);
    if (len)
        (void)!send(fd, line, len, MSG_NOSIGNAL);
}

static void *serve_all(void *arg)
{
    (void)arg;
    for (;;) {
        _cleanup_close_ int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            serve(fd);
    }
    return NULL;
}

static void set_answers(struct input in)
{
    LOCK_SCOPE(&answers.lock);
    answers.left = in;
}

static void listen_for_requests(void)
{
    pthread_t thread;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    check(snprintf(address.sun_path, sizeof address.sun_path, "%s/control", store) <
          (int)sizeof address.sun_path);
    mutex_init(&answers.lock, LOCK_LEAF);
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(bind(listen_fd, (struct sockaddr *)&address, sizeof address) == 0 &&
          listen(listen_fd, 8) == 0);
    check(thread_start(&thread, "answers", serve_all, NULL) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct stat st;
    make_directory(false, store);
    check(stat(store, &st) == 0);
    mounts_path = xasprintf("%s/mountinfo", store);
    superblock = xasprintf("%s/superblock", store);
    FILE *f = fopen(superblock, "we");
    check(f && fclose(f) == 0 && (f = fopen(mounts_path, "we")));
    check(fprintf(f, "36 35 %u:%u / %s rw - fuse.cairnfs %s rw\n", major(st.st_dev),
                  minor(st.st_dev), store, store) > 0);
    check(fclose(f) == 0);
    listen_for_requests();
    (void)atexit(leave);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    size_t choice = input_u8(&in) % ARRAY_LEN(calls);
    const struct command *command = command_find(calls[choice][0]);
    char *argv[ARGUMENTS_MAX + 2] = {NULL};
    int argc = 0;
    for (; calls[choice][argc]; argc++)
        argv[argc] = xstrdup(calls[choice][argc]);
    argv[argc] = xstrdup(store);
    set_answers(in);
    command_clock.ahead_ns = 0;
    command_clock.in_command = true;
    int code = command_run(command, argc + 1, argv);
    command_clock.in_command = false;
    check(code == CLI_OK || code == CLI_FAILED || code == CLI_NOT_MET);
    set_answers((struct input){0});         /* the server may still look at the input */
    for (char **word = argv; *word; word++) /* getopt may have changed their order */
        free(*word);
    return 0;
}
