/* Inside the front. */
#pragma once

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/lock.h"
#include "fuse/front.h"

/* The kernel's protocol, as far as libfuse 3.14 does not show it: what lies in front of a payload, and two flags of
 * INIT that it does not know. From the kernel's include/uapi/linux/fuse.h. */
struct wire_in_header {
    uint32_t len, opcode;
    uint64_t unique, nodeid;
    uint32_t uid, gid, pid, padding;
};
struct wire_out_header {
    uint32_t len;
    int32_t error;
    uint64_t unique;
};
#define WIRE_WRITE 16u
#define WIRE_INIT 26u
#define WIRE_INTERRUPT 36u
#define WIRE_IN_HEADER_LEN 40u
#define WIRE_WRITE_LEN 80u /* header and arguments of WRITE: what comes before its payload */
#define WIRE_INIT_EXT (1u << 30)
#define WIRE_HANDLE_KILLPRIV_V2 (1u << 28)
#define WIRE2_DIRECT_IO_ALLOW_MMAP (1u << 4) /* bit 36 of the flags */

#define THREADS_MAX 64u
#define SELF_TEST_NAME ".cairn-self-test-" /* and the daemon's pid */

/* A request that waits for room. */
struct parked {
    TAILQ_ENTRY(parked) link;
    uint32_t slab; /* with the request in it, or SLAB_NONE */
    void *mem;     /* the request; heap when slab is SLAB_NONE */
    size_t size;
    uint64_t unique;
    pid_t pid;
    int64_t since;
};
TAILQ_HEAD(parked_list, parked);

/* An fsync that waits for the horizon. */
struct syncing {
    TAILQ_ENTRY(syncing) link;
    struct front *front;
    fuse_req_t req;
    pid_t pid;
    uint64_t ticket;
    bool is_listed;
};
TAILQ_HEAD(syncing_list, syncing);

struct front {
    struct fs *fs;
    struct store *store;
    struct stage *stage;
    struct fuse_session *se;
    struct front_options options;
    bool is_mounted;
    int event_fd;
    _Atomic bool init_done, mmap_offered, mmap_shared, testing, stopping, over;
    _Atomic unsigned live_threads;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
    pthread_t resumer;
    bool resumer_started;
    struct {
        struct cairn_mutex lock; /* a leaf: room comes free under other locks */
        pthread_cond_t changed;
        bool wanted;
    } wake; /* of the resumer */
    _Atomic unsigned parked_count;
    struct {
        struct cairn_mutex lock;
        struct parked_list parked; /* parked_count of them */
        struct syncing_list syncing;
        uint64_t wait_count, wait_ns;
    } locked;
};

/* What the thread is working on. */
struct current {
    uint32_t slab;
    const struct wire_in_header *header;
    bool is_resumed;
    bool park;    /* the handler asks for the request to be parked */
    bool stolen;  /* the handler took the slab */
};
extern _Thread_local struct current current;

/* ops.c */
extern const struct fuse_lowlevel_ops front_ops;

/* loop.c */
void front_park(struct front *front, fuse_req_t req);
bool front_must_queue(struct front *front);
void *front_receive(void *arg);
void *front_resume(void *arg);
void front_wake(struct front *front);
bool has_fatal_signal(pid_t tid);

/* init.c */
void front_see_request(struct front *front, const void *mem, size_t size);
extern const struct fuse_custom_io front_io;
void front_self_test(struct front *front);
