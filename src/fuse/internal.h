// SPDX-License-Identifier: Apache-2.0
/* Inside the front. */
#pragma once

#include <fuse_lowlevel.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>

#include "base/lock.h"
#include "fuse/front.h"
#include "stage/requests.h"

/* The kernel's protocol, as far as libfuse 3.14 does not show it: what lies in front of a payload,
 * and two flags of INIT that it does not know. From the kernel's include/uapi/linux/fuse.h. */
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
#define WIRE_NOTIFY_RESEND 7
#define WIRE_RESENT (1ull << 63) /* of a unique: the request comes again */
#define WIRE_FORGET 2u
#define WIRE_SETATTR 4u
#define WIRE_SYMLINK 6u
#define WIRE_MKNOD 8u
#define WIRE_MKDIR 9u
#define WIRE_UNLINK 10u
#define WIRE_RMDIR 11u
#define WIRE_RENAME 12u
#define WIRE_LINK 13u
#define WIRE_OPEN 14u
#define WIRE_WRITE 16u
#define WIRE_RELEASE 18u
#define WIRE_SETXATTR 21u
#define WIRE_REMOVEXATTR 24u
#define WIRE_INIT 26u
#define WIRE_OPENDIR 27u
#define WIRE_RELEASEDIR 29u
#define WIRE_CREATE 35u
#define WIRE_INTERRUPT 36u
#define WIRE_BATCH_FORGET 42u
#define WIRE_FALLOCATE 43u
#define WIRE_RENAME2 45u
#define WIRE_COPY_FILE_RANGE 47u
#define WIRE_TMPFILE 51u
#define WIRE_NO_NAME "/" /* of a TMPFILE */
#define WIRE_IN_HEADER_LEN 40u
#define WIRE_WRITE_LEN 80u /* header and arguments of WRITE: what comes before its payload */
#define WIRE_INIT_EXT (1u << 30)
#define WIRE_HANDLE_KILLPRIV_V2 (1u << 28)
#define WIRE2_DIRECT_IO_ALLOW_MMAP (1u << 4) /* bit 36 of the flags */
#define INIT_IN_FLAGS 12u                    /* offsets in the arguments of INIT */
#define INIT_IN_FLAGS2 16u
#define WIRE2_HAS_RESEND (1u << 7) /* bit 39 */

#define THREADS_MAX 64u

/* A request that waits for room. */
struct parked {
    TAILQ_ENTRY(parked) link;
    bool is_content; /* else a change of names or attributes */
    uint32_t slab;   /* with the request in it, or SLAB_NONE */
    void *mem;       /* the request; heap when slab is SLAB_NONE */
    size_t size;
    uint64_t unique;
    pid_t pid;
    int64_t since;
};
TAILQ_HEAD(parked_list, parked);

/* An fsync, or a write that is to be durable, that waits for a horizon. */
struct syncing {
    TAILQ_ENTRY(syncing) link;
    struct front *front;
    fuse_req_t req;
    uint64_t ino;
    pid_t pid;
    size_t written; /* 0: an fsync */
    uint64_t ticket;
    bool is_listed;
};
TAILQ_HEAD(syncing_list, syncing);

#define FAILURES_MAX 64u

/* Errors that clients got: failures.c. */
struct failures {
    struct cairn_mutex lock; /* a leaf */
    struct front_failure list[FAILURES_MAX];
    unsigned count;
    uint64_t total, forgotten;
};
/* turns.c */
#define TURN_KINDS 64u
struct turns {
    struct cairn_mutex lock;
    pthread_cond_t changed;
    _Atomic bool is_receiving; /* a thread waits for the kernel, or is about to */
    _Atomic unsigned resting;  /* threads that wait for their turn */
    unsigned wanted;           /* of them shall come */
    bool is_watched, ended;
    _Atomic bool is_long[TURN_KINDS]; /* by opcode: the last one took long */
};
void turns_init(struct turns *turns);
void turns_done(struct turns *turns);
void turns_end(struct turns *turns); /* resting threads return without a turn */
/* Waits for the turn to receive. False: it is over. */
bool turn_take(struct turns *turns);
/* The same without waiting. False: another has it. */
bool turn_try(struct turns *turns);
void turn_leave(struct turns *turns); /* something was received, or nothing */
/* Around the handling of a request. `fd` is the kernel's; `backlog` is the thread's own, from 0. */
int64_t turn_begin(struct turns *turns, uint32_t opcode);
void turn_end(struct turns *turns, uint32_t opcode, int64_t begun, int fd, unsigned *backlog);

