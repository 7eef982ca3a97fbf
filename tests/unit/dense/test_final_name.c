// SPDX-License-Identifier: Apache-2.0
#include "dense/final_name.h"

#include "../expect.h"

static char *list_of(const char *path)
{
    char *paths[FINAL_PATHS_MAX], *list = xstrdup("");
    unsigned count = final_name_paths(path, paths);
    for (unsigned i = 0; i < count; i++) {
        char *longer = xasprintf("%s%s\n", list, paths[i]);
        free(list);
        free(paths[i]);
        list = longer;
    }
    return list;
}

static void expect_paths(const char *path, const char *expected)
{
    _cleanup_free_ char *list = list_of(path);
    expect_str(list, expected, "%s", path);
}

Test(final_name, is_a_part_of_the_one_that_is_written)
{
    expect_paths("/run/latest.pt.tmp", "/run/latest.pt\n"
                                       "/run/latest\n"
                                       "/run/pt.tmp\n");
    expect_paths("/.last.bin.a8", "/last.bin.a8\n"
                                  "/.last.bin\n"
                                  "/last.bin\n"
                                  "/bin.a8\n"
                                  "/.last\n"
                                  "/last\n");
    expect_paths("/a", "");
    expect_paths("/", "");
    expect_paths("", "");
}

Test(final_name, may_be_that_of_a_directory)
{
    expect_paths("/x/tmp-last/model", "/x/last/model\n"
                                      "/x/tmp/model\n");
    expect_paths("/steps.x/model", "/steps/model\n");
    expect_paths("/abc.new/def.new/z", "/abc.new/def/z\n"
                                       "/abc.new/new/z\n"
                                       "/abc/def.new/z\n"
                                       "/new/def.new/z\n");
}

Test(final_name, there_are_few_of_them)
{
    char *paths[FINAL_PATHS_MAX];
    unsigned count = final_name_paths("/a.b.c.d.e.f.g.h.i.j.k.l.m.n.o.p", paths);
    expect_u64(count, FINAL_PATHS_MAX);
    for (unsigned i = 0; i < count; i++)
        free(paths[i]);
}
