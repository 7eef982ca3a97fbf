// SPDX-License-Identifier: Apache-2.0
#include "fuse/earlier.h"

#include "base/cause.h"
#include "base/clock.h"
#include "base/pool.h"

#define THREADS 4u
#define QUEUE_MAX 1024u
/* The current mode applies, and gc may remove a snapshot: so attributes expire quickly. */
#define TIMEOUT_S 1.0

/* --- refused requests ------------------------------------------------------------------------- */

static uint64_t argument_u64(const struct wire_in_header *header, size_t at)
{
    uint64_t value = 0;
    if (header->len >= sizeof *header + at + sizeof value)
        memcpy(&value, (const char *)(header + 1) + at, sizeof value);
    return value;
}

/* Returns a name in the arguments; "": none. *next: offset after it. */
static const char *argument_name(const struct wire_in_header *header, size_t at, size_t *next)
{
    const char *name = (const char *)(header + 1) + at;
    size_t most = header->len > sizeof *header + at ? header->len - sizeof *header - at : 0;
    size_t len = strnlen(name, most);
    *next = at + len + 1;
    return len < most ? name : "";
}

/* The inode that a request concerns in addition to that of the header; 0: none. */
static uint64_t other_inode(const struct wire_in_header *header)
{
    switch (header->opcode) {
    case WIRE_RENAME:
    case WIRE_RENAME2:
    case WIRE_LINK:
        return argument_u64(header, 0);
    case WIRE_COPY_FILE_RANGE:
        return argument_u64(header, 16);
    default:
        return 0;
    }
}

/* Does the request remove, replace or rename .history? The kernel itself prevents creating it, as
 * it exists. */
static bool is_about_top(struct front *front, const struct wire_in_header *header)
{
    size_t next;
    bool is_rename = header->opcode == WIRE_RENAME || header->opcode == WIRE_RENAME2;
    if (header->opcode == WIRE_UNLINK || header->opcode == WIRE_RMDIR)
        return fs_is_history(front->fs, header->nodeid, argument_name(header, 0, &next));
    if (!is_rename)
        return false;
    const char *from = argument_name(header, header->opcode == WIRE_RENAME ? 8 : 16, &next);
    if (fs_is_history(front->fs, header->nodeid, from))
        return true;
    return fs_is_history(front->fs, argument_u64(header, 0), argument_name(header, next, &next));
}

bool earlier_refuses(struct front *front)
{
    const struct wire_in_header *header = current.header;
    struct request_asks asks;
    uint64_t other = other_inode(header);
    bool is_copy = header->opcode == WIRE_COPY_FILE_RANGE;
    if (current.is_applied)
        return false;
    bool is_past = (fs_is_past(header->nodeid) && !is_copy) || (other && fs_is_past(other));
    if (is_past)
        request_asks(header, &asks);
    if (!(is_past && asks.changes) && !is_about_top(front, header))
        return false;
    front_answer(front, header->unique, EROFS);
    return true;
}

/* --- calls ------------------------------------------------------------------------------------ */

struct call {
    struct front *front;
    fuse_req_t req;
    /* Answers; -EAGAIN: it would have to wait */
    int (*run)(struct call *call, bool waits);
    uint64_t ino;
    char *name; /* borrowed from the request until the call is queued */
    size_t size;
    off_t offset;
    int whence;
    bool is_plus;
    struct fuse_file_info fi;
    pid_t pid;
    bool is_queued;
    _Atomic bool is_answered; /* the thread that sets it answers; otherwise `req` may be invalid */
};

/* True: the calling thread must answer. */
static bool claim(struct call *call)
{
    if (atomic_exchange(&call->is_answered, true))
        return false;
    if (call->is_queued)
        fuse_req_interrupt_func(call->req, NULL, NULL); /* waits for a callback in progress */
    return true;
}

static int answer_error(struct call *call, const char *what, int r)
{
    if (r == -EAGAIN)
        return r;
    if (claim(call))
        (void)fuse_reply_err(call->req, r < 0 ? front_failed(call->front, call->ino, what, r) : 0);
    return 0;
}

/* Called when the caller has received a signal. A caller that is about to die does not wait for the
 * remote. */
static void on_interrupted(fuse_req_t req, void *arg)
{
    struct call *call = arg;
    if (caller_is_dying(call->pid) && !atomic_exchange(&call->is_answered, true))
        (void)fuse_reply_err(req, EINTR); /* from now on `call` may be invalid */
}

static void free_call(struct call *call)
{
    free(call->name);
    free(call);
}

static void run_queued(void *arg)
{
    struct call *call = arg;
    cause_clear();
    check(call->run(call, true) != -EAGAIN);
    free_call(call);
}

