// SPDX-License-Identifier: Apache-2.0
/* The remote of a service: its tier, the waits for it, its status. */
#include <stdio.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "daemon/control.h"
#include "daemon/remote_tier.h"
#include "daemon/service_internal.h"
#include "daemon/keep_text.h"
#include "daemon/when.h"

#define SAMPLE_NS (5ll * 1000000000)
#define REMOTE_NAME_MAX 8192
#define LEAVE_NS (20ll * 1000000000) /* for a node to publish the rest, at the end of its mount */
#define SILENCE_NS 1000000000        /* of a remote that is waited for, before this is logged */

static struct remote_status status_of(struct service *service)
{
    struct remote_status s = {.state = REMOTE_NONE};
    if (service->options->remote.address)
        remote_get_status(service->store, &s);
    return s;
}

/* Returns the cause for which a caller waits whose operations are in the remote, but in no union
 * head yet. Caller frees. */
static char *union_cause(const struct nodes_status *nodes)
{
    if (*nodes->trouble)
        return xasprintf("until this node can tell the others what it did: %s", nodes->trouble);
    if (nodes->merges && *nodes->held_back_by)
        return xasprintf("until %s publishes what it did", nodes->held_back_by);
    if (nodes->merges)
        return xstrdup("until this node has merged what all nodes did");
    if (*nodes->merger)
        return xasprintf("for %s, which merges what all nodes did, or for a node that this one "
                         "waits for: 'cairn nodes' lists them",
                         nodes->merger);
    return xstrdup("for a node that merges what all nodes did");
}

/* --- life ------------------------------------------------------------------------------------- */

void remote_side_init(struct service *service)
{
    mutex_init(&service->remote.locked.lock, LOCK_CONTROL);
}

void remote_side_done(struct service *service)
{
    mutex_done(&service->remote.locked.lock);
    free(service->remote.name);
    free(service->remote.holder);
}

struct opening {
    const struct service *service;
    const struct remote_address *address;
    struct service_error *error;
    int64_t began;
    bool said;
};

/* A remote below STORE or MOUNTPOINT would upload its own objects, or wait for itself. */
static int check_place(int r, const char *real, void *arg)
{
    const struct opening *opening = arg;
    const char *const taken[] = {opening->service->store_path, opening->service->mountpoint};
    const char *path = opening->address->path;
    if (r < 0)
        return service_fail(opening->error, MOUNT_FAILED, r,
                            "cannot access the remote dir:%s: %s; is its filesystem mounted?", path,
                            strerror(-r));
    for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
        size_t n = strlen(taken[i]), m = strlen(real);
        size_t common = n < m ? n : m;
        bool nested = strncmp(real, taken[i], common) == 0 &&
                      (n == m || (n > m ? taken[i][m] : real[n]) == '/');
        if (nested)
            return service_fail(opening->error, MOUNT_USAGE, -EINVAL,
                                "the remote dir:%s and %s must not be the same, nor one inside the "
                                "other; give another directory",
                                path, taken[i]);
    }
    return 0;
}

static bool is_given_up(void *arg)
{
    struct opening *opening = arg;
    const struct service_plan *plan = &opening->service->plan;
    if (!opening->said && plan->progress && clock_monotonic_ns() - opening->began > SILENCE_NS) {
        _cleanup_free_ char *line =
            xasprintf("waiting for the remote %s, which does not answer", opening->address->text);
        log_info("%s", line);
        plan->progress(line, plan->progress_arg);
        opening->said = true;
    }
    return plan->cancelled && plan->cancelled(plan->progress_arg);
}

/* Returns whether this store has published in that directory: then the directory exists, or its
 * filesystem is not mounted, which a new directory in its place would only hide. */
static bool published_there(const struct service *service, const char *remote)
{
    _cleanup_free_ char *path = xasprintf("%s/remote", service->store_path);
    _cleanup_free_ char *known = NULL;
    return io_read_file(path, REMOTE_NAME_MAX, &known, NULL) == 0 && strcmp(known, remote) == 0;
}

