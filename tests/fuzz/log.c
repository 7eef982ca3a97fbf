// SPDX-License-Identifier: Apache-2.0
/* The log of a daemon, as `cairn log` shows it: its lines may hold whatever names a user gave, and
 * what a library wrote. The first byte is the level, and text or JSON. */
#include "cli/log.c"

#include <sys/mman.h>

#include "base/io.h"
#include "fuzz.h"

static int fd;
static size_t seen;

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fd = memfd_create("log", MFD_CLOEXEC);
    check(fd >= 0 && freopen("/dev/null", "we", stdout));
    return 0;
}

static void look_at(char *line, void *arg)
{
    size_t len = strlen(line);
    char *copy = text_copy(line, len);
    check(len < LINE_MAX_LEN && !memchr(line, '\n', len));
    struct log_text t = parse_line(copy);
    check(t.level >= 0 && t.level < LOG_LEVELS && t.text >= copy && t.text <= copy + len);
    check(strlen(t.time) < sizeof t.time &&
          (*t.time || (t.text == copy && t.level == LOG_LEVEL_WARN)));
    free(copy);
    seen++;
    show_line(arg, line);
    for (const char *at = line; *at; at++)
        check((unsigned char)*at >= 0x20 && *at != 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, size};
    uint8_t what = input_u8(&in);
    struct log_request request = {.level = what % LOG_LEVELS, .json = what & 0x80};
    size_t lines = 0;
    check(ftruncate(fd, 0) == 0 && (in.left == 0 || io_pwrite_full(fd, in.at, in.left, 0) == 0));
    for (size_t i = 0; i < in.left; i++)
        lines += in.at[i] == '\n';
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    FILE *f = fopen(path, "re");
    check(f);
    seen = 0;
    for_lines(f, look_at, &request);
    /* Each whole line, in parts where it is long. */
    check(seen >= lines && seen <= lines + in.left / (LINE_MAX_LEN - 1));
    /* Counting does not change what is there. */
    struct showing counting = {.request = &request};
    rewind(f);
    for_lines(f, count_shown, &counting);
    check(counting.skip <= seen);
    (void)fclose(f);
    return 0;
}
