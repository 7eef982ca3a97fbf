// SPDX-License-Identifier: Apache-2.0
#include "base/mountinfo.h"

#include <stdio.h>
#include <sys/sysmacros.h>

/* The kernel writes blanks and backslashes in paths as \ and three octal digits. */
static void unescape_path(char *s)
{
    char *out = s;
    while (*s) {
        bool escaped = s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
                       s[3] >= '0' && s[3] <= '7';
        *out++ = escaped ? (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0')) : *s;
        s += escaped ? 4 : 1;
    }
    *out = '\0';
}

/* "36 35 0:51 / /mnt rw,nosuid shared:1 - fuse.cairnfs /store rw,..." False: it cannot be
 * parsed. */
static bool parse_line(char *line, struct mountinfo *ret)
{
    unsigned major, minor;
    char *rest = strstr(line, " - ");
    if (!rest)
        return false;
    *rest = '\0';
    rest += 3;
    ret->type = strsep(&rest, " ");
    char *source = strsep(&rest, " \n");
    char *options = strsep(&rest, " \n");
    if (!source || sscanf(line, "%u %u %u:%u", &ret->id, &ret->parent, &major, &minor) != 4)
        return false;
    for (unsigned field = 0; field < 3; field++)
        (void)strsep(&line, " ");
    char *root = strsep(&line, " ");
    char *mountpoint = strsep(&line, " ");
    if (!mountpoint)
        return false;
    unescape_path(root);
    unescape_path(mountpoint);
    unescape_path(source);
    ret->root = root;
    ret->mountpoint = mountpoint;
    ret->source = source;
    ret->options = options ? options : "";
    ret->device = makedev(major, minor);
    (void)strsep(&line, " "); /* options */
    ret->shared = ret->master = 0;
    for (char *tag; (tag = strsep(&line, " "));)
        if (sscanf(tag, "shared:%u", &ret->shared) != 1)
            (void)sscanf(tag, "master:%u", &ret->master);
    return true;
}

bool mountinfo_has_option(const struct mountinfo *mount, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = mount->options; *at; at += strspn(at, ",")) {
        size_t next = strcspn(at, ",");
        if (next == len && memcmp(at, word, len) == 0)
            return true;
        at += next;
    }
    return false;
}

int mountinfo_read(const char *path, bool (*fn)(const struct mountinfo *mount, void *arg),
                   void *arg)
{
    FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    _cleanup_free_ char *text = NULL;
    size_t capacity = 0;
    bool more = true;
    while (more && getline(&text, &capacity, f) > 0) {
        struct mountinfo mount;
        if (parse_line(text, &mount))
            more = fn(&mount, arg);
    }
    int r = ferror(f) ? -EIO : 0; /* part of a table would make the missing mounts look unmounted */
    (void)fclose(f);
    return r;
}
