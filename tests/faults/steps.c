// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a daemon and its helpers: the daemon dies, or stops, right before or right after a
 * call that gives a file a name, or takes one.
 *
 * The file that STEP_FAULT names is there while that is wanted, and holds: the signal, "before" or
 * "after", how many calls it is, what their paths have in them ("-": anything), and a file that is
 * there meanwhile ("-": none needs to be). Who dies removes it first. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct order {
    int signal, left;
    char when[8], words[256], guard[1024];
};

static int read_order(const char *path, struct order *ret)
{
    char text[1400] = "";
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    return len > 0 && sscanf(text, "%d %7s %d %255s %1023s", &ret->signal, ret->when, &ret->left,
                             ret->words, ret->guard) == 5;
}

static int is_helper(void)
{
    static char name[17];
    int fd = *name ? -1 : open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, name, sizeof name - 1) <= 0)
            *name = '-';
        close(fd);
    }
    return strcmp(name, "cairn-dir-helper") == 0;
}

/* The helper makes the calls of its daemon in the remote. */
static void strike(int sig)
{
    if (is_helper())
        kill(getppid(), sig);
    kill(getpid(), sig);
}

static void look(const char *when, const char *path)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct order counted;
    static int done;
    static int (*remove_name)(const char *);
    const char *place = getenv("STEP_FAULT");
    struct order order = {0};
    if (!place || access(place, F_OK) < 0 || !read_order(place, &order))
        return;
    if (strcmp(order.when, when) != 0 ||
        (strcmp(order.words, "-") != 0 && !strstr(path, order.words)) ||
        (strcmp(order.guard, "-") != 0 && access(order.guard, F_OK) < 0))
        return;
    pthread_mutex_lock(&lock);
    if (memcmp(&counted, &order, sizeof order) != 0) {
        counted = order;
        done = 0;
    }
    int is_now = ++done == order.left;
    pthread_mutex_unlock(&lock);
    if (!remove_name)
        remove_name = (int (*)(const char *))dlsym(RTLD_NEXT, "unlink");
    if (is_now && remove_name(place) == 0)
        strike(order.signal);
}

#define CALL(name, path, parameters, arguments)                                                    \
    __attribute__((visibility("default"))) int name parameters                                     \
    {                                                                                              \
        static int(*next) parameters;                                                              \
        if (!next)                                                                                 \
            next = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                     \
        look("before", path);                                                                      \
        int r = next arguments;                                                                    \
        if (r == 0)                                                                                \
            look("after", path);                                                                   \
        return r;                                                                                  \
    }

CALL(link, to, (const char *from, const char *to), (from, to))
CALL(rename, to, (const char *from, const char *to), (from, to))
CALL(linkat, to, (int at, const char *from, int at_to, const char *to, int flags),
     (at, from, at_to, to, flags))
CALL(renameat, to, (int at, const char *from, int at_to, const char *to), (at, from, at_to, to))
CALL(renameat2, to, (int at, const char *from, int at_to, const char *to, unsigned flags),
     (at, from, at_to, to, flags))
CALL(mkdir, path, (const char *path, mode_t mode), (path, mode))
CALL(unlink, path, (const char *path), (path))
CALL(unlinkat, path, (int at, const char *path, int flags), (at, path, flags))
