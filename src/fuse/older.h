// SPDX-License-Identifier: Apache-2.0
/* Which requests fail because what their callers rely on may be gone.
 *
 * Where a node that wrote the prefix died, all nodes go back to an earlier state, and each *opens*
 * again at some time. A process that began before may rely on what was set aside then. So its
 * changes fail, and it reads on. What counts is not the process but its process group, which began
 * with its leader: the child of an old script is old, and what torchrun starts anew is not. A group
 * may also rejoin: it has looked at the files after the node opened. The groups that did are in a
 * file, since a successor has to know them.
 *
 * A node acknowledges nothing from when it went back until it opens, and before that nothing from
 * when its last daemon died. So a group that began in that time has nothing of before that it could
 * rely on by itself, and may *settle*: it waits until the node is open, then rejoins. Only that
 * group itself can know that no other process has told it anything meanwhile, so it has to ask.
 *
 * Any thread. A look reads /proc, and is kept for a second where it finds no reason to refuse. */
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
    _Atomic int64_t opens; /* CLOCK_BOOTTIME, ns; 0: nobody is older */
    int64_t closed_ns;     /* as in struct front_times */
    int64_t died_at;
    const char *path;        /* of the file; NULL: there is none */
    struct cairn_mutex lock; /* a leaf; guards: */
    pthread_cond_t kept;     /* `written` has changed */
    struct {
        pid_t pid;     /* of a thread that may change what it likes, */
        int64_t until; /* monotonic ns */
    } seen[OLDER_SEEN];
    struct rejoined groups[OLDER_GROUPS_MAX]; /* oldest first */
    size_t group_count;
    uint64_t version, written; /* of `groups`: the newest, and the one in the file */
    bool is_writing;
};

/* `path` is lent. */
void older_init(struct older *older, const struct front_times *times, const char *path);
void older_done(struct older *older);
void older_set(struct older *older, int64_t opens);
/* The process group of this process counts as begun now, also for a successor. -ESRCH: no such
 * process, or when its group began is not to be seen. */
CAIRN_MUST_CHECK int older_rejoin(struct older *older, pid_t pid);

enum older_word {
    OLDER_NOT,
    OLDER_IS,
    OLDER_UNKNOWN, /* when it began is not to be seen */
    OLDER_WAITS,   /* settles: it has to wait until the node opens */
};
enum older_word older_look(struct older *older, pid_t tid);
/* The thread's group settles: OLDER_NOT: it may change what it likes now; it has rejoined, if it
 * had to. OLDER_WAITS, *ret_wait_ns: ask again then. Writes the file. */
CAIRN_MUST_CHECK int older_settle(struct older *older, pid_t tid, enum older_word *ret,
                                  int64_t *ret_wait_ns);

/* What a request of the kernel means to do. */
struct request_asks {
    bool changes;
    bool has_handle; /* it is by this one that it changes something, or makes it durable */
    uint64_t handle;
    bool is_page; /* of a map: its caller may be any process */
};
void request_asks(const struct wire_in_header *header, struct request_asks *ret);
