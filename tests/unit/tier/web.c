// SPDX-License-Identifier: Apache-2.0
#include "web.h"
#include "../expect.h"

#include <arpa/inet.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <time.h>

static int listener = -1;
static char address[64];
static pthread_t thread;
static web_fn *answer_fn;
static atomic_uint count;
static atomic_bool stopping;

unsigned web_count(void)
{
    return atomic_load(&count);
}

const char *web_header(const struct web_request *request, const char *name)
{
    static _Thread_local char value[12 * 1024];
    for (const char *line = strchr(request->headers, '\n'); line; line = strchr(line + 1, '\n')) {
        size_t len = strlen(name);
        if (strncasecmp(line + 1, name, len) != 0 || line[1 + len] != ':')
            continue;
        const char *text = line + 2 + len;
        text += strspn(text, " ");
        (void)snprintf(value, sizeof value, "%.*s", (int)strcspn(text, "\r\n"), text);
        return value;
    }
    return NULL;
}

/* Header and body, as far as they fit. False: the other side went away. */
static bool receive(int fd, struct web_request *request)
{
    size_t len = 0;
    char *end = NULL;
    while (!end && len < sizeof request->headers - 1) {
        ssize_t n = read(fd, request->headers + len, sizeof request->headers - 1 - len);
        if (n <= 0)
            return false;
        len += (size_t)n;
        request->headers[len] = '\0';
        end = strstr(request->headers, "\r\n\r\n");
    }
    if (!end)
        return false;
    size_t have = len - (size_t)(end + 4 - request->headers);
    memcpy(request->body, end + 4, have);
    end[2] = '\0';
    const char *length = web_header(request, "Content-Length");
    size_t want = length ? strtoul(length, NULL, 10) : 0;
    while (have < want && have < sizeof request->body - 1) {
        ssize_t n = read(fd, request->body + have, sizeof request->body - 1 - have);
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    request->body[have] = '\0';
    return sscanf(request->headers, "%7s %511s", request->method, request->path) == 2;
}

static void serve(int fd)
{
    _cleanup_free_ struct web_request *request = xcalloc(1, sizeof *request);
    if (receive(fd, request)) {
        struct web_answer answer = {.status = 200};
        request->number = atomic_fetch_add(&count, 1) + 1;
        answer_fn(request, &answer);
        for (unsigned ms = 0; ms < answer.delay_ms && !atomic_load(&stopping); ms += 10)
            (void)usleep(10000);
        _cleanup_free_ char *text = xasprintf(
            "HTTP/1.1 %d Whatever\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
            answer.status, answer.body ? strlen(answer.body) : 0, answer.body ? answer.body : "");
        (void)send(fd, text, strlen(text), MSG_NOSIGNAL);
        free(answer.body);
    }
    (void)close(fd);
}

static void *run(void *arg)
{
    (void)arg;
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        if (atomic_load(&stopping)) {
            if (fd >= 0)
                (void)close(fd);
            return NULL;
        }
        if (fd >= 0)
            serve(fd);
    }
}

const char *web_open(web_fn *fn)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    answer_fn = fn;
    atomic_store(&count, 0);
    atomic_store(&stopping, false);
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(listener, 0);
    assert_i64(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_i64(listen(listener, 64), 0);
    assert_i64(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    assert_i64(pthread_create(&thread, NULL, run, NULL), 0);
    (void)snprintf(address, sizeof address, "http://127.0.0.1:%u", ntohs(at.sin_port));
    return address;
}

void web_close(void)
{
    if (listener < 0)
        return;
    atomic_store(&stopping, true);
    (void)shutdown(listener, SHUT_RDWR);
    (void)pthread_join(thread, NULL);
    (void)close(listener);
    listener = -1;
}
