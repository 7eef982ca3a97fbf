// SPDX-License-Identifier: Apache-2.0
/* The threads of a load. */
#include <sys/mman.h>

#include "base/clock.h"
#include "client/fault.h"
#include "client/load.h"

#define LOOK_STEPS 8            /* requests between two checks for other loads */
#define POPULATE_MIN (64 * KIB) /* below this, faults cost less than the call */
#define PAGE 4096ull
#define FUSE_PAGES (LOAD_STEP / PAGE) /* of a request of FUSE */

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* --- one request ------------------------------------------------------------------------------ */

/* The pages at both ends may partly belong to another target: faulting them in changes no byte. If
 * the kernel or the memory does not support it, the pages are faulted in by the read. */
static int populate_piece(const struct load_piece *piece)
{
    if (!(piece->target->flags & CAIRN_TARGET_FRESH) || piece->length < POPULATE_MIN)
        return 0;
    uintptr_t start = (uintptr_t)piece->target->host + piece->at;
    uintptr_t from = align_down(start, PAGE), to = align_up(start + piece->length, PAGE);
    if (madvise((void *)from, to - from, MADV_POPULATE_WRITE) == 0 || errno != ENOMEM)
        return 0;
    cause_note("no memory for %zu bytes of a target", piece->length);
    return -ENOMEM;
}

/* Collects the memory of the request's pieces, and its total length. */
static int map_request(const struct load_request *request, struct iovec *iov, size_t *ret_length)
{
    *ret_length = 0;
    for (unsigned i = 0; i < request->count; i++) {
        const struct load_piece *piece = &request->pieces[i];
        TRY(populate_piece(piece));
        iov[i] = (struct iovec){piece->target->host + piece->at, piece->length};
        *ret_length += piece->length;
    }
    return 0;
}

/* Skips the first `n` bytes of the memory. */
static void advance(struct iovec **iov, unsigned *count, size_t n)
{
    while (*count > 0 && n >= (*iov)->iov_len) {
        n -= (*iov)->iov_len;
        (*iov)++;
        (*count)--;
    }
    if (n > 0) {
        (*iov)->iov_base = (uint8_t *)(*iov)->iov_base + n;
        (*iov)->iov_len -= n;
    }
}

static int note_read_error(const struct cairn_load *load, uint64_t at, int r)
{
    if (r == 0) {
        cause_note("%s ends at %llu, within what was to be read", load->path,
                   (unsigned long long)at);
        return -EIO;
    }
    cause_note("read of %s at %llu: %s%s", load->path, (unsigned long long)at, strerror(-r),
               r == -EIO && load->is_on_cairn ? "; `cairn status` names the cause" : "");
    return r;
}

/* A cancelled load ends its threads here: pthread_cancel() wakes the thread with an internal signal
 * of the C library, and the mount answers an interrupted read of a load. The thread holds no lock,
 * and writes no more bytes. */
static ssize_t read_once(const struct cairn_load *load, uint64_t at, const struct iovec *iov,
                         unsigned count)
{
    int state;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state);
    ssize_t n = preadv(atomic_load(&load->is_direct) ? load->direct_fd : load->fd, iov, (int)count,
                       (off_t)at);
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    return n;
}

static int read_into(const struct cairn_load *load, uint64_t at, size_t left, struct iovec *iov,
                     unsigned count)
{
    while (left > 0) {
        if (atomic_load(&load->error))
            return -ECANCELED;
        ssize_t n = read_once(load, at, iov, count);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return note_read_error(load, at, n < 0 ? -errno : 0);
        advance(&iov, &count, (size_t)n);
        at += (size_t)n;
        left -= (size_t)n;
    }
    return 0;
}

/* --- through a buffer -------------------------------------------------------------------------
 *
 * The kernel splits a read at the end of 256 pages. 1 MiB of memory that does not begin at a page
 * covers 257 pages: two requests, neither of which is a whole chunk. If the mount has to decode the
 * chunk, it does so in its own memory and copies it twice; then one copy here costs less. If the
 * mount has the bytes in DRAM, it costs more. The mount does not say which, so both ways are
 * tried. */

