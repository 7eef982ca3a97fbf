// SPDX-License-Identifier: Apache-2.0
/* One call over one channel: the request, content through pipes, the answer, and their time limits.
 *
 * Content that moves slower than PACE_LEAST over the limit is given up.
 *
 * While the directory answers no call (`silent_since`), a new call waits for LEAST_NS only: its
 * time counts from the first unanswered call. A directory that answers, but does not make content
 * durable in time, is slow (`slow_ns`): a put that is given up and started over would be given up
 * again. So each call that times out there doubles the limit of the next, up to SLOW_MAX_NS; after
 * as long without a slow call the usual limit applies again. */
#include "tier/dir_talk.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"
#include "base/log.h"
#include "tier/pace.h"

/* An fsync on a busy server may take long without being a hang. */
#define SLOW_NS (15ll * 1000000000)
#define SLOW_MAX_NS (600ll * 1000000000)
#define LEAST_NS (1ll * 1000000000)
#define TICK_MS 100

/* One call in progress. */
struct talk {
    struct dir_client *client;
    const struct dir_call *call;
    struct channel *channel;
    struct dir_answer answer;
    struct tier_place lies; /* DIR_OPEN */
    int64_t began;          /* monotonic, ns */
    struct pace pace;       /* of its content */
    int64_t limit;          /* ns from the last progress */
    int64_t waited;         /* ns from the end of its content to the answer */
    uint64_t moved;         /* bytes of content moved through the pipe */
    bool answered;
    char *buf;  /* DIR_MESSAGE_MAX */
    char *step; /* of a source: the last TIER_SOURCE_STEP bytes read */
    uint64_t step_at, step_len;
};

static bool is_dir_put(const struct dir_call *call)
{
    return call->verb == DIR_PUT || call->verb == DIR_PUT_NEW;
}

static bool goes_through_pipe(const struct dir_call *call)
{
    return (is_dir_put(call) || call->verb == DIR_GET) && call->len > DIR_INLINE_MAX;
}

static bool has_fsync(const struct dir_call *call)
{
    return is_dir_put(call) || call->verb == DIR_SYNC_DIRECTORY || call->verb == DIR_STORE_AGAIN ||
           call->verb == DIR_MAKE_DIRECTORY;
}

/* The limit for a directory that is not slow. */
static int64_t usual_limit(const struct dir_call *call)
{
    return has_fsync(call) && call->patience_ns < SLOW_NS ? SLOW_NS : call->patience_ns;
}

static int64_t slow_locked(const struct dir_client *client)
{
    check_held(&client->locked.lock);
    return client->locked.slow_at + SLOW_MAX_NS > clock_monotonic_ns() ? client->locked.slow_ns : 0;
}

/* Sets the time limit of a call. For a call in progress it may grow, but never shrinks. */
static void set_limit_locked(struct talk *t)
{
    check_held(&t->client->locked.lock);
    int64_t slow = has_fsync(t->call) ? slow_locked(t->client) : 0;
    if (t->limit == 0)
        t->limit = usual_limit(t->call);
    if (t->limit < slow)
        t->limit = slow;
}

static int64_t deadline_of(struct talk *t)
{
    LOCK_SCOPE(&t->client->locked.lock);
    set_limit_locked(t);
    int64_t progress = t->pace.since_ns;
    int64_t deadline = progress + t->limit, silent = t->client->locked.silent_since;
    if (silent == 0 || progress != t->began)
        return deadline;
    int64_t least = t->began + LEAST_NS, common = silent + t->limit;
    return least > common ? least : common < deadline ? common : deadline;
}

/* Notes that a call took that long, or longer. True: the limit for later calls has grown. */
static bool note_slow_locked(struct dir_client *c, int64_t took)
{
    check_held(&c->locked.lock);
    int64_t before = slow_locked(c), after = took < SLOW_MAX_NS / 2 ? 2 * took : SLOW_MAX_NS;
    c->locked.slow_ns = after > before ? after : before;
    c->locked.slow_at = clock_monotonic_ns();
    return after > before;
}

