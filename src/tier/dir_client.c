/* Who gives a call up leaves its channel, and with it a thread of the helper, behind: it is *stuck* until the filesystem answers. Of
 * such there are at most STUCK_MAX; then calls only wait for one of them to come back. While nothing is heard of the directory
 * (`silent`), calls wait a moment only: their time began with that of the first. */
#include "tier/dir_client.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"
#include "tier/dir_helper.h"

#define STUCK_MAX 16u
#define SLOW_NS (15ll * 1000000000)  /* an fsync on a server that is busy may take long, and is no hang */
#define LEAST_NS (1ll * 1000000000)
#define TICK_MS 100
#define STUCK_TICK_NS 50000000

struct channel {
    int socket;
    int out, in; /* our ends of pipes, not blocking; -1: none was needed yet */
    struct channel *next;
};

struct dir_client {
    char *path;
    bool read_only, may_make;
    int stop_fd; /* eventfd; readable: interrupted */
    pthread_cond_t started;
    struct {
        struct cairn_mutex lock;
        struct dir_process process; /* pid -1: none */
        bool starting, interrupted;
        bool is_open, has_place; /* the helper has opened it; `place` is where it was the first time */
        struct dir_place place;
        struct tier_place lies;
        struct channel *idle;
        int stuck[STUCK_MAX];
        unsigned stuck_count;
        int64_t silent_since; /* monotonic, ns; 0: it answers */
    } locked;
};

/* One call under way. */
struct talk {
    struct dir_client *client;
    const struct dir_call *call;
    struct channel *channel;
    struct dir_answer answer;
    struct tier_place lies; /* DIR_OPEN */
    int64_t began, progress; /* monotonic, ns */
    uint64_t moved;          /* bytes of content that went through the pipe */
    bool answered;
    char *buf; /* DIR_MESSAGE_MAX */
    char *step; /* of a source: TIER_SOURCE_STEP, what was read last */
    uint64_t step_at, step_len;
};

struct dir_client *dir_client_new(const char *path, bool read_only, bool may_make)
{
    struct dir_client *c = xcalloc(1, sizeof *c);
    c->path = xstrdup(path);
    c->read_only = read_only;
    c->may_make = may_make;
    c->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->locked.process.pid = -1;
    mutex_init(&c->locked.lock, LOCK_LEAF);
    cond_init(&c->started);
    return c;
}

/* --- channels ------------------------------------------------------------------------------------------------------------- */

static void close_channel(struct channel *channel)
{
    (void)close(channel->socket);
    if (channel->out >= 0)
        (void)close(channel->out);
    if (channel->in >= 0)
        (void)close(channel->in);
    free(channel);
}

static void close_idle(struct channel *idle)
{
    while (idle) {
        struct channel *next = idle->next;
        close_channel(idle);
        idle = next;
    }
}

void dir_client_free(struct dir_client *c)
{
    close_idle(c->locked.idle);
    for (unsigned i = 0; i < c->locked.stuck_count; i++)
        (void)close(c->locked.stuck[i]);
    pid_t pid = c->locked.process.pid;
    if (pid > 0 && !dir_process_end(&c->locked.process))
        log_warn("remote: process %d hangs in %s and is left there; it holds nothing of the store", (int)pid, c->path);
    if (c->stop_fd >= 0)
        (void)close(c->stop_fd);
    mutex_done(&c->locked.lock);
    (void)pthread_cond_destroy(&c->started);
    free(c->path);
    free(c);
}

void dir_client_interrupt(struct dir_client *c)
{
    mutex_lock(&c->locked.lock);
    c->locked.interrupted = true;
    mutex_unlock(&c->locked.lock);
    (void)eventfd_write(c->stop_fd, 1);
}

void dir_client_reopen(struct dir_client *c)
{
    LOCK_SCOPE(&c->locked.lock);
    c->locked.is_open = false;
}

void dir_client_forget(struct dir_client *c)
{
    LOCK_SCOPE(&c->locked.lock);
    c->locked.is_open = c->locked.has_place = false;
}

int dir_client_place(struct dir_client *c, struct tier_place *ret)
{
    LOCK_SCOPE(&c->locked.lock);
    *ret = c->locked.lies;
    return c->locked.has_place ? 0 : -EAGAIN;
}

