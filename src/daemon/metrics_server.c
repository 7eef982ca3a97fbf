// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics_server.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/lock.h"
#include "base/log.h"

#define CONNECTIONS_MAX 16u
#define CONNECTIONS_PER_ADDRESS 8u
#define CONNECTION_MEMORY (16u * 1024)
#define IDLE_S 5u
/* For one connection: bytes that arrive slowly would reset the limit above. */
#define WHOLE_NS (10ll * 1000000000)

struct metrics_server {
    struct metrics_source source;
    struct MHD_Daemon *daemon;
    struct {
        struct cairn_mutex lock;
        struct {
            int fd; /* -1: free */
            int64_t since;
        } connections[CONNECTIONS_MAX];
    } locked;
};

int metrics_address_parse(const char *text, struct metrics_address *ret)
{
    char host[64] = "";
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || (size_t)(colon - text) >= sizeof host)
        return -EINVAL;
    memcpy(host, text, (size_t)(colon - text));
    size_t digits = strspn(colon + 1, "0123456789");
    unsigned long port = strtoul(colon + 1, NULL, 10);
    if (digits == 0 || digits > 5 || colon[1 + digits] != '\0' || port == 0 || port > 65535)
        return -EINVAL;
    *ret = (struct metrics_address){0};
    size_t len = strlen(host);
    if (host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        ret->socket.v6.sin6_family = AF_INET6;
        ret->socket.v6.sin6_port = htons((uint16_t)port);
        return inet_pton(AF_INET6, host + 1, &ret->socket.v6.sin6_addr) == 1 ? 0 : -EINVAL;
    }
    ret->socket.v4.sin_family = AF_INET;
    ret->socket.v4.sin_port = htons((uint16_t)port);
    return inet_pton(AF_INET, host, &ret->socket.v4.sin_addr) == 1 ? 0 : -EINVAL;
}

static enum MHD_Result metrics_reply(struct MHD_Connection *connection, unsigned code,
                                     const char *type, char *text)
{
    struct MHD_Response *response =
        MHD_create_response_from_buffer(strlen(text), text, MHD_RESPMEM_MUST_FREE);
    if (!response) {
        free(text);
        return MHD_NO;
    }
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    (void)MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
        (void)MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    enum MHD_Result result = MHD_queue_response(connection, code, response);
    MHD_destroy_response(response);
    return result;
}

static enum MHD_Result metrics_answer(void *arg, struct MHD_Connection *connection, const char *url,
                                      const char *method, const char *version, const char *body,
                                      size_t *body_len, void **state)
{
    static const char plain[] = "text/plain; charset=utf-8";
    struct metrics_server *server = arg;
    (void)version;
    (void)body;
    (void)body_len;
    (void)state;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return metrics_reply(connection, MHD_HTTP_METHOD_NOT_ALLOWED, plain,
                             xstrdup("only GET and HEAD\n"));
    if (strcmp(url, "/metrics") == 0) {
        char *text = server->source.metrics(server->source.arg);
        return text ? metrics_reply(connection, MHD_HTTP_OK,
                                    "text/plain; version=0.0.4; charset=utf-8", text)
                    : metrics_reply(connection, MHD_HTTP_SERVICE_UNAVAILABLE, plain,
                                    xstrdup("the mount is starting\n"));
    }
    if (strcmp(url, "/healthz") != 0)
        return metrics_reply(connection, MHD_HTTP_NOT_FOUND, plain,
                             xstrdup("not found; use /metrics or /healthz\n"));
    char *trouble = server->source.trouble(server->source.arg);
    return metrics_reply(connection, trouble ? MHD_HTTP_SERVICE_UNAVAILABLE : MHD_HTTP_OK, plain,
                         trouble ? trouble : xstrdup("ok\n"));
}

static void note_connection(void *arg, struct MHD_Connection *connection, void **state,
                            enum MHD_ConnectionNotificationCode what)
{
    struct metrics_server *server = arg;
    (void)state;
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    int fd = info ? info->connect_fd : -1, wanted = what == MHD_CONNECTION_NOTIFY_STARTED ? -1 : fd;
    LOCK_SCOPE(&server->locked.lock);
    for (size_t i = 0; fd >= 0 && i < CONNECTIONS_MAX; i++) {
        if (server->locked.connections[i].fd != wanted)
            continue;
        server->locked.connections[i].fd = what == MHD_CONNECTION_NOTIFY_STARTED ? fd : -1;
        server->locked.connections[i].since = clock_monotonic_ns();
        return;
    }
}

static void log_trouble(void *arg, const char *fmt, va_list ap)
    __attribute__((format(printf, 2, 0)));

/* Drops messages about errors of clients. */
static void log_trouble(void *arg, const char *fmt, va_list ap)
{
    char text[256];
    (void)arg;
    (void)vsnprintf(text, sizeof text, fmt, ap);
    log_debug("metrics: %s", text);
}

int metrics_server_start(const char *address, const struct metrics_source *source,
                         struct metrics_server **ret, char **ret_text)
{
    struct metrics_address parsed;
    if (metrics_address_parse(address, &parsed) < 0)
        return -EINVAL;
    struct metrics_server *server = xcalloc(1, sizeof *server);
    server->source = *source;
    mutex_init(&server->locked.lock, LOCK_LEAF);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        server->locked.connections[i].fd = -1;
    bool is_v6 = parsed.socket.any.sa_family == AF_INET6;
    errno = 0;
    server->daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG | (is_v6 ? (unsigned)MHD_USE_IPv6 : 0), 0,
        NULL, NULL, metrics_answer, server, MHD_OPTION_EXTERNAL_LOGGER, log_trouble, NULL,
        MHD_OPTION_SOCK_ADDR, &parsed.socket.any, MHD_OPTION_CONNECTION_LIMIT, CONNECTIONS_MAX,
        MHD_OPTION_PER_IP_CONNECTION_LIMIT, CONNECTIONS_PER_ADDRESS, MHD_OPTION_CONNECTION_TIMEOUT,
        IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)CONNECTION_MEMORY,
        MHD_OPTION_NOTIFY_CONNECTION, note_connection, server, MHD_OPTION_END);
    if (server->daemon) {
        *ret = server;
        return 0;
    }
    int r = errno ? -errno : -EADDRNOTAVAIL;
    *ret_text =
        xasprintf("option metrics=%s: cannot listen there: %s; give another address or port",
                  address, strerror(-r));
    metrics_server_stop(server);
    return r;
}

/* The library closes a descriptor only after it has reported to us that the connection ended. */
void metrics_server_tick(struct metrics_server *server)
{
    if (!server)
        return;
    int64_t now = clock_monotonic_ns();
    LOCK_SCOPE(&server->locked.lock);
    for (size_t i = 0; i < CONNECTIONS_MAX; i++)
        if (server->locked.connections[i].fd >= 0 &&
            now - server->locked.connections[i].since > WHOLE_NS)
            (void)shutdown(server->locked.connections[i].fd, SHUT_RDWR);
}

void metrics_server_stop(struct metrics_server *server)
{
    if (!server)
        return;
    if (server->daemon)
        MHD_stop_daemon(server->daemon);
    mutex_done(&server->locked.lock);
    free(server);
}