void dir_talk_timed_out(struct dir_client *c, const struct dir_end *end, bool is_slow)
{
    mutex_lock(&c->locked.lock);
    bool more = is_slow && note_slow_locked(c, end->limit_ns);
    int64_t seconds = c->locked.slow_ns / 1000000000;
    if (!is_slow && c->locked.silent_since == 0)
        c->locked.silent_since = end->began;
    mutex_unlock(&c->locked.lock);
    if (more)
        log_warn("remote: %s answers, but a change was not durable there within %lld s; the next "
                 "may take %lld s",
                 c->path, (long long)(end->limit_ns / 1000000000), (long long)seconds);
}

/* Creates a pipe if the call needs one that the helper does not have yet. *ret_theirs: its end to
 * send with the request and then to close; -1: none. */
static int pipe_for(struct talk *t, int *ret_theirs)
{
    bool is_get = t->call->verb == DIR_GET;
    int *ours = is_get ? &t->channel->in : &t->channel->out, ends[2];
    *ret_theirs = -1;
    if (!goes_through_pipe(t->call) || *ours >= 0)
        return 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    /* a user who exceeds the limit for large pipes gets a smaller one */
    (void)fcntl(ends[0], F_SETPIPE_SZ, DIR_PIPE_BYTES);
    *ours = is_get ? ends[0] : ends[1];
    *ret_theirs = is_get ? ends[1] : ends[0];
    (void)fcntl(*ours, F_SETFL, O_NONBLOCK);
    return 0;
}

static int send_request(struct talk *t)
{
    const struct dir_call *call = t->call;
    const char *after = call->after ? call->after : "";
    size_t name_len = strlen(call->name) + 1,
           after_len = call->verb == DIR_LIST ? strlen(after) + 1 : 0;
    struct dir_request request = {.verb = call->verb,
                                  .name_len = (uint32_t)(name_len + after_len),
                                  .offset = call->offset,
                                  .len = call->len};
    struct iovec parts[] = {{&request, sizeof request},
                            {(void *)(uintptr_t)call->name, name_len},
                            {(void *)(uintptr_t)after, after_len},
                            {(void *)(uintptr_t)call->content,
                             is_dir_put(call) && !goes_through_pipe(call) ? call->len : 0}};
    if (name_len > DIR_NAME_MAX || after_len > DIR_NAME_MAX)
        return -ENAMETOOLONG;
    int fd, r = pipe_for(t, &fd);
    if (r < 0)
        return r;
    if (call->verb == DIR_OPEN) {
        LOCK_SCOPE(&t->client->locked.lock);
        request.read_only = t->client->read_only;
        request.may_make = t->client->may_make;
        request.is_known = t->client->locked.has_place;
        request.known = t->client->locked.place;
    }
    r = dir_send(t->channel->socket, parts, ARRAY_LEN(parts), fd);
    r = r == -EPIPE ? -ECONNRESET : r;
    if (fd >= 0)
        (void)close(fd);
    return r;
}

/* Returns the next bytes of a source, in memory. */
static int next_of_source(struct talk *t, struct iovec *ret)
{
    struct tier_source *source = t->call->source;
    if (t->moved == t->step_at + t->step_len) {
        if (!t->step)
            t->step = xmalloc(TIER_SOURCE_STEP);
        t->step_at = t->moved;
        t->step_len = min_u64(TIER_SOURCE_STEP, t->call->len - t->moved);
        TRY(tier_source_read(source, t->step_at, t->step, t->step_len));
    }
    *ret = (struct iovec){t->step + (t->moved - t->step_at), t->step_at + t->step_len - t->moved};
    return 0;
}

/* Copies into the pipe: the buffer is refilled while the pipe may still hold earlier bytes of
 * it. */
static ssize_t push_copy(struct talk *t)
{
    struct iovec part;
    int r = next_of_source(t, &part);
    if (r < 0) {
        errno = -r;
        return -1;
    }
    return write(t->channel->out, part.iov_base, part.iov_len);
}

