/* One store, mounted and served: store, fs and front wired together, and what the control socket may ask. */
#include "daemon/service.h"

#include <linux/magic.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/statfs.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/control.h"
#include "fs/fs.h"
#include "fuse/front.h"
#include "persist/store.h"

#define URGENT_LEASE_NS (3ll * 1000000000)
#define STAGE_USABLE_MIN (64 * MIB)
#define EXIT_SYSTEM 2
#define EXIT_MOUNT 32
#define EXIT_USAGE 1

struct service {
    const struct mount_options *options;
    char *store_path, *mountpoint;
    struct store *store;
    struct fs *fs;
    struct front *front;
    int stop_fd;
    int64_t started;
    uint64_t stage_bytes;
};

static int fail(struct service_error *error, int code, char *text)
{
    error->exit_code = code;
    error->text = text;
    return -EINVAL;
}

/* --- the stage's place ---------------------------------------------------------------------------------------------------- */

static void warn_if_it_may_vanish(const char *dir)
{
    if (strncmp(dir, "/run/user/", 10) == 0)
        log_warn("stage_dir %s is removed when its user logs out: give a tmpfs that stays, with -o stage_dir=DIR", dir);
    else if (geteuid() != 0 && strncmp(dir, "/dev/shm", 8) == 0 && access("/run/systemd/system", F_OK) == 0)
        log_warn("systemd removes files of ordinary users from /dev/shm at logout (RemoveIPC=yes): run `loginctl "
                 "enable-linger`, or give another tmpfs with -o stage_dir=DIR");
}

/* The stage must lie in memory, and fit. */
static int check_stage_dir(struct service *service, struct service_error *error)
{
    const char *dir = service->options->stage_dir;
    struct statfs st;
    if (statfs(dir, &st) < 0)
        return fail(error, EXIT_USAGE,
                    xasprintf("stage_dir %s: %s; give a tmpfs with -o stage_dir=DIR", dir, strerror(errno)));
    if (st.f_type != TMPFS_MAGIC && st.f_type != RAMFS_MAGIC)
        return fail(error, EXIT_USAGE,
                    xasprintf("stage_dir %s is not a tmpfs; give one with -o stage_dir=DIR (mount -t tmpfs tmpfs DIR)", dir));
    if (access(dir, W_OK | X_OK) < 0)
        return fail(error, EXIT_USAGE, xasprintf("stage_dir %s: %s", dir, strerror(errno)));
    service->stage_bytes = service->options->stage_bytes;
    uint64_t available = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
    uint64_t usable = available - available / 8;
    /* A ramfs has no size of its own. */
    if (st.f_blocks == 0 || usable >= service->stage_bytes)
        return 0;
    if (usable < STAGE_USABLE_MIN / 2)
        return fail(error, EXIT_SYSTEM,
                    xasprintf("stage_dir %s has only %llu MiB left; enlarge it (in a container: --shm-size=8g) or give "
                              "another tmpfs with -o stage_dir=DIR",
                              dir, (unsigned long long)(available / MIB)));
    log_warn("stage_dir %s has only %llu MiB left: the stage gets %llu MiB of the %llu MiB asked for; enlarge it (in a "
             "container: --shm-size=8g) or give another tmpfs with -o stage_dir=DIR",
             dir, (unsigned long long)(available / MIB), (unsigned long long)(usable / MIB),
             (unsigned long long)(service->stage_bytes / MIB));
    service->stage_bytes = usable;
    return 0;
}

/* --- life -------------------------------------------------------------------------------------------------------------------- */

static void on_room(void *arg)
{
    struct service *service = arg;
    if (service->front)
        front_room(service->front);
}

static int open_store(struct service *service, struct service_error *error)
{
    const struct mount_options *o = service->options;
    struct store_options options = {.path = service->store_path,
                                    .stage_dir = o->stage_dir,
                                    .stage_bytes = service->stage_bytes,
                                    .cap_bytes = o->nvme_bytes,
                                    .writeback_threads = (unsigned)o->writeback_threads,
                                    .writeback_limit = o->writeback_limit,
                                    .writeback_delay_ns = o->writeback_delay_ns};
    char *text = NULL;
    int r = store_open(&options, &service->store, &text);
    if (r < 0)
        return fail(error, r == -EACCES || r == -EPERM ? EXIT_USAGE : EXIT_MOUNT,
                    text ? text : xasprintf("%s: %s", service->store_path, strerror(-r)));
    free(text);
    r = store_start(service->store, on_room, service);
    return r < 0 ? fail(error, EXIT_SYSTEM, xasprintf("starting threads failed: %s", strerror(-r))) : 0;
}