static int open_tier(const struct service *service, const struct remote_address *address,
                     bool read_only, struct tier **ret, struct service_error *error)
{
    struct opening opening = {
        .service = service, .address = address, .error = error, .began = clock_monotonic_ns()};
    struct remote_waiter waiter = {.given_up = is_given_up, .judge = check_place, .arg = &opening};
    char *text = NULL;
    waiter.later = service_is_adopting(service);
    waiter.must_exist =
        !service->options->remote.takeover && published_there(service, address->text);
    int r = remote_tier_open(address, service->options, read_only, &waiter, ret, &text);
    bool is_not_there = r == -ENOENT && address->kind == REMOTE_KIND_DIR && waiter.must_exist;
    if (r < 0 && text)
        r = service_fail(error, r == -EINVAL ? MOUNT_USAGE : MOUNT_FAILED, r, "%s%s", text,
                         is_not_there ? "; this store published there: mount its filesystem first, "
                                        "or create the directory to start over there"
                                      : "");
    free(text);
    return r;
}

static char *holder_name(const struct service *service)
{
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) < 0 || host[0] == '\0')
        (void)snprintf(host, sizeof host, "unknown host");
    return xasprintf("%s:%s pid %d", host, service->store_path, (int)getpid());
}

int remote_side_open(struct service *service, struct remote_options *ret,
                     struct service_error *ret_error)
{
    const struct mount_options *o = service->options;
    struct remote_address address;
    char *text = NULL;
    if (!o->remote.address)
        return 0;
    int r = remote_address_parse(o->remote.address, &address, &text);
    if (r < 0) {
        *ret_error = (struct service_error){MOUNT_USAGE, text};
        return r;
    }
    struct head_choice at = {0};
    if (o->remote.at)
        r = when_parse(o->remote.at, clock_realtime_ns(), &at, &text);
    if (r < 0) {
        remote_address_done(&address);
        *ret_error = (struct service_error){MOUNT_USAGE, text};
        return r;
    }
    free(service->remote.name); /* of an earlier attempt */
    free(service->remote.holder);
    service->remote.name = xstrdup(address.text);
    service->remote.holder = holder_name(service);
    *ret = (struct remote_options){.name = service->remote.name,
                                   .holder = service->remote.holder,
                                   .upload_threads = (unsigned)o->remote.upload_threads,
                                   .fetch_threads = (unsigned)o->remote.fetch_threads,
                                   .upload_limit = o->remote.upload_limit,
                                   .clock_error_ns = o->remote.clock_error_ns,
                                   .lease_ns = o->remote.lease_ns,
                                   .gc_grace_ns = o->remote.gc_grace_ns,
                                   .sets_keep = o->keep,
                                   .keep = keep_of(o->keep),
                                   .rollback_keep_ns = o->remote.rollback_keep_ns,
                                   .follow_ns = o->remote.follow_ns,
                                   .nodes = o->remote.nodes,
                                   .converts = o->remote.converts,
                                   .replaces = o->remote.replaces,
                                   .takeover = o->remote.takeover,
                                   .rollback = o->remote.rollback,
                                   .unfenced = o->remote.unfenced,
                                   .read_only = o->read_only,
                                   .at = at,
                                   .progress = service->plan.progress,
                                   .cancelled = service->plan.cancelled,
                                   .progress_arg = service->plan.progress_arg};
    r = open_tier(service, &address, o->read_only, &ret->tier, ret_error);
    remote_address_done(&address);
    return r;
}

int remote_side_open_to_read(struct service *service, struct remote_options *ret,
                             struct service_error *ret_error)
{
    const struct mount_options *o = service->options;
    struct remote_address address;
    char *text = NULL;
    int r = remote_address_parse(o->remote.address, &address, &text);
    if (r < 0) {
        *ret_error = (struct service_error){MOUNT_USAGE, text};
        return r;
    }
    *ret = (struct remote_options){.name = service->remote.name,
                                   .holder = service->remote.holder,
                                   .upload_threads = 1,
                                   .fetch_threads = (unsigned)o->remote.fetch_threads,
                                   .lease_ns = o->remote.lease_ns,
                                   .gc_grace_ns = o->remote.gc_grace_ns,
                                   .rollback_keep_ns = o->remote.rollback_keep_ns,
                                   .read_only = true};
    r = open_tier(service, &address, true, &ret->tier, ret_error);
    remote_address_done(&address);
    return r;
}

/* Wakes remote_side_end(), whose condition has changed. */
static void signal_end(struct service *service)
{
    event_signal(horizon_progress(service->commit->horizon));
}

void remote_side_drain_at_end(struct service *service, bool wanted)
{
    atomic_store(&service->remote.drain_at_end, wanted);
    signal_end(service);
}

