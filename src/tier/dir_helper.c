// SPDX-License-Identifier: Apache-2.0
#include "tier/dir_helper.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/pool.h"
#include "base/process.h"
#include "tier/dir_calls.h"

#define REAP_MS 1000 /* a helper that hangs in its filesystem does not end */

extern char **environ;

/* --- in the helper ---------------------------------------------------------------------------- */

/* Receives a message, and the descriptor sent with it (-1: none). Returns its length, 0 at the
 * end. */
static ssize_t receive_message(int socket, void *buf, size_t size, int *ret_fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {buf, size};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof control};
    ssize_t n;
    *ret_fd = -1;
    do
        n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    const struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(c), sizeof *ret_fd);
    return n;
}

static int send_helper_answer(int socket, const struct dir_answer *answer, char *content)
{
    struct iovec parts[] = {{(void *)(uintptr_t)answer, sizeof *answer}, {content, answer->count}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    return sendmsg(socket, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void take_pipe(struct dir_talk *talk, const struct dir_request *request, int fd)
{
    int *pipe = request->verb == DIR_GET ? &talk->out : &talk->in;
    if (fd < 0)
        return;
    if (*pipe >= 0)
        (void)close(*pipe);
    *pipe = fd;
}

static int serve_one(struct dir_talk *talk, char *buf, char *content)
{
    struct dir_request request;
    struct dir_answer answer;
    int fd;
    ssize_t n = receive_message(talk->socket, buf, DIR_MESSAGE_MAX, &fd);
    if (n <= 0)
        return -ENOTCONN;
    check((size_t)n >= sizeof request);
    memcpy(&request, buf, sizeof request);
    check((size_t)n >= sizeof request + request.name_len);
    take_pipe(talk, &request, fd);
    dir_calls_do(talk, &request, buf + sizeof request,
                 (size_t)n - sizeof request - request.name_len, &answer, content);
    return send_helper_answer(talk->socket, &answer, content);
}

static void *serve_channel(void *arg)
{
    struct dir_talk *talk = arg;
    _cleanup_free_ char *buf = xmalloc(DIR_MESSAGE_MAX);
    _cleanup_free_ char *content = xmalloc(DIR_INLINE_MAX);
    while (serve_one(talk, buf, content) == 0)
        ;
    dir_pump_done(&talk->pump);
    if (talk->in >= 0)
        (void)close(talk->in);
    if (talk->out >= 0)
        (void)close(talk->out);
    (void)close(talk->socket);
    free(talk);
    return NULL;
}

static void begin_channel(struct dir_root *root, int socket)
{
    struct dir_talk *talk = xmalloc(sizeof *talk);
    pthread_t thread;
    *talk = (struct dir_talk){.root = root, .socket = socket, .in = -1, .out = -1};
    dir_pump_init(&talk->pump);
    if (thread_start(&thread, "cairn-dir-call", serve_channel, talk) == 0) {
        (void)pthread_detach(thread); /* nobody joins it, as it may hang */
        return;
    }
    (void)close(socket);
    free(talk);
}

/* This thread never touches the directory, so it sees the end of the socket. All signals but
 * SIGKILL are blocked: a service manager sends its stop signal to all processes, but the daemon
 * still needs the helper while it ends. */
static void helper_main(void)
{
    static struct dir_root root = {.fd = -1};
    char byte;
    int fd;
    (void)prctl(PR_SET_NAME, "cairn-dir");
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    (void)umask(077);
    if (chdir("/") < 0)
        return;
    while (receive_message(DIR_HELPER_SOCKET, &byte, 1, &fd) > 0)
        if (fd >= 0)
            begin_channel(&root, fd);
}

/* Runs before main(), in whichever program was started as the helper: a daemon, a command, or a
 * test of this code. */
__attribute__((constructor)) static void become_helper(int argc, char **argv)
{
    if (argc < 1 || strcmp(argv[0], DIR_HELPER_NAME) != 0)
        return;
    helper_main();
    _exit(0); /* threads that hang are left to the kernel */
}

/* --- in the process that uses the helper ------------------------------------------------------ */

static int set_helper_files(posix_spawn_file_actions_t *files, int socket)
{
    int r = posix_spawn_file_actions_adddup2(files, socket, DIR_HELPER_SOCKET);
    for (int fd = 0; fd < 3 && r == 0; fd++)
        r = posix_spawn_file_actions_addopen(files, fd, "/dev/null", O_RDWR, 0);
    return r ? r : posix_spawn_file_actions_addclosefrom_np(files, DIR_HELPER_SOCKET + 1);
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t all;
    (void)sigfillset(&all);
    int r = posix_spawnattr_setsigmask(attributes, &all);
    return r ? r
             : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
}

static int spawn_helper(const char *path, int socket, pid_t *ret_pid)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    char name[] = DIR_HELPER_NAME;
    _cleanup_free_ char *where = xstrdup(path);
    char *const argv[] = {name, where, NULL};
    if (posix_spawn_file_actions_init(&files) != 0)
        return -ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        (void)posix_spawn_file_actions_destroy(&files);
        return -ENOMEM;
    }
    int r = set_helper_files(&files, socket);
    r = r ? r : set_attributes(&attributes);
    r = r ? r : posix_spawn(ret_pid, "/proc/self/exe", &files, &attributes, argv, environ);
    (void)posix_spawnattr_destroy(&attributes);
    (void)posix_spawn_file_actions_destroy(&files);
    return -r;
}

static int make_pair(int ret[2])
{
    return socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ret) < 0 ? -errno : 0;
}

int dir_process_start(const char *path, struct dir_process *ret)
{
    int ends[2];
    TRY(make_pair(ends));
    int r = spawn_helper(path, ends[1], &ret->pid);
    (void)close(ends[1]);
    ret->socket = ends[0];
    if (r < 0)
        (void)close(ends[0]);
    return r;
}

int dir_send(int socket, struct iovec *parts, size_t count, int fd)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof fd)];
    } control = {0};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count};
    if (fd >= 0) {
        message.msg_control = &control;
        message.msg_controllen = sizeof control;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof fd);
        memcpy(CMSG_DATA(c), &fd, sizeof fd);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? -errno : 0;
}

int dir_process_channel(const struct dir_process *process, int *ret_socket)
{
    int ends[2];
    TRY(make_pair(ends));
    char byte = 0;
    int r = dir_send(process->socket, &(struct iovec){&byte, 1}, 1, ends[1]);
    (void)close(ends[1]);
    if (r < 0)
        (void)close(ends[0]);
    else
        *ret_socket = ends[0];
    return r;
}

bool dir_process_is_over(const struct dir_process *process)
{
    return waitpid(process->pid, NULL, WNOHANG) != 0;
}

bool dir_process_end(struct dir_process *process)
{
    (void)kill(process->pid, SIGKILL);
    (void)close(process->socket);
    bool over =
        process_await_end(process->pid, REAP_MS) != PROCESS_LIVES && dir_process_is_over(process);
    process->pid = -1;
    return over;
}