/* Has the other end let go of it? What it said before is of no interest. */
static bool is_released(int socket)
{
    char buf[64];
    ssize_t n;
    while ((n = recv(socket, buf, sizeof buf, MSG_DONTWAIT | MSG_TRUNC)) > 0)
        ;
    return n == 0 || (errno != EAGAIN && errno != EINTR);
}

static void sweep_stuck_locked(struct dir_client *c)
{
    for (unsigned i = c->locked.stuck_count; i-- > 0;) {
        if (!is_released(c->locked.stuck[i]))
            continue;
        (void)close(c->locked.stuck[i]);
        c->locked.stuck[i] = c->locked.stuck[--c->locked.stuck_count];
        c->locked.silent_since = 0;
    }
}

/* The helper sees that nobody waits any more; the socket stays until it has let go. */
static void leave_channel(struct dir_client *c, struct channel *channel)
{
    (void)shutdown(channel->socket, SHUT_WR);
    int socket = fcntl(channel->socket, F_DUPFD_CLOEXEC, 0);
    close_channel(channel);
    LOCK_SCOPE(&c->locked.lock);
    if (socket >= 0 && c->locked.stuck_count < STUCK_MAX)
        c->locked.stuck[c->locked.stuck_count++] = socket;
    else if (socket >= 0)
        (void)close(socket);
}

static void give_channel(struct dir_client *c, struct channel *channel)
{
    LOCK_SCOPE(&c->locked.lock);
    channel->next = c->locked.idle;
    c->locked.idle = channel;
}

/* --- the helper ----------------------------------------------------------------------------------------------------------- */

static int begin_start(struct dir_client *c, bool *ret_runs)
{
    LOCK_SCOPE(&c->locked.lock);
    while (c->locked.starting)
        (void)mutex_wait(&c->locked.lock, &c->started, -1);
    if (c->locked.interrupted)
        return -ECANCELED;
    *ret_runs = c->locked.process.pid > 0;
    c->locked.starting = !*ret_runs;
    return 0;
}

static int start_helper(struct dir_client *c)
{
    struct dir_process process = {.pid = -1, .socket = -1};
    bool runs;
    int r = begin_start(c, &runs);
    if (r < 0 || runs)
        return r;
    r = dir_process_start(c->path, &process);
    if (r < 0)
        log_warn("remote: no process can be started that works in %s: %s", c->path, strerror(-r));
    LOCK_SCOPE(&c->locked.lock);
    c->locked.starting = false;
    if (r == 0)
        c->locked.process = process;
    (void)pthread_cond_broadcast(&c->started);
    return r < 0 ? -ECONNRESET : 0; /* ENOENT, of a /proc that is not mounted, would say that an object is missing */
}

/* A channel has ended by itself. If so has the helper, its successor must open the directory first. */
static void see_end(struct dir_client *c)
{
    struct channel *idle = NULL;
    mutex_lock(&c->locked.lock);
    bool over = c->locked.process.pid > 0 && dir_process_is_over(&c->locked.process);
    if (over) {
        (void)close(c->locked.process.socket);
        c->locked.process.pid = -1;
        c->locked.is_open = false;
        idle = c->locked.idle;
        c->locked.idle = NULL;
    }
    mutex_unlock(&c->locked.lock);
    close_idle(idle);
    if (over)
        log_warn("remote: the process that works in %s has died; another is started", c->path);
}

static struct channel *pop_idle(struct dir_client *c)
{
    LOCK_SCOPE(&c->locked.lock);
    struct channel *channel = c->locked.idle;
    if (channel)
        c->locked.idle = channel->next;
    return channel;
}

