// SPDX-License-Identifier: Apache-2.0
/* The threads of a load. */
#include <sys/mman.h>

#include "client/load.h"

#define POPULATE_MIN (64 * KIB) /* below it faults cost less than the call */
#define PAGE 4096ull

#ifndef MADV_POPULATE_WRITE /* Linux 5.14 */
#define MADV_POPULATE_WRITE 23
#endif

/* --- one request -------------------------------------------------------------------------------
 */

/* The pages at both ends may be half of another target: to fault them in changes no byte. A kernel
 * or a memory that cannot do it faults at the read. */
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

/* Memory of the request's pieces, and how many bytes that is. */
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

/* Leaves out the first `n` bytes of the memory. */
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

static int read_request(const struct cairn_load *load, const struct load_request *request)
{
    struct iovec memory[LOAD_PIECES_MAX], *iov = memory;
    unsigned count = request->count;
    uint64_t at = request->offset;
    size_t left;
    TRY(map_request(request, iov, &left));
    while (left > 0) {
        if (atomic_load(&load->error))
            return -ECANCELED;
        ssize_t n = preadv(load->fd, iov, (int)count, (off_t)at);
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

/* --- the threads -------------------------------------------------------------------------------
 */

static struct load_request *take_request_locked(struct cairn_load *load)
{
    check_held(&load->lock);
    struct load_batch *batch = load->current;
    if (!batch || atomic_load(&load->error))
        return NULL;
    check(batch->next < batch->request_count);
    struct load_request *request = &batch->requests[batch->next++];
    while (load->current && load->current->next == load->current->request_count)
        load->current = STAILQ_NEXT(load->current, link);
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

static void *reader_main(void *arg)
{
    struct cairn_load *load = arg;
    mutex_lock(&load->lock);
    for (;;) {
        struct load_request *request = take_request_locked(load);
        if (request) {
            load->active++;
            mutex_unlock(&load->lock);
            cause_clear();
            int r = read_request(load, request);
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
    return NULL;
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
