// SPDX-License-Identifier: Apache-2.0
#include "daemon/control.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/pool.h"
#include "base/vector.h"

#define CONTROL_THREADS 4
#define CONTROL_BACKLOG 32
#define CONNECTIONS_MAX 64u
#define RECEIVE_MIN 4095u
#define MESSAGE_TIMEOUT_MS 2000 /* for one message of a client, in either direction */
#define SWEEP_MS 500

/* Received bytes that were not processed yet; a NUL behind them. */
DEFINE_VECTOR(received, char);

struct connection {
    int fd;
    struct received received;
    int64_t since; /* monotonic, ns: when it was accepted, or answered last */
    /* distinguishes its events from those of an earlier connection in the same slot */
    uint64_t event;
    bool busy; /* a thread serves it */
};

#define EVENT_STOP 0
#define EVENT_LISTEN 1
#define EVENT_FIRST 64 /* of connections: slot + a multiple of CONNECTIONS_MAX */

/* Threads wait for events, not for clients: a connection occupies a thread only while a complete
 * request is answered. A client that sends nothing, sends half a request, or reads no answer costs
 * only a slot, which new clients may take over. */
struct control {
    cJSON *(*handle)(const cJSON *request, void *arg);
    void *arg;
    int directory_fd; /* O_PATH of the store */
    int listen_fd;
    int stop_fd; /* eventfd; readable: end */
    int epoll_fd;
    unsigned thread_count;
    pthread_t threads[CONTROL_THREADS];
    struct {
        struct cairn_mutex lock;
        struct connection *places[CONNECTIONS_MAX]; /* NULL: free */
        uint64_t generation;
    } locked;
};

/* A socket's path has room for 107 bytes only, but a store's path may be longer: it is opened by
 * way of the open directory. */
static struct sockaddr_un socket_address(int directory_fd, const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", directory_fd,
                   name);
    return address;
}

static int64_t deadline_in(int timeout_ms)
{
    return timeout_ms < 0 ? INT64_MAX : clock_monotonic_ns() + (int64_t)timeout_ms * 1000000;
}

/* Waits until `fd` is ready for `events`. -ETIMEDOUT; -ESHUTDOWN if `stop_fd` (-1: none) becomes
 * readable. */
static int wait_ready(int fd, short events, int stop_fd, int64_t deadline)
{
    for (;;) {
        struct pollfd fds[2] = {{.fd = fd, .events = events}, {.fd = stop_fd, .events = POLLIN}};
        int64_t left_ms =
            deadline == INT64_MAX ? -1 : (deadline - clock_monotonic_ns() + 999999) / 1000000;
        if (deadline != INT64_MAX && left_ms <= 0)
            return -ETIMEDOUT;
        int n = poll(fds, 2, left_ms > 1000000 ? 1000000 : (int)left_ms);
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0 && fds[1].revents)
            return -ESHUTDOWN;
        if (n > 0 && fds[0].revents)
            return 0;
    }
}

static int send_all(int fd, const char *buf, size_t len, int stop_fd, int64_t deadline)
{
    while (len > 0) {
        ssize_t n = send(fd, buf, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EAGAIN) {
            TRY(wait_ready(fd, POLLOUT, stop_fd, deadline));
            continue;
        }
        if (n < 0 && errno != EINTR)
            return -errno;
        if (n > 0) {
            buf += n;
            len -= (size_t)n;
        }
    }
    return 0;
}

/* Receives the available bytes, at least one. -EAGAIN: nothing yet; -ENODATA at the end of the
 * stream, -EMSGSIZE if there are `max` bytes already. */