static int take_channel(struct dir_client *c, struct channel **ret)
{
    struct channel *channel;
    while ((channel = pop_idle(c))) {
        if (!is_released(channel->socket)) {
            *ret = channel;
            return 0;
        }
        close_channel(channel);
        see_end(c);
    }
    int r = start_helper(c);
    if (r < 0)
        return r;
    channel = xmalloc(sizeof *channel);
    *channel = (struct channel){.socket = -1, .out = -1, .in = -1};
    mutex_lock(&c->locked.lock); /* so that the socket is not closed meanwhile; nothing of it blocks */
    r = c->locked.process.pid > 0 ? dir_process_channel(&c->locked.process, &channel->socket) : -ECONNRESET;
    mutex_unlock(&c->locked.lock);
    if (r == 0) {
        *ret = channel;
        return 0;
    }
    free(channel);
    see_end(c);
    return r == -EPIPE ? -ECONNRESET : r;
}

/* --- one call ------------------------------------------------------------------------------------------------------------- */

static bool is_put(const struct dir_call *call)
{
    return call->verb == DIR_PUT || call->verb == DIR_PUT_NEW;
}

static bool goes_through_pipe(const struct dir_call *call)
{
    return (is_put(call) || call->verb == DIR_GET) && call->len > DIR_INLINE_MAX;
}

/* How long what was begun at `since` may go without an answer. */
static int64_t limit_of(const struct dir_call *call)
{
    bool may_be_slow = is_put(call) || call->verb == DIR_SYNC_FOLDER || call->verb == DIR_STORE_AGAIN;
    return may_be_slow && call->patience_ns < SLOW_NS ? SLOW_NS : call->patience_ns;
}

static int64_t deadline_of(struct talk *t)
{
    LOCK_SCOPE(&t->client->locked.lock);
    int64_t deadline = t->progress + limit_of(t->call), silent = t->client->locked.silent_since;
    if (silent == 0 || t->progress != t->began)
        return deadline;
    int64_t least = t->began + LEAST_NS, common = silent + limit_of(t->call);
    return least > common ? least : common < deadline ? common : deadline;
}

/* The end of a pipe that goes with the request; -1: the helper has it already, or none is needed. *ret_theirs is closed after it. */
static int pipe_for(struct talk *t, int *ret_theirs)
{
    bool is_get = t->call->verb == DIR_GET;
    int *ours = is_get ? &t->channel->in : &t->channel->out, ends[2];
    *ret_theirs = -1;
    if (!goes_through_pipe(t->call) || *ours >= 0)
        return 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    (void)fcntl(ends[0], F_SETPIPE_SZ, DIR_PIPE_BYTES); /* who may not have a large one has a smaller one */
    *ours = is_get ? ends[0] : ends[1];
    *ret_theirs = is_get ? ends[1] : ends[0];
    (void)fcntl(*ours, F_SETFL, O_NONBLOCK);
    return 0;
}

