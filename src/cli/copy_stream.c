// SPDX-License-Identifier: Apache-2.0
/* Copies one file to standard output. Many threads read groups of chunks at once; each thread
 * writes its bytes when all groups before its own are written. So memory holds at most one read of
 * each thread. */
#include <signal.h>

#include "base/io.h"
#include "cli/copy_internal.h"
#include "cli/interrupt.h"

#define ZEROS (64u * 1024)

struct stream {
    struct copy *copy;
    int fd;
    uint64_t size;
    uint64_t started; /* groups; used by the planning thread */
    /* A chunk without a place, as found by the plan, and its offset; UINT64_MAX: none. Set before a
     * group that reaches beyond it is submitted. */
    struct reader_loss planned;
    _Atomic uint64_t planned_at;
    struct event group_ended;
    _Atomic uint64_t ended; /* groups, in order */
    /* Used by the thread whose group has this number: */
    uint64_t at;  /* bytes written */
    bool is_over; /* nothing more is written, because of one of these: */
    bool is_lost;
    struct reader_loss loss;
    int read_error, write_error;
};

struct stream_group {
    struct stream *stream;
    struct reader_group *group;
    uint64_t number;
};

/* --- by the thread whose group follows -------------------------------------------------------- */

static int stream_write(struct stream *s, const void *bytes, size_t length)
{
    int r = interrupted() ? -EINTR : io_write_full(s->fd, bytes, length);
    if (r < 0) {
        s->is_over = true;
        s->write_error = r;
        return r;
    }
    s->at += length;
    check(s->at <= s->size);
    atomic_fetch_add(&s->copy->bytes, length);
    return 0;
}

/* Writes zeros for a hole. */
static int stream_write_zeros(struct stream *s, uint64_t end)
{
    static const uint8_t zeros[ZEROS];
    int r = 0;
    while (r == 0 && s->at < end)
        r = stream_write(s, zeros, (size_t)min_u64(end - s->at, sizeof zeros));
    return r;
}

static int stream_lose(struct stream *s, const struct reader_loss *loss)
{
    if (s->is_over || stream_write_zeros(s, min_u64(loss->offset, s->size)) < 0)
        return -ECANCELED;
    s->is_over = s->is_lost = true;
    s->loss = *loss;
    return -ECANCELED;
}

/* --- reads ------------------------------------------------------------------------------------ */

static void stream_await_earlier(const struct stream_group *g)
{
    struct stream *s = g->stream;
    uint64_t seen = event_count(&s->group_ended);
    while (atomic_load(&s->ended) != g->number)
        (void)event_wait(&s->group_ended, &seen, INT64_MAX);
}

static int stream_give(uint64_t offset, const void *bytes, size_t length, void *arg)
{
    struct stream_group *g = arg;
    struct stream *s = g->stream;
    stream_await_earlier(g);
    if (s->is_over)
        return -ECANCELED;
    if (offset >= atomic_load(&s->planned_at))
        return stream_lose(s, &s->planned);
    if (offset >= s->size)
        return 0;
    int r = stream_write_zeros(s, offset);
    return r < 0 ? r : stream_write(s, bytes, (size_t)min_u64(length, s->size - offset));
}

static int stream_lost(const struct reader_loss *loss, void *arg)
{
    struct stream_group *g = arg;
    struct stream *s = g->stream;
    stream_await_earlier(g);
    return stream_lose(s, loss->offset > atomic_load(&s->planned_at) ? &s->planned : loss);
}

static void stream_read_group(void *arg)
{
    struct stream_group *g = arg;
    struct stream *s = g->stream;
    const struct reader_calls calls = {stream_give, stream_lost, g};
    int r = interrupted() ? -EINTR : reader_fetch(s->copy->store, g->group, &calls);
    stream_await_earlier(g);
    if (r < 0 && !s->is_over) {
        s->is_over = true;
        s->read_error = r;
    }
    check(atomic_fetch_add(&s->ended, 1) == g->number);
    event_signal(&s->group_ended);
    reader_group_free(g->group);
    free(g);
}

/* --- the plan --------------------------------------------------------------------------------- */

/* Groups are in the order of the file: none behind a loss is needed. */
static int stream_start_read(struct reader_group *group, void *arg)
{
    struct stream *s = arg;
    struct stream_group *g = xmalloc(sizeof *g);
    *g = (struct stream_group){s, group, s->started++};
    bool is_last = atomic_load(&s->planned_at) != UINT64_MAX || interrupted();
    pool_submit(s->copy->pool, stream_read_group, g);
    return is_last ? -ECANCELED : 0;
}

static int stream_plan_loss(const struct reader_loss *loss, void *arg)
{
    struct stream *s = arg;
    if (atomic_load(&s->planned_at) == UINT64_MAX) {
        s->planned = *loss;
        atomic_store(&s->planned_at, loss->offset);
    }
    return 0;
}

static void stream_report(struct stream *s, const char *shown)
{
    _cleanup_free_ char *why = s->is_lost ? reader_describe_loss(&s->loss) : NULL;
    int error = s->read_error;
    if (s->write_error) {
        copy_failed(s->copy, "standard output", strerror(-s->write_error));
        return;
    }
    _cleanup_free_ char *text =
        xasprintf("%s; the output ends after %llu of %llu bytes", why ? why : source_trouble(error),
                  (unsigned long long)s->at, (unsigned long long)s->size);
    copy_failed(s->copy, shown, text);
}

void copy_stream(struct copy *copy, const struct ns_inode *inode, int fd, const char *shown)
{
    struct stream s = {.copy = copy, .fd = fd, .size = inode->attrs.size, .planned_at = UINT64_MAX};
    const struct reader_calls calls = {.lost = stream_plan_loss, .arg = &s};
    (void)signal(SIGPIPE, SIG_IGN); /* the private view of a remote must still be removed */
    event_init(&s.group_ended);
    int r = reader_plan(copy->store, inode->ino, stream_start_read, &calls);
    pool_drain(copy->pool);
    if (!s.is_over && r < 0 && r != -ECANCELED) {
        s.is_over = true;
        s.read_error = r;
    }
    if (!s.is_over && atomic_load(&s.planned_at) != UINT64_MAX)
        (void)stream_lose(&s, &s.planned);
    if (!s.is_over && stream_write_zeros(&s, s.size) == 0)
        atomic_fetch_add(&copy->files, 1);
    else
        stream_report(&s, shown);
    event_done(&s.group_ended);
}
