// SPDX-License-Identifier: Apache-2.0
/* The shared state of the remote: errors, waiters for its horizon, whether it must stop. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/touched.h"
#include "nodes/node.h"
#include "remote/internal.h"

#define SAME_ERROR_QUIET_NS (10ll * 1000000000)
#define BRIEF_PATIENCE_NS 5000000000ull
/* An upload without progress for so long is not waited for. */
#define RELIEF_NS (60ll * 1000000000)

const char *remote_name(const struct remote *remote)
{
    return remote->prefix.name;
}

static void note_trouble(struct remote *remote, bool is_unreachable, const char *text)
{
    mutex_lock(&remote->shared.lock);
    int64_t now = clock_monotonic_ns();
    bool repeated = strncmp(text, remote->shared.error, sizeof remote->shared.error - 1) == 0 &&
                    now - remote->shared.error_ns < SAME_ERROR_QUIET_NS;
    remote->shared.errors++;
    if (!repeated) {
        cause_format(remote->shared.error, sizeof remote->shared.error, "%s", text);
        remote->shared.error_ns = now;
    }
    if (is_unreachable && remote->shared.state != REMOTE_FENCED) {
        remote->shared.state = REMOTE_UNREACHABLE;
        if (!remote->shared.unreachable_ns)
            remote->shared.unreachable_ns = now;
    }
    mutex_unlock(&remote->shared.lock);
    event_signal(horizon_progress(remote->store->commit.horizon));
    if (!repeated)
        log_warn("remote: %s", text);
}

void remote_error(struct remote *remote, int error, const char *fmt, ...)
{
    char text[CAUSE_MAX], cause[CAUSE_MAX] = "", whole[sizeof remote->shared.error];
    va_list ap;
    va_start(ap, fmt);
    cause_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    if (error < 0)
        remote->prefix.tier->ops->last_error(remote->prefix.tier, cause, sizeof cause);
    cause_format(whole, sizeof whole, "%s%s%s", text, *cause ? ": " : "", cause);
    note_trouble(remote, error < 0, whole);
}

void remote_hold_off(struct remote *remote, const char *why)
{
    note_trouble(remote, true, why);
}

void remote_works(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    if (remote->shared.unreachable_ns)
        log_info("remote: %s answers again", remote->prefix.name);
    remote->shared.unreachable_ns = 0;
    if (remote->shared.state == REMOTE_UNREACHABLE || remote->shared.state == REMOTE_CONNECTING)
        remote->shared.state = remote->options.read_only ? REMOTE_FOLLOWING : REMOTE_IDLE;
}

/* The number that waiters compare with. If several nodes write the prefix, the union must have it,
 * too. */
static uint64_t reached(struct remote *remote)
{
    struct touched *touched = history_touched(remote->store->commit.history);
    uint64_t published = horizon_published(remote->store->commit.horizon);
    return touched ? min_u64(published, touched_merged_up_to(touched)) : published;
}

uint64_t remote_reached(struct store *store)
{
    return store->remote ? reached(store->remote) : 0;
}

static void serve_waiters(void *arg)
{
    struct remote *remote = arg;
    struct waiters served = WAITERS_EMPTY(served);
    mutex_lock(&remote->shared.lock);
    waiters_take(&remote->shared.waiters, reached(remote), &served);
    mutex_unlock(&remote->shared.lock);
    waiters_call(&served, 0);
}

void remote_hear_union(struct remote *remote, bool hears)
{
    if (remote->store->node)
        node_hear(remote->store->node, NODE_HEARER_WAITS, hears ? serve_waiters : NULL, remote);
}

void remote_advance(struct remote *remote, uint64_t cut)
{
    struct waiters served = WAITERS_EMPTY(served);
    horizon_note_published(remote->store->commit.horizon, cut);
    mutex_lock(&remote->shared.lock);
    uint64_t published = max_u64(horizon_published(remote->store->commit.horizon), cut);
    horizon_set_published(remote->store->commit.horizon, published);
    waiters_take(&remote->shared.waiters, reached(remote), &served);
    remote_settle_limit_locked(remote);
    (void)pthread_cond_broadcast(&remote->shared.changed);
    mutex_unlock(&remote->shared.lock);
    waiters_call(&served, 0);
    event_signal(horizon_progress(remote->store->commit.horizon));
}

void remote_release_waiters(struct remote *remote)
{
    struct waiters served = WAITERS_EMPTY(served);
    mutex_lock(&remote->shared.lock);
    waiters_take(&remote->shared.waiters, UINT64_MAX, &served);
    remote_settle_limit_locked(remote);
    mutex_unlock(&remote->shared.lock);
    waiters_call(&served, -ESHUTDOWN);
}

void remote_fence(struct remote *remote, const struct head *theirs)
{
    remote_error(
        remote, 0,
        "%s was taken over by %s (head %llu): nothing more is published from here; what is not "
        "there stays "
        "readable on this mount: copy it, or mount the store with an empty prefix of its own",
        remote->prefix.name, theirs->holder, (unsigned long long)theirs->number);
    remote_give_up(remote);
}

