// SPDX-License-Identifier: Apache-2.0
/* The helper process of a directory tier: it makes the calls into the directory, which may hang for
 * as long as its server is away. A process with a thread in such a call cannot end, and keeps what
 * it holds: so the one with the store's lock and the mount makes none of them. Lives until its
 * socket ends, or it is killed. */
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

struct dir_process {
    pid_t pid;
    int socket;
};

/* Starts this very program as helper; no descriptor of ours goes with it. `path` is for `ps`. */
CAIRN_MUST_CHECK int dir_process_start(const char *path, struct dir_process *ret);

/* Our end of a new channel: see tier/dir_wire.h. Does not block. */
CAIRN_MUST_CHECK int dir_process_channel(const struct dir_process *process, int *ret_socket);

/* Has it ended by itself? Then it is reaped. */
CAIRN_MUST_CHECK bool dir_process_is_over(const struct dir_process *process);

/* Kills it. False: it hangs in the directory, and ends when that answers; no call waits for it. */
bool dir_process_end(struct dir_process *process);

/* One message without waiting, with a descriptor (-1: none). */
CAIRN_MUST_CHECK int dir_send(int socket, struct iovec *parts, size_t count, int fd);
