// SPDX-License-Identifier: Apache-2.0
/* Inside the front. */
#pragma once

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/event.h"
#include "base/lock.h"
#include "fuse/front.h"
#include "fuse/lost_pages.h"
#include "fuse/older.h"
#include "fuse/turns.h"
#include "fuse/wire.h"
#include "stage/requests.h"

#define THREADS_MAX 64u

/* A request waiting for room, or for the copy of a file. */
struct parked {
    TAILQ_ENTRY(parked) link;
    bool is_content; /* otherwise it changes names or attributes */
    uint32_t slab;   /* contains the request, or SLAB_NONE */
    void *mem;       /* the request; on the heap if slab is SLAB_NONE */
    size_t size;
    uint64_t unique;
    pid_t pid;
    int64_t since;
    struct bringing *bringing; /* the copy for which it waits (fs/taken.h); NULL: none */
    bool is_interrupted;       /* its caller has received a signal */
};
TAILQ_HEAD(parked_list, parked);

/* An fsync, or a durable write, waiting for a horizon. */
struct syncing {
    TAILQ_ENTRY(syncing) link;
    struct front *front;
    fuse_req_t req;
    uint64_t ino;
    pid_t pid;
    enum fs_fsync level;
    size_t written; /* 0: an fsync */
    uint64_t ticket;
    bool is_listed;
};
TAILQ_HEAD(syncing_list, syncing);

#define FAILURES_MAX 64u

/* Errors returned to clients: failures.c. */
struct failures {
    struct cairn_mutex lock; /* a leaf */
    struct front_failure list[FAILURES_MAX];
    unsigned count;
    uint64_t total, forgotten;
};
#define SELF_TEST_INO UINT64_MAX /* no inode of a store has this number */
#define SELF_TEST_SIZE 4096u

/* The file of the self-test (self_test.c). */
struct self_test {
    _Atomic bool is_active;
    struct cairn_mutex lock; /* a leaf */
    size_t size;
    char bytes[SELF_TEST_SIZE];
};

/* Inodes for which the kernel must be notified of changes (cached.c). */
#define CACHED_SETS 16384u
#define CACHED_WAYS 4u
struct cached_set {
    struct cairn_mutex lock; /* a leaf */
    struct cached {
        uint64_t ino; /* 0: unused */
        /* the only thread that got attributes since the kernel was last notified; 0: several did */
        pid_t asker;
        int64_t taken; /* monotonic ns: last request for attributes */
    } cached[CACHED_WAYS];
};

#define NOTIFIED_MAX 65536u

/* A mount that outlived its daemon: adopt.c. */
struct adoption {
    bool is_adopted;
    _Atomic bool is_replaying;   /* the answer to INIT is not sent to the kernel */
    _Atomic bool answer_differs; /* from the answer that the kernel got */
    _Atomic bool is_settled;     /* requests in flight were resent, or will not be */
    _Atomic unsigned resent, answered_from_memory, failed;
    /* NOTIFIED_MAX inodes for which the kernel was notified since, by a hash; NULL: not adopted */
    _Atomic uint64_t *notified;
};

/* Guarded by its lock. */
struct resumer_wake {
    struct cairn_mutex lock; /* a leaf: room becomes available under other locks */
    pthread_cond_t changed;
    bool wanted;
};

#define INTERRUPTED_MAX 64u

/* Requests that are not answered yet, and on which no thread works. Guarded by its lock. */
struct front_waiting {
    struct cairn_mutex lock;
    struct parked_list content; /* in order of arrival, in which they are repeated */
    /* each is repeated when possible: none waits for the content of another */
    struct parked_list changes;
    struct syncing_list syncing;
    unsigned synced; /* taken from the list, and being answered */
    /* Numbers of requests interrupted while they were in no list: libfuse loses the interrupt when
     * they are parked. The oldest is overwritten. */
    uint64_t interrupted[INTERRUPTED_MAX];
    unsigned interrupted_next;
    uint64_t wait_count, wait_ns;
};

struct front {
    struct fs *fs;
    struct store *store;
    struct commit *commit; /* the store's */
    struct stage *stage;
    struct fuse_session *se;
    struct front_options options;
    bool is_mounted;
    dev_t device; /* of the mount; 0: not known */
    int event_fd;
    struct cached_set cached[CACHED_SETS];
    struct adoption adoption;
    struct front_passport passport;
    _Atomic bool has_passport;  /* it is complete and constant */
    _Atomic int64_t changed_at; /* monotonic ns: the last front_changed() */
    _Atomic bool init_done, mmap_offered, mmap_shared, parallel_writes, stopping, stopped, over;
    _Atomic unsigned live_threads;
    _Atomic bool holding;     /* no thread may receive: hold.c */
    _Atomic unsigned working; /* threads between receiving and their return */
    /* signalled when a parked request continues, a thread or the wait of an fsync ends, or
     * receiving is to end or to continue; while `holding`, for everything that front_hold() waits
     * for */
    struct event progress;
    struct self_test self_test;
    struct lost_pages lost_pages;
    struct turns turns;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
    pthread_t resumer;
    bool resumer_started;
    struct resumer_wake wake;      /* for the resumer thread */
    _Atomic unsigned parked_count; /* parked requests, including the one being repeated */
    _Atomic unsigned parked_content, parked_slabs;
    _Atomic uint64_t requests, read_bytes, written_bytes; /* statistics: relaxed */
    struct failures failures;
    struct older older;
    struct {
        struct pool *pool; /* NULL: not started */
        uint64_t token;    /* handle of everything that this daemon opens there */
    } past;                /* earlier.c */
    struct front_waiting locked;
};

