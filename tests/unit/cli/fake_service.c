// SPDX-License-Identifier: Apache-2.0
/* A service for tests of the verbs: a real FUSE mount with an empty root directory, and a horizon
 * that moves on by one at each poll. What it does wrong on purpose comes from the environment:
 *
 *   FAKE_FAIL=text      service_start() fails with it, after it has made files in the store
 *   FAKE_STUCK=1        the horizon stays
 *   FAKE_WARN=text      is logged as a warning while starting
 *   FAKE_PROGRESS=text  is told twice while starting
 *   FAKE_FENCED=text    the remote was taken over, with that as the reason
 *   FAKE_DIE=1          the process ends at once while starting
 *   FAKE_LAST=S         it lives for S seconds after its mount is gone
 *   FAKE_UNPUBLISHED=1  offline the remote lacks a change */
#include <fuse_lowlevel.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "base/io.h"
#include "base/log.h"
#include "base/pool.h"
#include "daemon/control.h"
#include "daemon/service.h"
#include "fuse/front.h"

#define FAKE_GOAL 5

struct service {
    char *store;
    struct fuse_session *session;
    pthread_t thread;
    int stop_fd;
    atomic_int horizon;
};

static void fake_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)fi;
    struct stat st = {.st_ino = ino, .st_mode = S_IFDIR | 0755, .st_nlink = 2};
    (void)fuse_reply_attr(req, &st, 0);
}

static void fake_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
    (void)ino;
    (void)fuse_reply_open(req, fi);
}

static const struct fuse_lowlevel_ops fake_ops = {.getattr = fake_getattr, .opendir = fake_open};

static void *fake_loop(void *arg)
{
    struct service *service = arg;
    (void)fuse_session_loop(service->session);
    service_stop(service);
    return NULL;
}

static int start_session(struct service *service, const char *store, const char *mountpoint)
{
    char program[] = "cairn", flag[] = "-o";
    _cleanup_free_ char *names = xasprintf("subtype=cairnfs,fsname=%s", store);
    char *argv[] = {program, flag, names, NULL};
    struct fuse_args args = FUSE_ARGS_INIT(3, argv);
    service->session = fuse_session_new(&args, &fake_ops, sizeof fake_ops, NULL);
    fuse_opt_free_args(&args);
    if (!service->session)
        return -EIO;
    if (fuse_session_mount(service->session, mountpoint) < 0)
        return -EPERM;
    return thread_start(&service->thread, "fake-fuse", fake_loop, service);
}

/* As a store's: there from the start to an orderly end. */
static char *fake_session_path(const char *store)
{
    return xasprintf("%s/session", store);
}

int service_start(const struct service_plan *plan, struct service **ret,
                  struct service_error *ret_error)
{
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", plan->store);
    _cleanup_free_ char *packs = xasprintf("%s/packs", plan->store);
    _cleanup_free_ char *session = fake_session_path(plan->store);
    for (int i = 1; getenv("FAKE_PROGRESS") && i <= 2; i++) {
        _cleanup_free_ char *line = xasprintf("%s %d", getenv("FAKE_PROGRESS"), i);
        plan->progress(line, plan->progress_arg);
    }
    if (getenv("FAKE_DIE"))
        _exit(7);
    (void)mkdir(packs, 0700);
    if (io_write_file_durable(superblock, "s", 1) < 0)
        return -EIO;
    if (getenv("FAKE_FAIL")) {
        *ret_error = (struct service_error){32, xstrdup(getenv("FAKE_FAIL"))};
        return -EIO;
    }
    if (getenv("FAKE_WARN"))
        log_warn("%s", getenv("FAKE_WARN"));
    struct service *service = xcalloc(1, sizeof *service);
    service->stop_fd = eventfd(0, EFD_CLOEXEC);
    service->store = xstrdup(plan->store);
    check(io_write_file_durable(session, "s", 1) == 0);
    check(start_session(service, plan->store, plan->mountpoint) == 0);
    *ret = service;
    return 0;
}

int service_serve(struct service *service)
{
    struct pollfd fd = {.fd = service->stop_fd, .events = POLLIN};
    while (poll(&fd, 1, -1) < 0)
        check(errno == EINTR);
    fuse_session_exit(service->session);
    fuse_session_unmount(service->session);
    (void)pthread_join(service->thread, NULL);
    if (getenv("FAKE_LAST"))
        (void)sleep((unsigned)strtoul(getenv("FAKE_LAST"), NULL, 10));
    return 0;
}