static char *kernel_options(const struct mount_options *o)
{
    _cleanup_free_ char *all = xasprintf("%s%s%s%s", o->nosuid ? ",nosuid" : ",suid", o->nodev ? ",nodev" : ",dev",
                                         o->noexec ? ",noexec" : "", o->noatime ? ",noatime" : "");
    return xstrdup(all + 1);
}

static unsigned thread_count(const struct mount_options *o)
{
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (o->threads)
        return (unsigned)o->threads;
    return (unsigned)(cores < 2 ? 4 : cores > 8 ? 16 : 2 * cores);
}

static int open_front(struct service *service, struct service_error *error)
{
    const struct mount_options *o = service->options;
    service->fs = fs_new(service->store, o->fsync == FSYNC_STAGE ? FS_FSYNC_STAGE : FS_FSYNC_NVME);
    _cleanup_free_ char *extra = kernel_options(o);
    struct front_options options = {.mountpoint = service->mountpoint,
                                    .fsname = service->store_path,
                                    .extra = extra,
                                    .allow_other = o->allow_other,
                                    .read_only = o->read_only,
                                    .threads = thread_count(o),
                                    .entry_timeout = (double)o->entry_timeout_ns / 1e9,
                                    .attr_timeout = (double)o->attr_timeout_ns / 1e9};
    char *text = NULL;
    int r = front_start(&options, service->fs, service->store, &service->front, &text);
    if (r < 0)
        return fail(error, EXIT_MOUNT, text ? text : xasprintf("mounting failed: %s", strerror(-r)));
    free(text);
    return 0;
}

int service_start(const char *store, const char *mountpoint, const struct mount_options *options, struct service **ret,
                  struct service_error *ret_error)
{
    struct service *service = xcalloc(1, sizeof *service);
    service->options = options;
    service->store_path = xstrdup(store);
    service->mountpoint = xstrdup(mountpoint);
    service->started = clock_monotonic_ns();
    service->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    warn_if_it_may_vanish(options->stage_dir);
    int r = service->stop_fd < 0 ? fail(ret_error, EXIT_SYSTEM, xasprintf("eventfd: %s", strerror(errno))) : 0;
    if (r == 0)
        r = check_stage_dir(service, ret_error);
    if (r == 0)
        r = open_store(service, ret_error);
    if (r == 0)
        r = open_front(service, ret_error);
    if (r < 0) {
        service_free(service);
        return r;
    }
    *ret = service;
    return 0;
}

/* Everything that was acknowledged becomes durable; errors are retried as long as it takes. */
static void drain(struct service *service)
{
    int r;
    while ((r = store_seal_all(service->store)) == -EAGAIN)
        (void)nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    if (r < 0)
        log_error("sealing drafts: %s", strerror(-r));
    uint64_t seq = store_newest(service->store);
    int64_t told = clock_monotonic_ns();
    while (store_horizon(service->store) < seq) {
        store_urge(service->store, clock_monotonic_ns() + URGENT_LEASE_NS);
        (void)nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
        if (clock_monotonic_ns() - told > 5000000000) {
            told = clock_monotonic_ns();
            log_info("draining: %llu MiB to go",
                     (unsigned long long)(store_missing_bytes(service->store, seq) / MIB));
        }
    }
}

int service_run(struct service *service)
{
    struct pollfd fds[2] = {{.fd = service->stop_fd, .events = POLLIN},
                            {.fd = front_event_fd(service->front), .events = POLLIN}};
    while (poll(fds, 2, -1) < 0 && errno == EINTR)
        ;
    if (!front_is_over(service->front)) {
        log_info("stopping: what is in the stage goes to NVMe first");
        drain(service);
    }
    front_stop(service->front);
    service->front = NULL;
    drain(service);
    return 0;
}

void service_stop(struct service *service)
{
    uint64_t one = 1;
    if (write(service->stop_fd, &one, sizeof one) < 0)
        return; /* the counter is full: it was asked before */
}

void service_free(struct service *service)
{
    if (!service)
        return;
    struct front *front = service->front;
    front_stop(front);
    service->front = NULL;
    store_close(service->store);
    fs_free(service->fs);
    if (service->stop_fd >= 0)
        (void)close(service->stop_fd);
    free(service->store_path);
    free(service->mountpoint);
    free(service);
}

/* --- control ------------------------------------------------------------------------------------------------------------------- */

