/* The FUSE front: requests of the kernel become calls of fs/, one reply each.
 *
 * Receive threads read requests straight into slabs of the stage and never wait for room: a request that finds none is
 * parked, with its payload where it was received, and repeated in order of arrival when room came free. A caller with
 * a fatal signal gets EINTR. Only this room knows libfuse. */
#pragma once

#include "base/base.h"
#include "fs/fs.h"

struct front;

struct front_options {
    const char *mountpoint;
    const char *fsname;       /* the source that the mount table shows */
    const char *extra;        /* more -o options for the kernel, comma separated; NULL */
    bool allow_other;
    bool read_only;
    unsigned threads;
    double entry_timeout, attr_timeout; /* s */
};

/* Mounts and answers. `fs` and `store` outlive the front. On failure *ret_text says why (caller frees). */
CAIRN_MUST_CHECK int front_start(const struct front_options *options, struct fs *fs, struct store *store,
                                 struct front **ret, char **ret_text);

/* The store's room callback: parked requests may go on. Any thread, any locks but leaves. */
void front_room(struct front *front);

/* True once the kernel has let go of the mount (umount from outside). */
bool front_is_over(struct front *front);
/* Readable when that happens. */
int front_event_fd(struct front *front);

/* Unmounts (lazily, if files are open), ends the threads, frees. NULL is fine. */
void front_stop(struct front *front);

struct front_status {
    bool mmap_shared; /* shared mappings together with direct I/O: passed its self-test */
    unsigned threads;
    unsigned waiting;          /* requests parked now */
    uint64_t wait_count;       /* ever */
    uint64_t wait_ms_total;
};
void front_status(struct front *front, struct front_status *ret);
