// SPDX-License-Identifier: Apache-2.0
/* Requests that fail because their callers may rely on lost data.
 *
 * When a node that wrote the prefix is lost, all nodes go back to an earlier state, and each
 * *opens* again later. A process that began before that may rely on data that was set aside. So its
 * changes fail, while its reads still work. The start of the process group counts, not of the
 * process; a group begins with its leader: so a child of an old script is old, and processes
 * started anew by torchrun are not. A group may also rejoin, after it has read the files again
 * since the node opened. Groups that did are recorded in a file, since a successor must know them.
 *
 * A node acknowledges nothing between going back and opening; if its previous daemon had died,
 * nothing since then. So a group that began in this interval cannot itself rely on older
 * acknowledgements, and may *settle*: it waits until the node is open, then rejoins. Only the group
 * itself can know that no other process has passed it older data meanwhile, so it has to request
 * this.
 *
 * Any thread. A check reads /proc; the result is cached for a second if there is no reason to
 * refuse. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/lock.h"
#include "base/process.h"
#include "fuse/front.h"
#include "fuse/wire.h"

#define OLDER_SEEN 256u
#define OLDER_GROUPS_MAX 256u

struct rejoined {
    struct process_group group;
    int64_t at; /* CLOCK_BOOTTIME, ns */
};

struct older {
    _Atomic int64_t opens; /* CLOCK_BOOTTIME, ns; 0: no process is older */
    int64_t closed_ns;     /* as in struct front_times */
    int64_t died_at;
    const char *path;        /* of the file; NULL: none */
    struct cairn_mutex lock; /* a leaf; guards the following fields */
    pthread_cond_t kept;     /* signalled when `written` changes */
    struct {
        pid_t pid;     /* of a thread that may make any change, */
        int64_t until; /* monotonic ns */
    } seen[OLDER_SEEN];
    struct rejoined groups[OLDER_GROUPS_MAX]; /* oldest first */
    size_t group_count;
    uint64_t version, written; /* versions of `groups`: the newest, and the one in the file */
    bool is_writing;
};

/* `path` is borrowed. */
void older_init(struct older *older, const struct front_times *times, const char *path);
void older_done(struct older *older);
void older_set(struct older *older, int64_t opens);
/* The process group of this process now counts as begun, also for a successor. -ESRCH: no such
 * process, or the start time of its group cannot be determined. */
CAIRN_MUST_CHECK int older_rejoin(struct older *older, pid_t pid);

enum older_word {
    OLDER_NOT,
    OLDER_IS,
    OLDER_UNKNOWN, /* its start time cannot be determined */
    OLDER_WAITS,   /* settles: must wait until the node opens */
};
enum older_word older_look(struct older *older, pid_t tid);
/* The thread's group settles. OLDER_NOT: it may make any change now; it has rejoined, if necessary.
 * OLDER_WAITS: ask again after *ret_wait_ns. Writes the file. */
CAIRN_MUST_CHECK int older_settle(struct older *older, pid_t tid, enum older_word *ret,
                                  int64_t *ret_wait_ns);

/* Whether a request of the kernel changes something, and how. */
struct request_asks {
    bool changes;
    bool has_handle; /* it changes something, or makes it durable, through this handle */
    uint64_t handle;
    bool is_page; /* a page of a mapping: its caller may be any process */
};
void request_asks(const struct wire_in_header *header, struct request_asks *ret);