static cJSON *error_reply(const char *text, int error)
{
    cJSON *reply = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(reply, "error", text);
    (void)cJSON_AddNumberToObject(reply, "errno", error);
    return reply;
}

static cJSON *add_object(cJSON *parent, const char *name)
{
    return cJSON_AddObjectToObject(parent, name);
}

static void add_stage(const struct service *service, cJSON *status)
{
    struct stage_usage usage = stage_usage(store_stage(service->store));
    struct front_status front = {0};
    if (service->front)
        front_status(service->front, &front);
    cJSON *stage = add_object(status, "stage");
    (void)cJSON_AddStringToObject(stage, "dir", service->options->stage_dir);
    control_add_u64(stage, "total_bytes", usage.total_bytes);
    control_add_u64(stage, "dirty_bytes", usage.dirty_bytes);
    control_add_u64(stage, "clean_bytes", usage.clean_bytes);
    control_add_u64(stage, "free_bytes", usage.free_bytes);
    control_add_u64(stage, "draft_bytes", usage.draft_bytes);
    control_add_u64(stage, "drafts", usage.drafts);
    control_add_u64(stage, "waiting_writers", front.waiting);
    control_add_u64(stage, "wait_count", front.wait_count);
    control_add_u64(stage, "wait_ms_total", front.wait_ms_total);
    cJSON *mount = add_object(status, "mount");
    (void)cJSON_AddStringToObject(mount, "write", "direct");
    (void)cJSON_AddBoolToObject(mount, "mmap_shared", front.mmap_shared);
    control_add_u64(mount, "threads", front.threads);
}

static void add_nvme(const char *path, const struct store_status *s, cJSON *status)
{
    cJSON *nvme = add_object(status, "nvme");
    (void)cJSON_AddStringToObject(nvme, "path", path);
    const struct {
        const char *name;
        uint64_t value;
    } numbers[] = {{"cap_bytes", s->cap_bytes},
                   {"used_bytes", s->used_bytes},
                   {"reserved_bytes", s->reserved_bytes},
                   {"available_bytes", s->available_bytes},
                   {"files", s->view.files},
                   {"logical_bytes", s->view.logical_bytes},
                   {"stored_bytes", s->view.stored_bytes},
                   {"chunks", s->view.chunks},
                   {"packs", s->view.packs},
                   {"pack_bytes", s->view.pack_bytes},
                   {"horizon_seq", s->horizon_seq},
                   {"newest_seq", s->newest_seq},
                   {"behind_bytes", s->behind_bytes},
                   {"behind_files", s->behind_files},
                   {"written_bytes_total", s->written_bytes_total},
                   {"dedup_bytes_total", s->dedup_bytes_total},
                   {"errors", s->errors}};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        control_add_u64(nvme, numbers[i].name, numbers[i].value);
    (void)cJSON_AddNumberToObject(nvme, "seconds_behind", s->seconds_behind);
    if (s->errors) {
        (void)cJSON_AddStringToObject(nvme, "last_error", s->last_error);
        (void)cJSON_AddNumberToObject(nvme, "last_error_s_ago",
                                      (double)((clock_monotonic_ns() - s->last_error_ns) / 1000000000));
    }
    cJSON *view = add_object(status, "view");
    control_add_u64(view, "applied_seq", s->view.applied_seq);
}

