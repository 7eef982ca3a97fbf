// SPDX-License-Identifier: Apache-2.0
/* The FUSE front: requests of the kernel become calls of fs/, one reply each.
 *
 * Receive threads read requests directly into slabs of the stage and never wait for room: a request
 * that finds no room is parked, with its payload in place, and repeated in order of arrival when
 * room becomes available. A caller with a fatal signal gets EINTR. Only this component uses
 * libfuse. */
#pragma once

#include "base/base.h"
#include "fs/fs.h"

struct front;

/* The state that a successor needs to adopt a mount, besides its descriptor. */
#define FRONT_INIT_MAX 256u
#define FRONT_ANSWER_LEN 64u
struct front_passport {
    _Alignas(8) uint8_t init[FRONT_INIT_MAX]; /* the kernel's INIT request, which it sends once */
    uint32_t init_len;
    uint8_t answer[FRONT_ANSWER_LEN]; /* our answer to it */
    uint64_t device;                  /* of the mount */
    uint32_t mmap_shared;             /* result of the self-test */
};

struct front_adopted {
    int fd; /* /dev/fuse, mounted; owned by the front from front_start() on, even if that fails */
    struct front_passport passport;
};

/* CLOCK_BOOTTIME, ns. */
struct front_times {
    int64_t opens;     /* time before which callers are refused: front_refuse_older() */
    int64_t closed_ns; /* length of the interval before `opens` since the node went back */
    int64_t died_at;   /* when the previous daemon died; 0: there was none */
};

struct front_options {
    const char *mountpoint;
    const char *fsname; /* the source shown in the mount table */
    const char *extra;  /* more -o options for the kernel, comma separated; NULL: none */
    bool allow_other;
    bool read_only;
    uint64_t root;  /* of an earlier state (fs_show_past()); 0: that of the newest one */
    bool has_nodes; /* files may belong to other nodes (fs/taken.h) */
    unsigned threads;
    double entry_timeout, attr_timeout; /* s: how long the kernel caches answers */
    double absence_timeout;             /* s: the same for names that do not exist */
    /* latest version 7.N of the protocol that counts as offered by the kernel, for tests; 0: any */
    unsigned fuse_minor;
    struct front_times times; /* for a node that went back */
    /* path of the file that records which process groups rejoined; NULL: a successor will not know
     * them */
    const char *rejoined;
    /* NULL: mount; else adopt the existing mount. Read by front_start() only */
    const struct front_adopted *adopted;
};

/* Mounts and starts to answer. `fs` and `store` outlive the front. Other threads may read *ret
 * meanwhile. On failure *ret_text gives the reason (caller frees). */
CAIRN_MUST_CHECK int front_start(const struct front_options *options, struct fs *fs,
                                 struct store *store, struct front *_Atomic *ret, char **ret_text);

/* The store's room callback: parked requests may continue. Any thread, with any locks except leaf
 * locks. */
void front_room(struct front *front);

/* Notifies the kernel of inodes that changed without a request of its own: it drops their
 * attributes and, with `has_content`, their pages. Any thread; with `has_content` not one that
 * answers requests or holds a lock: the call may wait for such a thread. */
void front_changed(struct front *front, const uint64_t *inos, size_t count, bool has_content);

/* From now on changes by processes that began before `opens` (CLOCK_BOOTTIME, ns; 0: none) fail
 * with EIO, except requests in progress: older.h. Changes through handles of an earlier stage
 * always fail. */
void front_refuse_older(struct front *front, int64_t opens);
int64_t front_opens(struct front *front); /* the current value */
/* The process group of `pid` now counts as begun. -ESRCH: its start time cannot be determined.
 * Writes the file. */
CAIRN_MUST_CHECK int front_rejoin(struct front *front, pid_t pid);

/* For a successor. The front still owns *ret_fd. */
void front_passport(struct front *front, struct front_passport *ret, int *ret_fd);

/* Stops receiving, and waits until all received requests are answered, or wait for space or
 * durability and will be resent to a successor. -EBUSY: it took too long, and the front receives
 * again. Blocks for 20 s at most; only in the thread that calls front_stop(). */
CAIRN_MUST_CHECK int front_hold(struct front *front);
/* Receives again after front_hold(). */
void front_release(struct front *front);

/* True once the kernel has ended the mount (umount from outside). */
bool front_is_over(struct front *front);
/* Becomes readable when the mount ends. */
int front_event_fd(struct front *front);

/* Unmounts (lazily, if files are open) and ends the threads. The front can still be queried. NULL
 * is fine, and so is a second call. */
void front_stop(struct front *front);
/* Call after front_stop(), when no thread uses the front any more. NULL is allowed. */
void front_free(struct front *front);

/* An error returned to a client that did not cause it. */
struct front_failure {
    uint64_t ino;
    char *path; /* relative to the root of the mount, as named at that time */
    const char *call;
    int error; /* errno */
    char *cause;
    uint64_t count;
    int64_t first, last; /* ns since 1970 */
};

/* Calls `fn` (under a lock: it must not call back) for the recorded failures, newest last.
 * *ret_total: number of failed calls since the mount; *ret_forgotten: number of failures dropped
 * from the full list. */
void front_failures(struct front *front, void (*fn)(const struct front_failure *failure, void *arg),
                    void *arg, uint64_t *ret_total, uint64_t *ret_forgotten);

struct front_status {
    bool mmap_shared; /* shared mappings together with direct I/O have passed their self-test */
    unsigned threads;
    unsigned waiting;    /* requests parked now */
    uint64_t wait_count; /* so far */
    uint64_t wait_ms_total;
    uint64_t requests_total, read_bytes_total, written_bytes_total; /* answered */
    bool is_adopted;                                                /* from a daemon that died */
    /* requests in flight at that time: resent; already applied, among these; failed with EIO */
    unsigned resent, remembered, lost;
};
void front_status(struct front *front, struct front_status *ret);
