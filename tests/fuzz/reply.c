/* Answers of a daemon that is none, at `cairn status`. The first byte chooses text or JSON. */
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/lock.h"
#include "base/pool.h"
#include "cli/cli.h"
#include "fuzz.h"

static char store[128];
static int listen_fd;
static struct {
    struct cairn_mutex lock;
    const uint8_t *data;
    size_t size;
} answer;

static void leave(void)
{
    _cleanup_free_ char *control = xasprintf("%s/control", store), *superblock = xasprintf("%s/superblock", store);
    (void)unlink(control);
    (void)unlink(superblock);
    (void)rmdir(store);
}

/* Reads the request, or its sender would not read the answer to its end. */
static void serve(int fd)
{
    char request[4096];
    (void)!recv(fd, request, sizeof request, 0);
    LOCK_SCOPE(&answer.lock);
    if (answer.size)
        (void)!send(fd, answer.data, answer.size, MSG_NOSIGNAL);
}

static void *serve_all(void *arg)
{
    (void)arg;
    for (;;) {
        _cleanup_close_ int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            serve(fd);
    }
    return NULL;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    pthread_t thread;
    make_folder(false, store);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    check(snprintf(address.sun_path, sizeof address.sun_path, "%s/control", store) < (int)sizeof address.sun_path);
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", store);
    FILE *f = fopen(superblock, "we");
    check(f && fclose(f) == 0);
    mutex_init(&answer.lock, LOCK_LEAF);
    listen_fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(bind(listen_fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(listen_fd, 8) == 0);
    check(thread_start(&thread, "answers", serve_all, NULL) == 0);
    (void)atexit(leave);
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct verb verb = {.name = "status", .synopsis = "", .usage_exit = CLI_USAGE};
    char *argv[] = {(char[]){"status"}, store, (char[]){"--json"}, NULL};
    struct input in = {data, size};
    bool json = input_u8(&in) & 1;
    mutex_lock(&answer.lock);
    answer.data = in.at;
    answer.size = in.left;
    mutex_unlock(&answer.lock);
    int code = verb_status(&verb, json ? 3 : 2, argv);
    check(code == CLI_OK || code == CLI_FAILED);
    /* The server may still look at the input. */
    LOCK_SCOPE(&answer.lock);
    answer.size = 0;
    return 0;
}
