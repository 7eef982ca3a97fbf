// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a daemon: the wall clock is off by as many seconds, or parts of one, as the file
 * CLOCK_OFFSET says, which is read at each look. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define NS 1000000000ll

static long long offset_ns(void)
{
    char text[32] = "";
    const char *path = getenv("CLOCK_OFFSET");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    (void)close(fd);
    return len > 0 ? (long long)(strtod(text, NULL) * NS) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ret)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int r = next(id, ret);
    if (r < 0 || id != CLOCK_REALTIME)
        return r;
    long long ns = ret->tv_sec * NS + ret->tv_nsec + offset_ns();
    *ret = (struct timespec){ns / NS, ns % NS};
    return 0;
}
