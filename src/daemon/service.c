// SPDX-License-Identifier: Apache-2.0
/* The life of a service: store, fs and front are connected, serve, and end. */
#include "daemon/service.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <mntent.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/statfs.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/log.h"
#include "daemon/keep_text.h"
#include "daemon/service_internal.h"
#include "daemon/when.h"
#include "fs/past.h"
#include "nodes/node.h"

#define FOLLOW_TIMEOUT_NS 1000000000
#define OPENINGS_MAX 4 /* a damaged view, and a node that goes back */
#define ABSENCE_TIMEOUT_NS 100000000

/* --- the stage's place ------------------------------------------------------------------------ */

static void warn_if_it_may_vanish(const char *dir)
{
    if (strncmp(dir, "/run/user/", 10) == 0)
        log_warn("stage_dir %s is removed when its user logs out: give a tmpfs that stays, with -o "
                 "stage_dir=DIR",
                 dir);
    else if (geteuid() != 0 && strncmp(dir, "/dev/shm", 8) == 0 &&
             access("/run/systemd/system", F_OK) == 0)
        log_warn("systemd removes files of ordinary users from /dev/shm at logout (RemoveIPC=yes): "
                 "run `loginctl enable-linger`, or give another tmpfs with -o stage_dir=DIR");
}

/* The stage must lie in memory, and fit. */
static int check_stage_dir(struct service *service, struct service_error *error)
{
    const char *dir = service->options->stage_dir;
    struct statfs st;
    if (statfs(dir, &st) < 0)
        return service_fail(error, MOUNT_FAILED, -EINVAL,
                            "stage_dir %s: %s; give a tmpfs with -o stage_dir=DIR", dir,
                            strerror(errno));
    if (st.f_type != TMPFS_MAGIC && st.f_type != RAMFS_MAGIC)
        return service_fail(error, MOUNT_FAILED, -EINVAL,
                            "stage_dir %s is not a tmpfs; give one with -o stage_dir=DIR (mount -t "
                            "tmpfs tmpfs DIR)",
                            dir);
    if (access(dir, W_OK | X_OK) < 0)
        return service_fail(error, MOUNT_FAILED, -EINVAL, "stage_dir %s: %s", dir, strerror(errno));
    service->stage_bytes = service->options->stage_bytes;
    uint64_t left = store_left_stage_bytes(service->store_path, dir);
    uint64_t available = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize + left;
    uint64_t usable = stage_size_within(available - available / 8);
    /* A ramfs has no size of its own. */
    if (st.f_blocks == 0 || usable >= service->stage_bytes)
        return 0;
    if (usable == 0)
        return service_fail(error, MOUNT_SYSTEM, -EINVAL,
                            "stage_dir %s has only %llu MiB left; enlarge it (in a container: "
                            "--shm-size=8g) or give another tmpfs with -o stage_dir=DIR",
                            dir, (unsigned long long)(available / MIB));
    service->stage_bytes = usable;
    /* a stage of this boot, as it lies in memory: it is recovered with its own size */
    if (left > 0)
        return 0;
    log_warn(
        "stage_dir %s has only %llu MiB left: the stage gets %llu MiB of the %llu MiB asked for; "
        "enlarge it (in a container: --shm-size=8g) or give another tmpfs with -o stage_dir=DIR",
        dir, (unsigned long long)(available / MIB), (unsigned long long)(usable / MIB),
        (unsigned long long)(service->options->stage_bytes / MIB));
    return 0;
}

/* --- life ------------------------------------------------------------------------------------- */

static void service_on_room(void *arg)
{
    struct service *service = arg;
    if (service->front)
        front_room(service->front);
}

/* In any thread; the front may not exist yet. */
static void service_on_change(const uint64_t *inos, size_t count, bool has_content, void *arg)
{
    struct service *service = arg;
    if (service->front)
        front_changed(service->front, inos, count, has_content);
}

