// SPDX-License-Identifier: Apache-2.0
/* The remote as a part of the store: its threads, who waits for it, what is told of it. */
#include "remote/care.h"

#include "fetch/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"

#define SAME_ERROR_QUIET_NS (10ll * 1000000000)
#define BRIEF_PATIENCE_NS 5000000000ull
#define RELIEF_NS (60ll * 1000000000) /* an upload that got nowhere for so long is not waited for */
#define TELLINGS_MAX 64u
#define UNPUBLISHED_MAX 65536u /* changes that a status looks at */
#define GIVE_BACK_NS (3ll * 1000000000)

/* --- life ---------------------------------------------------------------------------------------------------------------- */

struct remote *remote_new(struct store *store)
{
    if (!store->options.remote.name)
        return NULL;
    struct remote *remote = xcalloc(1, sizeof *remote);
    remote->store = store;
    remote->options = store->options.remote;
    remote->tier = remote->options.tier;
    remote->name = xstrdup(remote->options.name);
    remote->holder = xstrdup(remote->options.holder ? remote->options.holder : "unknown");
    mutex_init(&remote->shared.lock, LOCK_WAITERS);
    mutex_init(&remote->limit.lock, LOCK_LEAF);
    mutex_init(&remote->watch.lock, LOCK_LEAF);
    cond_init(&remote->watch.ended);
    cond_init(&remote->shared.changed);
    TAILQ_INIT(&remote->shared.waiters);
    remote->care = far_care_new();
    remote->shared.state = REMOTE_CONNECTING;
    remote->patience_ns = remote->tier->patience_ns;
    return remote;
}

void remote_free(struct remote *remote)
{
    if (!remote)
        return;
    remote_watch_end(remote);
    remote->tier->ops->close(remote->tier);
    mutex_done(&remote->watch.lock);
    (void)pthread_cond_destroy(&remote->watch.ended);
    mutex_done(&remote->shared.lock);
    mutex_done(&remote->limit.lock);
    (void)pthread_cond_destroy(&remote->shared.changed);
    explicit_bzero(&remote->prefix.key, sizeof remote->prefix.key);
    far_care_free(remote->care);
    pull_free(remote->pull);
    free(remote->name);
    free(remote->holder);
    free(remote);
}

/* --- errors and waiters --------------------------------------------------------------------------------------------------- */

void remote_error(struct remote *remote, int error, const char *fmt, ...)
{
    char text[256], cause[256] = "", whole[sizeof remote->shared.error];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (error < 0)
        remote->tier->ops->last_error(remote->tier, cause, sizeof cause);
    int len = snprintf(whole, sizeof whole, "%s", text);
    if (*cause && len >= 0 && (size_t)len < sizeof whole)
        (void)snprintf(whole + len, sizeof whole - (size_t)len, ": %.200s", cause);
    mutex_lock(&remote->shared.lock);
    int64_t now = clock_monotonic_ns();
    bool repeated = strcmp(whole, remote->shared.error) == 0 &&
                    now - remote->shared.error_ns < SAME_ERROR_QUIET_NS;
    remote->shared.errors++;
    if (!repeated) {
        memcpy(remote->shared.error, whole, sizeof whole);
        remote->shared.error_ns = now;
    }
    if (error < 0 && remote->shared.state != REMOTE_FENCED) {
        remote->shared.state = REMOTE_UNREACHABLE;
        if (!remote->shared.unreachable_ns)
            remote->shared.unreachable_ns = now;
    }
    mutex_unlock(&remote->shared.lock);
    if (!repeated)
        log_warn("remote: %s", whole);
}

void remote_works(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    if (remote->shared.unreachable_ns)
        log_info("remote: %s answers again", remote->name);
    remote->shared.unreachable_ns = 0;
    if (remote->shared.state == REMOTE_UNREACHABLE || remote->shared.state == REMOTE_CONNECTING)
        remote->shared.state = remote->options.read_only ? REMOTE_FOLLOWING : REMOTE_IDLE;
}

static void serve(struct waiter_list *served, int result)
{
    struct waiter *waiter;
    while ((waiter = TAILQ_FIRST(served))) {
        TAILQ_REMOVE(served, waiter, link);
        waiter->fn(result, waiter->arg);
        free(waiter);
    }
}