void service_stop(struct service *service)
{
    (void)eventfd_write(service->stop_fd, 1);
}

void service_free(struct service *service)
{
    if (!service)
        return;
    _cleanup_free_ char *session = fake_session_path(service->store);
    fuse_session_destroy(service->session);
    (void)close(service->stop_fd);
    (void)unlink(session);
    free(service->store);
    free(service);
}

cJSON *service_handle(const cJSON *request, void *arg)
{
    struct service *service = arg;
    const char *verb = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(request, "verb"));
    if (!verb)
        return control_error(EINVAL, "no verb");
    cJSON *reply = cJSON_CreateObject();
    if (strcmp(verb, "status") == 0) {
        (void)cJSON_AddNumberToObject(reply, "pid", getpid());
        (void)cJSON_AddStringToObject(reply, "version", "fake");
        cJSON *memory = cJSON_AddObjectToObject(reply, "memory");
        (void)cJSON_AddStringToObject(memory, "formula", "stage + 256 MiB");
    } else if (strcmp(verb, "drain") == 0 &&
               cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(request, "at_end"))) {
        log_warn("the end waits for the remote");
    } else if (strcmp(verb, "need") == 0 || strcmp(verb, "drain") == 0) {
        atomic_store(&service->horizon, 0);
        control_add_u64(reply, "seq", FAKE_GOAL);
        control_add_u64(reply, "bytes", FAKE_GOAL * MIB);
    } else if (strcmp(verb, "horizon") == 0) {
        int now = getenv("FAKE_STUCK") ? 0 : atomic_fetch_add(&service->horizon, 1);
        control_add_u64(reply, "nvme", (uint64_t)now);
        control_add_u64(reply, "remote", (uint64_t)(now / 2));
        control_add_u64(reply, "remote_missing_bytes",
                        now < 2 * FAKE_GOAL ? (uint64_t)(2 * FAKE_GOAL - now) * MIB : 0);
        (void)cJSON_AddStringToObject(reply, "remote_state",
                                      getenv("FAKE_FENCED") ? "fenced" : "uploading");
        if (getenv("FAKE_FENCED"))
            (void)cJSON_AddStringToObject(reply, "remote_error", getenv("FAKE_FENCED"));
        control_add_u64(reply, "missing_bytes",
                        now < FAKE_GOAL ? (uint64_t)(FAKE_GOAL - now) * MIB : 0);
        if (getenv("FAKE_STUCK"))
            (void)cJSON_AddStringToObject(reply, "error", "the disk is slow");
    }
    return reply;
}

int service_fsck(const char *store, void (*report)(const char *line, bool is_problem, void *arg),
                 void *arg)
{
    (void)store;
    report("counted", false, arg);
    if (!getenv("FAKE_FAIL"))
        return 0;
    report("a flipped byte", true, arg);
    return 1;
}

int service_repair(const char *store, void (*report)(const char *line, bool is_problem, void *arg),
                   void *arg, bool *ret_truncated)
{
    (void)store;
    *ret_truncated = getenv("FAKE_DAMAGED") != NULL;
    if (*ret_truncated)
        report("cut", false, arg);
    return 0;
}

int service_offline_status(const char *store, cJSON **ret_status)
{
    (void)store;
    *ret_status = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(*ret_status, "store_id", "00ff");
    return 0;
}

void service_passport(struct service *service, struct front_passport *ret, int *ret_fd)
{
    (void)service;
    *ret = (struct front_passport){0};
    *ret_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
}

int service_left_stage(const char *store, char **ret_stage)
{
    _cleanup_free_ char *session = fake_session_path(store);
    *ret_stage = access(session, F_OK) == 0 ? xstrdup("/dev/shm/cairn-fake.ctl") : NULL;
    return 0;
}

int service_unpublished(const char *store, uint64_t *ret_changes, uint64_t *ret_bytes)
{
    (void)store;
    *ret_changes = getenv("FAKE_UNPUBLISHED") ? 1 : 0;
    *ret_bytes = *ret_changes * MIB;
    return 0;
}
