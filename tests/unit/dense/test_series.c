// SPDX-License-Identifier: Apache-2.0
#include "dense/series.h"

#include "base/vector.h"

#include "../expect.h"

/* The series of a path, one a line; '#' and, for further numbers, '$' stand for those that change,
 * '|' for the end of the directory. */
static char *list_of(const char *path)
{
    struct series series[SERIES_MAX];
    unsigned count = series_of(path, series);
    char *list = xstrdup("");
    for (unsigned i = 0; i < count; i++) {
        char *shown = xasprintf("%s%.*s|%s\n", list, (int)series[i].directory_len, series[i].path,
                                series_prefix(&series[i]));
        for (char *p = shown; *p; p++)
            *p = *p == 1 ? '#' : *p >= 2 && *p <= 8 ? '$' : *p;
        free(list);
        list = shown;
        cr_expect(series_prefix(&series[i])[series[i].prefix_len] <= 8);
        series_done(&series[i]);
    }
    return list;
}

static void expect_series(const char *path, const char *expected)
{
    _cleanup_free_ char *list = list_of(path);
    expect_str(list, expected);
}

Test(series, each_number_makes_one)
{
    expect_series("/run7/step50/rank3.pt", "|run#/step50/rank3.pt\n"
                                           "/run7|step#/rank3.pt\n"
                                           "/run7/step50|rank#.pt\n");
    expect_series("/12", "|#\n");
}

Test(series, a_path_without_numbers_is_of_none)
{
    expect_series("/latest/model.safetensors", "");
    expect_series("/", "");
    expect_series("?", "");
}

Test(series, equal_numbers_change_together_or_in_one_name)
{
    expect_series("/global_step50/step50.pt", "|global_step#/step#.pt\n"
                                              "|global_step#/step50.pt\n");
    expect_series("/a5_5", "|a#_#\n");
    /* 05 is another one */
    expect_series("/step5/rank05", "|step#/rank05\n"
                                   "/step5|rank#\n");
}

Test(series, all_numbers_of_a_name_may_change)
{
    expect_series("/epoch=1-step=200.ckpt", "|epoch=#-step=200.ckpt\n"
                                            "|epoch=1-step=#.ckpt\n"
                                            "|epoch=#-step=$.ckpt\n");
}

Test(series, a_byte_that_stands_for_a_number_makes_none)
{
    expect_series("/a\1b/step5", "");
}

Test(series, many_numbers_are_bounded)
{
    char path[600] = "/";
    for (int i = 0; i < 40; i++)
        (void)sprintf(path + strlen(path), "%d/", 100 + i);
    struct series series[SERIES_MAX];
    unsigned count = series_of(path, series);
    expect_u64(count, SERIES_MAX);
    for (unsigned i = 0; i < count; i++)
        series_done(&series[i]);
    /* Of one name with more than can change together, none changes them all. */
    strcpy(path, "/");
    for (int i = 0; i < 10; i++)
        (void)sprintf(path + strlen(path), "%d_", i);
    count = series_of(path, series);
    expect_u64(count, 10);
    for (unsigned i = 0; i < count; i++) {
        cr_expect(!strchr(series[i].path, 2));
        series_done(&series[i]);
    }
}

/* The member of the path's series `i` with that name; "" none. */
static void expect_member(const char *path, unsigned i, const char *name, const char *expected)
{
    struct series series[SERIES_MAX];
    unsigned count = series_of(path, series);
    cr_assert(i < count);
    _cleanup_free_ char *member = series_member(&series[i], name);
    expect_str(member ? member : "", expected);
    for (unsigned n = 0; n < count; n++)
        series_done(&series[n]);
}

Test(series, members_have_digits_where_the_number_stands)
{
    expect_member("/run7/step50/rank3.pt", 1, "step1000", "/run7/step1000/rank3.pt");
    expect_member("/run7/step50/rank3.pt", 1, "step0", "/run7/step0/rank3.pt");
    expect_member("/run7/step50/rank3.pt", 1, "step", "");
    expect_member("/run7/step50/rank3.pt", 1, "step50x", "");
    expect_member("/run7/step50/rank3.pt", 1, "stepx", "");
    expect_member("/run7/step50/rank3.pt", 1, "", "");
    expect_member("/run7/step50/rank3.pt", 2, "rank12.pt", "/run7/step50/rank12.pt");
    expect_member("/run7/step50/rank3.pt", 2, "rank12.pt.tmp", "");
}

