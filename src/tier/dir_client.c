// SPDX-License-Identifier: Apache-2.0
/* The channels to the helper process, and its start. A call that is given up leaves its channel,
 * and a thread of the helper, behind: the channel is *stuck* until the filesystem answers. With
 * STUCK_MAX stuck channels, calls wait until one of them is released. */
#include "tier/dir_talk.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"

#define STUCK_TICK_MS 50
#define ANSWER_WAIT_NS (2ll * 1000000000)

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

/* --- channels --------------------------------------------------------------------------------- */

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
        log_warn(
            "remote: process %d hangs in %s and is left there; it has no file of the store open",
            (int)pid, c->path);
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

/* Has the helper closed its end? Late messages are dropped. */
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
    check_held(&c->locked.lock);
    for (unsigned i = c->locked.stuck_count; i-- > 0;) {
        if (!is_released(c->locked.stuck[i]))
            continue;
        (void)close(c->locked.stuck[i]);
        c->locked.stuck[i] = c->locked.stuck[--c->locked.stuck_count];
        c->locked.silent_since = 0;
    }
}

/* Tells the helper by the shutdown that no caller waits any more; our socket stays open until the
 * helper has closed its end. */
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

/* --- the helper ------------------------------------------------------------------------------- */

static int begin_helper_start(struct dir_client *c, bool *ret_is_started)
{
    LOCK_SCOPE(&c->locked.lock);
    while (c->locked.starting)
        (void)mutex_wait(&c->locked.lock, &c->started, -1);
    if (c->locked.interrupted)
        return -ECANCELED;
    *ret_is_started = c->locked.process.pid > 0;
    c->locked.starting = !*ret_is_started;
    return 0;
}

static int start_helper(struct dir_client *c)
{
    struct dir_process process = {.pid = -1, .socket = -1};
    bool is_started;
    int r = begin_helper_start(c, &is_started);
    if (r < 0 || is_started)
        return r;
    r = dir_process_start(c->path, &process);
    if (r < 0)
        log_warn("remote: cannot start a process for %s: %s", c->path, strerror(-r));
    LOCK_SCOPE(&c->locked.lock);
    c->locked.starting = false;
    if (r == 0)
        c->locked.process = process;
    (void)pthread_cond_broadcast(&c->started);
    /* e.g. ENOENT if /proc is not mounted: it would mean that an object is missing */
    return r < 0 ? -ECONNRESET : 0;
}

/* Call when a channel was closed by the other end. If the helper has ended, the next one must first
 * open the directory. */
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
        log_warn("remote: the process for %s has died; starting another", c->path);
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
    TRY(start_helper(c));
    channel = xmalloc(sizeof *channel);
    *channel = (struct channel){.socket = -1, .out = -1, .in = -1};
    /* held so that the socket is not closed meanwhile; the call does not block */
    mutex_lock(&c->locked.lock);
    int r = c->locked.process.pid > 0 ? dir_process_channel(&c->locked.process, &channel->socket)
                                      : -ECONNRESET;
    mutex_unlock(&c->locked.lock);
    if (r == 0) {
        *ret = channel;
        return 0;
    }
    free(channel);
    see_end(c);
    return r == -EPIPE ? -ECONNRESET : r;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Sends a request that the server must answer, not a cache. */
static bool server_answers(struct dir_client *c, const struct dir_call *call)
{
    struct dir_call space = {.verb = DIR_SPACE,
                             .name = "",
                             .given_up = call->given_up,
                             .arg = call->arg,
                             .patience_ns = ANSWER_WAIT_NS};
    return dir_client_call(c, &space, NULL) == 0;
}

/* A channel that may still contain messages or content is not reused: *channel is set to NULL. */
static int talk_on(struct dir_client *c, const struct dir_call *call, struct channel **channel,
                   struct dir_answer *ret)
{
    struct dir_end end;
    int r = dir_talk(c, call, *channel, &end);
    *ret = end.answer;
    if (!end.is_reusable) {
        if (r == -ETIMEDOUT || r == -ECANCELED)
            leave_channel(c, *channel);
        else
            close_channel(*channel);
        *channel = NULL;
        if (r == -ECONNRESET)
            see_end(c);
        if (r == -ETIMEDOUT)
            dir_talk_timed_out(c, &end, end.is_late && server_answers(c, call));
    }
    return r != 0 ? r : ret->result;
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
        /* The stuck sockets are checked at each tick, not polled: other threads may close them
         * meanwhile. */
        (void)poll(&(struct pollfd){.fd = c->stop_fd, .events = POLLIN}, 1, STUCK_TICK_MS);
    }
    return interrupted ? -ECANCELED : 0;
}

static bool call_needs_open(struct dir_client *c, const struct dir_call *call)
{
    LOCK_SCOPE(&c->locked.lock);
    return call->verb != DIR_OPEN && call->verb != DIR_RESOLVE && !c->locked.is_open;
}

/* Opens the directory first, if needed. An error of that must not look like an error of the
 * object. */
static int open_first(struct dir_client *c, const struct dir_call *call, struct channel **channel)
{
    struct dir_call open = {.verb = DIR_OPEN,
                            .name = c->path,
                            .given_up = call->given_up,
                            .arg = call->arg,
                            .patience_ns = call->patience_ns};
    struct dir_answer answer;
    int r = talk_on(c, &open, channel, &answer);
    return r == -ENOENT || r == -ENOTDIR ? -ENODEV : r == -EEXIST ? -EIO : r;
}

int dir_client_call(struct dir_client *c, const struct dir_call *call, struct dir_answer *ret)
{
    struct dir_answer answer = {0};
    struct channel *channel = NULL;
    int r = await_room(c, call);
    if (r == 0)
        r = take_channel(c, &channel);
    if (r == 0 && call_needs_open(c, call))
        r = open_first(c, call, &channel);
    if (r == 0)
        r = talk_on(c, call, &channel, &answer);
    if (channel)
        give_channel(c, channel);
    if (ret)
        *ret = answer;
    return r;
}
