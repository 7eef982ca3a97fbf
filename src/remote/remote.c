// SPDX-License-Identifier: Apache-2.0
/* The remote as a part of the store: its threads, from the opening of the store to its end. */
#include "dense/dense.h"
#include "remote/maintenance_internal.h"

#include "base/clock.h"
#include "nodes/node.h"
#include "base/log.h"

#define NOTIFICATIONS_MAX 64u
#define GIVE_BACK_NS (3ll * 1000000000)
#define LEAVE_NS (10ll * 1000000000) /* for a node, which may merge once more */

/* --- callbacks of its prefix ------------------------------------------------------------------ */

static bool pause_user(void *remote, int64_t ms)
{
    return remote_pause(remote, ms);
}

static void note_user_trouble(void *remote, int error, const char *text)
{
    remote_error(remote, error, "%s", text);
}

static void note_user_works(void *remote)
{
    remote_works(remote);
}

static bool wait_to_send(void *remote, uint64_t bytes)
{
    return remote_limit_wait(remote, bytes);
}

/* --- callbacks of its snapshots --------------------------------------------------------------- */

static int check_snapshots_ours(void *remote)
{
    return gc_check_ours(remote);
}

static int publish_for_snapshots(void *remote, struct head *head)
{
    TRY(remote_publish_head(remote, head));
    return remote_note_head(remote);
}

static void kick_for_snapshots(void *arg)
{
    struct remote *remote = arg;
    LOCK_SCOPE(&remote->shared.lock);
    remote_kick_locked(remote);
}

static bool publishes_no_more(void *arg)
{
    struct remote *remote = arg;
    LOCK_SCOPE(&remote->shared.lock);
    return remote->shared.fenced || remote->shared.stopping;
}

/* --- life ------------------------------------------------------------------------------------- */

struct remote *remote_new(struct store *store)
{
    if (!store->local.options.remote.name)
        return NULL;
    struct remote *remote = xcalloc(1, sizeof *remote);
    remote->store = store;
    remote->options = store->local.options.remote;
    /* only the first daemon of a mount may take over or roll back, as --takeover and --rollback
     * allow */
    remote->options.takeover = remote->options.takeover && !store->local.options.adopting;
    remote->options.rollback = remote->options.rollback && !store->local.options.adopting;
    const struct prefix_user user = {remote, pause_user, note_user_trouble, note_user_works,
                                     wait_to_send};
    prefix_init(&remote->prefix, &store->local, store->commit.room, &remote->options, &user);
    mutex_init(&remote->shared.lock, LOCK_WAITERS);
    rate_limit_init(&remote->limit, remote->options.upload_limit);
    mutex_init(&remote->watch.lock, LOCK_LEAF);
    cond_init(&remote->watch.ended);
    cond_init(&remote->shared.changed);
    TAILQ_INIT(&remote->shared.waiters);
    remote->maintenance = remote_maintenance_new();
    const struct snapshots_remote for_snapshots = {
        remote, check_snapshots_ours, publish_for_snapshots, kick_for_snapshots, publishes_no_more};
    remote->snapshots = snapshots_new(&remote->prefix, &for_snapshots);
    const struct dense_remote for_dense = {remote,
                                           remote_is_stopping,
                                           remote_has_ours,
                                           remote_read_twice,
                                           upload_read_chunk,
                                           remote_is_bad_pack,
                                           remote_note_bad_pack,
                                           &remote->encoded};
    bool encodes = store->local.options.reduce == REDUCE_DENSE && !remote->options.read_only;
    store->dense = dense_new(store, &for_dense, encodes);
    tried_load(&remote->prefix);
    remote->shared.state = REMOTE_CONNECTING;
    remote->patience_ns = remote->prefix.tier->patience_ns;
    remote->prefix.runs.are_due = true; /* earlier versions put none */
    return remote;
}

void remote_free(struct remote *remote)
{
    if (!remote)
        return;
    remote_watch_end(remote);
    remote->prefix.tier->ops->close(remote->prefix.tier);
    mutex_done(&remote->watch.lock);
    (void)pthread_cond_destroy(&remote->watch.ended);
    mutex_done(&remote->shared.lock);
    rate_limit_done(&remote->limit);
    (void)pthread_cond_destroy(&remote->shared.changed);
    snapshots_free(remote->snapshots);
    remote_maintenance_free(remote->maintenance);
    dense_free(remote->store->dense);
    remote->store->dense = NULL;
    missing_free(remote->missing);
    prefix_done(&remote->prefix);
    free(remote);
}