/* Moves the pages themselves into the pipe: the helper's write reads from them, so there is only
 * one copy. */
static int push_content(struct talk *t)
{
    const struct dir_call *call = t->call;
    struct iovec part = {(char *)(uintptr_t)call->content + t->moved, call->len - t->moved};
    ssize_t n =
        call->source ? push_copy(t) : vmsplice(t->channel->out, &part, 1, SPLICE_F_NONBLOCK);
    if (n < 0 && !call->source && (errno == EINVAL || errno == ENOSYS))
        n = write(t->channel->out, part.iov_base, part.iov_len);
    if (n < 0 && call->source && call->source->error < 0)
        return call->source->error;
    /* if the pipe was closed, the reason arrives on the socket */
    if (n < 0)
        return errno == EAGAIN || errno == EINTR || errno == EPIPE ? 0 : -errno;
    t->moved += (uint64_t)n;
    return 0;
}

static int pull_content(struct talk *t)
{
    ssize_t n = read(t->channel->in, (char *)t->call->into + t->moved, t->call->len - t->moved);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    t->moved += (uint64_t)n;
    return 0;
}

static int take_entries(struct talk *t, const char *at, size_t len)
{
    for (uint32_t i = 0; i < t->answer.count; i++) {
        struct dir_entry entry;
        if (len < sizeof entry)
            return -EPROTO;
        memcpy(&entry, at, sizeof entry);
        if (entry.name_len == 0 || len - sizeof entry < entry.name_len ||
            at[sizeof entry + entry.name_len - 1] != '\0')
            return -EPROTO;
        struct tier_object object = {
            .name = at + sizeof entry, .len = entry.len, .modified_ns = entry.modified_ns};
        int r = t->call->entry(&object, t->call->arg);
        if (r != 0)
            return r;
        at += sizeof entry + entry.name_len;
        len -= sizeof entry + entry.name_len;
    }
    return 0;
}

/* Receives a message. A nonzero result ends the call: an error, or the result of the listing's
 * callback. */
static int take_dir_answer(struct talk *t)
{
    ssize_t n = recv(t->channel->socket, t->buf, DIR_MESSAGE_MAX, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n < (ssize_t)sizeof t->answer)
        return n <= 0 ? -ECONNRESET : -EPROTO;
    memcpy(&t->answer, t->buf, sizeof t->answer);
    const char *rest = t->buf + sizeof t->answer;
    size_t len = (size_t)n - sizeof t->answer;
    if (t->answer.kind == DIR_ENTRIES)
        return take_entries(t, rest, len);
    t->answered = true;
    if (t->call->verb == DIR_OPEN && t->answer.result == 0) {
        if (len != sizeof t->lies)
            return -EPROTO;
        memcpy(&t->lies, rest, len);
    }
    if (t->call->text && t->answer.result == 0) {
        size_t used = min_u64(len, DIR_NAME_MAX - 1);
        memcpy(t->call->text, rest, used);
        t->call->text[used] = '\0';
    }
    if (t->call->verb == DIR_GET && t->answer.result == 0 && !goes_through_pipe(t->call)) {
        if (len != t->call->len)
            return -EPROTO;
        memcpy(t->call->into, rest, len);
    }
    return 0;
}

/* The answer has arrived, and all content. */
static bool is_complete(const struct talk *t)
{
    bool has_content =
        t->call->verb != DIR_GET || !goes_through_pipe(t->call) || t->moved == t->call->len;
    return t->answered && (t->answer.result < 0 || has_content);
}