/* Runs it in this thread, if it need not wait. */
static void start(fuse_req_t req, const struct call *like)
{
    struct call call = *like;
    call.front = front_of(req);
    call.req = req;
    call.pid = fuse_req_ctx(req)->pid;
    if (call.run(&call, false) != -EAGAIN)
        return;
    struct call *queued = xmalloc(sizeof *queued);
    *queued = call;
    queued->name = call.name ? xstrdup(call.name) : NULL;
    queued->is_queued = true;
    fuse_req_interrupt_func(req, on_interrupted, queued);
    pool_submit(call.front->past.pool, run_queued, queued);
}

int earlier_start(struct front *front)
{
    front->past.token = (uint64_t)clock_monotonic_ns();
    return pool_new("cairn-history", THREADS, QUEUE_MAX, NULL, NULL, &front->past.pool);
}

void earlier_stop(struct front *front)
{
    pool_free(front->past.pool);
    front->past.pool = NULL;
}

/* --- names and attributes --------------------------------------------------------------------- */

static double at_most(double timeout)
{
    return timeout < TIMEOUT_S ? timeout : TIMEOUT_S;
}

static struct fuse_entry_param earlier_entry(const struct front *front, const struct stat *st)
{
    bool is_below = past_number(st->st_ino) != ROOT_INO;
    double entry = front->options.entry_timeout;
    return (struct fuse_entry_param){.ino = st->st_ino,
                                     .generation = 1,
                                     .attr = *st,
                                     .entry_timeout = is_below ? entry : at_most(entry),
                                     .attr_timeout = at_most(front->options.attr_timeout)};
}

static void answer_entry(struct call *call, const struct stat *st)
{
    struct fuse_entry_param entry = earlier_entry(call->front, st);
    if (claim(call))
        (void)fuse_reply_entry(call->req, &entry);
}

static int run_lookup(struct call *call, bool waits)
{
    struct stat st;
    struct fs_caller caller = caller_of(call->req);
    int r = fs_past_lookup(call->front->fs, call->ino, call->name, &caller, waits, &st);
    if (r < 0)
        return answer_error(call, "lookup", r);
    answer_entry(call, &st);
    return 0;
}

void earlier_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
    start(req, &(struct call){.run = run_lookup, .ino = parent, .name = (char *)(uintptr_t)name});
}

/* An inode that is gone is looked up again. */
static int of_inode(int r)
{
    return r == -ENOENT ? -ESTALE : r;
}

static int run_getattr(struct call *call, bool waits)
{
    struct stat st;
    int r = fs_past_getattr(call->front->fs, call->ino, waits, &st);
    if (r < 0)
        return answer_error(call, "stat", of_inode(r));
    if (claim(call))
        (void)fuse_reply_attr(call->req, &st, at_most(call->front->options.attr_timeout));
    return 0;
}

void earlier_getattr(fuse_req_t req, fuse_ino_t ino)
{
    start(req, &(struct call){.run = run_getattr, .ino = ino});
}

static int run_lookup_top(struct call *call, bool waits)
{
    struct stat st;
    int r = fs_past_getattr(call->front->fs, call->ino, waits, &st);
    if (r < 0)
        return answer_error(call, "lookup", r);
    answer_entry(call, &st);
    return 0;
}

void earlier_lookup_top(fuse_req_t req)
{
    start(req, &(struct call){.run = run_lookup_top, .ino = FS_HISTORY_INO});
}

static int run_readlink(struct call *call, bool waits)
{
    char target[4097];
    ssize_t len = fs_past_readlink(call->front->fs, call->ino, waits, target);
    if (len < 0)
        return answer_error(call, "readlink", of_inode((int)len));
    target[len] = '\0';
    if (claim(call))
        (void)fuse_reply_readlink(call->req, target);
    return 0;
}

void earlier_readlink(fuse_req_t req, fuse_ino_t ino)
{
    start(req, &(struct call){.run = run_readlink, .ino = ino});
}

/* `buf`: call->size bytes; NULL: only the length was requested. */
static int answer_xattr(struct call *call, const char *what, ssize_t len, const char *buf)
{
    if (len < 0)
        return answer_error(call, what, of_inode((int)len));
    if (!claim(call))
        return 0;
    if (call->size == 0)
        (void)fuse_reply_xattr(call->req, (size_t)len);
    else
        (void)fuse_reply_buf(call->req, buf, (size_t)len);
    return 0;
}

static int run_getxattr(struct call *call, bool waits)
{
    _cleanup_free_ char *buf = call->size ? xmalloc(call->size) : NULL;
    ssize_t len = fs_past_getxattr(call->front->fs, call->ino, call->name, waits, buf, call->size);
    return answer_xattr(call, "getxattr", len, buf);
}

void earlier_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name, size_t size)
{
    start(req, &(struct call){
                   .run = run_getxattr, .ino = ino, .name = (char *)(uintptr_t)name, .size = size});
}

