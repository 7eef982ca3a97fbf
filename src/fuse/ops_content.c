// SPDX-License-Identifier: Apache-2.0
/* The requests that carry content. */
#include <fcntl.h>

#include "base/cause.h"
#include "fuse/internal.h"
#include "fuse/ops.h"
#include "fuse/earlier.h"

#define COPY_MAX (2 * GIB) /* bytes per request: the answer has 32 bits for them */

/* May the stage take over the slab? Only if the payload is large, and is where the stage wants
 * it. */
static bool may_steal(const char *buf, size_t size, const struct front *front)
{
    return size >= STAGE_STEAL_MIN && current.slab != SLAB_NONE &&
           (const uint8_t *)buf ==
               (uint8_t *)stage_slab_memory(front->stage, current.slab) + SLAB_PAYLOAD_OFFSET;
}

struct written {
    uint64_t ino;
    const char *buf;
    size_t size;
    off_t offset;
    /* The kernel leaves O_DSYNC to us for writes that bypass the page cache. Such a write may have
     * to be repeated after its bytes were staged: so its slab is not taken over. */
    bool is_durable;
};

static int stage_written(struct front *front, const struct written *w,
                         const struct fs_caller *caller)
{
    bool steal = !w->is_durable && may_steal(w->buf, w->size, front);
    const struct fs_write change = {.ino = w->ino,
                                    .offset = (uint64_t)w->offset,
                                    .length = (uint32_t)w->size,
                                    .slab = steal ? current.slab : SLAB_NONE,
                                    .data = w->buf};
    TRY(fs_write(front->fs, &change, caller));
    current.stolen = steal;
    return 0;
}

static void reply_written(fuse_req_t req, const struct written *w)
{
    atomic_fetch_add_explicit(&front_of(req)->written_bytes, w->size, memory_order_relaxed);
    if (w->is_durable)
        front_sync(req, w->ino, w->size);
    else
        (void)fuse_reply_write(req, w->size);
}

/* A write(2), for the first time, or when there is room again. */
static void write_call(fuse_req_t req, const struct written *w)
{
    struct front *front = front_of(req);
    if (front_must_queue(front)) {
        front_park(req);
        return;
    }
    struct fs_caller caller = caller_of(req);
    int r = stage_written(front, w, &caller);
    cached_changed(front, w->ino);
    if (r < 0)
        reply_result(req, r);
    else
        reply_written(req, w);
}

/* A page of a shared mapping, already changed by the program: if this fails, the change is lost. At
 * the end of the mount it does not wait for room. */
static void write_page(fuse_req_t req, const struct written *w)
{
    struct front *front = front_of(req);
    bool waits = !lost_pages_are_final(front) && !current.is_refused;
    if (waits && front_must_queue(front)) {
        front_park(req);
        return;
    }
    int r = current.is_refused ? -EIO : stage_written(front, w, NULL);
    cached_marked(front, w->ino);
    if (r == 0) {
        reply_written(req, w);
        return;
    }
    reply_result(req, r == -EAGAIN && !waits ? -ENOSPC : r);
    if (!current.park)
        lost_pages_note(front, w->ino);
}

/* A daemon that died has applied it. */
static void write_again(fuse_req_t req, const struct written *w, bool is_page)
{
    if (is_page)
        cached_marked(front_of(req), w->ino);
    else
        cached_changed(front_of(req), w->ino);
    reply_written(req, w);
}

void front_op_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size, off_t offset,
                    struct fuse_file_info *fi)
{
    const struct written w = {ino, buf, size, offset, fi->flags & O_DSYNC};
    if (ino == SELF_TEST_INO)
        self_test_write(req, buf, size, offset);
    else if (size == 0)
        (void)fuse_reply_write(req, 0);
    else if (current.is_applied)
        write_again(req, &w, fi->writepage);
    else if (fi->writepage)
        write_page(req, &w);
    else
        write_call(req, &w);
}

/* Also for an open file that another writer deleted, in a mount that follows it. */
static void reply_read_error(fuse_req_t req, uint64_t ino, int r)
{
    if (r == -ENOENT)
        cause_note("another writer deleted it");
    (void)fuse_reply_err(req, front_failed(front_of(req), ino, "read", r == -ENOENT ? -ESTALE : r));
}

/* Called by any thread. */
static void reply_read(const struct fetch_answer *answer, void *req)
{
    if (answer->error < 0) {
        reply_read_error(req, answer->ino, answer->error);
        return;
    }
    atomic_fetch_add_explicit(&front_of(req)->read_bytes, answer->length, memory_order_relaxed);
    (void)fuse_reply_iov(req, answer->iov, (int)answer->iov_count);
}

