// SPDX-License-Identifier: Apache-2.0
/* The base of every file, in one include: must-check results, assertions that stay on, cleanup of
 * locals.
 *
 * Every function that can fail returns 0 (or a count) or a negative errno. Besides the plain ones:
 *   -EBADMSG         a checksum or a hash does not match
 *   -EUCLEAN         a structure is invalid
 *   -EPROTONOSUPPORT written by a newer version, or with a feature that this one lacks
 *   -ENOSPC          no room for the request, now or later
 *   -ESHUTDOWN       the component is stopping */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CAIRN_MUST_CHECK __attribute__((warn_unused_result))
#define CAIRN_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KIB (1024ull)
#define MIB (1024ull * 1024)
#define GIB (1024ull * 1024 * 1024)

#define container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

static inline uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t max_u64(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static inline uint64_t align_up(uint64_t n, uint64_t to)
{
    return (n + to - 1) / to * to;
}

static inline uint64_t align_down(uint64_t n, uint64_t to)
{
    return n / to * to;
}

/* Propagates an error: if `expr` is negative, the enclosing function returns it. */
#define TRY(expr)                                                                                  \
    do {                                                                                           \
        int try_result = (expr);                                                                   \
        if (try_result < 0)                                                                        \
            return try_result;                                                                     \
    } while (0)

/* For our own bugs only, never for input from disk, network, config or a client. Stays on in
 * release builds. */
#define check(expr)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(expr), 0))                                                          \
            check_failed(#expr, __FILE__, __LINE__);                                               \
    } while (0)
_Noreturn void check_failed(const char *expr, const char *file, int line);
/* Sets the sentence that check_failed() prints after its message: what the failure means for the
 * user. Default: the daemon's sentence. `text` is borrowed. */
void check_means(const char *text);

/* Allocation of control structures: small, bounded by the memory formula, never sized by unverified
 * input. Running out of memory here ends the daemon; no data is lost, as the stage outlives it. */
void *xmalloc(size_t size);
/* for many MiB: page-aligned, in huge pages if the system has them */
void *xmalloc_large(size_t size);
void *xcalloc(size_t count, size_t size);
void *xrealloc(void *ptr, size_t size);
char *xstrdup(const char *s);
char *xasprintf(const char *fmt, ...) CAIRN_PRINTF(1, 2);

/* Locals that clean up after themselves: `_cleanup_free_ char *s = NULL;` */
static inline void cleanup_free(void *p)
{
    free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
    if (*fd >= 0)
        (void)close(*fd);
}

#define _cleanup_(fn) __attribute__((cleanup(fn)))
#define _cleanup_free_ __attribute__((cleanup(cleanup_free)))
#define _cleanup_close_ __attribute__((cleanup(cleanup_close)))

static inline int take_fd(int *fd)
{
    int taken = *fd;
    *fd = -1;
    return taken;
}