static uint64_t resident_bytes(void)
{
    unsigned long long total, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    if (!f)
        return 0;
    if (fscanf(f, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    (void)fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void add_damage(const char *path, const char *what, void *arg)
{
    cJSON *item = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(item, "path", path);
    (void)cJSON_AddStringToObject(item, "what", what);
    (void)cJSON_AddItemToArray(arg, item);
}

static void add_identity(cJSON *status, const char *store, const struct store_status *s)
{
    char id[33];
    for (size_t i = 0; i < 16; i++)
        (void)snprintf(id + 2 * i, 3, "%02x", s->store_id[i]);
    (void)cJSON_AddStringToObject(status, "version", CAIRN_VERSION);
    (void)cJSON_AddStringToObject(status, "store", store);
    (void)cJSON_AddStringToObject(status, "store_id", id);
}

static cJSON *handle_status(struct service *service, const cJSON *request)
{
    (void)request;
    cJSON *status = cJSON_CreateObject();
    struct store_status s;
    store_status(service->store, &s);
    add_identity(status, service->store_path, &s);
    (void)cJSON_AddStringToObject(status, "mountpoint", service->mountpoint);
    control_add_u64(status, "pid", (uint64_t)getpid());
    control_add_u64(status, "epoch", s.epoch);
    (void)cJSON_AddNumberToObject(status, "uptime_s", (double)((clock_monotonic_ns() - service->started) / 1000000000));
    add_stage(service, status);
    add_nvme(service->store_path, &s, status);
    control_add_u64(cJSON_GetObjectItem(status, "nvme"), "dropped_bytes_total",
                    stage_usage(store_stage(service->store)).dropped_bytes_total);
    cJSON *memory = add_object(status, "memory");
    (void)cJSON_AddStringToObject(memory, "formula", s.memory_formula);
    control_add_u64(memory, "bound_bytes", s.memory_bound_bytes);
    control_add_u64(memory, "resident_bytes", resident_bytes());
    store_damage(service->store, add_damage, cJSON_AddArrayToObject(status, "damage"));
    return status;
}

/* What must be reached for all of a path to be at the level: its drafts are sealed now. */
static cJSON *handle_need(struct service *service, const cJSON *request)
{
    uint64_t ino;
    const char *level = cJSON_GetStringValue(cJSON_GetObjectItem(request, "level"));
    if (!control_get_u64(request, "ino", &ino) || !level)
        return error_reply("need: ino or level is missing", EINVAL);
    if (strcmp(level, "nvme") != 0 && strcmp(level, "stage") != 0)
        return error_reply("no such level here; there are stage and nvme", EINVAL);
    cJSON *reply = cJSON_CreateObject();
    uint64_t seq = 0;
    if (strcmp(level, "nvme") == 0) {
        int r = store_seal_below(service->store, ino);
        if (r < 0) {
            cJSON_Delete(reply);
            return error_reply(strerror(-r), -r);
        }
        seq = ns_last_change(store_ns(service->store), ino);
    }
    control_add_u64(reply, "seq", seq);
    control_add_u64(reply, "bytes", store_missing_bytes(service->store, seq));
    return reply;
}

static cJSON *handle_horizon(struct service *service, const cJSON *request)
{
    (void)request;
    struct store_status s;
    store_status(service->store, &s);
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "nvme", s.horizon_seq);
    control_add_u64(reply, "newest", s.newest_seq);
    control_add_u64(reply, "missing_bytes", store_missing_bytes(service->store, s.newest_seq));
    if (s.errors && clock_monotonic_ns() - s.last_error_ns < URGENT_LEASE_NS)
        (void)cJSON_AddStringToObject(reply, "error", s.last_error);
    return reply;
}

static cJSON *handle_urgent(struct service *service, const cJSON *request)
{
    bool on = cJSON_IsTrue(cJSON_GetObjectItem(request, "on"));
    store_urge(service->store, on ? clock_monotonic_ns() + URGENT_LEASE_NS : 0);
    return cJSON_CreateObject();
}

static cJSON *handle_drain(struct service *service, const cJSON *request)
{
    (void)request;
    int r = store_seal_below(service->store, ROOT_INO);
    if (r < 0)
        return error_reply(strerror(-r), -r);
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "seq", store_newest(service->store));
    return reply;
}

static cJSON *handle_ping(struct service *service, const cJSON *request)
{
    (void)service;
    (void)request;
    cJSON *reply = cJSON_CreateObject();
    control_add_u64(reply, "pid", (uint64_t)getpid());
    return reply;
}

cJSON *service_handle(const cJSON *request, void *arg)
{
    static const struct {
        const char *verb;
        cJSON *(*handle)(struct service *service, const cJSON *request);
    } verbs[] = {{"status", handle_status}, {"need", handle_need},   {"horizon", handle_horizon},
                 {"urgent", handle_urgent}, {"drain", handle_drain}, {"ping", handle_ping}};
    const char *verb = cJSON_GetStringValue(cJSON_GetObjectItem(request, "verb"));
    for (size_t i = 0; verb && i < ARRAY_LEN(verbs); i++)
        if (strcmp(verb, verbs[i].verb) == 0)
            return verbs[i].handle(arg, request);
    return error_reply("unknown verb", EINVAL);
}

/* --- offline --------------------------------------------------------------------------------------------------------------------- */

int service_fsck(const char *store, void (*report)(const char *line, bool is_problem, void *arg), void *arg)
{
    return store_fsck(store, report, arg);
}

int service_offline_status(const char *store, cJSON **ret_status)
{
    struct store_status s;
    int r = store_peek(store, &s);
    if (r < 0)
        return r;
    cJSON *status = cJSON_CreateObject();
    add_identity(status, store, &s);
    add_nvme(store, &s, status);
    *ret_status = status;
    return 0;
}