#define SELF_TEST_INO UINT64_MAX /* no inode of a store has it */
#define SELF_TEST_SIZE 4096u

/* The file of the self-test (self_test.c). */
struct self_test {
    _Atomic bool is_running;
    struct cairn_mutex lock; /* a leaf */
    size_t size;
    char bytes[SELF_TEST_SIZE];
};

#define LOST_PAGES_MAX 256u

/* Inodes of which stores through maps were lost (lost_pages.c). */
struct lost_pages {
    struct cairn_mutex lock; /* a leaf */
    pthread_cond_t changed;
    uint64_t inos[LOST_PAGES_MAX];
    unsigned count;
    bool is_ending;
    pthread_t thread;
    bool is_started;
};

/* Inodes of which the kernel is told when they change (kept.c). */
#define KEPT_SETS 16384u
#define KEPT_WAYS 4u
struct kept_set {
    struct cairn_mutex lock; /* a leaf */
    struct kept {
        uint64_t ino;  /* 0: free */
        pid_t asker;   /* the only thread that was answered since the kernel was told last; 0: there
                          were several */
        int64_t taken; /* monotonic ns: when it was asked for last */
    } kept[KEPT_WAYS];
};

#define TOLD_MAX 65536u

/* A mount that outlived its daemon: adopt.c. */
struct adoption {
    bool is_adopted;
    _Atomic bool is_replaying;   /* the answer to INIT is for us alone */
    _Atomic bool answer_differs; /* from what the kernel was told */
    _Atomic bool is_settled;     /* what was in flight has come again, or will not */
    _Atomic unsigned resent, answered_from_memory, failed;
    _Atomic uint64_t *
        told; /* TOLD_MAX inodes of which the kernel was told since, by a hash; NULL: not adopted */
};

struct front {
    struct fs *fs;
    struct store *store;
    struct stage *stage;
    struct fuse_session *se;
    struct front_options options;
    bool is_mounted;
    dev_t device; /* of the mount; 0: not known */
    int event_fd;
    struct kept_set kept[KEPT_SETS];
    struct adoption adoption;
    struct front_passport passport;
    _Atomic int64_t changed_at; /* monotonic ns: the last front_changed() */
    _Atomic bool init_done, mmap_offered, mmap_shared, stopping, stopped, over;
    _Atomic unsigned live_threads;
    _Atomic bool holding;     /* no thread receives: hold.c */
    _Atomic unsigned working; /* threads that have received and not come back */
    struct self_test self_test;
    struct lost_pages lost_pages;
    struct turns turns;
    pthread_t threads[THREADS_MAX];
    unsigned thread_count;
    pthread_t resumer;
    bool resumer_started;
    struct {
        struct cairn_mutex lock; /* a leaf: room comes free under other locks */
        pthread_cond_t changed;
        bool wanted;
    } wake;                        /* of the resumer */
    _Atomic unsigned parked_count; /* that wait, the one that is being repeated among them */
    _Atomic unsigned parked_content, parked_slabs;
    _Atomic uint64_t requests, read_bytes, written_bytes; /* statistics: relaxed */
    struct failures failures;
    struct {
        struct cairn_mutex lock;
        struct parked_list content; /* in the order in which they came, in which they go on */
        struct parked_list
            changes; /* each resumes when it can: none waits for the content of another */
        struct syncing_list syncing;
        uint64_t wait_count, wait_ns;
    } locked;
};

/* The request that the thread is working on. */
struct current {
    uint32_t slab;
    const struct wire_in_header *header;
    bool is_resumed;
    bool is_applied; /* a daemon that died has done it, and did not answer: */
    struct stage_request before;
    bool park;   /* the handler asks for the request to be parked */
    bool stolen; /* the handler took the slab */
};
extern _Thread_local struct current current;

/* failures.c: what a client is told for the error `r`, an errno; noted, with cause_text(), if it is
 * a failure of ours. */
void failures_init(struct failures *failures);
void failures_done(struct failures *failures);
int front_failed(struct front *front, uint64_t ino, const char *call, int r);
/* The same for the request that the thread is working on. */
int front_failed_now(struct front *front, int r);

/* kept.c: how long the kernel may keep these attributes, in seconds. They were just read, and may
 * be read again. */
void kept_init(struct front *front);
void kept_done(struct front *front);
double kept_for(struct front *front, struct stat *st);
/* Before the reply to a request that may have changed an inode's attributes: the content of a file,
 * which the kernel may miss with one that is open or has setuid bits; the entries of a directory,
 * with the result `r`; or in a way that it may miss with any inode. */
