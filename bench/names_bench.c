// SPDX-License-Identifier: Apache-2.0
/* Rates of small operations: one line of seconds for each phase.
 *
 *   names_bench run DIR COUNT     makes COUNT files of 4 KiB in DIR, looks at them, lists them,
 *                                 renames and removes them
 *   names_bench make DIR COUNT    makes COUNT empty files and leaves them there
 *   names_bench look DIR COUNT    looks at COUNT files that are there */
#include "timed.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTENT 4096u

static char content[CONTENT];
static int dir;

static const char *name_of(const char *prefix, unsigned i)
{
    static char name[64];
    snprintf(name, sizeof name, "%s-%07u.pt", prefix, i);
    return name;
}

/* Another order than that of making: a stride that has no factor in common with the count. */
static unsigned scatter(unsigned i, unsigned count)
{
    return (unsigned)((uint64_t)i * 7919u % count);
}

static void create_one(unsigned i, unsigned count)
{
    (void)count;
    int fd = openat(dir, name_of("shard", i), O_CREAT | O_EXCL | O_WRONLY, 0644);
    memcpy(content, &i, sizeof i); /* no two are the same */
    if (fd < 0 || write(fd, content, sizeof content) != (ssize_t)sizeof content || close(fd) < 0)
        fail("create");
}

static void touch_one(unsigned i, unsigned count)
{
    (void)count;
    int fd = openat(dir, name_of("shard", i), O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (fd < 0 || close(fd) < 0)
        fail("create");
}

static void stat_one(unsigned i, unsigned count)
{
    struct stat st;
    if (fstatat(dir, name_of("shard", scatter(i, count)), &st, 0) < 0 || st.st_size != CONTENT)
        fail("stat");
}

static void open_one(unsigned i, unsigned count)
{
    char back[CONTENT];
    int fd = openat(dir, name_of("shard", scatter(i, count)), O_RDONLY);
    if (fd < 0 || read(fd, back, sizeof back) != (ssize_t)sizeof back || close(fd) < 0)
        fail("open");
}

static void rename_one(unsigned i, unsigned count)
{
    char from[64];
    (void)count;
    strcpy(from, name_of("shard", i));
    if (renameat(dir, from, dir, name_of("step", i)) < 0)
        fail("rename");
}

static void unlink_one(unsigned i, unsigned count)
{
    (void)count;
    if (unlinkat(dir, name_of("step", i), 0) < 0)
        fail("unlink");
}

static void list(const char *path, unsigned count)
{
    DIR *d = opendir(path);
    unsigned seen = 0;
    if (!d)
        fail("opendir");
    while (readdir(d))
        seen++;
    closedir(d);
    if (seen != count + 2) {
        fprintf(stderr, "names_bench: listed %u entries of %u\n", seen, count + 2);
        exit(1);
    }
}

static void each(const char *phase, void (*one)(unsigned i, unsigned count), unsigned count)
{
    double begin = now();
    for (unsigned i = 0; i < count; i++)
        one(i, count);
    printf("%s %.6f\n", phase, now() - begin);
}

static void timed_list(const char *phase, const char *path, unsigned count)
{
    double begin = now();
    list(path, count);
    printf("%s %.6f\n", phase, now() - begin);
}

static void run(const char *path, unsigned count)
{
    each("create", create_one, count);
    timed_list("readdir, first", path, count);
    timed_list("readdir, again", path, count);
    each("stat, first", stat_one, count);
    each("stat, again", stat_one, count);
    each("open, read, close", open_one, count);
    each("rename", rename_one, count);
    each("unlink", unlink_one, count);
}

int main(int argc, char **argv)
{
    if (argc != 4 || (dir = open(argv[2], O_RDONLY | O_DIRECTORY)) < 0) {
        fprintf(stderr, "usage: names_bench run|make|look DIR COUNT\n");
        return 2;
    }
    unsigned count = (unsigned)strtoul(argv[3], NULL, 10);
    if (strcmp(argv[1], "make") == 0)
        each("create", touch_one, count);
    else if (strcmp(argv[1], "look") == 0)
        each("stat, first", stat_one, count);
    else
        run(argv[2], count);
    return 0;
}
