// SPDX-License-Identifier: Apache-2.0
#include "bad_server.h"
#include "../expect.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#define REQUESTS_MAX 4096u
#define HEAD_MAX 4096u

struct shared {
    atomic_uint count, closed;
    char heads[REQUESTS_MAX][HEAD_MAX];
};

static struct shared *shared;
static pid_t child;
static char address[64];

static size_t body_len(const char *head)
{
    const char *line = strcasestr(head, "\r\ncontent-length:");
    return line ? strtoul(line + 17, NULL, 10) : 0;
}

/* The head into `head`, the body to nowhere. */
static bool receive(int fd, char head[HEAD_MAX])
{
    size_t len = 0;
    char *end = NULL;
    while (!end && len < HEAD_MAX - 1) {
        ssize_t n = read(fd, head + len, HEAD_MAX - 1 - len);
        if (n <= 0)
            return false;
        len += (size_t)n;
        head[len] = '\0';
        end = strstr(head, "\r\n\r\n");
    }
    if (!end)
        return false;
    size_t have = len - (size_t)(end + 4 - head);
    end[2] = '\0';
    for (size_t want = body_len(head); have < want;) {
        char waste[65536];
        ssize_t n = read(fd, waste, sizeof waste);
        if (n <= 0)
            return false;
        have += (size_t)n;
    }
    return true;
}

/* Until the client goes. */
static void send_slowly(int fd, const char *raw)
{
    for (; *raw && send(fd, raw, 1, MSG_NOSIGNAL) == 1; raw++)
        (void)usleep(4000);
}

static void serve(int fd, const struct bad_step *steps, size_t count)
{
    static char head[HEAD_MAX];
    if (!receive(fd, head)) {
        (void)close(fd);
        return;
    }
    unsigned number = atomic_load(&shared->count);
    const struct bad_step *step = &steps[min_u64(number, count - 1)];
    strcpy(shared->heads[number % REQUESTS_MAX], head);
    atomic_store(&shared->count, number + 1);
    if (step->then == BAD_TRICKLE)
        send_slowly(fd, step->raw);
    else if (step->raw)
        (void)send(fd, step->raw, strlen(step->raw), MSG_NOSIGNAL);
    struct linger at_once = {.l_onoff = 1};
    if (step->then == BAD_RESET)
        (void)setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    if (step->then != BAD_HOLD) {
        (void)close(fd);
        atomic_fetch_add(&shared->closed, 1);
    }
}

const char *bad_open(const struct bad_step *steps, size_t count)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    cr_assert_geq(listener, 0);
    assert_i64(bind(listener, (struct sockaddr *)&at, sizeof at), 0);
    assert_i64(listen(listener, 64), 0);
    assert_i64(getsockname(listener, (struct sockaddr *)&at, &len), 0);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    cr_assert_neq(shared, MAP_FAILED);
    pid_t parent = getpid();
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (int fd; getppid() == parent && (fd = accept(listener, NULL, NULL)) >= 0;)
            serve(fd, steps, count);
        _exit(0);
    }
    (void)close(listener);
    (void)snprintf(address, sizeof address, "http://127.0.0.1:%u", ntohs(at.sin_port));
    return address;
}

void bad_close(void)
{
    if (child <= 0)
        return;
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    (void)munmap(shared, sizeof *shared);
    child = 0;
}

unsigned bad_count(void)
{
    return atomic_load(&shared->count);
}

unsigned bad_closed(void)
{
    return atomic_load(&shared->closed);
}

const char *bad_request(unsigned i)
{
    return i < bad_count() ? shared->heads[i % REQUESTS_MAX] : "";
}

bool bad_request_has(unsigned i, const char *text)
{
    return strcasestr(bad_request(i), text) != NULL;
}
