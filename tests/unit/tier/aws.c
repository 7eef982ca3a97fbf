// SPDX-License-Identifier: Apache-2.0
#include "aws.h"
#include "../../remove_tree.h"
#include "../expect.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

static char home[] = "/tmp/cairn-aws-XXXXXX";
extern char **environ;

static void forget_environment(void)
{
    for (char **at = environ; *at;) {
        _cleanup_free_ char *name = xstrdup(*at);
        name[strcspn(name, "=")] = '\0';
        bool ours = strncmp(name, "AWS_", 4) == 0 || strcasestr(name, "_proxy");
        if (ours)
            assert_i64(unsetenv(name), 0);
        /* unsetenv() moves the rest up. */
        at = ours ? environ : at + 1;
    }
}

void aws_begin(void)
{
    cr_assert_not_null(mkdtemp(home));
    _cleanup_free_ char *directory = aws_path(".aws");
    assert_i64(mkdir(directory, 0700), 0);
    forget_environment();
    assert_i64(setenv("HOME", home, 1), 0);
    /* No test may ask the metadata service of the machine that it runs on. */
    assert_i64(setenv("AWS_EC2_METADATA_DISABLED", "true", 1), 0);
}

void aws_end(void)
{
    remove_tree(home);
}

char *aws_path(const char *name)
{
    return xasprintf("%s/%s", home, name);
}

void aws_write(const char *name, const char *fmt, ...)
{
    _cleanup_free_ char *path = aws_path(name);
    FILE *file = fopen(path, "w");
    cr_assert_not_null(file);
    va_list ap;
    va_start(ap, fmt);
    cr_assert_geq(vfprintf(file, fmt, ap), 0);
    va_end(ap);
    assert_i64(fclose(file), 0);
}
