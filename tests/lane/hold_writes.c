// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a program that saves: holds the copy of a file at a write that it chooses. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define EXPORTED __attribute__((visibility("default")))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long passing = -1; /* the write of this number is held, and all behind it; 0: it has come;
                             -1: none is */
static unsigned held;

/* Below 0: all go on. */
EXPORTED void hold_after(long writes)
{
    (void)pthread_mutex_lock(&lock);
    passing = writes < 0 ? -1 : writes + 1;
    (void)pthread_cond_broadcast(&changed);
    (void)pthread_mutex_unlock(&lock);
}

/* False: no write was held within that time. */
EXPORTED bool hold_wait(unsigned ms)
{
    struct timespec limit;
    (void)clock_gettime(CLOCK_REALTIME, &limit);
    limit.tv_nsec += ms % 1000 * 1000000l;
    limit.tv_sec += ms / 1000 + limit.tv_nsec / 1000000000l;
    limit.tv_nsec %= 1000000000l;
    (void)pthread_mutex_lock(&lock);
    int r = 0;
    while (held == 0 && r == 0)
        r = pthread_cond_timedwait(&changed, &lock, &limit);
    bool is_held = held > 0;
    (void)pthread_mutex_unlock(&lock);
    return is_held;
}

EXPORTED ssize_t pwrite64(int fd, const void *data, size_t length, off_t at)
{
    (void)pthread_mutex_lock(&lock);
    passing -= passing > 0;
    bool is_held = passing == 0;
    if (passing == 0) {
        held++;
        (void)pthread_cond_broadcast(&changed);
    }
    while (is_held && passing == 0)
        (void)pthread_cond_wait(&changed, &lock);
    held -= is_held;
    (void)pthread_mutex_unlock(&lock);
    return syscall(SYS_pwrite64, fd, data, length, at);
}
