// SPDX-License-Identifier: Apache-2.0
/* Comparisons that print what was there and what was wanted:
 *
 *     expect_u64(list.count, 3);                      the test goes on, and has failed
 *     assert_i64(store_open(&options, &store), 0);    the test ends here
 *
 * A message may follow, as for printf(). i64 shows what a negative errno is called. */
#pragma once

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define expect_u64(actual, wanted, ...)                                                            \
    compare_values(cr_expect, u64, uint64_t, actual, wanted, __VA_ARGS__)
#define assert_u64(actual, wanted, ...)                                                            \
    compare_values(cr_assert, u64, uint64_t, actual, wanted, __VA_ARGS__)
#define expect_i64(actual, wanted, ...)                                                            \
    compare_values(cr_expect, i64, int64_t, actual, wanted, __VA_ARGS__)
#define assert_i64(actual, wanted, ...)                                                            \
    compare_values(cr_assert, i64, int64_t, actual, wanted, __VA_ARGS__)
#define expect_ptr(actual, wanted, ...)                                                            \
    compare_values(cr_expect, ptr, const volatile void *, actual, wanted, __VA_ARGS__)
#define assert_ptr(actual, wanted, ...)                                                            \
    compare_values(cr_assert, ptr, const volatile void *, actual, wanted, __VA_ARGS__)
#define expect_str(actual, wanted, ...)                                                            \
    compare_values(cr_expect, str, const char *, actual, wanted, __VA_ARGS__)
#define assert_str(actual, wanted, ...)                                                            \
    compare_values(cr_assert, str, const char *, actual, wanted, __VA_ARGS__)

/* For the macros. Criterion hears of what does not hold, and of nothing else: it takes as long for
 * an assertion as for some thousand comparisons. */

struct expect_text {
    char of[512];
};

#define compare_values(judge, kind, type, actual, wanted, ...)                                     \
    do {                                                                                           \
        type is_value = (actual);                                                                  \
        type wanted_value = (wanted);                                                              \
        if (!equal_##kind(is_value, wanted_value))                                                 \
            judge(0, "%s is %s, wanted %s%s", #actual, text_of_##kind(is_value).of,                \
                  text_of_##kind(wanted_value).of, expect_message(": " __VA_ARGS__).of);           \
    } while (0)

__attribute__((format(printf, 1, 2))) static inline struct expect_text
expect_message(const char *fmt, ...)
{
    struct expect_text text;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text.of, sizeof text.of, fmt, ap);
    va_end(ap);
    if (strcmp(text.of, ": ") == 0)
        text.of[0] = '\0';
    return text;
}

static inline int equal_u64(uint64_t a, uint64_t b)
{
    return a == b;
}

static inline struct expect_text text_of_u64(uint64_t value)
{
    struct expect_text text;
    (void)snprintf(text.of, sizeof text.of, "%llu", (unsigned long long)value);
    return text;
}

static inline int equal_i64(int64_t a, int64_t b)
{
    return a == b;
}

static inline struct expect_text text_of_i64(int64_t value)
{
    struct expect_text text;
    const char *name = value < 0 && value > -4096 ? strerrorname_np((int)-value) : NULL;
    (void)snprintf(text.of, sizeof text.of, name ? "%lld (-%s)" : "%lld", (long long)value, name);
    return text;
}

static inline int equal_ptr(const volatile void *a, const volatile void *b)
{
    return a == b;
}

static inline struct expect_text text_of_ptr(const volatile void *value)
{
    struct expect_text text;
    (void)snprintf(text.of, sizeof text.of, "%p", (void *)(uintptr_t)value);
    return text;
}

static inline int equal_str(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static inline struct expect_text text_of_str(const char *value)
{
    struct expect_text text;
    (void)snprintf(text.of, sizeof text.of, value ? "\"%.480s\"" : "NULL", value);
    return text;
}
