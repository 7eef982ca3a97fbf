// SPDX-License-Identifier: Apache-2.0
/* The thread that renews the lease, and releases it when the store ends. */
#include "base/clock.h"
#include "prefix/lease.h"
#include "remote/internal.h"

#define URGE_MS 500

/* Waiters for the remote first wait for NVMe. */
static void urge_local_locked(struct remote *remote)
{
    check_held(&remote->shared.lock);
    if (!remote_is_awaited_locked(remote) || remote->shared.stopping)
        return;
    mutex_unlock(&remote->shared.lock);
    horizon_urge(remote->store->commit.horizon, clock_monotonic_ns() + 2 * URGE_MS * 1000000ll);
    mutex_lock(&remote->shared.lock);
}

void *renewer_main(void *arg)
{
    struct remote *remote = arg;
    int64_t interval = remote->options.lease_ns / 4 / 1000000;
    for (;;) {
        mutex_lock(&remote->shared.lock);
        int64_t until = clock_monotonic_ns() + interval * 1000000;
        while (!remote->shared.stopping && clock_monotonic_ns() < until) {
            (void)mutex_wait(&remote->shared.lock, &remote->shared.changed,
                             min_u64((uint64_t)interval, URGE_MS));
            urge_local_locked(remote);
        }
        bool stopping = remote->shared.stopping, fenced = remote->shared.fenced;
        bool attached = remote->prefix.is_attached, works = !remote->shared.unreachable_ns;
        mutex_unlock(&remote->shared.lock);
        if (stopping && attached && works && !fenced)
            lease_give_back(&remote->prefix);
        if (stopping || fenced)
            break;
        if (!attached)
            continue;
        int r = lease_renew(&remote->prefix);
        if (r < 0 && r != -ECANCELED)
            remote_error(remote, r, "renewing the lease on %s failed (%s)", remote->prefix.name,
                         strerror(-r));
        if (r == 0)
            remote_works(remote);
    }
    mutex_lock(&remote->shared.lock);
    remote->shared.renewer_done = true;
    (void)pthread_cond_broadcast(&remote->shared.changed);
    mutex_unlock(&remote->shared.lock);
    return NULL;
}
