// SPDX-License-Identifier: Apache-2.0
/* Requests at the control socket of a real store with a remote: what is answered is a line of JSON
 * for each. */
#include "daemon/control.c"

#include "../remove_tree.h"
#include "base/log.h"
#include "daemon/service_internal.h"
#include "fuzz.h"

static char root[128], shm[128];
static struct mount_options options;
static struct service service = {.options = &options};
static struct control control = {.handle = service_handle, .arg = &service};

static void leave(void)
{
    fs_free(service.fs);
    store_close(service.store);
    remove_tree(root);
    remove_tree(shm);
}

static void on_room(void *arg)
{
    (void)arg;
}

static void add_directory(uint64_t parent, const char *name)
{
    struct ns_inode held;
    check(ns_hold(store_ns(service.store), parent, &held) == 0);
    struct record rec = {
        .type = REC_MAKE, .ino = store_new_ino(service.store), .parent = parent, .name = name};
    rec.name_len = (uint16_t)strlen(name);
    rec.attrs.mode = S_IFDIR | 0755;
    check(history_commit(store_commit(service.store)->history, &rec) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    struct service_error error = {0};
    char *text = NULL;
    bool again;
    make_directory(false, root);
    make_directory(true, shm);
    log_set_level(LOG_LEVEL_ERROR);
    options_init(&options);
    _cleanup_free_ char *remote = xasprintf("dir:%s/remote", root);
    check(options_set(&options, "remote", remote, &text) == 0);
    service.store_path = xasprintf("%s/store", root);
    service.mountpoint = xasprintf("%s/mnt", root);
    check(mkdir(service.store_path, 0700) == 0);
    service.started = clock_monotonic_ns();
    struct store_options how = {.reduce = REDUCE_FAST,
                                .path = service.store_path,
                                .stage_dir = shm,
                                .stage_bytes = 16 * MIB,
                                .cap_bytes = 64 * MIB,
                                .writeback_threads = 1};
    remote_side_init(&service);
    check(remote_side_open(&service, &how.remote, &error) == 0);
    check(store_open(&how, &service.store, &again, &text) == 0 &&
          store_start(service.store, on_room, NULL) == 0);
    service.commit = store_commit(service.store);
    service.fs = fs_new(service.store, FS_FSYNC_NVME);
    add_directory(ROOT_INO, "directory");
    control.stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    (void)atexit(leave);
    return 0;
}

/* All that was answered is whole lines of JSON. */
static void look_at(int fd)
{
    static char answers[4 * 1024 * 1024];
    size_t len = 0;
    ssize_t n;
    while ((n = recv(fd, answers + len, sizeof answers - len, MSG_DONTWAIT)) > 0)
        len += (size_t)n;
    for (char *at = answers, *end; len > 0; len -= (size_t)(end + 1 - at), at = end + 1) {
        end = memchr(at, '\n', len);
        check(end);
        cJSON *object = parse_object(at, (size_t)(end - at));
        check(object);
        cJSON_Delete(object);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) == 0);
    struct connection *c = xcalloc(1, sizeof *c);
    c->fd = fds[1];
    if (size == 0 || send(fds[0], data, size, 0) == (ssize_t)size) {
        (void)shutdown(fds[0], SHUT_WR);
        int wanted;
        do {
            wanted = control_serve(&control, c);
            look_at(fds[0]);
        } while (wanted >= 0);
    }
    close_connection(c);
    (void)close(fds[0]);
    return 0;
}