static void take_waiters_locked(struct remote *remote, uint64_t seq, struct waiter_list *served)
{
    check_held(&remote->shared.lock);
    struct waiter *waiter, *next;
    for (waiter = TAILQ_FIRST(&remote->shared.waiters); waiter; waiter = next) {
        next = TAILQ_NEXT(waiter, link);
        if (waiter->seq > seq)
            continue;
        TAILQ_REMOVE(&remote->shared.waiters, waiter, link);
        TAILQ_INSERT_TAIL(served, waiter, link);
    }
}

void remote_advance(struct remote *remote, uint64_t cut)
{
    struct waiter_list served = TAILQ_HEAD_INITIALIZER(served);
    mutex_lock(&remote->shared.lock);
    remote->shared.horizon = max_u64(remote->shared.horizon, cut);
    take_waiters_locked(remote, remote->shared.horizon, &served);
    (void)pthread_cond_broadcast(&remote->shared.changed);
    mutex_unlock(&remote->shared.lock);
    serve(&served, 0);
}

static void release_waiters(struct remote *remote)
{
    struct waiter_list served = TAILQ_HEAD_INITIALIZER(served);
    mutex_lock(&remote->shared.lock);
    take_waiters_locked(remote, UINT64_MAX, &served);
    mutex_unlock(&remote->shared.lock);
    serve(&served, -ESHUTDOWN);
}

void remote_fence(struct remote *remote, const struct head *theirs)
{
    remote_error(remote, 0,
                 "%s was taken over by %s (head %llu): nothing more is published from here; what is not there stays "
                 "readable on this mount: copy it, or mount the store with an empty prefix of its own",
                 remote->name, theirs->holder, (unsigned long long)theirs->number);
    remote_give_up(remote);
}

void remote_give_up(struct remote *remote)
{
    mutex_lock(&remote->shared.lock);
    remote->shared.fenced = true;
    remote->shared.state = REMOTE_FENCED;
    mutex_unlock(&remote->shared.lock);
    release_waiters(remote);
}

void store_wait_remote(struct store *store, uint64_t seq, void (*fn)(int result, void *arg), void *arg,
                       uint64_t *ret_ticket)
{
    struct remote *remote = store->remote;
    *ret_ticket = 0;
    if (!remote) {
        fn(-ESHUTDOWN, arg);
        return;
    }
    mutex_lock(&store->horizon.lock);
    uint64_t ticket = store->horizon.next_ticket++;
    mutex_unlock(&store->horizon.lock);
    store_urge(store, clock_monotonic_ns() + 1000000000);
    mutex_lock(&remote->shared.lock);
    *ret_ticket = ticket; /* it may be gone when its function was called */
    bool never = remote->shared.fenced || remote->shared.stopping, reached = seq <= remote->shared.horizon;
    if (!never && !reached) {
        struct waiter *waiter = xmalloc(sizeof *waiter);
        *waiter = (struct waiter){.seq = seq, .ticket = ticket, .fn = fn, .arg = arg};
        TAILQ_INSERT_TAIL(&remote->shared.waiters, waiter, link);
        (void)pthread_cond_broadcast(&remote->shared.changed);
    }
    mutex_unlock(&remote->shared.lock);
    if (reached || never)
        fn(reached ? 0 : -ESHUTDOWN, arg);
}

bool remote_unwait(struct remote *remote, uint64_t ticket)
{
    LOCK_SCOPE(&remote->shared.lock);
    struct waiter *waiter;
    TAILQ_FOREACH(waiter, &remote->shared.waiters, link) {
        if (waiter->ticket != ticket)
            continue;
        TAILQ_REMOVE(&remote->shared.waiters, waiter, link);
        free(waiter);
        return true;
    }
    return false;
}

uint64_t store_remote_horizon(struct store *store)
{
    if (!store->remote)
        return 0;
    LOCK_SCOPE(&store->remote->shared.lock);
    return store->remote->shared.horizon;
}

bool remote_is_stopping(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    return remote->shared.stopping;
}

bool remote_is_urged(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    return !TAILQ_EMPTY(&remote->shared.waiters) || remote->shared.drain;
}