void remote_resume(struct remote *remote)
{
    struct store *store = remote->store;
    struct view_remote view = view_remote(store->local.view);
    horizon_note_age(store->commit.horizon, horizon_reached(store->commit.horizon),
                     clock_monotonic_ns());
    _cleanup_free_ char *known = local_remote_name(&store->local);
    remote->was_here = known && strcmp(known, remote->prefix.name) == 0;
    remote->maintenance->is_unsure =
        local_listing_is_asked(&store->local) && !remote->options.read_only;
    remote->maintenance->must_look = remote->maintenance->is_unsure;
    if ((remote->prefix.is_attached || remote->was_here) && !remote->maintenance->must_look)
        remote_advance(remote, view.cut);
    if (remote_note_head(remote) < 0)
        log_warn("the view cannot be written; the next mount makes it anew");
    remote_be_brief(remote, false);
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.head_number = max_u64(view.head, remote->prefix.head.number);
    remote->shared.files = remote->prefix.head.files;
    remote->shared.logical_bytes = remote->prefix.head.logical_bytes;
}

int remote_start(struct remote *remote)
{
    remote_hear_union(remote, true);
    TRY(pool_new("cairn-upload", remote->options.upload_threads, remote->options.upload_threads,
                 NULL, NULL, &remote->senders));
    if (remote->options.read_only)
        TRY(pool_new("cairn-notify", 1, NOTIFICATIONS_MAX, NULL, NULL, &remote->notifiers));
    TRY(thread_start(&remote->uploader, "cairn-remote", upload_main, remote));
    remote->uploader_started = remote->prefix.is_patient = true;
    if (remote->options.read_only)
        return 0;
    TRY(thread_start(&remote->renewer, "cairn-lease", renewer_main, remote));
    remote->renewer_started = true;
    return 0;
}

/* Is the lease being released, or is a node leaving? */
static bool is_giving_back_locked(struct remote *remote)
{
    check_held(&remote->shared.lock);
    bool leaves = remote->store->node && remote->uploader_started && !remote->shared.has_left;
    return leaves || (remote->renewer_started && !remote->shared.renewer_done);
}

/* Uploads in progress are abandoned: the next mount continues them. Releasing the lease may take a
 * moment, but no longer. */
void remote_stop(struct remote *remote)
{
    if (!remote)
        return;
    mutex_lock(&remote->shared.lock);
    remote->shared.stopping = true;
    remote_settle_limit_locked(remote);
    (void)pthread_cond_broadcast(&remote->shared.changed);
    event_signal(room_more(remote->store->commit.room));
    event_signal(horizon_progress(remote->store->commit.horizon));
    int64_t until = clock_monotonic_ns() + (remote->store->node ? LEAVE_NS : GIVE_BACK_NS);
    while (is_giving_back_locked(remote) && clock_monotonic_ns() < until)
        (void)mutex_wait_until(&remote->shared.lock, &remote->shared.changed, until);
    mutex_unlock(&remote->shared.lock);
    if (remote->store->node)
        node_stop(remote->store->node);
    if (remote->prefix.tier->ops->interrupt)
        remote->prefix.tier->ops->interrupt(remote->prefix.tier);
    if (remote->uploader_started)
        (void)pthread_join(remote->uploader, NULL);
    if (remote->renewer_started)
        (void)pthread_join(remote->renewer, NULL);
    remote_hear_union(remote, false);
    pool_free(remote->senders);
    pool_free(remote->notifiers);
    remote->senders = remote->notifiers = NULL;
    remote_release_waiters(remote);
}

/* --- queries ---------------------------------------------------------------------------------- */

struct prefix *remote_prefix(struct remote *remote)
{
    return &remote->prefix;
}

struct snapshots *remote_snapshots(struct remote *remote)
{
    return remote->snapshots;
}

const char *remote_shown_instead(const struct remote *remote)
{
    return remote->prefix.shown_instead;
}

uint64_t remote_memory(const struct remote *remote)
{
    return remote ? RUN_FETCH_WINDOW + upload_memory(remote) +
                        dense_memory(remote->store->dense, remote->options.upload_threads)
                  : 0;
}
