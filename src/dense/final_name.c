// SPDX-License-Identifier: Apache-2.0
#include "dense/final_name.h"

static bool is_border(char c)
{
    return c && strchr("._-~+#", c);
}

/* Can a part of `len` bytes begin at `at`? */
static bool is_part_of_name(const char *name, size_t name_len, size_t at, size_t len)
{
    return (at == 0 || is_border(name[at - 1])) &&
           (at + len == name_len || is_border(name[at + len]));
}

static unsigned add_parts_of_name(const char *path, size_t at, size_t name_len, unsigned count,
                                  char *ret[FINAL_PATHS_MAX])
{
    const char *name = path + at;
    for (size_t len = name_len - 1; len > 0 && 3 * len >= name_len; len--)
        for (size_t from = 0; from + len <= name_len && count < FINAL_PATHS_MAX; from++)
            if (is_part_of_name(name, name_len, from, len))
                ret[count++] =
                    xasprintf("%.*s%.*s%s", (int)at, path, (int)len, name + from, name + name_len);
    return count;
}

unsigned final_name_paths(const char *path, char *ret[FINAL_PATHS_MAX])
{
    unsigned count = 0;
    size_t end = strlen(path);
    while (end > 0) {
        size_t at = end;
        while (at > 0 && path[at - 1] != '/')
            at--;
        if (at < end)
            count = add_parts_of_name(path, at, end - at, count, ret);
        end = at > 0 ? at - 1 : 0;
    }
    check(count <= FINAL_PATHS_MAX);
    return count;
}
