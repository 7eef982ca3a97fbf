// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a daemon: the wall clock is off by as many seconds as the file CLOCK_OFFSET says,
 * which is read at each look. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long offset_s(void)
{
    char text[32] = "";
    const char *path = getenv("CLOCK_OFFSET");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0)
        return 0;
    ssize_t len = read(fd, text, sizeof text - 1);
    (void)close(fd);
    return len > 0 ? strtol(text, NULL, 10) : 0;
}

__attribute__((visibility("default"))) int clock_gettime(clockid_t id, struct timespec *ret)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next)
        next = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int r = next(id, ret);
    if (r == 0 && id == CLOCK_REALTIME)
        ret->tv_sec += offset_s();
    return r;
}
