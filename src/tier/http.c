// SPDX-License-Identifier: Apache-2.0
/* A caller prepares its exchange, passes it to the thread that drives libcurl, and waits until that
 * thread returns it. In between the exchange belongs to the driver. An exchange lies on the stack
 * of its caller, so the queue is never longer than the number of waiting threads.
 *
 * libcurl's own speed limit counts in whole seconds, and not during name lookup or connection. One
 * clock of our own (tier/pace.h) covers everything: name, connection, handshake, request, head and
 * body. */
#include "tier/http.h"

#include <curl/curl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/pool.h"
#include "tier/http_header.h"
#include "tier/http_socket.h"
#include "tier/pace.h"

/* Allocated for each exchange in progress: 24 MiB for 32 connections. Larger buffers gained
 * nothing. */
#define SEND_BUFFER (512l * 1024)
#define RECEIVE_BUFFER (256l * 1024)

#define TICK_MS_MAX 1000

struct exchange {
    struct http *http;
    const struct http_request *request;
    struct http_response *response;
    CURL *easy;
    size_t sent;
    bool is_get, is_sent; /* is_sent: the peer has acknowledged the whole body */
    uint64_t received;    /* bytes of heads and bodies */
    struct pace pace;     /* of received and sent bytes */
    int64_t looked_ns;    /* when `pace` was last updated */
    int64_t deadline_ns;  /* 0: none */
    int result;
    bool done; /* under the lock; set when the driver no longer uses the exchange */
    pthread_cond_t finished;
    struct exchange *next;
    char error[CURL_ERROR_SIZE];
};

struct http {
    CURLM *multi;
    pthread_t thread;
    unsigned connections;
    int64_t stall_ns;
    char *ca_bundle, *user_agent;
    struct exchange *active; /* the driver's */
    unsigned active_count;   /* the driver's */
    VECTOR(int) sockets;     /* the driver's: all open sockets, owned by libcurl */
    struct {
        struct cairn_mutex lock;
        struct exchange *first, **last; /* waiting for a connection */
        /* idle handles, which keep their buffers; at most `connections` */
        CURL **spare;
        unsigned spare_count;
        bool interrupted, stopping;
    } locked;
};

/* --- callbacks of libcurl, in the driver ------------------------------------------------------ */

/* Programs started by the daemon must not inherit the socket. */
static curl_socket_t on_socket_open(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
    struct http *http = arg;
    (void)purpose;
    int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
    if (fd < 0)
        return CURL_SOCKET_BAD;
    vector_add(&http->sockets, fd);
    return fd;
}

static int on_socket_close(void *arg, curl_socket_t fd)
{
    struct http *http = arg;
    for (size_t i = 0; i < http->sockets.count; i++)
        if (http->sockets.at[i] == fd) {
            http->sockets.at[i] = http->sockets.at[--http->sockets.count];
            break;
        }
    return close(fd);
}

/* A server that sends head and body separately with Nagle's algorithm on (Ceph by default) delays a
 * small body until the head is acknowledged. The kernel does that after 40 ms unless told each time
 * to do it at once. libcurl does not say which socket an exchange uses, but there are few. */
static void acknowledge_all(struct http *http)
{
    int on = 1;
    for (size_t i = 0; i < http->sockets.count; i++)
        (void)setsockopt(http->sockets.at[i], IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on);
}

static size_t on_http_header(char *line, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    x->received += size * count;
    http_header_line(x->response, line, size * count);
    if (x->is_get && (*line == '\r' || *line == '\n'))
        acknowledge_all(x->http);
    return size * count;
}

static bool gather_text(struct exchange *x, const char *data, size_t len)
{
    struct http_response *r = x->response;
    if (len > HTTP_TEXT_MAX - r->text.count)
        return false;
    vector_reserve(&r->text, len + 1);
    vector_add_all(&r->text, data, len);
    r->text.at[r->text.count] = '\0';
    return true;
}

static size_t on_body(char *data, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    struct http_response *r = x->response;
    size_t len = size * count;
    x->received += len;
    bool straight = x->request->into && r->status / 100 == 2;
    if (straight && len <= x->request->into_len - r->into_len) {
        memcpy((char *)x->request->into + r->into_len, data, len);
        r->into_len += len;
        return len;
    }
    if (!straight && gather_text(x, data, len))
        return len;
    r->is_too_long = true;
    return CURL_WRITEFUNC_ERROR;
}

