// SPDX-License-Identifier: Apache-2.0
/* In place of Criterion, where there is none for the processor that tests are compiled for: the
 * same tests, each in a process of its own, one after the other. What fails ends its test. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cross_options {
    int timeout; /* not looked at: the caller of all has one */
    int signal;  /* that the test is to die by; 0: it is to end */
    void (*init)(void), (*fini)(void);
};

struct cross_test {
    const char *suite, *name;
    void (*run)(void); /* NULL: these are the options of the suite */
    struct cross_options options;
    struct cross_test *next;
};

void cross_add(struct cross_test *test);
_Noreturn void cross_fail(const char *file, int line, const char *what, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

#define CROSS_ADD(id, suite_name, test_name, function, ...)                                        \
    static struct cross_test id##_test = {                                                         \
        .suite = suite_name, .name = test_name, .run = function, .options = {__VA_ARGS__}};        \
    __attribute__((constructor)) static void id##_add(void)                                        \
    {                                                                                              \
        cross_add(&id##_test);                                                                     \
    }

#define Test(suite, name, ...)                                                                     \
    static void suite##_##name(void);                                                              \
    CROSS_ADD(suite##_##name, #suite, #name, suite##_##name, __VA_ARGS__)                          \
    static void suite##_##name(void)

#define TestSuite(suite, ...)                                                                      \
    CROSS_ADD(suite##_all, #suite, NULL, NULL, __VA_ARGS__)                                        \
    extern int suite##_all_ends_with_a_semicolon

#define cr_assert(that, ...)                                                                       \
    do {                                                                                           \
        if (!(that))                                                                               \
            cross_fail(__FILE__, __LINE__, #that, "" __VA_ARGS__);                                 \
    } while (0)
#define cr_assert_not(that, ...) cr_assert(!(that), __VA_ARGS__)
#define cr_assert_null(that, ...) cr_assert(!(that), __VA_ARGS__)
#define cr_assert_not_null(that, ...) cr_assert((that), __VA_ARGS__)
#define cr_assert_neq(a, b, ...) cr_assert((a) != (b), __VA_ARGS__)
#define cr_assert_lt(a, b, ...) cr_assert((a) < (b), __VA_ARGS__)
#define cr_assert_leq(a, b, ...) cr_assert((a) <= (b), __VA_ARGS__)
#define cr_assert_gt(a, b, ...) cr_assert((a) > (b), __VA_ARGS__)
#define cr_assert_geq(a, b, ...) cr_assert((a) >= (b), __VA_ARGS__)
#define cr_assert_arr_eq(a, b, len, ...) cr_assert(memcmp(a, b, len) == 0, __VA_ARGS__)
#define cr_expect cr_assert
#define cr_expect_not cr_assert_not
#define cr_expect_geq cr_assert_geq
