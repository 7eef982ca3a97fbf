// SPDX-License-Identifier: Apache-2.0
/* The FUSE front: requests of the kernel become calls of fs/, one reply each.
 *
 * Receive threads read requests straight into slabs of the stage and never wait for room: a request
 * that finds none is parked, with its payload where it was received, and repeated in order of
 * arrival when room came free. A caller with a fatal signal gets EINTR. Only this component knows
 * libfuse. */
#pragma once

#include "base/base.h"
#include "fs/fs.h"

struct front;

/* The state that a successor needs to adopt a mount, beside its descriptor. */
#define FRONT_INIT_MAX 256u
#define FRONT_ANSWER_LEN 64u
struct front_passport {
    _Alignas(8) uint8_t init[FRONT_INIT_MAX]; /* the kernel's INIT, which it sends once */
    uint32_t init_len;
    uint8_t answer[FRONT_ANSWER_LEN]; /* ours */
    uint64_t device;                  /* of the mount */
    uint32_t mmap_shared;             /* result of the self-test */
};

struct front_adopted {
    int fd; /* /dev/fuse, mounted; the front's from front_start() on, failed or not */
    struct front_passport passport;
    bool no_resend; /* act as if the kernel could not resend requests */
};

/* CLOCK_BOOTTIME, ns. */
struct front_times {
    int64_t opens;     /* see front_refuse_older() */
    int64_t closed_ns; /* so long before that it went back */
    int64_t died_at;   /* the daemon before; 0: there was none */
};

struct front_options {
    const char *mountpoint;
    const char *fsname; /* the source that the mount table shows */
    const char *extra;  /* more -o options for the kernel, comma separated; NULL */
    bool allow_other;
    bool read_only;
    bool has_nodes; /* files may be those of other nodes (fs/taken.h) */
    unsigned threads;
    double entry_timeout, attr_timeout; /* s: how long the kernel caches answers */
    double absence_timeout;             /* s: the same of names that are not there */
    bool no_resend;                     /* act as if the kernel could not resend requests */
    struct front_times times;           /* of a node that went back */
    /* path of the file that keeps which process groups rejoined; NULL: no successor knows them */
    const char *rejoined;
    /* NULL: mount; else adopt the existing mount. Read by front_start() only */
    const struct front_adopted *adopted;
};

/* Mounts and answers. `fs` and `store` outlive the front. Other threads may look at *ret meanwhile.
 * On failure *ret_text says why (caller frees). */
CAIRN_MUST_CHECK int front_start(const struct front_options *options, struct fs *fs,
                                 struct store *store, struct front *_Atomic *ret, char **ret_text);

/* The store's room callback: parked requests may go on. Any thread, any locks but leaves. */
void front_room(struct front *front);

/* Invalidates inodes that changed without a request of the kernel: it drops their attributes, and
 * with `has_content` their pages. Any thread; with `has_content` none that answers requests and
 * none that holds a lock: it may wait for such a thread. */
void front_changed(struct front *front, const uint64_t *inos, size_t count, bool has_content);

/* Changes by processes that began before `opens` (CLOCK_BOOTTIME, ns; 0: by none) fail with EIO
 * from now on, but for requests that are under way: older.h. By handles of a stage before this one
 * they fail at any time. */
void front_refuse_older(struct front *front, int64_t opens);
int64_t front_opens(struct front *front); /* that time */
/* The process group of `pid` counts as begun now. -ESRCH: when it began is not to be seen. Writes
 * the file. */
CAIRN_MUST_CHECK int front_rejoin(struct front *front, pid_t pid);

/* For a successor. *ret_fd is the front's. */
void front_passport(struct front *front, struct front_passport *ret, int *ret_fd);

/* Stops receiving, and waits until all received requests are answered, or wait for space or
 * durability and will be resent to a successor. -EBUSY: that took too long, and it receives again.
 * Blocks for 20 s at most; only in the thread that calls front_stop(). */
CAIRN_MUST_CHECK int front_hold(struct front *front);
/* After front_hold(): receives again. */
void front_release(struct front *front);

/* True once the kernel has let go of the mount (umount from outside). */
bool front_is_over(struct front *front);
/* Readable when that happens. */
int front_event_fd(struct front *front);

/* Unmounts (lazily, if files are open), ends the threads. What happened can still be asked for.
 * NULL is fine, and once more. */
void front_stop(struct front *front);
/* To be called after front_stop(), when no thread uses it any more. NULL is allowed. */
void front_free(struct front *front);

/* Something that a client got an error for which it is not to blame. */
struct front_failure {
    uint64_t ino;
    char *path; /* as it was named then, from the root of the mount */
    const char *call;
    int error; /* errno */
    char *cause;
    uint64_t count;
    int64_t first, last; /* ns since 1970 */
};

/* Calls `fn` (under a lock: it must not call back) for those that are still known, the newest last.
 * *ret_total: failed calls since the mount; *ret_forgotten: kinds of failure that the list has no
 * more room for. */
void front_failures(struct front *front, void (*fn)(const struct front_failure *failure, void *arg),
                    void *arg, uint64_t *ret_total, uint64_t *ret_forgotten);

struct front_status {
    bool mmap_shared; /* shared mappings together with direct I/O: passed its self-test */
    unsigned threads;
    unsigned waiting;    /* requests parked now */
    uint64_t wait_count; /* ever */
    uint64_t wait_ms_total;
    uint64_t requests_total, read_bytes_total, written_bytes_total; /* answered */
    bool is_adopted;                                                /* from a daemon that died */
    /* requests that were in flight then: came again; of these, done before; failed with EIO */
    unsigned resent, remembered, lost;
};
void front_status(struct front *front, struct front_status *ret);