Test(series, equal_numbers_are_equal_in_members)
{
    expect_member("/global_step50/step50.pt", 0, "global_step7", "/global_step7/step7.pt");
    expect_member("/global_step50/step50.pt", 1, "global_step7", "/global_step7/step50.pt");
    expect_member("/a5_5", 0, "a6_6", "/a6_6");
    expect_member("/a5_5", 0, "a6_7", "");
    expect_member("/epoch=1-step=200.ckpt", 2, "epoch=0-step=100.ckpt", "/epoch=0-step=100.ckpt");
    expect_member("/epoch=1-step=200.ckpt", 1, "epoch=0-step=100.ckpt", "");
}

/* --- walking through names -------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The first of the sorted names that is not before `from`, if it begins with the prefix. */
static const char *seek_name(char *const *names, size_t count, const char *from, size_t prefix_len)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], from) >= 0)
            return strncmp(names[i], from, prefix_len) == 0 ? names[i] : NULL;
    return NULL;
}

static size_t count_members(const struct series *series, char *const *names, size_t count)
{
    size_t members = 0;
    for (size_t i = 0; i < count; i++) {
        bool is_again = i > 0 && strcmp(names[i], names[i - 1]) == 0;
        _cleanup_free_ char *path = is_again ? NULL : series_member(series, names[i]);
        members += path != NULL;
    }
    return members;
}

/* Gives as many members as a look at each name; returns how many names were looked at. */
static size_t walk_names(const struct series *series, char *const *names, size_t count)
{
    char name[SERIES_NAME_LEN + 1];
    const char *found;
    size_t members = 0, looks = 0;
    bool more = true;
    series_first_name(series, name);
    while (more && (found = seek_name(names, count, name, series->prefix_len)) != NULL) {
        looks++;
        cr_assert(looks <= count);
        strcpy(name, found);
        members += count_members(series, (char *const *)&found, 1);
        more = series_next_name(series, name);
    }
    cr_expect(members == count_members(series, names, count));
    return looks;
}

/* Of names that are made of few bytes, so that each stands beside others that nearly match. */
Test(series, a_walk_finds_every_member)
{
    static const char bytes[] = {'a', '1', '2', '0', '_', '.', '!', 'z', '\xff', '\x01'};
    static const char *const paths[] = {"/a1",   "/a1_",  "/1",        "/1a",
                                        "/a1_2", "/a1_1", "/_1.z2/x7", "/a12/b"};
    char *names[400];
    uint64_t random = 7;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        names[i] = xcalloc(8, 1);
        size_t len = 1 + (random >> 33) % 5;
        for (size_t k = 0; k < len; k++) {
            random = random * 6364136223846793005u + 1442695040888963407u;
            names[i][k] = bytes[(random >> 33) % ARRAY_LEN(bytes)];
        }
    }
    vector_sort_bytes(names, ARRAY_LEN(names), sizeof *names, compare_names);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct series series[SERIES_MAX];
        unsigned count = series_of(paths[i], series);
        for (unsigned k = 0; k < count; k++) {
            (void)walk_names(&series[k], names, ARRAY_LEN(names));
            series_done(&series[k]);
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        free(names[i]);
}

/* A file for each layer and step, all in one directory: a series of each layer, and one of each
 * step. */
Test(series, a_walk_steps_over_other_series)
{
    enum { STEPS = 12, LAYERS = 200 };
    char *names[STEPS * LAYERS];
    struct series series[SERIES_MAX];
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        names[i] = xasprintf("step%zu_layer%zu.pt", i / LAYERS * 10, i % LAYERS);
    vector_sort_bytes(names, ARRAY_LEN(names), sizeof *names, compare_names);
    unsigned count = series_of("/step10_layer7.pt", series);
    cr_assert(count > 1);
    cr_expect(walk_names(&series[0], names, ARRAY_LEN(names)) <= 3 * STEPS);
    cr_expect(walk_names(&series[1], names, ARRAY_LEN(names)) <= 3 * LAYERS);
    for (unsigned i = 0; i < count; i++)
        series_done(&series[i]);
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        free(names[i]);
}