static size_t on_send(char *to, size_t size, size_t count, void *arg)
{
    struct exchange *x = arg;
    size_t len = (size_t)min_u64(size * count, x->request->body_len - x->sent);
    struct tier_source *source = x->request->source;
    if (source && len && tier_source_read(source, x->sent, to, len) < 0)
        return CURL_READFUNC_ABORT;
    if (!source && len)
        memcpy(to, (const char *)x->request->body + x->sent, len);
    x->sent += len;
    return len;
}

/* If a reused connection was closed, libcurl sends the request again on a new one. */
static int on_seek(void *arg, curl_off_t offset, int origin)
{
    struct exchange *x = arg;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > x->request->body_len)
        return CURL_SEEKFUNC_FAIL;
    x->sent = (size_t)offset;
    return CURL_SEEKFUNC_OK;
}

/* --- an exchange ------------------------------------------------------------------------------ */

/* curl_easy_setopt() is variadic: pass a number as long, e.g. 1l. */
#define SET(easy, option, value) (void)curl_easy_setopt(easy, option, value)

static void set_transport(struct http *http, CURL *easy)
{
    SET(easy, CURLOPT_OPENSOCKETFUNCTION, on_socket_open);
    SET(easy, CURLOPT_OPENSOCKETDATA, http);
    SET(easy, CURLOPT_CLOSESOCKETFUNCTION, on_socket_close);
    SET(easy, CURLOPT_CLOSESOCKETDATA, http);
    SET(easy, CURLOPT_NOSIGNAL, 1l);
    SET(easy, CURLOPT_TCP_NODELAY, 1l);
    SET(easy, CURLOPT_TCP_KEEPALIVE, 1l);
    SET(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(easy, CURLOPT_DNS_SHUFFLE_ADDRESSES, 1l);
    SET(easy, CURLOPT_BUFFERSIZE, RECEIVE_BUFFER);
    SET(easy, CURLOPT_UPLOAD_BUFFERSIZE, SEND_BUFFER);
    SET(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(easy, CURLOPT_FOLLOWLOCATION, 0l);
    SET(easy, CURLOPT_PATH_AS_IS, 1l);
    SET(easy, CURLOPT_CONNECTTIMEOUT_MS, (long)(http->stall_ns / MS_NS));
#if LIBCURL_VERSION_NUM >= 0x075500
    SET(easy, CURLOPT_PROTOCOLS_STR, "http,https");
#else
    SET(easy, CURLOPT_PROTOCOLS, (long)(CURLPROTO_HTTP | CURLPROTO_HTTPS));
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    /* Otherwise giving up on a name server that does not answer would block until its timeout,
     * together with all other transfers. */
    SET(easy, CURLOPT_QUICK_EXIT, 1l);
#endif
    if (http->ca_bundle)
        SET(easy, CURLOPT_CAINFO, http->ca_bundle);
    if (http->user_agent)
        SET(easy, CURLOPT_USERAGENT, http->user_agent);
}

static bool is_link_local(const char *url)
{
    return strncmp(url, "http://169.254.", 15) == 0 || strncmp(url, "http://[fd00:ec2::", 18) == 0;
}

static void set_request(struct exchange *x, struct curl_slist *headers)
{
    const struct http_request *q = x->request;
    CURL *easy = x->easy;
    bool sends = q->body || strcmp(q->method, "PUT") == 0 || strcmp(q->method, "POST") == 0;
    SET(easy, CURLOPT_URL, q->url);
    SET(easy, CURLOPT_HTTPHEADER, headers);
    if (is_link_local(q->url))
        SET(easy, CURLOPT_PROXY, "");
    if (strcmp(q->method, "HEAD") == 0)
        SET(easy, CURLOPT_NOBODY, 1l);
    if (sends) {
        SET(easy, CURLOPT_UPLOAD, 1l);
        SET(easy, CURLOPT_INFILESIZE_LARGE, (curl_off_t)q->body_len);
        SET(easy, CURLOPT_READFUNCTION, on_send);
        SET(easy, CURLOPT_READDATA, x);
        SET(easy, CURLOPT_SEEKFUNCTION, on_seek);
        SET(easy, CURLOPT_SEEKDATA, x);
    }
    SET(easy, CURLOPT_CUSTOMREQUEST, q->method);
    SET(easy, CURLOPT_HEADERFUNCTION, on_http_header);
    SET(easy, CURLOPT_HEADERDATA, x);
    SET(easy, CURLOPT_WRITEFUNCTION, on_body);
    SET(easy, CURLOPT_WRITEDATA, x);
    SET(easy, CURLOPT_ERRORBUFFER, x->error);
    SET(easy, CURLOPT_PRIVATE, x);
}

static struct curl_slist *add_header(struct curl_slist *list, const char *header)
{
    struct curl_slist *longer = curl_slist_append(list, header);
    check(longer); /* out of memory */
    return longer;
}

static struct curl_slist *http_header_list(const struct http_request *request)
{
    struct curl_slist *list = add_header(NULL, "Expect:");
    for (const char *const *h = request->headers; h && *h; h++)
        list = add_header(list, *h);
    return list;
}

static CURL *take_handle(struct http *http)
{
    CURL *easy = NULL;
    mutex_lock(&http->locked.lock);
    if (http->locked.spare_count)
        easy = http->locked.spare[--http->locked.spare_count];
    mutex_unlock(&http->locked.lock);
    if (!easy)
        easy = curl_easy_init();
    check(easy); /* out of memory */
    return easy;
}

static void give_handle(struct http *http, CURL *easy)
{
    curl_easy_reset(easy);
    mutex_lock(&http->locked.lock);
    bool is_spared = http->locked.spare_count < http->connections;
    if (is_spared)
        http->locked.spare[http->locked.spare_count++] = easy;
    mutex_unlock(&http->locked.lock);
    if (!is_spared)
        curl_easy_cleanup(easy);
}

/* --- results ---------------------------------------------------------------------------------- */

static int errno_of_connection(CURL *easy)
{
    long os = 0;
    (void)curl_easy_getinfo(easy, CURLINFO_OS_ERRNO, &os);
    switch (os) {
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ENETDOWN:
    case EHOSTDOWN:
        return -EHOSTUNREACH;
    case ETIMEDOUT:
        return -ETIMEDOUT;
    default:
        return -ECONNREFUSED;
    }
}

/* libcurl has one code for all errors of a handshake before the certificate is checked. */
static int errno_of_handshake(const struct exchange *x)
{
    long os = 0;
    (void)curl_easy_getinfo(x->easy, CURLINFO_OS_ERRNO, &os);
    bool is_reset =
        os == ECONNRESET || os == EPIPE || strstr(x->error, "SYSCALL") || strstr(x->error, "reset");
    return is_reset ? -ECONNRESET : -EPROTO;
}

static int errno_of(const struct exchange *x, CURLcode code)
{
    switch (code) {
    case CURLE_OK:
        return 0;
    case CURLE_COULDNT_RESOLVE_HOST:
    case CURLE_COULDNT_RESOLVE_PROXY:
        return -EHOSTUNREACH;
    case CURLE_COULDNT_CONNECT:
        return errno_of_connection(x->easy);
    case CURLE_OPERATION_TIMEDOUT:
        return -ETIMEDOUT;
    case CURLE_SEND_ERROR:
    case CURLE_RECV_ERROR:
    case CURLE_GOT_NOTHING:
        return -ECONNRESET;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
    case CURLE_SSL_ISSUER_ERROR:
        return -EKEYREJECTED;
    case CURLE_SSL_CONNECT_ERROR:
        return errno_of_handshake(x);
    case CURLE_UNSUPPORTED_PROTOCOL: /* also an answer without a status line */
    case CURLE_WEIRD_SERVER_REPLY:
        return -EPROTO;
    case CURLE_URL_MALFORMAT:
        return -EINVAL;
    case CURLE_PARTIAL_FILE:
        return -EUCLEAN;
    case CURLE_WRITE_ERROR:
        return x->response->is_too_long ? -EUCLEAN : -EIO;
    default:
        return -EIO;
    }
}

/* --- the driver ------------------------------------------------------------------------------- */

static void finish_exchange(struct http *http, struct exchange *x, int result, const char *cause)
{
    x->result = result;
    if (result < 0)
        (void)snprintf(x->response->cause, sizeof x->response->cause, "%.*s",
                       (int)sizeof x->response->cause - 1, cause);
    LOCK_SCOPE(&http->locked.lock);
    x->done = true;
    (void)pthread_cond_signal(&x->finished);
}

/* Removes the exchange from the list, which is short, and from libcurl. */
static void end_active(struct http *http, struct exchange *x, int result, const char *cause)
{
    struct exchange **at = &http->active;
    while (*at != x) {
        check(*at); /* it is active */
        at = &(*at)->next;
    }
    *at = x->next;
    http->active_count--;
    (void)curl_multi_remove_handle(http->multi, x->easy);
    finish_exchange(http, x, result, cause);
}

static struct exchange *take_waiting_exchange(struct http *http)
{
    LOCK_SCOPE(&http->locked.lock);
    struct exchange *x = http->locked.first;
    if (!x || (http->active_count >= http->connections && !http->locked.interrupted))
        return NULL;
    http->locked.first = x->next;
    if (!x->next)
        http->locked.last = &http->locked.first;
    return x;
}

static void begin_waiting_exchanges(struct http *http)
{
    struct exchange *x;
    while ((x = take_waiting_exchange(http))) {
        pace_restart(&x->pace, 0);
        x->deadline_ns = x->request->timeout_ns ? x->pace.since_ns + x->request->timeout_ns : 0;
        x->next = http->active;
        http->active = x;
        http->active_count++;
        if (curl_multi_add_handle(http->multi, x->easy) != CURLM_OK)
            end_active(http, x, -EIO, "libcurl rejected the request");
    }
}

static void end_finished(struct http *http)
{
    int left;
    CURLMsg *message;
    while ((message = curl_multi_info_read(http->multi, &left))) {
        if (message->msg != CURLMSG_DONE)
            continue;
        CURLcode code = message->data.result;
        struct exchange *x = NULL;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&x);
        end_active(http, x, errno_of(x, code), x->error[0] ? x->error : curl_easy_strerror(code));
    }
}

/* Bytes count as sent once the peer has acknowledged them. After the last of them, the peer has a
 * full limit to answer. Checked eight times per limit, and before an exchange is given up. */
static void note_progress(struct exchange *x, int64_t now)
{
    int64_t limit = x->http->stall_ns;
    if (now < x->looked_ns + limit / 8 && now < x->pace.since_ns + limit)
        return;
    x->looked_ns = now;
    curl_off_t passed_on = 0;
    (void)curl_easy_getinfo(x->easy, CURLINFO_SIZE_UPLOAD_T, &passed_on);
    check(passed_on >= 0);
    long port = 0; /* identifies the socket, which libcurl does not expose */
    (void)curl_easy_getinfo(x->easy, CURLINFO_LOCAL_PORT, &port);
    uint64_t sent = (uint64_t)passed_on, held = 0;
    if (!x->is_sent)
        held = http_socket_unacknowledged(x->http->sockets.at, x->http->sockets.count, port);
    uint64_t moved = x->received + (sent > held ? sent - held : 0);
    bool is_sent = sent >= x->request->body_len && held == 0;
    if (is_sent && !x->is_sent)
        pace_restart(&x->pace, moved);
    x->is_sent |= is_sent;
    pace_note(&x->pace, moved, limit);
}

/* Ends exchanges that are over their time limit, or all. Returns the time until the next can be,
 * ns. */
static int64_t end_late(struct http *http, bool all)
{
    int64_t now = clock_monotonic_ns(), next = now + TICK_MS_MAX * MS_NS;
    struct exchange *after;
    for (struct exchange *x = http->active; x; x = after) {
        after = x->next;
        note_progress(x, now);
        int64_t stalled = x->pace.since_ns + http->stall_ns;
        if (all)
            end_active(http, x, -ECANCELED, "interrupted");
        else if (now >= stalled)
            end_active(http, x, -ETIMEDOUT, "the transfer was too slow, or stopped");
        else if (x->deadline_ns && now >= x->deadline_ns)
            end_active(http, x, -ETIMEDOUT, "timed out");
        else
            next = (int64_t)min_u64(min_u64((uint64_t)next, (uint64_t)stalled),
                                    x->deadline_ns ? (uint64_t)x->deadline_ns : UINT64_MAX);
    }
    return next - now;
}

static bool http_is_over(struct http *http, bool *ret_interrupted)
{
    LOCK_SCOPE(&http->locked.lock);
    *ret_interrupted = http->locked.interrupted;
    return http->locked.stopping;
}

static void *http_main(void *arg)
{
    struct http *http = arg;
    bool interrupted;
    while (!http_is_over(http, &interrupted)) {
        begin_waiting_exchanges(http);
        int running;
        (void)curl_multi_perform(http->multi, &running);
        end_finished(http);
        int64_t wait_ns = end_late(http, interrupted);
        begin_waiting_exchanges(http); /* on the connections that have just become free */
        (void)curl_multi_poll(http->multi, NULL, 0, (int)(wait_ns / MS_NS) + 1, NULL);
    }
    check(!http->active);
    return NULL;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Passes the exchange to the driver and waits for its end. */
static int perform_exchange(struct http *http, struct exchange *x)
{
    mutex_lock(&http->locked.lock);
    bool refused = http->locked.interrupted;
    if (!refused) {
        *http->locked.last = x;
        http->locked.last = &x->next;
    }
    mutex_unlock(&http->locked.lock);
    if (refused)
        return -ECANCELED;
    (void)curl_multi_wakeup(http->multi);
    LOCK_SCOPE(&http->locked.lock);
    while (!x->done)
        (void)mutex_wait(&http->locked.lock, &x->finished, -1);
    return x->result;
}

int http_perform(struct http *http, const struct http_request *request,
                 struct http_response *ret_response)
{
    struct exchange x = {.http = http,
                         .request = request,
                         .response = ret_response,
                         .easy = take_handle(http),
                         .is_get = strcmp(request->method, "GET") == 0};
    *ret_response = (struct http_response){.content_length = -1, .range_total = UINT64_MAX};
    cond_init(&x.finished);
    struct curl_slist *headers = http_header_list(request);
    set_transport(http, x.easy);
    set_request(&x, headers);
    int r = perform_exchange(http, &x);
    give_handle(http, x.easy);
    curl_slist_free_all(headers);
    (void)pthread_cond_destroy(&x.finished);
    return r;
}

void http_response_done(struct http_response *response)
{
    vector_free(&response->text);
}

void http_interrupt(struct http *http)
{
    mutex_lock(&http->locked.lock);
    http->locked.interrupted = true;
    mutex_unlock(&http->locked.lock);
    (void)curl_multi_wakeup(http->multi);
}

/* --- life ------------------------------------------------------------------------------------- */

static void global_init(void)
{
    check(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static void http_free(struct http *http)
{
    for (unsigned i = 0; i < http->locked.spare_count; i++)
        curl_easy_cleanup(http->locked.spare[i]);
    if (http->multi)
        (void)curl_multi_cleanup(http->multi);
    mutex_done(&http->locked.lock);
    free(http->locked.spare);
    vector_free(&http->sockets);
    free(http->ca_bundle);
    free(http->user_agent);
    free(http);
}

int http_open(const struct http_options *options, struct http **ret_http)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, global_init);
    struct http *http = xcalloc(1, sizeof *http);
    mutex_init(&http->locked.lock, LOCK_LEAF);
    http->connections = options->connections;
    http->stall_ns = options->stall_ns;
    http->ca_bundle = options->ca_bundle ? xstrdup(options->ca_bundle) : NULL;
    http->user_agent = options->user_agent ? xstrdup(options->user_agent) : NULL;
    http->locked.last = &http->locked.first;
    http->locked.spare = xcalloc(http->connections, sizeof *http->locked.spare);
    http->multi = curl_multi_init();
    int r = http->multi ? 0 : -ENOMEM;
    if (r == 0) {
        (void)curl_multi_setopt(http->multi, CURLMOPT_MAXCONNECTS, (long)http->connections);
        r = thread_start(&http->thread, "cairn-http", http_main, http);
    }
    if (r < 0) {
        http_free(http);
        return r;
    }
    *ret_http = http;
    return 0;
}

void http_close(struct http *http)
{
    if (!http)
        return;
    mutex_lock(&http->locked.lock);
    http->locked.stopping = true;
    mutex_unlock(&http->locked.lock);
    (void)curl_multi_wakeup(http->multi);
    (void)pthread_join(http->thread, NULL);
    http_free(http);
}
