// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a daemon: one of its own checks fails in the middle of a call, so that it aborts.
 *
 * The file that FAIL_CHECK names is there while that is wanted, and holds how many locks the thread
 * that got a call that changes something (or of the opcode that follows) may take first. The lock
 * that it takes then gives an error, which base/lock.c does not believe in. -1: the daemon aborts
 * before it has seen the call. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

enum { NOTHING_WANTED = -2, AT_ONCE = -1 };

static _Thread_local int left = NOTHING_WANTED; /* locks */

static int is_fuse(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(10, 229);
}

static int changes_something(uint32_t opcode)
{
    static const uint8_t opcodes[] = {4,  6,  8,  9,  10, 11, 12, 13, 16,
                                      20, 21, 24, 35, 43, 45, 47, 53};
    return memchr(opcodes, (int)opcode, sizeof opcodes) != NULL;
}

static int locks_wanted(uint32_t opcode)
{
    const char *path = getenv("FAIL_CHECK");
    char text[32] = "";
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return NOTHING_WANTED;
    char *end;
    int wanted = (int)strtol(text, &end, 10);
    uint32_t only = (uint32_t)strtoul(end, NULL, 10);
    return (only ? opcode == only : changes_something(opcode)) ? wanted : NOTHING_WANTED;
}

ssize_t read(int fd, void *buf, size_t size)
{
    static ssize_t (*next)(int, void *, size_t);
    uint32_t opcode;
    if (!next)
        next = (ssize_t(*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    ssize_t n = next(fd, buf, size);
    if (n < 40 || !is_fuse(fd))
        return n;
    memcpy(&opcode, (char *)buf + 4, sizeof opcode);
    left = locks_wanted(opcode);
    if (left == AT_ONCE && unlink(getenv("FAIL_CHECK")) == 0)
        abort();
    return n;
}

/* Not a library: those have answers of their own to such an error, or none. */
static int is_of_program(void *caller)
{
    Dl_info of_caller, of_program;
    return dladdr(caller, &of_caller) && dladdr((void *)getauxval(AT_ENTRY), &of_program) &&
           of_caller.dli_fbase == of_program.dli_fbase;
}

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);
    if (!next)
        next = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
    if (left >= 0 && is_of_program(__builtin_return_address(0)) && left-- == 0 &&
        unlink(getenv("FAIL_CHECK")) == 0)
        return EINVAL;
    return next(mutex);
}
