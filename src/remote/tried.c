// SPDX-License-Identifier: Apache-2.0
/* STORE/head.tried: the nonces of the heads that this store tried to create last. By them a
 * successor recognizes a head that its predecessor created and could not note in STORE/head before
 * it was killed. The file is written without fsync: it has to survive the process, not the machine.
 *
 * A line for each try: the head's number and its nonce, in hexadecimal digits. */
#include "remote/prefix.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/hex.h"
#include "base/io.h"
#include "base/log.h"

#define LINE_LEN (16u + 1 + 32 + 1)

static char *tried_path(const struct remote *remote)
{
    return xasprintf("%s/head.tried", remote->store->local.path);
}

static bool parse_try(const char *line, struct head_try *ret)
{
    char number[17] = "";
    memcpy(number, line, 16);
    return object_digits(number, &ret->number) && line[16] == ' ' &&
           hex_read(ret->nonce, line + 17, sizeof ret->nonce);
}

void tried_load(struct remote *remote)
{
    _cleanup_free_ char *path = tried_path(remote);
    _cleanup_free_ char *text = NULL;
    size_t len;
    struct head_try try;
    remote->tries.count = 0;
    if (io_read_file(path, HEAD_TRIES_MAX * LINE_LEN, &text, &len) < 0)
        return;
    for (size_t at = 0; at + LINE_LEN <= len && remote->tries.count < HEAD_TRIES_MAX;
         at += LINE_LEN)
        if (parse_try(text + at, &try))
            remote->tries.at[remote->tries.count++] = try;
}

/* One write, which a killed process has made, or not. */
static int write_tries(const struct remote *remote)
{
    _cleanup_free_ char *path = tried_path(remote);
    char text[HEAD_TRIES_MAX * LINE_LEN + 1], nonce[33];
    size_t len = 0;
    for (size_t i = 0; i < remote->tries.count; i++) {
        hex_print(nonce, remote->tries.at[i].nonce, sizeof remote->tries.at[i].nonce);
        len += (size_t)snprintf(text + len, sizeof text - len, "%016llx %s\n",
                                (unsigned long long)remote->tries.at[i].number, nonce);
    }
    _cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return fd < 0 ? -errno : io_pwrite_full(fd, text, len, 0);
}

void tried_add(struct remote *remote, const struct head *head)
{
    struct head_try *at = remote->tries.at;
    check(head->number > 0 && remote->tries.count <= HEAD_TRIES_MAX);
    if (remote->tries.count == HEAD_TRIES_MAX)
        memmove(at, at + 1, --remote->tries.count * sizeof *at);
    at += remote->tries.count++;
    at->number = head->number;
    memcpy(at->nonce, head->nonce, sizeof at->nonce);
    int r = write_tries(remote);
    if (r < 0)
        log_warn("%s/head.tried cannot be written: %s", remote->store->local.path, strerror(-r));
}

bool remote_is_own_try(const struct remote *remote, const struct head *head)
{
    for (size_t i = 0; i < remote->tries.count; i++)
        if (remote->tries.at[i].number == head->number &&
            memcmp(remote->tries.at[i].nonce, head->nonce, sizeof head->nonce) == 0)
            return true;
    return false;
}