bool remote_pause(struct remote *remote, int64_t ms)
{
    LOCK_SCOPE(&remote->shared.lock);
    if (!remote->shared.stopping && !remote->shared.kicked)
        (void)mutex_wait(&remote->shared.lock, &remote->shared.changed, ms);
    remote->shared.kicked = false;
    return !remote->shared.stopping;
}

bool remote_has_ours(struct remote *remote)
{
    if (!remote || !(remote->is_attached || remote->was_here))
        return false;
    LOCK_SCOPE(&remote->shared.lock);
    return !remote->shared.fenced; /* who took it over may delete what only we need */
}

bool remote_will_relieve(struct remote *remote)
{
    if (!remote || !remote->is_attached || remote->options.read_only)
        return false;
    int64_t now = clock_monotonic_ns();
    uint64_t applied = view_state(remote->store->view).applied_seq, uploaded = atomic_load(&remote->uploaded_total);
    LOCK_SCOPE(&remote->shared.lock);
    if (!remote->relief.at || uploaded != remote->relief.uploaded || remote->shared.horizon != remote->relief.horizon) {
        remote->relief.uploaded = uploaded;
        remote->relief.horizon = remote->shared.horizon;
        remote->relief.at = now;
    }
    bool fails = remote->shared.fenced || remote->shared.unreachable_ns || remote->shared.error_ns > remote->relief.at;
    return !fails && remote->shared.horizon < applied && now - remote->relief.at < RELIEF_NS;
}

/* --- threads ------------------------------------------------------------------------------------------------------------- */

void remote_be_brief(struct remote *remote, bool brief)
{
    remote->tier->patience_ns =
        brief ? (int64_t)min_u64((uint64_t)remote->patience_ns, BRIEF_PATIENCE_NS) : remote->patience_ns;
}

void remote_resume(struct remote *remote)
{
    struct store *store = remote->store;
    struct view_remote view = view_remote(store->view);
    ages_note(store, store->journal.cut_seq, clock_monotonic_ns());
    _cleanup_free_ char *known = local_remote_name(store);
    remote->was_here = known && strcmp(known, remote->name) == 0;
    if (remote->is_attached || remote->was_here)
        remote_advance(remote, view.cut);
    if (remote_note_head(remote) < 0)
        log_warn("the view cannot be written; the next mount makes it anew");
    remote_be_brief(remote, false);
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.head_number = max_u64(view.head, remote->head.number);
    remote->shared.files = remote->head.files;
    remote->shared.logical_bytes = remote->head.logical_bytes;
}

int remote_start(struct remote *remote)
{
    int r = pool_new("cairn-upload", remote->options.upload_threads, remote->options.upload_threads, NULL, NULL,
                     &remote->senders);
    if (r == 0 && remote->options.read_only)
        r = pool_new("cairn-tell", 1, TELLINGS_MAX, NULL, NULL, &remote->tellers);
    if (r == 0)
        r = thread_start(&remote->uploader, "cairn-remote", upload_run, remote);
    remote->uploader_started = r == 0;
    if (r == 0 && !remote->options.read_only) {
        r = thread_start(&remote->renewer, "cairn-lease", lease_run, remote);
        remote->renewer_started = r == 0;
    }
    return r;
}

/* What is on its way is given up: the next mount goes on. Giving the lease back may take a moment and no more. */
void remote_stop(struct remote *remote)
{
    if (!remote)
        return;
    mutex_lock(&remote->shared.lock);
    remote->shared.stopping = true;
    (void)pthread_cond_broadcast(&remote->shared.changed);
    int64_t until = clock_monotonic_ns() + GIVE_BACK_NS;
    while (remote->renewer_started && !remote->shared.renewer_done && clock_monotonic_ns() < until)
        (void)mutex_wait(&remote->shared.lock, &remote->shared.changed, 100);
    mutex_unlock(&remote->shared.lock);
    if (remote->tier->ops->interrupt)
        remote->tier->ops->interrupt(remote->tier);
    if (remote->uploader_started)
        (void)pthread_join(remote->uploader, NULL);
    if (remote->renewer_started)
        (void)pthread_join(remote->renewer, NULL);
    pool_free(remote->senders);
    pool_free(remote->tellers);
    remote->senders = remote->tellers = NULL;
    release_waiters(remote);
}

/* --- what is told of it ---------------------------------------------------------------------------------------------------------- */