static int run_listxattr(struct call *call, bool waits)
{
    struct fs_caller caller = caller_of(call->req);
    _cleanup_free_ char *buf = call->size ? xmalloc(call->size) : NULL;
    ssize_t len = fs_past_listxattr(call->front->fs, call->ino, &caller, waits, buf, call->size);
    return answer_xattr(call, "listxattr", len, buf);
}

void earlier_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size)
{
    start(req, &(struct call){.run = run_listxattr, .ino = ino, .size = size});
}

/* --- open files and directories --------------------------------------------------------------- */

static int run_open(struct call *call, bool waits)
{
    struct front *front = call->front;
    int r = fs_past_open(front->fs, call->ino, waits);
    if (r < 0)
        return answer_error(call, "open", of_inode(r));
    call->fi.fh = front->past.token;
    call->fi.keep_cache = 1; /* content never changes */
    call->fi.noflush = 1;
    /* -ENOENT: the caller was interrupted, and no release will come */
    if (!claim(call) || fuse_reply_open(call->req, &call->fi) == -ENOENT)
        fs_past_close(front->fs, call->ino);
    return 0;
}

void earlier_open(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    start(req, &(struct call){.run = run_open, .ino = ino, .fi = *fi});
}

/* A handle opened by an earlier daemon has no resources here. */
void earlier_release(fuse_req_t req, fuse_ino_t ino, const struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    if (fi->fh == front->past.token)
        fs_past_close(front->fs, ino);
    (void)fuse_reply_err(req, 0);
}

static int read_entry(struct front *front, uint64_t ino, struct fuse_entry_param *ret)
{
    struct stat st;
    TRY(fs_past_getattr(front->fs, ino, false, &st));
    *ret = earlier_entry(front, &st);
    return 0;
}

static int run_readdir(struct call *call, bool waits)
{
    struct front *front = call->front;
    struct fs_caller caller = caller_of(call->req);
    struct dir_reply reply = {.req = call->req,
                              .front = front,
                              .size = call->size,
                              .plus = call->is_plus,
                              .read = read_entry};
    reply.buf = thread_buffer(THREAD_BUFFER_REPLY, call->size);
    const struct fs_listing listing = {
        .dir = call->ino, .after = (uint64_t)call->offset, .fn = dir_reply_add, .arg = &reply};
    int r = fs_past_readdir(front->fs, &listing, &caller, waits);
    if (r < 0)
        return answer_error(call, "readdir", of_inode(r));
    if (claim(call))
        (void)fuse_reply_buf(call->req, reply.buf, reply.len);
    return 0;
}

void earlier_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset, bool plus)
{
    start(req,
          &(struct call){
              .run = run_readdir, .ino = ino, .size = size, .offset = offset, .is_plus = plus});
}

/* --- content ---------------------------------------------------------------------------------- */

struct past_reading {
    struct front *front;
    fuse_req_t req;
    uint64_t ino;
};

static void reply_reading(const struct fetch_answer *answer, void *arg)
{
    struct past_reading *reading = arg;
    struct front *front = reading->front;
    if (answer->error < 0) {
        (void)fuse_reply_err(reading->req,
                             front_failed(front, reading->ino, "read", of_inode(answer->error)));
    } else {
        atomic_fetch_add_explicit(&front->read_bytes, answer->length, memory_order_relaxed);
        (void)fuse_reply_iov(reading->req, answer->iov, (int)answer->iov_count);
    }
    fs_past_close(front->fs, reading->ino);
    free(reading);
}

/* The state is open, and stays open until the answer. */
static int run_read(struct call *call, bool waits)
{
    int r = fs_past_open(call->front->fs, call->ino, waits);
    if (r < 0)
        return answer_error(call, "read", of_inode(r));
    if (!claim(call)) {
        fs_past_close(call->front->fs, call->ino);
        return 0;
    }
    struct past_reading *reading = xmalloc(sizeof *reading);
    *reading = (struct past_reading){call->front, call->req, call->ino};
    const struct fetch_read_request request = {.ino = call->ino,
                                               .offset = (uint64_t)call->offset,
                                               .length = call->size,
                                               .reply = reply_reading,
                                               .arg = reading};
    fs_read(call->front->fs, &request, true);
    return 0;
}

void earlier_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset)
{
    start(req, &(struct call){.run = run_read, .ino = ino, .size = size, .offset = offset});
}

static int run_lseek(struct call *call, bool waits)
{
    int64_t at =
        fs_past_lseek(call->front->fs, call->ino, (uint64_t)call->offset, call->whence, waits);
    if (at < 0)
        return answer_error(call, "lseek", of_inode((int)at));
    if (claim(call))
        (void)fuse_reply_lseek(call->req, at);
    return 0;
}

void earlier_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence)
{
    start(req, &(struct call){.run = run_lseek, .ino = ino, .offset = offset, .whence = whence});
}