#define TRIALS 4

static enum load_way choose_way(struct cairn_load *load)
{
    LOCK_SCOPE(&load->lock);
    const struct load_trials *t = &load->trials;
    if (t->count[LOAD_STRAIGHT] < TRIALS || t->count[LOAD_BUFFER] < TRIALS)
        return t->count[LOAD_BUFFER] < t->count[LOAD_STRAIGHT] ? LOAD_BUFFER : LOAD_STRAIGHT;
    return t->least_ns[LOAD_BUFFER] < t->least_ns[LOAD_STRAIGHT] ? LOAD_BUFFER : LOAD_STRAIGHT;
}

static void note_trial(struct cairn_load *load, enum load_way way, int64_t ns)
{
    LOCK_SCOPE(&load->lock);
    struct load_trials *t = &load->trials;
    if (t->count[way] == TRIALS)
        return;
    if (t->count[way] == 0 || ns < t->least_ns[way])
        t->least_ns[way] = ns;
    t->count[way]++;
}

/* Returns page-aligned memory of LOAD_STEP bytes, of one thread; allocates it on first use. */
static uint8_t *buffer_of(uint8_t **buffer)
{
    if (!*buffer && posix_memalign((void **)buffer, PAGE, LOAD_STEP) != 0)
        *buffer = NULL;
    return *buffer;
}

static bool would_be_split(const struct iovec *iov, unsigned count)
{
    uint64_t pages = 0;
    for (unsigned i = 0; i < count; i++) {
        uintptr_t start = (uintptr_t)iov[i].iov_base;
        pages += (align_up(start + iov[i].iov_len, PAGE) - align_down(start, PAGE)) / PAGE;
    }
    return pages > FUSE_PAGES;
}

struct scatter {
    const uint8_t *from;
    const struct iovec *iov;
    unsigned count;
};

/* May fault, as the memory is the caller's. */
static void scatter(void *arg)
{
    const struct scatter *s = arg;
    const uint8_t *from = s->from;
    for (unsigned i = 0; i < s->count; i++) {
        memcpy(s->iov[i].iov_base, from, s->iov[i].iov_len);
        from += s->iov[i].iov_len;
    }
}

static int read_and_copy(const struct cairn_load *load, uint64_t at, size_t length,
                         const struct iovec *iov, unsigned count, uint8_t *buffer)
{
    struct iovec whole = {buffer, length};
    struct scatter all = {buffer, iov, count};
    TRY(read_into(load, at, length, &whole, 1));
    int r = fault_try(scatter, &all);
    if (r < 0)
        cause_note("%s: the memory of a target cannot be written to", load->path);
    return r;
}

/* Only whole steps are timed and compared. */
static int read_split(struct cairn_load *load, const struct load_request *request, size_t length,
                      struct iovec *iov, uint8_t **buffer)
{
    enum load_way way = buffer_of(buffer) ? choose_way(load) : LOAD_STRAIGHT;
    int64_t begun = clock_monotonic_ns();
    int r = way == LOAD_BUFFER
                ? read_and_copy(load, request->offset, length, iov, request->count, *buffer)
                : read_into(load, request->offset, length, iov, request->count);
    if (r == 0 && length == LOAD_STEP)
        note_trial(load, way, clock_monotonic_ns() - begun);
    return r;
}

static int read_request(struct cairn_load *load, const struct load_request *request,
                        uint8_t **buffer)
{
    struct iovec iov[LOAD_PIECES_MAX];
    size_t length;
    TRY(map_request(request, iov, &length));
    if (atomic_load(&load->is_direct) && would_be_split(iov, request->count))
        return read_split(load, request, length, iov, buffer);
    return read_into(load, request->offset, length, iov, request->count);
}

/* --- the threads ------------------------------------------------------------------------------ */