void remote_give_up(struct remote *remote)
{
    mutex_lock(&remote->shared.lock);
    remote->shared.fenced = true;
    remote->shared.state = REMOTE_FENCED;
    mutex_unlock(&remote->shared.lock);
    event_signal(horizon_progress(remote->store->commit.horizon));
    remote_release_waiters(remote);
}

void remote_start_wait(struct store *store, uint64_t seq, waiter_fn *fn, void *arg,
                       uint64_t *ret_ticket)
{
    struct remote *remote = store->remote;
    *ret_ticket = 0;
    if (!remote) {
        fn(-ESHUTDOWN, arg);
        return;
    }
    uint64_t ticket = horizon_new_ticket(store->commit.horizon);
    horizon_urge(store->commit.horizon, clock_monotonic_ns() + 1000000000);
    mutex_lock(&remote->shared.lock);
    *ret_ticket = ticket; /* it may be invalid once its callback was called */
    bool never = remote->shared.fenced || remote->shared.stopping,
         is_there = seq <= reached(remote);
    if (!never && !is_there) {
        waiters_add(&remote->shared.waiters, seq, ticket, fn, arg);
        remote_settle_limit_locked(remote);
        (void)pthread_cond_broadcast(&remote->shared.changed);
        event_signal(horizon_progress(store->commit.horizon));
    }
    mutex_unlock(&remote->shared.lock);
    if (is_there || never)
        fn(is_there ? 0 : -ESHUTDOWN, arg);
}

uint64_t remote_damaged_chunks(const struct remote *remote)
{
    return atomic_load(&remote->damaged_chunks);
}

bool remote_unwait(struct remote *remote, uint64_t ticket)
{
    LOCK_SCOPE(&remote->shared.lock);
    bool removed = waiters_remove(&remote->shared.waiters, ticket);
    remote_settle_limit_locked(remote);
    return removed;
}

bool remote_is_stopping(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    return remote->shared.stopping;
}

bool remote_is_awaited_locked(struct remote *remote)
{
    check_held(&remote->shared.lock);
    return waiters_are_beyond(&remote->shared.waiters,
                              horizon_published(remote->store->commit.horizon));
}

bool remote_is_urged(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    return remote_is_awaited_locked(remote) || remote->shared.drain;
}

void remote_settle_limit_locked(struct remote *remote)
{
    check_held(&remote->shared.lock);
    rate_limit_lift(&remote->limit, remote_is_awaited_locked(remote) || remote->shared.drain ||
                                        remote->shared.stopping);
}

bool remote_limit_wait(struct remote *remote, uint64_t bytes)
{
    rate_limit_wait(&remote->limit, bytes);
    return !remote_is_stopping(remote);
}

void remote_kick_locked(struct remote *remote)
{
    check_held(&remote->shared.lock);
    remote->shared.kicked = true;
    (void)pthread_cond_broadcast(&remote->shared.changed);
    event_signal(horizon_progress(remote->store->commit.horizon));
}

bool remote_is_called(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    return remote->shared.stopping || remote->shared.kicked;
}

bool remote_pause(struct remote *remote, int64_t ms)
{
    LOCK_SCOPE(&remote->shared.lock);
    if (!remote->shared.stopping && !remote->shared.kicked && ms > 0)
        (void)mutex_wait(&remote->shared.lock, &remote->shared.changed, ms);
    remote->shared.kicked = false;
    return !remote->shared.stopping;
}

bool remote_has_ours(struct remote *remote)
{
    if (!remote || !(remote->prefix.is_attached || remote->was_here))
        return false;
    LOCK_SCOPE(&remote->shared.lock);
    /* the store that took it over may delete objects that only we need */
    return !remote->shared.fenced;
}

bool remote_will_relieve(struct remote *remote)
{
    if (!remote || !remote->prefix.is_attached || remote->options.read_only)
        return false;
    int64_t now = clock_monotonic_ns();
    uint64_t applied = view_state(remote->store->local.view).applied_seq,
             uploaded = atomic_load(&remote->prefix.uploaded_total);
    uint64_t published = horizon_published(remote->store->commit.horizon);
    LOCK_SCOPE(&remote->shared.lock);
    if (!remote->relief.at || uploaded != remote->relief.uploaded ||
        published != remote->relief.horizon) {
        remote->relief.uploaded = uploaded;
        remote->relief.horizon = published;
        remote->relief.at = now;
    }
    bool fails = remote->shared.fenced || remote->shared.unreachable_ns ||
                 remote->shared.error_ns > remote->relief.at;
    return !fails && published < applied && now - remote->relief.at < RELIEF_NS;
}

void remote_be_brief(struct remote *remote, bool brief)
{
    remote->prefix.tier->patience_ns =
        brief ? (int64_t)min_u64((uint64_t)remote->patience_ns, BRIEF_PATIENCE_NS)
              : remote->patience_ns;
}

/* --- for prefix/ ------------------------------------------------------------------------------ */

struct adoption adoption_of(struct store *store)
{
    return (struct adoption){.local = &store->local,
                             .journal = store->commit.journal,
                             .prefix = store->remote ? &store->remote->prefix : NULL,
                             .is_node = store->node != NULL};
}