/* Called under the store's locks, or ours: takes none. */
static void on_drained(int result, void *arg)
{
    (void)result;
    struct service *service = arg;
    atomic_store(&service->remote.is_drained, true);
    signal_end(service);
}

/* Other nodes wait for the data that this node has not published: it waits for the upload for a
 * moment without a request. */
static bool drains(struct service *service, int64_t began, uint64_t newest)
{
    bool leaves = service->options->remote.nodes && clock_monotonic_ns() - began < LEAVE_NS &&
                  horizon_published(service->commit->horizon) < newest;
    return atomic_load(&service->remote.drain_at_end) || leaves;
}

/* Everything is uploaded, but the union lacks some of it: logged when the cause changes. */
static void tell_of_union(struct service *service, uint64_t newest, char **said)
{
    struct remote_status s = status_of(service);
    _cleanup_free_ char *cause =
        s.nodes.is_node && s.horizon_seq >= newest ? union_cause(&s.nodes) : NULL;
    if (!cause || (*said && strcmp(cause, *said) == 0))
        return;
    log_info("stopping: all is in %s, and the union of all nodes does not have it yet: waiting %s",
             service->remote.name, cause);
    free(*said);
    *said = xstrdup(cause);
}

void remote_side_end(struct service *service)
{
    struct remote_side *side = &service->remote;
    struct event *progress = horizon_progress(service->commit->horizon);
    int64_t began = clock_monotonic_ns(), reported_at = 0;
    uint64_t ticket, newest = history_newest(service->commit->history);
    if (!drains(service, began, newest) || !remote_side_is_usable(service))
        return;
    log_info("stopping: uploading to %s first", side->name);
    remote_drain(service->store);
    uint64_t seen = event_count(progress);
    remote_start_wait(service->store, newest, on_drained, service, &ticket);
    _cleanup_free_ char *said = NULL;
    const char *stays;
    /* No upload is possible with a damaged view, and there is no mount any more for which a
     * successor could make it anew. */
    while (drains(service, began, newest) && !atomic_load(&side->is_drained) &&
           !commit_view_is_lost(service->commit, &stays)) {
        service_report_ending(service, status_of(service).behind_bytes, true, &reported_at);
        tell_of_union(service, newest, &said);
        (void)event_wait(progress, &seen, clock_monotonic_ns() + TICK_MS * MS_NS);
    }
    /* If the ticket is not valid any more, on_drained() was called, or will be before the store
     * ends. */
    (void)store_unwait(service->store, ticket);
}

/* --- waiters ---------------------------------------------------------------------------------- */

/* Called under the store's locks, or ours: takes none. */
static void on_remote_wait_ended(int result, void *arg)
{
    (void)result;
    struct service *service = arg;
    atomic_store(&service->remote.wait_ended, true);
}

/* The store lifts the limits while it has a waiter for the remote; ours stands for the waiters
 * outside. */
static void begin_remote_wait_locked(struct service *service)
{
    check_held(&service->remote.locked.lock);
    struct remote_side *side = &service->remote;
    if (side->locked.waits && !atomic_load(&side->wait_ended))
        return;
    side->locked.waits = true;
    atomic_store(&side->wait_ended, false);
    remote_start_wait(service->store, history_newest(service->commit->history),
                      on_remote_wait_ended, service, &side->locked.ticket);
}

static void end_remote_wait_locked(struct service *service)
{
    check_held(&service->remote.locked.lock);
    struct remote_side *side = &service->remote;
    if (!side->locked.waits)
        return;
    /* A ticket that could not be taken back calls on_remote_wait_ended(), or has called it: `waits`
     * stays set until then. */
    if (store_unwait(service->store, side->locked.ticket) || atomic_load(&side->wait_ended))
        side->locked.waits = false;
}

void remote_side_urge(struct service *service, int64_t until)
{
    if (!remote_side_is_usable(service))
        return;
    LOCK_SCOPE(&service->remote.locked.lock);
    service->remote.locked.urge_until = until;
    if (until)
        begin_remote_wait_locked(service);
    else
        end_remote_wait_locked(service);
}

void remote_side_tick(struct service *service)
{
    struct remote_side *side = &service->remote;
    int64_t now = clock_monotonic_ns();
    if (!service->options->remote.address)
        return;
    uint64_t uploaded = status_of(service).uploaded_bytes_total;
    LOCK_SCOPE(&side->locked.lock);
    if (now >= side->locked.urge_until)
        end_remote_wait_locked(service);
    if (side->locked.newer.at && now - side->locked.newer.at < SAMPLE_NS)
        return;
    side->locked.older =
        side->locked.newer.at ? side->locked.newer : (struct upload_sample){now, uploaded};
    side->locked.newer = (struct upload_sample){now, uploaded};
}

