// SPDX-License-Identifier: Apache-2.0
#include "base/archive.h"

#include <stdio.h>
#include <time.h>
#include <zlib.h>

#define BLOCK 512u

struct archive {
    gzFile out;
    int error; /* 0 or -errno */
    long long now;
};

/* As POSIX.1-1988 has it ("ustar"). */
struct tar_header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], sum[8], type, link[100];
    char magic[6], version[2], user[32], group[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct tar_header) == BLOCK, "one block");

struct archive *archive_begin(int fd)
{
    struct archive *a = xcalloc(1, sizeof *a);
    a->out = gzdopen(fd, "wb");
    check(a->out); /* out of memory */
    a->now = (long long)time(NULL);
    return a;
}

static void archive_write(struct archive *a, const void *data, size_t len)
{
    if (a->error == 0 && len > 0 && gzfwrite(data, len, 1, a->out) != 1)
        a->error = errno ? -errno : -EIO;
}

static void set_octal(char *field, size_t size, unsigned long long value)
{
    (void)snprintf(field, size, "%0*llo", (int)size - 1, value);
}

void archive_add(struct archive *a, const char *name, const void *data, size_t len)
{
    static const char zeros[BLOCK];
    struct tar_header h = {.type = '0', .magic = "ustar", .version = {'0', '0'}};
    check(strlen(name) < sizeof h.name);
    errno = 0;
    memcpy(h.name, name, strlen(name));
    set_octal(h.mode, sizeof h.mode, 0644);
    set_octal(h.uid, sizeof h.uid, 0);
    set_octal(h.gid, sizeof h.gid, 0);
    set_octal(h.size, sizeof h.size, len);
    set_octal(h.mtime, sizeof h.mtime, (unsigned long long)a->now);
    memset(h.sum, ' ', sizeof h.sum); /* the sum counts its own field as blanks */
    unsigned sum = 0;
    for (size_t i = 0; i < sizeof h; i++)
        sum += ((const unsigned char *)&h)[i];
    (void)snprintf(h.sum, sizeof h.sum, "%06o", sum);
    archive_write(a, &h, sizeof h);
    archive_write(a, data, len);
    archive_write(a, zeros, align_up(len, BLOCK) - len);
}

int archive_end(struct archive *a)
{
    static const char end[2 * BLOCK];
    archive_write(a, end, sizeof end);
    errno = 0;
    if (gzclose(a->out) != Z_OK && a->error == 0)
        a->error = errno ? -errno : -EIO;
    int r = a->error;
    free(a);
    return r;
}