/* The service stays in memory: the control socket still reports its state. */
static void stop_front(struct service *service)
{
    if (service->store)
        change_subscribe(service->commit->change, NULL, NULL);
    front_stop(service->front);
    service_take_end(service);
}

/* To be called about once in TICK_MS. */
static void service_tick(struct service *service)
{
    remote_side_tick(service);
    metrics_server_tick(service->metrics);
    commit_watch_stage(service->commit);
    fs_past_tick(service->fs);
    if (service->plan.holder_link && service->plan.holder_ended && !service_has_holder(service))
        service->plan.holder_ended(service->plan.progress_arg);
    log_tick();
}

/* NULL: there is no mount to continue. */
static const struct front_adopted *adopted_of(const struct service *service)
{
    const struct holder_link *holder_link = service->plan.holder_link;
    return holder_link && holder_link->is_adopting ? &holder_link->adopted : NULL;
}

/* *ret_again: see store_open(). */
static int service_try_to_open(struct service *service, bool *ret_again,
                               struct service_error *error)
{
    *ret_again = false;
    const struct mount_options *o = service->options;
    struct store_options options = {.path = service->store_path,
                                    .stage_dir = o->stage_dir,
                                    .read_only = o->read_only,
                                    .stage_bytes = service->stage_bytes,
                                    .cap_bytes = o->nvme_bytes,
                                    .writeback_threads = (unsigned)o->writeback_threads,
                                    .writeback_limit = o->writeback_limit,
                                    .writeback_delay_ns = o->writeback_delay_ns,
                                    .reduce = (enum reduce)o->reduce,
                                    .reduce_after_ns = o->reduce_after_ns,
                                    .history = o->history == HISTORY_ON || service->shown,
                                    .local_history = {.keep = keep_of(o->keep),
                                                      .sets_keep = o->keep && !service->shown,
                                                      .every_ns = o->history_every_ns,
                                                      .space_bytes = o->history_space},
                                    .adopting = service_is_adopting(service)};
    TRY(remote_side_open(service, &options.remote, error));
    _cleanup_free_ char *text = NULL;
    int r = store_open(&options, &service->store, ret_again, &text);
    if (*ret_again)
        return r;
    if (r < 0 && text)
        return service_fail(error, MOUNT_FAILED, -EINVAL, "%s", text);
    if (r < 0)
        return service_fail(error, MOUNT_FAILED, -EINVAL, "%s: %s", service->store_path,
                            strerror(-r));
    service->commit = store_commit(service->store);
    change_subscribe(service->commit->change, service_on_change, service);
    store_on_open(service->store, service_on_open, service);
    r = store_start(service->store, service_on_room, service);
    return r < 0 ? service_fail(error, MOUNT_SYSTEM, -EINVAL, "cannot start threads: %s",
                                strerror(-r))
                 : 0;
}

/* -o at= of a store without a remote. A WHEN that means no snapshot changes nothing. */
static int choose_shown(struct service *service, struct service_error *error)
{
    const struct mount_options *o = service->options;
    struct store_options options = {.path = service->store_path};
    _cleanup_free_ char *text = NULL;
    if (!o->remote.at || o->remote.address)
        return 0;
    int r = when_parse(o->remote.at, clock_realtime_ns(), &options.remote.at, &text);
    if (r == 0)
        r = store_choose_snapshot(&options, &service->shown, &text);
    if (r < 0 && text)
        return service_fail(error, MOUNT_FAILED, -EINVAL, "%s", text);
    return r < 0 ? service_fail(error, MOUNT_FAILED, -EINVAL, "a snapshot of %s cannot be read: %s",
                                service->store_path, strerror(-r))
                 : 0;
}

