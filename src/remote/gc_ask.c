// SPDX-License-Identifier: Apache-2.0
/* A pass of gc requested by a user (cairn gc), made by the upload's thread. */
#include "base/clock.h"
#include "remote/maintenance_internal.h"

/* Why no pass will be made, as -errno; 0: it will be. */
static int why_no_pass(struct remote *remote)
{
    if (remote->options.read_only)
        return -ESHUTDOWN;
    if (!remote->prefix.is_attached)
        return -ENOTCONN;
    LOCK_SCOPE(&remote->shared.lock);
    return remote->shared.stopping || remote->shared.fenced ? -ESHUTDOWN : 0;
}

/* Returns whether the remote has been unreachable for longer than a lease since the request.
 * Uploads are retried without end, and the pass comes after them. */
static bool is_out_of_reach(struct remote *remote, int64_t asked)
{
    LOCK_SCOPE(&remote->shared.lock);
    int64_t since = remote->shared.unreachable_ns > asked ? remote->shared.unreachable_ns : asked;
    return remote->shared.unreachable_ns && clock_monotonic_ns() - since > remote->options.lease_ns;
}

/* Was the pass made, or will there be none? A pass that has begun must be waited for, as the caller
 * owns the request. */
static bool is_over(struct remote *remote, const struct remote_gc_request *request, int64_t asked,
                    int *ret_result)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    int r = request->is_cancelled(request->arg) ? -ECANCELED : why_no_pass(remote);
    if (r == 0 && is_out_of_reach(remote, asked))
        r = -ENOTCONN;
    LOCK_SCOPE(&maintenance->lock);
    if (r < 0 && maintenance->gc == REMOTE_GC_ASKED) {
        maintenance->gc = REMOTE_GC_NONE;
        maintenance->gc_result = r;
    }
    *ret_result = maintenance->gc_result;
    return maintenance->gc == REMOTE_GC_NONE;
}

int remote_gc_ask(struct remote *remote, struct remote_gc_request *request)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    int r = why_no_pass(remote);
    if (r < 0)
        return r;
    mutex_lock(&maintenance->lock);
    maintenance->request = request;
    maintenance->gc = REMOTE_GC_ASKED;
    mutex_unlock(&maintenance->lock);
    struct event *progress = horizon_progress(remote->store->commit.horizon);
    uint64_t seen = event_count(progress);
    int64_t asked = clock_monotonic_ns();
    mutex_lock(&remote->shared.lock);
    remote_kick_locked(remote);
    mutex_unlock(&remote->shared.lock);
    while (!is_over(remote, request, asked, &r))
        (void)event_wait(progress, &seen, clock_monotonic_ns() + SECOND_NS);
    return r;
}