bool remote_side_is_usable(struct service *service)
{
    enum remote_state state = status_of(service).state;
    return state != REMOTE_NONE && state != REMOTE_FENCED;
}

cJSON *remote_side_refusal(struct service *service)
{
    struct remote_status s = status_of(service);
    if (s.state == REMOTE_NONE)
        return control_error(
            ENOTCONN, "no remote is configured; use level nvme, or mount with -o remote=...");
    _cleanup_free_ char *text =
        xasprintf("another writer has taken over %s; nothing more is uploaded from this mount: %s",
                  s.name, s.error);
    return control_error(ESHUTDOWN, text);
}

int remote_side_need(struct service *service, uint64_t ino, uint64_t *seq)
{
    uint64_t published = 0;
    int r = remote_needs(service->store, ino, &published);
    *seq = max_u64(*seq, published);
    return r;
}

/* --- status ----------------------------------------------------------------------------------- */

static const char *const state_words[] = {[REMOTE_NONE] = "none",
                                          [REMOTE_CONNECTING] = "connecting",
                                          [REMOTE_IDLE] = "idle",
                                          [REMOTE_UPLOADING] = "uploading",
                                          [REMOTE_UNREACHABLE] = "unreachable",
                                          [REMOTE_FENCED] = "fenced",
                                          [REMOTE_FOLLOWING] = "following"};

const char *remote_state_word(enum remote_state state)
{
    return state_words[state];
}

/* Data that is not on NVMe yet must be uploaded, too. */
uint64_t remote_side_missing_bytes(struct service *service, uint64_t seq)
{
    return status_of(service).behind_bytes + store_missing_bytes(service->store, seq);
}

/* Only a start makes the view anew, and no start follows while the mount lasts. */
static void add_hopeless_view(struct service *service, cJSON *reply)
{
    const char *stays = atomic_load(&service->renewal.stays), *why;
    if (stays && commit_view_is_lost(service->commit, &why))
        (void)cJSON_AddStringToObject(reply, "view_not_made_anew", stays);
}

void remote_side_add_horizon(struct service *service, uint64_t newest, cJSON *reply)
{
    struct remote_status s = status_of(service);
    (void)cJSON_AddStringToObject(reply, "remote_state", state_words[s.state]);
    if (s.state == REMOTE_NONE)
        return;
    add_hopeless_view(service, reply);
    control_add_u64(reply, "remote", remote_reached(service->store));
    if (s.nodes.is_node) {
        _cleanup_free_ char *cause = union_cause(&s.nodes);
        control_add_u64(reply, "uploaded", horizon_published(service->commit->horizon));
        (void)cJSON_AddStringToObject(reply, "union_waits", cause);
    }
    control_add_u64(reply, "remote_missing_bytes",
                    s.behind_bytes + store_missing_bytes(service->store, newest));
    if (s.state == REMOTE_UNREACHABLE || s.state == REMOTE_FENCED)
        (void)cJSON_AddStringToObject(reply, "remote_error", s.error);
}

static double upload_rate(struct service *service, uint64_t uploaded)
{
    LOCK_SCOPE(&service->remote.locked.lock);
    const struct upload_sample *from = &service->remote.locked.older;
    double seconds = (double)(clock_monotonic_ns() - from->at) / 1e9;
    return from->at && seconds > 0.1 && uploaded > from->bytes
               ? (double)(uploaded - from->bytes) / seconds
               : 0;
}

void remote_side_look(struct service *service, struct snapshot *s)
{
    s->remote = status_of(service);
    if (s->remote.state == REMOTE_NONE)
        return;
    s->upload_bytes_per_s = (uint64_t)upload_rate(service, s->remote.uploaded_bytes_total);
    if (!s->remote.error[0])
        s->remote.error_age_s = -1;
    s->has |= OF_REMOTE;
    s->history_bytes = store_history_bytes(service->store);
    if (s->remote.nodes.is_node)
        s->has |= OF_NODES;
    if (s->remote.state != REMOTE_FENCED)
        s->has |= OF_WRITER;
    /* Uploads have ended: the remote will never receive these changes from this mount. */
    else if (remote_unpublished(service->store, &s->unpublished) == 0)
        s->has |= OF_FENCED;
}