static int receive_some(int fd, struct received *received, size_t max)
{
    check(received->count <= max);
    if (received->count == max)
        return -EMSGSIZE;
    size_t most = min_u64(max_u64(received->count, RECEIVE_MIN), max - received->count);
    vector_reserve(received, most + 1);
    for (;;) {
        ssize_t n = recv(fd, received->at + received->count, most, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        received->count += (size_t)n;
        received->at[received->count] = '\0';
        return 0;
    }
}

/* Returns whether there is a whole line, and its length without the newline. */
static bool find_line(const struct received *received, size_t from, size_t *ret_len)
{
    const char *newline =
        received->count > from ? memchr(received->at + from, '\n', received->count - from) : NULL;
    if (newline)
        *ret_len = (size_t)(newline - received->at);
    return newline != NULL;
}

/* Waits for one line of at most `max` bytes; returns its length without the newline. -ENODATA: the
 * stream ended between lines; -EBADMSG: within a line. */
static int receive_line(int fd, struct received *received, size_t max, int64_t deadline,
                        size_t *ret_len)
{
    size_t searched = 0;
    while (!find_line(received, searched, ret_len)) {
        searched = received->count;
        int r = receive_some(fd, received, max);
        if (r == -EAGAIN)
            r = wait_ready(fd, POLLIN, -1, deadline);
        if (r == -ENODATA && received->count > 0)
            return -EBADMSG;
        if (r < 0)
            return r;
    }
    return 0;
}

static void drop_line(struct received *received, size_t line_len)
{
    received->count -= line_len + 1;
    memmove(received->at, received->at + line_len + 1, received->count);
}

static int send_object(int fd, const cJSON *object, int stop_fd, int64_t deadline)
{
    _cleanup_free_ char *text = control_print(object, false);
    size_t len = strlen(text);
    text[len] = '\n'; /* instead of the NUL */
    return send_all(fd, text, len + 1, stop_fd, deadline);
}

static cJSON *parse_object(const char *text, size_t len)
{
    const char *end = NULL;
    /* cJSON treats a NUL as a blank. */
    cJSON *object =
        memchr(text, '\0', len) ? NULL : cJSON_ParseWithLengthOpts(text, len, &end, false);
    while (object && end < text + len && strchr(" \t\r", *end))
        end++;
    if (cJSON_IsObject(object) && end == text + len)
        return object;
    cJSON_Delete(object);
    return NULL;
}

static bool peer_is_allowed(int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) < 0)
        return false;
    return peer.uid == 0 || peer.uid == geteuid();
}

/* Adds the number of the requesting process as this process sees it: it may be of another PID
 * namespace. */
static void add_peer(cJSON *request, int fd)
{
    struct ucred peer;
    socklen_t len = sizeof peer;
    cJSON_DeleteItemFromObjectCaseSensitive(request, "peer");
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 && peer.pid > 0)
        control_add_u64(request, "peer", (uint64_t)peer.pid);
}

static int reply_error(struct control *control, int fd, int error, const char *text)
{
    _cleanup_json_ cJSON *reply = control_error(error, text);
    return send_object(fd, reply, control->stop_fd, deadline_in(MESSAGE_TIMEOUT_MS));
}

static int connection_answer(struct control *control, int fd, const char *text, size_t len)
{
    _cleanup_json_ cJSON *request = parse_object(text, len);
    if (!request)
        return reply_error(control, fd, EINVAL, "request is not a JSON object");
    add_peer(request, fd);
    _cleanup_json_ cJSON *reply = control->handle(request, control->arg);
    check(reply != NULL);
    return send_object(fd, reply, control->stop_fd, deadline_in(MESSAGE_TIMEOUT_MS));
}

/* Called when the client sends nothing more, and its last bytes may have been no request. */
static void reply_refusal(struct control *control, const struct connection *c, int error)
{
    if (error == -EMSGSIZE)
        (void)reply_error(control, c->fd, EMSGSIZE, "request of more than 64 KiB");
    else if (error == -ENODATA && c->received.count > 0)
        (void)reply_error(control, c->fd, EBADMSG, "request without an end of line");
}

static bool is_writable(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLOUT);
}

/* Answers one request if it is complete. Returns the event to wait for: other connections are
 * served before its next request, and a client that reads no answers receives none. Negative: close
 * the connection. */
static int control_serve(struct control *control, struct connection *c)
{
    size_t len;
    while (!find_line(&c->received, 0, &len)) {
        int r = receive_some(c->fd, &c->received, CONTROL_REQUEST_MAX);
        if (r == -EAGAIN)
            return EPOLLIN;
        reply_refusal(control, c, r);
        if (r < 0)
            return r;
    }
    if (!is_writable(c->fd))
        return EPOLLOUT;
    int r = connection_answer(control, c->fd, c->received.at, len);
    drop_line(&c->received, len);
    c->since = clock_monotonic_ns();
    return r < 0 ? r : find_line(&c->received, 0, &len) ? EPOLLOUT : EPOLLIN;
}

static void close_connection(struct connection *c)
{
    (void)close(c->fd); /* this removes it from the epoll set, too */
    vector_free(&c->received);
    free(c);
}

