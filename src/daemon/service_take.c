// SPDX-License-Identifier: Apache-2.0
/* A mount with -o nodes shows the writes of all nodes: take/. The store that follows their union is
 * in STORE/others. */
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/service_internal.h"
#include "format/object.h"
#include "fs/taken.h"
#include "take/take.h"
#include "tier/tier.h"

#define STAGE_BYTES (16 * MIB) /* nothing is written in this store */
/* in addition to newer heads of which the node itself is notified */
#define FOLLOW_NS (10ll * 1000000000)
#define FIRST_NS (15ll * 1000000000)    /* for the first union head, at the start of a mount */
#define SUCCESSOR_NS (5ll * 1000000000) /* for other nodes' files, which are in use */
#define CAP_SHARE 8u                    /* of NVMe, for fetched content of other nodes' files */

static uint64_t cap_of(const struct service *service, const char *path)
{
    struct statvfs space;
    if (service->options->nvme_bytes)
        return service->options->nvme_bytes / CAP_SHARE;
    return statvfs(path, &space) < 0 ? 0 : space.f_blocks / CAP_SHARE * space.f_frsize;
}

static bool is_ending(void *arg)
{
    struct service *service = arg;
    return atomic_load(&service->take_ends);
}

/* Nothing waits for room in this store. */
static void on_room(void *arg)
{
    (void)arg;
}

static int note_head(const struct tier_object *object, void *arg)
{
    uint64_t number;
    bool *has_any = arg;
    *has_any = object_number(object->name, "heads", &number);
    return *has_any;
}

/* -ENOENT: no node has published yet. */
static int check_heads(struct tier *tier)
{
    bool has_any = false;
    int r = tier->ops->list(tier, "heads", NULL, note_head, &has_any);
    return has_any ? 0 : r < 0 ? r : -ENOENT;
}

/* The store contains nothing that the remote does not have: if it cannot be used, the next attempt
 * begins with an empty one. */
static void begin_anew(const char *path, const char *text)
{
    log_warn("nodes: %s is made anew: %s", path, text);
    if (io_remove_tree(path) < 0)
        log_warn("%s cannot be removed", path);
}

static int start_others(struct store_options *options, struct store **ret, char **ret_text)
{
    bool again;
    int r = store_open(options, ret, &again, ret_text);
    bool is_refused = r == -ESTALE || (r < 0 && !tier_error_is_transient(r));
    if (is_refused && !again && r != -ECANCELED)
        begin_anew(options->path, *ret_text ? *ret_text : strerror(-r));
    if (r < 0)
        return r;
    r = store_start(*ret, on_room, NULL);
    if (r < 0) {
        store_close(*ret);
        *ret = NULL;
    }
    return r;
}

static int open_others(void *arg, struct store **ret, char **ret_text)
{
    struct service *service = arg;
    const struct mount_options *o = service->options;
    struct service_error error = {0};
    _cleanup_free_ char *path = xasprintf("%s/others", service->store_path);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return -errno;
    struct store_options options = {.path = path,
                                    .stage_dir = o->stage_dir,
                                    .read_only = true,
                                    .history = o->history == HISTORY_ON,
                                    .stage_bytes = STAGE_BYTES,
                                    .cap_bytes = cap_of(service, path),
                                    .writeback_threads = 1,
                                    .writeback_delay_ns = o->writeback_delay_ns};
    int r = remote_side_open_to_read(service, &options.remote, &error);
    if (r < 0) {
        *ret_text = error.text;
        return r;
    }
    r = check_heads(options.remote.tier);
    if (r < 0) {
        options.remote.tier->ops->close(options.remote.tier);
        return r;
    }
    options.remote.follow_ns = FOLLOW_NS;
    options.remote.cancelled = is_ending;
    options.remote.progress_arg = service;
    return start_others(&options, ret, ret_text);
}

/* --- the kernel ------------------------------------------------------------------------------- */

static void go_on(void *arg)
{
    struct service *service = arg;
    struct front *front = service->front;
    if (front)
        front_room(front);
}

/* --- life ------------------------------------------------------------------------------------- */

int service_take_start(struct service *service, struct service_error *error)
{
    if (!service->options->remote.nodes)
        return 0;
    const struct take_options options = {.store = service->store,
                                         .fs = service->fs,
                                         .open = open_others,
                                         .room = go_on,
                                         .arg = service};
    fs_bring_subscribe(service->fs, go_on, service);
    fs_expect_others(service->fs);
    service->take = take_new(&options);
    int r = take_start(service->take);
    if (r < 0)
        return service_fail(error, MOUNT_SYSTEM, r, "cannot start threads: %s", strerror(-r));
    int64_t now = clock_monotonic_ns();
    bool is_there = service_is_adopting(service)
                        ? take_await_content(service->take, now + SUCCESSOR_NS)
                        : take_await(service->take, now + FIRST_NS);
    if (!is_there)
        log_warn("nodes: what other nodes wrote is not there yet; it shows once the remote gives "
                 "it");
    return 0;
}

void service_take_look(struct service *service, struct snapshot *s)
{
    char *formula = s->store.memory_formula;
    size_t size = sizeof s->store.memory_formula;
    if (!service->take)
        return;
    take_status(service->take, &s->take);
    uint64_t bytes = s->take.memory_bound_bytes;
    char *total = strstr(formula, " = at most");
    if (bytes == 0 || !total)
        return;
    s->store.memory_bound_bytes += bytes;
    (void)snprintf(total, size - (size_t)(total - formula),
                   " + files of other nodes %.0f = at most %.0f MiB", (double)bytes / MIB,
                   (double)s->store.memory_bound_bytes / MIB);
}

void service_take_end(struct service *service)
{
    atomic_store(&service->take_ends, true);
    take_free(service->take);
    service->take = NULL;
}
