// SPDX-License-Identifier: Apache-2.0
/* The helper process of a directory tier makes the calls into the directory, which may hang for as
 * long as its server is away. A process with a thread in such a call cannot end, and keeps its
 * descriptors: so the process with the store's lock and the mount makes no such call. Lives until
 * its socket is closed, or it is killed. */
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include "base/base.h"

struct dir_process {
    pid_t pid;
    int socket;
};

/* Starts this same program as the helper, which inherits no descriptor but its socket. `path` is
 * shown by `ps`. */
CAIRN_MUST_CHECK int dir_process_start(const char *path, struct dir_process *ret);

/* Returns our end of a new channel: see tier/dir_wire.h. Does not block. */
CAIRN_MUST_CHECK int dir_process_channel(const struct dir_process *process, int *ret_socket);

/* Has the process ended by itself? If so, it has been reaped. */
CAIRN_MUST_CHECK bool dir_process_is_over(const struct dir_process *process);

/* Kills the process. False: it hangs in the directory and ends once the filesystem answers; no call
 * waits for it. */
bool dir_process_end(struct dir_process *process);

/* Sends one message without blocking, with a descriptor (-1: none). */
CAIRN_MUST_CHECK int dir_send(int socket, struct iovec *parts, size_t count, int fd);
