// SPDX-License-Identifier: Apache-2.0
/* STORE/head.tried: the nonces of the heads that this store tried to create last. By them a
 * successor recognizes a head that its predecessor created but could not note in STORE/head before
 * it was killed. The file is written without fsync: it must survive the process, not the machine.
 *
 * A line for each attempt: the head's number and its nonce, in hexadecimal digits. */
#include "prefix/heads.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"

#define LINE_LEN (16u + 1 + 32 + 1)

static char *tried_path(const struct prefix *prefix)
{
    return xasprintf("%s/head.tried", prefix->local->path);
}

static bool parse_try(const char *line, struct head_try *ret)
{
    char number[17] = "";
    memcpy(number, line, 16);
    return object_digits(number, &ret->number) && line[16] == ' ' &&
           hex_read(ret->nonce, line + 17, sizeof ret->nonce);
}

void tried_load(struct prefix *prefix)
{
    _cleanup_free_ char *path = tried_path(prefix);
    _cleanup_free_ char *text = NULL;
    size_t len;
    struct head_try try;
    prefix->tries.count = 0;
    if (io_read_file(path, HEAD_TRIES_MAX * LINE_LEN, &text, &len) < 0)
        return;
    for (size_t at = 0; at + LINE_LEN <= len && prefix->tries.count < HEAD_TRIES_MAX;
         at += LINE_LEN)
        if (parse_try(text + at, &try))
            prefix->tries.at[prefix->tries.count++] = try;
}

/* Makes one write: a killed process has made it completely, or not at all. */
static int write_tries(const struct prefix *prefix)
{
    _cleanup_free_ char *path = tried_path(prefix);
    char text[HEAD_TRIES_MAX * LINE_LEN + 1], nonce[33];
    size_t len = 0;
    for (size_t i = 0; i < prefix->tries.count; i++) {
        hex_print(nonce, prefix->tries.at[i].nonce, sizeof prefix->tries.at[i].nonce);
        len += (size_t)snprintf(text + len, sizeof text - len, "%016llx %s\n",
                                (unsigned long long)prefix->tries.at[i].number, nonce);
    }
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : io_pwrite_full(fd, text, len, 0);
}

void tried_add(struct prefix *prefix, const struct head *head)
{
    struct head_try *at = prefix->tries.at;
    check(head->number > 0 && prefix->tries.count <= HEAD_TRIES_MAX);
    if (prefix->tries.count == HEAD_TRIES_MAX)
        memmove(at, at + 1, --prefix->tries.count * sizeof *at);
    at += prefix->tries.count++;
    at->number = head->number;
    memcpy(at->nonce, head->nonce, sizeof at->nonce);
    int r = write_tries(prefix);
    if (r < 0)
        log_warn("%s/head.tried cannot be written: %s", prefix->local->path, strerror(-r));
}

bool tried_is_own(const struct prefix *prefix, const struct head *head)
{
    for (size_t i = 0; i < prefix->tries.count; i++)
        if (prefix->tries.at[i].number == head->number &&
            memcmp(prefix->tries.at[i].nonce, head->nonce, sizeof head->nonce) == 0)
            return true;
    return false;
}