/* Returns 1 if there may be something to receive or send. */
static int wait_for_more(struct talk *t)
{
    const struct dir_call *call = t->call;
    bool more = goes_through_pipe(call) && t->moved < call->len, is_get = call->verb == DIR_GET;
    struct pollfd fds[] = {{.fd = t->client->stop_fd, .events = POLLIN},
                           {.fd = t->answered ? -1 : t->channel->socket, .events = POLLIN},
                           {.fd = !more    ? -1
                                  : is_get ? t->channel->in
                                           : t->channel->out,
                            .events = is_get ? POLLIN : POLLOUT}};
    int64_t left_ms = (deadline_of(t) - clock_monotonic_ns()) / 1000000 + 1;
    if (left_ms <= 0)
        return -ETIMEDOUT;
    int n =
        poll(fds, ARRAY_LEN(fds), (int)min_u64((uint64_t)left_ms, call->given_up ? TICK_MS : 1000));
    if (n < 0 && errno != EINTR)
        return -errno;
    if (n > 0 && fds[0].revents)
        return -ECANCELED;
    if (call->given_up && call->given_up(call->arg))
        return -ECANCELED;
    if (n <= 0)
        return 0;
    /* a pipe whose other end is closed stays ready: an answer is needed to explain it */
    if (fds[2].revents & (POLLERR | POLLHUP) && !(fds[2].revents & POLLIN) && !fds[1].revents &&
        t->answered)
        return -EPROTO;
    return 1;
}

/* A message of a listing holds many names, and the end of the content begins the wait for fsync:
 * both restart the clock. Other content must keep the least rate. */
static void note_talk_progress(struct talk *t, uint64_t moved_before, bool was_answered)
{
    if (t->answered && !was_answered)
        t->waited = clock_monotonic_ns() - t->pace.since_ns;
    bool is_end = t->moved == t->call->len && moved_before != t->moved;
    if (is_end || t->answered != was_answered || t->call->verb == DIR_LIST)
        pace_restart(&t->pace, t->moved);
    else
        pace_note(&t->pace, t->moved, t->limit);
}

static int talk_until_complete(struct talk *t)
{
    bool is_get = t->call->verb == DIR_GET;
    int r = send_request(t);
    pace_restart(&t->pace, 0);
    t->began = t->pace.since_ns;
    while (r == 0 && !is_complete(t)) {
        uint64_t before = t->moved;
        bool was_answered = t->answered;
        r = wait_for_more(t);
        if (r <= 0)
            continue;
        r = goes_through_pipe(t->call) && t->moved < t->call->len
                ? is_get ? pull_content(t) : push_content(t)
                : 0;
        if (r == 0 && !t->answered)
            r = take_dir_answer(t);
        note_talk_progress(t, before, was_answered);
    }
    return r;
}

static void note_dir_answer(struct talk *t)
{
    struct dir_client *c = t->client;
    LOCK_SCOPE(&c->locked.lock);
    c->locked.silent_since = 0;
    if (has_fsync(t->call) && t->waited > usual_limit(t->call) / 2)
        (void)note_slow_locked(c, t->waited);
    if (t->answer.result == 0 && (is_dir_put(t->call) || t->call->verb == DIR_GET) &&
        strcmp(t->call->name, DIR_MARKER) == 0)
        c->locked.place.has_marker = true;
    if (t->call->verb != DIR_OPEN || t->answer.result < 0)
        return;
    c->locked.is_open = c->locked.has_place = true;
    c->locked.place = t->answer.place;
    c->locked.lies = t->lies;
}

int dir_talk(struct dir_client *client, const struct dir_call *call, struct channel *channel,
             struct dir_end *ret)
{
    struct talk t = {
        .client = client, .call = call, .channel = channel, .buf = xmalloc(DIR_MESSAGE_MAX)};
    int r = talk_until_complete(&t);
    free(t.buf);
    free(t.step);
    bool is_whole = r == 0 && t.answered;
    if (is_whole)
        note_dir_answer(&t);
    *ret = (struct dir_end){.answer = t.answer,
                            .is_reusable =
                                is_whole && (t.answer.result >= 0 || !goes_through_pipe(call)),
                            .began = t.began,
                            .limit_ns = t.limit,
                            .is_late = r == -ETIMEDOUT && has_fsync(call) &&
                                       clock_monotonic_ns() - t.pace.since_ns >= t.limit};
    return r;
}