static int send_request(struct talk *t)
{
    const struct dir_call *call = t->call;
    const char *after = call->after ? call->after : "";
    size_t name_len = strlen(call->name) + 1, after_len = call->verb == DIR_LIST ? strlen(after) + 1 : 0;
    struct dir_request request = {
        .verb = call->verb, .name_len = (uint32_t)(name_len + after_len), .offset = call->offset, .len = call->len};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec parts[] = {{&request, sizeof request},
                            {(void *)(uintptr_t)call->name, name_len},
                            {(void *)(uintptr_t)after, after_len},
                            {(void *)(uintptr_t)call->content, is_put(call) && !goes_through_pipe(call) ? call->len : 0}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = ARRAY_LEN(parts)};
    int fd, r = pipe_for(t, &fd);
    if (r < 0)
        return r;
    if (name_len > DIR_NAME_MAX || after_len > DIR_NAME_MAX)
        return -ENAMETOOLONG;
    if (call->verb == DIR_OPEN) {
        LOCK_SCOPE(&t->client->locked.lock);
        request.read_only = t->client->read_only;
        request.may_make = t->client->may_make;
        request.is_known = t->client->locked.has_place;
        request.known = t->client->locked.place;
    }
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    ssize_t n = sendmsg(t->channel->socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    r = n < 0 ? errno == EPIPE ? -ECONNRESET : -errno : 0;
    if (fd >= 0)
        (void)close(fd);
    return r;
}

/* Where the next bytes of a source are in memory. */
static int next_of_source(struct talk *t, struct iovec *ret)
{
    struct tier_source *source = t->call->source;
    if (t->moved == t->step_at + t->step_len) {
        if (!t->step)
            t->step = xmalloc(TIER_SOURCE_STEP);
        t->step_at = t->moved;
        t->step_len = min_u64(TIER_SOURCE_STEP, t->call->len - t->moved);
        int r = tier_source_read(source, t->step_at, t->step, t->step_len);
        if (r < 0)
            return r;
    }
    *ret = (struct iovec){t->step + (t->moved - t->step_at), t->step_at + t->step_len - t->moved};
    return 0;
}

/* The step is filled again while the pipe may still hold what came from it: so the pipe gets a copy. */
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

/* The pages themselves go into the pipe: they are read from there by the helper's write, in one copy. */
static int push(struct talk *t)
{
    const struct dir_call *call = t->call;
    struct iovec part = {(char *)(uintptr_t)call->content + t->moved, call->len - t->moved};
    ssize_t n = call->source ? push_copy(t) : vmsplice(t->channel->out, &part, 1, SPLICE_F_NONBLOCK);
    if (n < 0 && !call->source && (errno == EINVAL || errno == ENOSYS))
        n = write(t->channel->out, part.iov_base, part.iov_len);
    if (n < 0 && call->source && call->source->error < 0)
        return call->source->error;
    if (n < 0)
        return errno == EAGAIN || errno == EINTR || errno == EPIPE ? 0 : -errno; /* why it ended comes on the socket */
    t->moved += (uint64_t)n;
    return 0;
}

static int pull(struct talk *t)
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
        if (entry.name_len == 0 || len - sizeof entry < entry.name_len || at[sizeof entry + entry.name_len - 1] != '\0')
            return -EPROTO;
        struct tier_object object = {.name = at + sizeof entry, .len = entry.len, .modified_ns = entry.modified_ns};
        int r = t->call->entry(&object, t->call->arg);
        if (r != 0)
            return r;
        at += sizeof entry + entry.name_len;
        len -= sizeof entry + entry.name_len;
    }
    return 0;
}

/* Nonzero ends the call: what it returns, where a listing is to go on no more. */
static int take_answer(struct talk *t)
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

/* All was said, and all content is here. */
static bool is_complete(const struct talk *t)
{
    bool has_content = t->call->verb != DIR_GET || !goes_through_pipe(t->call) || t->moved == t->call->len;
    return t->answered && (t->answer.result < 0 || has_content);
}

/* 1: something may have come. */
static int wait_for_more(struct talk *t)
{
    const struct dir_call *call = t->call;
    bool more = goes_through_pipe(call) && t->moved < call->len, is_get = call->verb == DIR_GET;
    struct pollfd fds[] = {{.fd = t->client->stop_fd, .events = POLLIN},
                           {.fd = t->answered ? -1 : t->channel->socket, .events = POLLIN},
                           {.fd = !more ? -1 : is_get ? t->channel->in : t->channel->out, .events = is_get ? POLLIN : POLLOUT}};
    int64_t left_ms = (deadline_of(t) - clock_monotonic_ns()) / 1000000 + 1;
    if (left_ms <= 0)
        return -ETIMEDOUT;
    int n = poll(fds, ARRAY_LEN(fds), (int)min_u64((uint64_t)left_ms, call->given_up ? TICK_MS : 1000));
    if (n < 0 && errno != EINTR)
        return -errno;
    if (n > 0 && fds[0].revents)
        return -ECANCELED;
    if (call->given_up && call->given_up(call->arg))
        return -ECANCELED;
    if (n <= 0)
        return 0;
    /* A pipe whose other end is closed is ready for ever: the socket says why. */
    if (fds[2].revents & (POLLERR | POLLHUP) && !(fds[2].revents & POLLIN) && !fds[1].revents && t->answered)
        return -EPROTO;
    return 1;
}

static int converse(struct talk *t)
{
    bool is_get = t->call->verb == DIR_GET;
    int r = send_request(t);
    t->progress = t->began = clock_monotonic_ns();
    while (r == 0 && !is_complete(t)) {
        uint64_t before = t->moved;
        bool was_answered = t->answered;
        r = wait_for_more(t);
        if (r <= 0)
            continue;
        r = goes_through_pipe(t->call) && t->moved < t->call->len ? is_get ? pull(t) : push(t) : 0;
        if (r == 0 && !t->answered)
            r = take_answer(t);
        if (t->moved != before || t->answered != was_answered || t->call->verb == DIR_LIST)
            t->progress = clock_monotonic_ns();
    }
    return r;
}