static int service_open_store(struct service *service, struct service_error *error)
{
    bool again = true;
    int r = choose_shown(service, error);
    if (r < 0)
        return r;
    for (int i = 0; again && i < OPENINGS_MAX; i++)
        r = service_try_to_open(service, &again, error);
    if (again)
        r = service_fail(error, MOUNT_FAILED, -EINVAL,
                         "the view of %s is damaged, and cannot be made anew; see the log, and "
                         "look at that disk",
                         service->store_path);
    return r;
}

static char *kernel_options(const struct mount_options *o)
{
    _cleanup_free_ char *all =
        xasprintf("%s%s%s%s", o->nosuid ? ",nosuid" : ",suid", o->nodev ? ",nodev" : ",dev",
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

static int64_t min_ns(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* Returns for how long the kernel may cache, in a mount whose state other writers change. */
static int64_t changes_within(const struct mount_options *o)
{
    bool follows = o->remote.address && o->read_only && o->remote.follow_ns > 0;
    if (o->remote.nodes)
        return FOLLOW_TIMEOUT_NS;
    return follows ? min_ns(o->remote.follow_ns, FOLLOW_TIMEOUT_NS) : INT64_MAX;
}

/* The same for names that do not exist: a process that waits for a file of another node looks it up
 * again and again, and such a lookup costs little. */
static int64_t appears_within(const struct mount_options *o)
{
    return o->remote.nodes ? ABSENCE_TIMEOUT_NS : changes_within(o);
}

/* The kernel does not notify a FUSE daemon of a remount. Of the changes that it allows, only access
 * times are our task. */
static void apply_mount_flags(struct service *service)
{
    FILE *mounts = service->options->read_only ? NULL : setmntent("/proc/self/mounts", "re");
    bool updates_atime = false;
    for (struct mntent *m; mounts && (m = getmntent(mounts));)
        if (strcmp(m->mnt_dir, service->mountpoint) == 0)
            updates_atime = !hasmntopt(m, "noatime") && !hasmntopt(m, "ro");
    if (mounts)
        (void)endmntent(mounts);
    fs_update_atime(service->fs, updates_atime);
}

static int open_fs(struct service *service, struct service_error *error)
{
    const struct mount_options *o = service->options;
    static const enum fs_fsync levels[] = {[FSYNC_NVME] = FS_FSYNC_NVME,
                                           [FSYNC_STAGE] = FS_FSYNC_STAGE,
                                           [FSYNC_REMOTE] = FS_FSYNC_REMOTE};
    service->fs = fs_new(service->store, levels[o->fsync]);
    fs_update_atime(service->fs, !o->noatime && !o->read_only);
    if (adopted_of(service))
        fs_adopt(service->fs);
    TRY(service_take_start(service, error));
    cause_clear();
    int r = service->shown ? fs_show_past(service->fs, service->shown, &service->shown_root) : 0;
    return r < 0 ? service_fail(error, MOUNT_FAILED, -EINVAL,
                                "the snapshot %llu of %s cannot be read: %s",
                                (unsigned long long)service->shown, service->store_path,
                                *cause_text() ? cause_text() : strerror(-r))
                 : 0;
}

/* CLOCK_BOOTTIME; 0: there was no daemon before. Too late if the machine has slept since. */
static int64_t last_death(const struct service *service)
{
    return adopted_of(service)
               ? clock_boottime_ns() - clock_monotonic_ns() + service->plan.holder_link->died_at
               : 0;
}

static int open_front(struct service *service, struct service_error *error)
{
    const struct mount_options *o = service->options;
    _cleanup_free_ char *extra = kernel_options(o);
    int64_t changes = changes_within(o);
    if (o->remote.nodes)
        service->rejoined_path = xasprintf("%s/rejoined", service->store_path);
    struct front_options options = {
        .mountpoint = service->mountpoint,
        .fsname = service->store_path,
        .extra = extra,
        .allow_other = o->allow_other,
        .read_only = o->read_only,
        .root = service->shown_root,
        .has_nodes = o->remote.nodes,
        .threads = thread_count(o),
        .entry_timeout = (double)min_ns(o->entry_timeout_ns, changes) / 1e9,
        .attr_timeout = (double)min_ns(o->attr_timeout_ns, changes) / 1e9,
        .absence_timeout = (double)min_ns(o->entry_timeout_ns, appears_within(o)) / 1e9,
        .fuse_minor = (unsigned)o->fuse_minor,
        .rejoined = service->rejoined_path,
        .times = {atomic_load(&service->back.opens), o->remote.lease_ns + NODE_OPENS_MARGIN_NS,
                  last_death(service)},
        .adopted = adopted_of(service)};
    _cleanup_free_ char *text = NULL;
    int r = front_start(&options, service->fs, service->store, &service->front, &text);
    if (r < 0 && text)
        return service_fail(error, MOUNT_FAILED, -EINVAL, "%s", text);
    return r < 0 ? service_fail(error, MOUNT_FAILED, -EINVAL, "mount failed: %s", strerror(-r)) : 0;
}

static void report_mounted(struct service *service)
{
    log_info("%s is mounted at %s, version %s, pid %d", service->store_path, service->mountpoint,
             CAIRN_VERSION, (int)getpid());
    if (!adopted_of(service))
        return;
    service->pause_ns = clock_monotonic_ns() - service->plan.holder_link->died_at;
    if (service->plan.holder_link->is_upgrade)
        service_upgrade_report(service);
    else
        log_warn("took over the mount after the previous daemon died (%s), %.2f s later",
                 service->plan.holder_link->last_death, (double)service->pause_ns / 1e9);
}

void service_passport(struct service *service, struct front_passport *ret, int *ret_fd)
{
    front_passport(service->front, ret, ret_fd);
}

int service_start(const struct service_plan *plan, struct service **ret,
                  struct service_error *ret_error)
{
    struct service *service = xcalloc(1, sizeof *service);
    service->options = plan->options;
    service->plan = *plan;
    service->store_path = xstrdup(plan->store);
    service->mountpoint = xstrdup(plan->mountpoint);
    remote_side_init(service);
    service->started = clock_monotonic_ns();
    service->stop_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    warn_if_it_may_vanish(service->options->stage_dir);
    int r = service->stop_fd < 0
                ? service_fail(ret_error, MOUNT_SYSTEM, -EINVAL, "eventfd: %s", strerror(errno))
                : 0;
    if (r < 0 || (r = check_stage_dir(service, ret_error)) < 0 ||
        (r = service_metrics_start(service, ret_error)) < 0 ||
        (r = service_open_store(service, ret_error)) < 0 || (r = open_fs(service, ret_error)) < 0 ||
        (r = open_front(service, ret_error)) < 0) {
        service_free(service);
        return r;
    }
    check(atomic_exchange(&service->life, SERVICE_SERVES) == SERVICE_STARTS);
    report_mounted(service);
    *ret = service;
    return 0;
}

/* Long enough for passing causes, such as a lack of descriptors. */
#define REFUSED_MAX_NS (30ll * 1000000000)

struct draining {
    uint64_t seen;         /* of the store's progress */
    int64_t tick_at;       /* monotonic ns */
    int64_t refused_since; /* since when nothing can be written to NVMe; 0: it can */
};

/* Makes writeback hurry, and waits for its progress, or until a tick is due. */
static void await_progress(struct service *service, struct draining *draining)
{
    int64_t now = clock_monotonic_ns();
    if (now >= draining->tick_at) {
        draining->tick_at = now + TICK_MS * MS_NS;
        service_tick(service);
        horizon_urge(service->commit->horizon, now + URGENT_LEASE_NS);
    }
    (void)event_wait(horizon_progress(service->commit->horizon), &draining->seen,
                     draining->tick_at);
}

/* No file can be created or written on NVMe, and waiting does not change this. */
static bool is_hopeless(struct service *service, struct draining *draining)
{
    int64_t now = clock_monotonic_ns();
    if (!room_refuses(service->commit->room))
        draining->refused_since = 0;
    else if (draining->refused_since == 0)
        draining->refused_since = now;
    return draining->refused_since && now - draining->refused_since > REFUSED_MAX_NS;
}

/* Makes everything that was acknowledged durable; errors of the disk are retried as long as
 * necessary. False: NVMe takes no file, and the missing data stays in the stage, for the next
 * mount. */
static bool service_drain(struct service *service)
{
    int r;
    struct draining draining = {.seen = event_count(horizon_progress(service->commit->horizon))};
    history_end_lease(service->commit->history);
    while ((r = history_seal_all(service->commit->history)) == -EAGAIN &&
           !is_hopeless(service, &draining))
        await_progress(service, &draining);
    if (r < 0)
        log_error(
            "cannot seal files that are being written: %s; they stay in the stage: mount again",
            strerror(-r));
    uint64_t seq = history_newest(service->commit->history);
    int64_t reported_at = clock_monotonic_ns(), ending_reported_at = 0;
    while (horizon_reached(service->commit->horizon) < seq) {
        service_report_ending(service, store_missing_bytes(service->store, seq), false,
                              &ending_reported_at);
        await_progress(service, &draining);
        if (is_hopeless(service, &draining)) {
            log_error("nothing can be written to NVMe: %llu MiB stay in the stage; mount again, on "
                      "this machine and before it restarts, when it can",
                      (unsigned long long)(store_missing_bytes(service->store, seq) / MIB));
            return false;
        }
        if (clock_monotonic_ns() - reported_at > 5000000000) {
            reported_at = clock_monotonic_ns();
            log_info("draining: %llu MiB left",
                     (unsigned long long)(store_missing_bytes(service->store, seq) / MIB));
        }
    }
    return true;
}

static void await_stop(struct service *service)
{
    /* POLLPRI: a mount was added or removed */
    _cleanup_close_ int mounts_fd = open("/proc/self/mounts", O_RDONLY | O_CLOEXEC);
    struct pollfd fds[3] = {{.fd = service->stop_fd, .events = POLLIN},
                            {.fd = front_event_fd(service->front), .events = POLLIN},
                            {.fd = mounts_fd, .events = POLLPRI}};
    apply_mount_flags(service);
    while (fds[0].revents == 0 && fds[1].revents == 0) {
        service_tick(service);
        service_renew_tick(service);
        service_back_tick(service);
        if (poll(fds, ARRAY_LEN(fds), TICK_MS) > 0 && fds[2].revents)
            apply_mount_flags(service);
    }
}

int service_serve(struct service *service)
{
    do
        await_stop(service);
    while (!front_is_over(service->front) && service_upgrade_try(service));
    check(atomic_exchange(&service->life, SERVICE_ENDS) == SERVICE_SERVES);
    bool is_drained = true;
    if (!front_is_over(service->front)) {
        log_info("stopping: writing the stage to NVMe first");
        is_drained = service_drain(service);
    }
    stop_front(service);
    fs_settle(service->fs);
    if (!is_drained || !service_drain(service))
        return -EIO;
    remote_side_end(service);
    log_info("%s is unmounted; all data is on NVMe", service->store_path);
    return 0;
}

void service_free(struct service *service)
{
    if (!service)
        return;
    metrics_server_stop(service->metrics);
    stop_front(service);
    if (adopted_of(service) && atomic_load(&service->life) == SERVICE_STARTS)
        store_leave(service->store); /* the mount must not be ended here */
    else
        store_close(service->store);
    front_free(service->front);
    fs_free(service->fs);
    remote_side_done(service);
    if (service->stop_fd >= 0)
        (void)close(service->stop_fd);
    free(service->upgrade.binary);
    free(service->rejoined_path);
    free(service->store_path);
    free(service->mountpoint);
    free(service);
}
