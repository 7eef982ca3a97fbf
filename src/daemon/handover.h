// SPDX-License-Identifier: Apache-2.0
/* The handover of a mount to another version of cairn: a JSON object in a memfd. It never reaches a
 * disk, but two versions have to agree on it: a change here, or in the messages between the holder
 * and its daemon (holder.h), needs a new HANDOVER_FORMAT, and the newer version has to read the
 * older format. One thread. */
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
    bool stops;                     /* it was asked to end */
};

/* Writes the handover; its parts are borrowed. *ret_fd is a memfd, close-on-exec. */
struct handover_source {
    const char *store, *mountpoint;
    const struct mount_options *options;
    const struct holder_link *holder_link;
    pid_t child;
    int64_t served_at;
    bool stops;
};
CAIRN_MUST_CHECK int handover_write(const struct handover_source *from, int *ret_fd);

/* Reads from the start. -EPROTO with *ret_text, one line to be freed: it comes from a version with
 * which this one does not agree, or is none. */
CAIRN_MUST_CHECK int handover_read(int fd, struct handover *ret, char **ret_text);
void handover_done(struct handover *h);

/* Its descriptors are, or are not, for the program that is executed next. -1 is left out. */
void handover_inherit_fds(const struct holder_link *holder_link, int state_fd, bool inherit);