static struct load_request *take_request_locked(struct cairn_load *load)
{
    check_held(&load->lock);
    struct load_batch *batch = load->queue.current;
    if (!batch || atomic_load(&load->error))
        return NULL;
    check(batch->next < batch->request_count);
    struct load_request *request = &batch->requests[batch->next++];
    while (load->queue.current && load->queue.current->next == load->queue.current->request_count)
        load->queue.current = STAILQ_NEXT(load->queue.current, link);
    return request;
}

void load_fail_locked(struct cairn_load *load, int error, const char *cause)
{
    check_held(&load->lock);
    check(error < 0);
    if (atomic_load(&load->error))
        return;
    cause_format(load->cause, sizeof load->cause, "%s", cause);
    atomic_store(&load->error, error);
    (void)pthread_cond_broadcast(&load->changed);
}

static void end_request_locked(struct cairn_load *load, const struct load_request *request, int r)
{
    check_held(&load->lock);
    bool is_news = r < 0;
    for (unsigned i = 0; r == 0 && i < request->count; i++) {
        struct load_target *target = request->pieces[i].target;
        check(target->left >= request->pieces[i].length);
        target->left -= request->pieces[i].length;
        is_news = is_news || target->left == 0;
    }
    if (r < 0)
        load_fail_locked(load, r, cause_text());
    if (is_news || (load->active == 0 && atomic_load(&load->error)))
        (void)pthread_cond_broadcast(&load->changed);
}

struct reader {
    struct cairn_load *load;
    uint8_t *buffer;
};

static void read_requests(struct reader *reader)
{
    struct cairn_load *load = reader->load;
    mutex_lock(&load->lock);
    for (;;) {
        struct load_request *request = take_request_locked(load);
        if (request) {
            load->active++;
            bool looks = load->requests++ % LOOK_STEPS == 0;
            mutex_unlock(&load->lock);
            cause_clear();
            if (looks)
                load_share(load);
            int r = read_request(load, request, &reader->buffer);
            mutex_lock(&load->lock);
            load->active--;
            end_request_locked(load, request, r);
            continue;
        }
        if (load->is_stopping)
            break;
        (void)mutex_wait(&load->lock, &load->work, -1);
    }
    mutex_unlock(&load->lock);
}

/* Runs when a read of a cancelled load is interrupted. */
static void on_cancelled(void *arg)
{
    struct reader *reader = arg;
    free(reader->buffer);
    LOCK_SCOPE(&reader->load->lock);
    check(atomic_load(&reader->load->error) && reader->load->active > 0);
    if (--reader->load->active == 0)
        (void)pthread_cond_broadcast(&reader->load->changed);
}

static void *reader_main(void *arg)
{
    struct reader reader = {.load = arg};
    int state;
    (void)pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
    fault_admit();
    pthread_cleanup_push(on_cancelled, &reader);
    read_requests(&reader);
    pthread_cleanup_pop(0);
    free(reader.buffer);
    return NULL;
}

void load_cancel_locked(struct cairn_load *load)
{
    check_held(&load->lock);
    for (unsigned i = 0; i < load->thread_count; i++)
        (void)pthread_cancel(load->threads[i].id);
}

int load_start_locked(struct cairn_load *load, size_t wanted)
{
    check_held(&load->lock);
    int r = 0;
    while (r == 0 && load->thread_count < load->thread_max && load->thread_count < wanted) {
        r = lane_thread_start(&load->threads[load->thread_count], "cairn-load", reader_main, load);
        load->thread_count += r == 0;
    }
    return load->thread_count > 0 ? 0 : r;
}

void load_stop(struct cairn_load *load)
{
    mutex_lock(&load->lock);
    load->is_stopping = true;
    (void)pthread_cond_broadcast(&load->work);
    mutex_unlock(&load->lock);
    for (unsigned i = 0; i < load->thread_count; i++)
        lane_thread_join(&load->threads[i]);
    check(load->active == 0);
}