int store_remote_needs(struct store *store, uint64_t ino, uint64_t *ret_seq)
{
    struct view_inode inode;
    *ret_seq = ns_last_change(store->ns, ino);
    if (!store->remote)
        return -EOPNOTSUPP;
    if (store->remote->options.read_only && *ret_seq == 0)
        return 0; /* it came from there */
    if (*ret_seq > store_horizon(store))
        return 0;
    int r = view_inode(store->view, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (S_ISDIR(inode.attrs.mode)) {
        /* Anything below it may have changed: all that is durable is asked for. */
        uint64_t now = view_state(store->view).applied_seq;
        *ret_seq = now > store_remote_horizon(store) ? now : 0;
        return 0;
    }
    r = view_unpublished(store->view, ino, ret_seq);
    if (*ret_seq <= store_remote_horizon(store))
        *ret_seq = 0;
    return r;
}

void store_drain_remote(struct store *store)
{
    struct remote *remote = store->remote;
    if (!remote)
        return;
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.drain = remote->shared.kicked = true;
    (void)pthread_cond_broadcast(&remote->shared.changed);
}

static void status_shared(struct remote *remote, struct remote_status *ret)
{
    int64_t now = clock_monotonic_ns();
    LOCK_SCOPE(&remote->shared.lock);
    ret->state = remote->shared.state;
    ret->head = remote->shared.head_number;
    ret->horizon_seq = remote->shared.horizon;
    ret->target_bytes = remote->shared.target_bytes;
    ret->files = remote->shared.files;
    ret->logical_bytes = remote->shared.logical_bytes;
    ret->errors = remote->shared.errors;
    memcpy(ret->error, remote->shared.error, sizeof ret->error);
    ret->error_age_s = remote->shared.error_ns ? (double)(now - remote->shared.error_ns) / 1e9 : -1;
    ret->unreachable_s = remote->shared.unreachable_ns ? (double)(now - remote->shared.unreachable_ns) / 1e9 : -1;
}

void store_remote_status(struct store *store, struct remote_status *ret)
{
    struct remote *remote = store->remote;
    *ret = (struct remote_status){.state = REMOTE_NONE, .error_age_s = -1, .unreachable_s = -1};
    if (!remote)
        return;
    struct view_remote view = view_remote(store->view);
    struct tier_traffic traffic;
    (void)snprintf(ret->name, sizeof ret->name, "%s", remote->name);
    status_shared(remote, ret);
    remote->tier->ops->traffic(remote->tier, &traffic);
    ret->behind_bytes = view.wanted_bytes;
    ret->behind_chunks = view.wanted;
    ret->packs = view.packs;
    ret->pack_bytes = view.pack_bytes;
    ret->requests_total = traffic.requests;
    ret->retries_total = traffic.retries;
    ret->uploaded_bytes_total = atomic_load(&remote->uploaded_total);
    ret->fetched_bytes_total = atomic_load(&remote->fetched_total);
    int64_t since = store_follows(store) ? 0 : ages_oldest_after(store, ret->horizon_seq);
    ret->seconds_behind = since ? (double)(clock_monotonic_ns() - since) / 1e9 : 0;
}

int store_unpublished(struct store *store, struct store_unpublished *ret)
{
    struct view_unpublished_total total;
    int r = view_unpublished_total(store->view, UNPUBLISHED_MAX, &total);
    *ret = (struct store_unpublished){total.inodes, total.files, total.bytes, total.has_more};
    return r;
}

int store_peek_remote(const char *path, struct remote_status *ret)
{
    struct store store = {.path = xstrdup(path)};
    struct head *head = xmalloc(sizeof *head);
    _cleanup_free_ char *name = local_remote_name(&store);
    *ret = (struct remote_status){.state = REMOTE_NONE, .error_age_s = -1, .unreachable_s = -1};
    int r = name ? local_head_read(&store, head) : 0;
    if (name)
        (void)snprintf(ret->name, sizeof ret->name, "%s", name);
    if (name && r == 0) {
        ret->state = REMOTE_IDLE;
        ret->head = head->number;
        ret->horizon_seq = head->cut;
        ret->packs = head->packs;
        ret->pack_bytes = head->pack_bytes;
        ret->files = head->files;
        ret->logical_bytes = head->logical_bytes;
    }
    free(head);
    free(store.path);
    return r == -ENOENT ? 0 : r;
}
