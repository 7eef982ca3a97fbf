// SPDX-License-Identifier: Apache-2.0
/* The handover of a mount to another version of cairn: a JSON object in a memfd. It is never stored
 * on a disk, but two versions have to agree on it: a change here, or in the messages between the
 * holder and its daemon (holder.h), needs a new HANDOVER_FORMAT, and the newer version has to read
 * the older format. One thread. */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "daemon/lifecycle.h"
#include "daemon/options.h"

#define HANDOVER_FORMAT 1u

struct handover {
    char *store, *mountpoint;
    struct mount_options options;   /* finished */
    struct holder_link holder_link; /* with descriptors of this process */
    pid_t child;                    /* the daemon that serves; 0: none */
    int64_t served_at;              /* monotonic ns */
    bool stops;                     /* the daemon was asked to end */
};

/* Writes the handover; its parts stay the caller's. *ret_fd is a memfd, close-on-exec. */
struct handover_source {
    const char *store, *mountpoint;
    const struct mount_options *options;
    const struct holder_link *holder_link;
    pid_t child;
    int64_t served_at;
    bool stops;
};
CAIRN_MUST_CHECK int handover_write(const struct handover_source *from, int *ret_fd);

/* Reads from the start. -EPROTO with *ret_text, one line to be freed: the handover is of a version
 * that this one does not understand, or is no handover. */
CAIRN_MUST_CHECK int handover_read(int fd, struct handover *ret, char **ret_text);
void handover_done(struct handover *h);

/* Makes the descriptors of the handover inherited, or not, by the program that is executed next. A
 * descriptor of -1 is left out. */
void handover_inherit_fds(const struct holder_link *holder_link, int state_fd, bool inherit);
