// SPDX-License-Identifier: Apache-2.0
/* The link between a daemon and its holder (holder.h): a socket for the state that a successor
 * needs, and for the way in which the daemon ends. */
#pragma once

#include <signal.h>
#include <sys/socket.h>

#include "base/base.h"
#include "fuse/front.h"

#define HOLDER_PATH_MAX 4096u
/* A daemon that ends by this signal does so for its successor to make the view anew. A holder that
 * does not know the signal treats it as any other death. */
#define HOLDER_NEW_VIEW_SIGNAL SIGUSR2
/* The same, for a successor that goes back to an earlier state (store/back.h). */
#define HOLDER_BACK_SIGNAL SIGPWR

#define END_MARK 'e'
#define DEATH_MARK 'd'

/* Messages of a daemon beside its passport: the program of its successor; a byte, when it has its
 * state; or a mark with the way in which it ends, an exit status or a signal. */
union link_message {
    struct front_passport passport;
    char binary[HOLDER_PATH_MAX];
};

union fds_message {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(2 * sizeof(int))];
};

/* Called by the daemon once it serves: sends the holder the state for a successor. Returns when the
 * holder has received it. */
CAIRN_MUST_CHECK int holder_notify(int link_fd, const struct front_passport *passport, int fuse_fd,
                                   int lock_fd);

/* Called by the daemon, which ends now: a daemon of the program `binary` is to continue the mount.
 * Returns when the holder has received it. */
CAIRN_MUST_CHECK int holder_upgrade(int link_fd, const char *binary);

/* Called by the daemon: it ends normally, with this exit status, and needs no successor.
 * Async-signal-safe. A holder that is not its parent cannot see this otherwise. */
void holder_end(int link_fd, int exit_code);
/* Called by the daemon: it ends by this signal on purpose, and needs a successor. */
void holder_die(int link_fd, int signo);