static void note_answer(struct talk *t)
{
    struct dir_client *c = t->client;
    LOCK_SCOPE(&c->locked.lock);
    c->locked.silent_since = 0;
    if (t->answer.result == 0 && (is_put(t->call) || t->call->verb == DIR_GET) && strcmp(t->call->name, DIR_MARKER) == 0)
        c->locked.place.has_marker = true;
    if (t->call->verb != DIR_OPEN || t->answer.result < 0)
        return;
    c->locked.is_open = c->locked.has_place = true;
    c->locked.place = t->answer.place;
    c->locked.lies = t->lies;
}

static void note_silence(struct talk *t)
{
    LOCK_SCOPE(&t->client->locked.lock);
    if (t->client->locked.silent_since == 0)
        t->client->locked.silent_since = t->began;
}

/* The channel is used up where something may be left in it. *channel is NULL then. */
static int talk(struct dir_client *c, const struct dir_call *call, struct channel **channel, struct dir_answer *ret)
{
    struct talk t = {.client = c, .call = call, .channel = *channel, .buf = xmalloc(DIR_MESSAGE_MAX)};
    int r = converse(&t);
    free(t.buf);
    free(t.step);
    if (r == -ETIMEDOUT)
        note_silence(&t);
    bool is_whole = r == 0 && t.answered;
    if (is_whole)
        note_answer(&t);
    if (!is_whole || (t.answer.result < 0 && goes_through_pipe(call))) {
        if (r == -ETIMEDOUT || r == -ECANCELED)
            leave_channel(c, *channel);
        else
            close_channel(*channel);
        *channel = NULL;
        if (r == -ECONNRESET)
            see_end(c);
    }
    *ret = t.answer;
    return r != 0 ? r : t.answer.result;
}

static bool is_stuck(struct dir_client *c, bool *ret_interrupted)
{
    LOCK_SCOPE(&c->locked.lock);
    sweep_stuck_locked(c);
    *ret_interrupted = c->locked.interrupted;
    return c->locked.stuck_count == STUCK_MAX;
}

static int await_room(struct dir_client *c, const struct dir_call *call)
{
    int64_t deadline = clock_monotonic_ns() + call->patience_ns;
    bool interrupted;
    while (is_stuck(c, &interrupted)) {
        if (interrupted)
            return -ECANCELED;
        if (clock_monotonic_ns() > deadline)
            return -ETIMEDOUT;
        (void)nanosleep(&(struct timespec){.tv_nsec = STUCK_TICK_NS}, NULL);
    }
    return interrupted ? -ECANCELED : 0;
}

static bool needs_open(struct dir_client *c, const struct dir_call *call)
{
    LOCK_SCOPE(&c->locked.lock);
    return call->verb != DIR_OPEN && call->verb != DIR_RESOLVE && !c->locked.is_open;
}

/* What it says of the directory must not be taken for what is said of an object. */
static int open_first(struct dir_client *c, const struct dir_call *call, struct channel **channel)
{
    struct dir_call open = {
        .verb = DIR_OPEN, .name = c->path, .given_up = call->given_up, .arg = call->arg, .patience_ns = call->patience_ns};
    struct dir_answer answer;
    int r = talk(c, &open, channel, &answer);
    return r == -ENOENT || r == -ENOTDIR ? -ENODEV : r == -EEXIST ? -EIO : r;
}

int dir_client_call(struct dir_client *c, const struct dir_call *call, struct dir_answer *ret)
{
    struct dir_answer answer = {0};
    struct channel *channel = NULL;
    int r = await_room(c, call);
    if (r == 0)
        r = take_channel(c, &channel);
    if (r == 0 && needs_open(c, call))
        r = open_first(c, call, &channel);
    if (r == 0)
        r = talk(c, call, &channel, &answer);
    if (channel)
        give_channel(c, channel);
    if (ret)
        *ret = answer;
    return r;
}