/* Returns the slot for a new connection: a free one, or that of the connection that has waited
 * longest. */
static unsigned choose_place_locked(const struct control *control)
{
    check_held(&control->locked.lock);
    unsigned oldest = CONNECTIONS_MAX;
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        const struct connection *c = control->locked.places[i];
        if (!c)
            return i;
        if (!c->busy &&
            (oldest == CONNECTIONS_MAX || c->since < control->locked.places[oldest]->since))
            oldest = i;
    }
    check(oldest < CONNECTIONS_MAX); /* there are fewer threads than slots */
    return oldest;
}

static int connection_watch(struct control *control, int how, int fd, unsigned events,
                            uint64_t event)
{
    struct epoll_event e = {.events = events, .data.u64 = event};
    return epoll_ctl(control->epoll_fd, how, fd, &e) < 0 ? -errno : 0;
}

static void add_connection(struct control *control, int fd)
{
    struct connection *c = xcalloc(1, sizeof *c);
    *c = (struct connection){.fd = fd, .since = clock_monotonic_ns()};
    LOCK_SCOPE(&control->locked.lock);
    unsigned place = choose_place_locked(control);
    if (control->locked.places[place])
        close_connection(control->locked.places[place]);
    control->locked.places[place] = c;
    c->event = EVENT_FIRST + ++control->locked.generation * CONNECTIONS_MAX + place;
    if (connection_watch(control, EPOLL_CTL_ADD, fd, EPOLLIN | EPOLLONESHOT, c->event) < 0) {
        control->locked.places[place] = NULL;
        close_connection(c);
    }
}

static void accept_one(struct control *control)
{
    int fd = accept4(control->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
            (void)wait_ready(-1, 0, control->stop_fd, deadline_in(100)); /* avoids a busy loop */
        return;
    }
    if (peer_is_allowed(fd)) {
        add_connection(control, fd);
        return;
    }
    (void)reply_error(control, fd, EPERM, "only root and the user who mounted are answered");
    (void)close(fd);
}

/* Returns the connection of an event; NULL: its slot was assigned to another one since. */
static struct connection *take_connection(struct control *control, uint64_t event)
{
    LOCK_SCOPE(&control->locked.lock);
    struct connection *c = control->locked.places[event % CONNECTIONS_MAX];
    if (!c || c->event != event)
        return NULL;
    check(!c->busy);
    c->busy = true;
    return c;
}

static void give_connection(struct control *control, struct connection *c, int wanted)
{
    LOCK_SCOPE(&control->locked.lock);
    check(c->busy && control->locked.places[c->event % CONNECTIONS_MAX] == c);
    c->busy = false;
    if (wanted >= 0 && connection_watch(control, EPOLL_CTL_MOD, c->fd,
                                        (unsigned)wanted | EPOLLONESHOT, c->event) == 0)
        return;
    control->locked.places[c->event % CONNECTIONS_MAX] = NULL;
    close_connection(c);
}

static void drop_silent(struct control *control)
{
    int64_t limit = clock_monotonic_ns() - MESSAGE_TIMEOUT_MS * 1000000ll;
    LOCK_SCOPE(&control->locked.lock);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++) {
        struct connection *c = control->locked.places[i];
        if (!c || c->busy || c->since > limit)
            continue;
        control->locked.places[i] = NULL;
        close_connection(c);
    }
}

static void *control_main(void *arg)
{
    struct control *control = arg;
    for (;;) {
        struct epoll_event e;
        int n = epoll_wait(control->epoll_fd, &e, 1, SWEEP_MS);
        struct connection *c;
        if (n == 0)
            drop_silent(control);
        else if (n < 0)
            check(errno == EINTR);
        else if (e.data.u64 == EVENT_STOP)
            return NULL;
        else if (e.data.u64 == EVENT_LISTEN)
            accept_one(control);
        else if ((c = take_connection(control, e.data.u64)))
            give_connection(control, c, control_serve(control, c));
    }
}

/* Binds, listens, and only then renames the socket to its name: every client that finds it is
 * answered. Only its owner can reach it from the first moment on, since the store is private. */