void kept_changed(struct front *front, uint64_t ino);
void kept_entries_changed(struct front *front, uint64_t dir, int r);
void kept_marked(struct front *front, uint64_t ino);

#define MAX_WRITE SLAB_PAYLOAD

static inline struct front *front_of(fuse_req_t req)
{
    return fuse_req_userdata(req);
}

/* mounted.c */
void mounted_note(struct front *front); /* just now */
bool mounted_is_here(
    const struct front *front);            /* at its mountpoint, in the daemon's mount namespace */
void mounted_release(struct front *front); /* ends the connection, and unmounts nothing; no thread
                                             uses it any more */

/* ops.c */
struct fs_caller caller_of(fuse_req_t req); /* as long as the request */
extern const struct fuse_lowlevel_ops front_ops;
/* Answers with an error or success without content, or parks. */
void reply_result(fuse_req_t req, int r);
/* The same for a call that is never parked. */
void reply_error(fuse_req_t req, int r);

/* Replies when all that happened before is durable. `written`: bytes of the write that asks for it,
 * 0: an fsync. */
void front_sync(fuse_req_t req, fuse_ino_t ino, size_t written);

/* The attributes that a lookup answers. */
struct fuse_entry_param front_entry(struct front *front, const struct stat *st);

/* ops_open.c */
/* Finds a handle that a dead daemon opened and did not answer: 0, or it has to be opened. */
int front_open_again(struct front *front, struct fs_opened *ret);
void front_op_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void front_op_create(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
                     struct fuse_file_info *fi);
void front_op_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void front_op_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void front_op_fsync(fuse_req_t req, fuse_ino_t ino, int datasync, struct fuse_file_info *fi);

/* ops_content.c */
void front_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
                    struct fuse_file_info *fi);
void front_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                   struct fuse_file_info *fi);
void front_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                        struct fuse_file_info *fi);
void front_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                    struct fuse_file_info *fi);
void front_op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
                              struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
                              struct fuse_file_info *to_fi, size_t length, int flags);

/* loop.c */
void front_park(struct front *front, fuse_req_t req);
bool front_must_queue(struct front *front);
void *front_receive(void *arg);
void *front_resume(void *arg);
void parked_free(struct front *front, struct parked *parked);
void front_wake(struct front *front);
bool has_fatal_signal(pid_t tid);

/* adopt.c */
/* Begins to work for the request that the thread has received: it has its place in the stage's
 * table. */
void adopt_enter(struct front *front, bool is_resumed);
/* Within the turn, so in the order of the kernel's queue. */
void adopt_see(struct front *front, const struct wire_in_header *header);
/* The session over a descriptor that is mounted already. */
CAIRN_MUST_CHECK int adopt_session(struct front *front, char **ret_text);
/* Settles the state that the dead daemon left, before requests are received; then the kernel
 * resends those in flight. */
void adopt_begin(struct front *front);
/* Reads the flags of an adopted mount from the kernel. */
void adopt_unmount(struct front *front);
/* True once for each inode: the kernel may keep something of it that the dead daemon told it. */
bool adopt_must_notify(struct front *front, uint64_t ino);
void adopt_done(struct front *front);

/* left.c: answers what was in flight, where the kernel cannot send it again. Before anything is
 * received. */
void left_settle(struct front *front);

/* init.c */
/* Before libfuse does. */
void front_see_request(struct front *front, void *mem, size_t size);
extern const struct fuse_custom_io front_io;

/* lost_pages.c */
void lost_pages_init(struct front *front);
void lost_pages_done(struct front *front);
CAIRN_MUST_CHECK int lost_pages_start(struct front *front);
/* While requests are still received: waits for the notice that is under way. */
void lost_pages_stop(struct front *front);
/* After the answer to what could not be written: soon the kernel has no pages of the inode any
 * more. Does not wait. */
void lost_pages_note(struct front *front, uint64_t ino);
/* The mount ends: writes from the page cache that find no space fail instead of waiting, since the
 * notice waits for them. */
bool lost_pages_are_final(struct front *front);

/* self_test.c */
/* At mount, after the threads were started: takes 10 s at most. */
void front_self_test(struct front *front);
/* Answers, if it is the name of the test's file, and asked by the test. */
bool self_test_lookup(fuse_req_t req, const char *name);
/* Requests for SELF_TEST_INO. */
void self_test_getattr(fuse_req_t req);
void self_test_open(fuse_req_t req, struct fuse_file_info *fi);
void self_test_read(fuse_req_t req, size_t size, off_t offset);
void self_test_write(fuse_req_t req, const char *buf, size_t size, off_t offset);