/* A read of a load, whose caller may stop waiting. */
struct load_read {
    fuse_req_t req;
    _Atomic bool is_answered; /* the thread that sets it answers; otherwise `req` may be invalid */
};

/* Called when the caller has received a signal: it might otherwise wait for the remote without
 * end. */
static void on_load_interrupted(fuse_req_t req, void *arg)
{
    struct load_read *read = arg;
    if (!atomic_exchange(&read->is_answered, true)) /* otherwise `read` may be invalid, too */
        (void)fuse_reply_err(req, EINTR);
}

static void reply_load_read(const struct fetch_answer *answer, void *arg)
{
    struct load_read *read = arg;
    if (!atomic_exchange(&read->is_answered, true)) {
        fuse_req_interrupt_func(read->req, NULL, NULL); /* waits for a callback in progress */
        reply_read(answer, read->req);
    }
    free(read);
}

/* Loads expect a read of a file to be interruptible; other programs do not. */
static void make_interruptible(struct fetch_read_request *request, fuse_req_t req)
{
    struct load_read *read = xmalloc(sizeof *read);
    *read = (struct load_read){.req = req};
    request->reply = reply_load_read;
    request->arg = read;
    fuse_req_interrupt_func(req, on_load_interrupted, read);
}

void front_op_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t offset,
                   struct fuse_file_info *fi)
{
    struct front *front = front_of(req);
    size = (size_t)min_u64(size, MAX_WRITE);
    if (ino == SELF_TEST_INO) {
        self_test_read(req, size, offset);
        return;
    }
    if (fs_is_past(ino)) {
        earlier_read(req, ino, size, offset);
        return;
    }
    /* the page cache would treat a short answer as the end of the file; direct readers get the
     * readable part */
    bool is_direct = (fi->flags & O_ACCMODE) != O_RDONLY && atomic_load(&front->mmap_shared);
    struct fetch_read_request request = {.ino = ino,
                                         .offset = (uint64_t)offset,
                                         .length = size,
                                         .may_be_short = is_direct,
                                         .reply = reply_read,
                                         .arg = req};
    bool leaves_atime = fi->flags & O_NOATIME;
    if (fs_is_load(fi->flags))
        make_interruptible(&request, req);
    fs_read(front->fs, &request, leaves_atime);
}

void front_op_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset, off_t length,
                        struct fuse_file_info *fi)
{
    (void)fi;
    struct fs_caller caller = caller_of(req);
    int r = current.is_applied ? 0
                               : fs_fallocate(front_of(req)->fs, ino, mode, (uint64_t)offset,
                                              (uint64_t)length, &caller);
    if (r == 0)
        stage_request_applied(0);
    cached_marked(front_of(req), ino);
    reply_result(req, r);
}

void front_op_lseek(fuse_req_t req, fuse_ino_t ino, off_t offset, int whence,
                    struct fuse_file_info *fi)
{
    (void)fi;
    if (fs_is_past(ino)) {
        earlier_lseek(req, ino, offset, whence);
        return;
    }
    int64_t at = fs_lseek(front_of(req)->fs, ino, (uint64_t)offset, whence);
    if (at < 0)
        reply_error(req, (int)at);
    else
        (void)fuse_reply_lseek(req, at);
}

void front_op_copy_file_range(fuse_req_t req, fuse_ino_t from, off_t from_offset,
                              struct fuse_file_info *from_fi, fuse_ino_t to, off_t to_offset,
                              struct fuse_file_info *to_fi, size_t length, int flags)
{
    (void)from_fi;
    (void)to_fi;
    (void)flags;
    struct fs_caller caller = caller_of(req);
    length = min_u64(length, COPY_MAX); /* the caller requests the rest */
    const struct fs_copy how = {from, (uint64_t)from_offset, to, (uint64_t)to_offset, length};
    ssize_t n = current.is_applied ? (ssize_t)current.before.result
                                   : fs_copy(front_of(req)->fs, &how, &caller);
    if (n >= 0)
        stage_request_applied(n);
    cached_changed(front_of(req), to);
    if (n > 0 && !fs_is_past(from))
        cached_marked(front_of(req), from); /* its time of access */
    if (n < 0)
        reply_result(req, (int)n);
    else
        (void)fuse_reply_write(req, (size_t)n);
}