static int open_listener(struct control *control, const char *store)
{
    control->directory_fd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (control->directory_fd < 0)
        return -errno;
    struct sockaddr_un address = socket_address(control->directory_fd, "control.new");
    if (unlinkat(control->directory_fd, "control.new", 0) < 0 && errno != ENOENT)
        return -errno;
    control->listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (control->listen_fd < 0)
        return -errno;
    if (bind(control->listen_fd, (struct sockaddr *)&address, sizeof address) < 0 ||
        chmod(address.sun_path, 0600) < 0 || listen(control->listen_fd, CONTROL_BACKLOG) < 0 ||
        renameat(control->directory_fd, "control.new", control->directory_fd, "control") < 0)
        return -errno;
    return 0;
}

static int open_events(struct control *control)
{
    control->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    control->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (control->stop_fd < 0 || control->epoll_fd < 0)
        return -errno;
    int r = connection_watch(control, EPOLL_CTL_ADD, control->stop_fd, EPOLLIN, EVENT_STOP);
    return r < 0 ? r
                 : connection_watch(control, EPOLL_CTL_ADD, control->listen_fd, EPOLLIN,
                                    EVENT_LISTEN);
}

int control_start(const char *store, cJSON *(*handle)(const cJSON *request, void *arg), void *arg,
                  struct control **ret)
{
    struct control *control = xcalloc(1, sizeof *control);
    *control = (struct control){.handle = handle,
                                .arg = arg,
                                .directory_fd = -1,
                                .listen_fd = -1,
                                .stop_fd = -1,
                                .epoll_fd = -1};
    mutex_init(&control->locked.lock, LOCK_LEAF);
    int r = open_listener(control, store);
    if (r == 0)
        r = open_events(control);
    for (unsigned i = 0; r == 0 && i < CONTROL_THREADS; i++) {
        r = thread_start(&control->threads[i], "cairn-control", control_main, control);
        control->thread_count += r == 0;
    }
    if (r < 0) {
        control_stop(control);
        return r;
    }
    *ret = control;
    return 0;
}

void control_stop(struct control *control)
{
    if (!control)
        return;
    if (control->stop_fd >= 0)
        check(eventfd_write(control->stop_fd, 1) == 0);
    for (unsigned i = 0; i < control->thread_count; i++)
        (void)pthread_join(control->threads[i], NULL);
    for (unsigned i = 0; i < CONNECTIONS_MAX; i++)
        if (control->locked.places[i])
            close_connection(control->locked.places[i]);
    if (control->listen_fd >= 0)
        (void)unlinkat(control->directory_fd, "control", 0);
    cleanup_close(&control->listen_fd);
    cleanup_close(&control->stop_fd);
    cleanup_close(&control->epoll_fd);
    cleanup_close(&control->directory_fd);
    mutex_done(&control->locked.lock);
    free(control);
}

/* A full backlog returns EAGAIN at once and cannot be polled for. */
static int connect_until(int fd, int directory_fd, int64_t deadline)
{
    struct sockaddr_un address = socket_address(directory_fd, "control");
    while (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        if (clock_monotonic_ns() >= deadline)
            return -ETIMEDOUT;
        (void)usleep(10000);
    }
    return 0;
}

/* *ret_fd: connected, and on failure -1. */
static int connect_to(const char *store, int64_t deadline, int *ret_fd)
{
    *ret_fd = -1;
    _cleanup_close_ int directory_fd = open(store, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory_fd < 0)
        return -errno;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    int r = connect_until(fd, directory_fd, deadline);
    if (r == 0)
        *ret_fd = take_fd(&fd);
    return r;
}

bool control_listens(const char *store)
{
    _cleanup_close_ int fd = -1;
    int r = connect_to(store, 0, &fd);
    return r == 0 || r == -ETIMEDOUT; /* -ETIMEDOUT: the backlog is full, so a daemon listens */
}

int control_request(const char *store, const cJSON *request, int timeout_ms, cJSON **ret_reply)
{
    int64_t deadline = deadline_in(timeout_ms);
    _cleanup_close_ int fd = -1;
    TRY(connect_to(store, deadline, &fd));
    int r = send_object(fd, request, -1, deadline);
    /* A server that refuses us closes early, and its reason is still to be read. */
    if (r < 0 && r != -EPIPE && r != -ECONNRESET)
        return r;
    _cleanup_vector_ struct received received = {0};
    size_t len;
    r = receive_line(fd, &received, CONTROL_REPLY_MAX, deadline, &len);
    if (r < 0)
        return r == -ENODATA ? -ECONNRESET : r;
    *ret_reply = parse_object(received.at, len);
    return *ret_reply ? 0 : -EBADMSG;
}