/* The thread's current request. */
struct current {
    uint32_t slab;
    const struct wire_in_header *header;
    bool is_resumed;
    bool is_applied; /* a dead daemon has applied it without answering: */
    struct stage_request before;
    bool is_refused;      /* see front_refuses() */
    bool park;            /* the handler requests parking */
    bool stolen;          /* the handler took ownership of the slab */
    bool parallel_writes; /* for the file that the answer opens: init.c */
    /* the copy for which it waits; for a parked request, set when it is parked again */
    struct bringing *bringing;
    bool is_interrupted; /* while it was parked */
};
extern _Thread_local struct current current;

/* failures.c: the error to return to a client for `r`, an errno; records a failure of ours, with
 * cause_text(). */
void failures_init(struct failures *failures);
void failures_done(struct failures *failures);
int front_failed(struct front *front, uint64_t ino, const char *call, int r);
/* As front_failed(), for the thread's current request. */
int front_failed_now(struct front *front, int r);

/* cached.c: how long the kernel may cache these attributes, in seconds. They have just been read,
 * and may be read again. */
void cached_init(struct front *front);
void cached_done(struct front *front);
double cached_for(struct front *front, struct stat *st);
/* Call before the reply to a request that may have changed an inode's attributes: cached_changed()
 * for the content of a file, whose change the kernel may miss if it is open or has setuid bits;
 * cached_entries_changed() for the entries of a directory, with the result `r`; cached_marked() for
 * other changes that the kernel may miss. */
void cached_changed(struct front *front, uint64_t ino);
void cached_entries_changed(struct front *front, uint64_t dir, int r);
void cached_marked(struct front *front, uint64_t ino);

/* older.c: is the thread's current request refused, because its caller may rely on lost data? True:
 * it has been answered. A write of a mapped page must also be dropped: then its handler finds
 * current.is_refused set, and the cause noted. */
bool front_refuses(struct front *front);

/* hold.c: signals a change for which front_hold() may wait. Costs nothing while it does not. */
static inline void hold_note(struct front *front)
{
    if (atomic_load(&front->holding))
        event_signal(&front->progress);
}

#define MAX_WRITE SLAB_PAYLOAD

static inline struct front *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* caller.c: is SIGKILL pending for the thread, as it also is after another signal that ends the
 * process? */
bool caller_is_dying(pid_t tid);

/* mounted.c */
void mounted_note(struct front *front); /* notes the mount that was just made */
/* Does its path lead to this mount, in the daemon's mount namespace? Warns if another mount covers
 * it. */
bool mounted_is_here(const struct front *front);
/* Unmounts it at its path, lazily; the descriptor stays open. */
void mounted_end(struct front *front);
/* Ends the connection without unmounting. No thread may use it any more. */
void mounted_release(struct front *front);

/* loop.c */
void front_park(fuse_req_t req);
bool front_must_queue(struct front *front);
void *front_receive(void *arg);
/* Interrupts the threads that wait for the kernel. The signal may arrive just before the read that
 * it should interrupt: so a thread that needs them to return repeats the call every
 * INTERRUPT_NS. */
#define INTERRUPT_NS 2000000
void front_interrupt(struct front *front);
void *front_resume(void *arg);
void parked_free(struct front *front, struct parked *parked);
void front_wake(struct front *front);

/* adopt.c */
/* Begins work on the request that the thread has received: gives it a slot in the stage's table. */
void adopt_enter(struct front *front, bool is_resumed);
/* Called within the turn, and so in the order of the kernel's queue. */
void adopt_see(struct front *front, const struct wire_in_header *header);
/* Creates the session over a descriptor that is mounted already. */
CAIRN_MUST_CHECK int adopt_session(struct front *front, char **ret_text);
/* Settles the state left by the dead daemon, before requests are received; then asks the kernel to
 * resend those in flight. */
void adopt_begin(struct front *front);
/* True once for each inode: the kernel may have cached attributes or pages of it from the dead
 * daemon. */
bool adopt_must_notify(struct front *front, uint64_t ino);
void adopt_done(struct front *front);

/* Offset in a slab at which requests are received: then the payload of a WRITE begins at
 * SLAB_PAYLOAD_OFFSET, where the stage stores it. */
#define RECEIVED_OFFSET (SLAB_PAYLOAD_OFFSET - WIRE_WRITE_LEN)

/* left.c: answers requests in flight that the kernel cannot resend. Call before anything is
 * received. */
void left_settle(struct front *front);

/* init.c */
/* Called before libfuse sees the request. */
void front_see_request(struct front *front, void *mem, size_t size);
/* Can it resend the requests that a dead daemon had received (FUSE_NOTIFY_RESEND)? Known from INIT
 * on, or from the passport. */
bool front_kernel_resends(const struct front *front);
extern const struct fuse_custom_io front_io;
/* Answers a request without libfuse: with an errno, or 0. */
void front_answer(struct front *front, uint64_t unique, int error);

/* self_test.c */
/* Call at mount, after the threads were started: takes 10 s at most. */
void front_self_test(struct front *front);
/* Answers if it is the name of the test's file, and the test itself requests it. */
bool self_test_lookup(fuse_req_t req, const char *name);
/* Requests for SELF_TEST_INO. */
void self_test_getattr(fuse_req_t req);
void self_test_open(fuse_req_t req, struct fuse_file_info *fi);
void self_test_read(fuse_req_t req, size_t size, off_t offset);
void self_test_write(fuse_req_t req, const char *buf, size_t size, off_t offset);
