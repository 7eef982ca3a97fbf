// SPDX-License-Identifier: Apache-2.0
/* The lease: an object that the holder of a prefix writes again and again. Its age by the medium's
 * clock says whether the holder lives. It keeps no store from writing: heads do that. */
#include "remote/internal.h"
#include "remote/prefix.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"

#define LEASE_OBJECT "lease/holder"
#define LOOK_MS 500
#define URGE_MS 500

struct lease_seen {
    struct lease lease;
    int64_t modified;
    bool exists;
};

static int note_lease(const struct tier_object *object, void *arg)
{
    struct lease_seen *seen = arg;
    if (strcmp(object->name, LEASE_OBJECT) == 0) {
        seen->exists = true;
        seen->modified = object->modified_ns;
    }
    return 0;
}

static int decode_lease(const void *buf, size_t len, void *arg)
{
    return lease_decode(buf, len, arg);
}

static int look_at_lease(struct remote *remote, struct lease_seen *seen)
{
    *seen = (struct lease_seen){0};
    int r = remote->tier->ops->list(remote->tier, "lease", NULL, note_lease, seen);
    if (r < 0 || !seen->exists)
        return r;
    r = remote_read_object(remote, LEASE_OBJECT, LEASE_LEN, decode_lease, &seen->lease);
    if (remote_object_is_lost(r)) {
        seen->exists = false;
        r = 0;
    }
    return r;
}

static void say_progress(struct remote *remote, const char *line)
{
    log_info("remote: %s", line);
    if (remote->options.progress)
        remote->options.progress(line, remote->options.progress_arg);
}

/* Waits until the holder's lease has run out, or renews: then it lives. */
int lease_await(struct remote *remote, char **ret_text)
{
    struct lease_seen first, seen;
    int r = look_at_lease(remote, &first);
    bool said = false;
    for (seen = first; r == 0; r = look_at_lease(remote, &seen)) {
        const struct store *store = remote->store;
        if (!seen.exists ||
            memcmp(seen.lease.store, store->local.sb.store, sizeof store->local.sb.store) == 0)
            return 0;
        int64_t now = 0, age;
        if (remote->options.takeover)
            return 0;
        r = remote->tier->ops->now(remote->tier, &now);
        if (r < 0)
            return r; /* by another clock it might be over */
        age = now - seen.modified;
        if (age > remote->options.lease_ns)
            return 0;
        if (seen.modified != first.modified) {
            *ret_text = remote_explain_holder(remote, "is in use", seen.lease.holder);
            return -EBUSY;
        }
        if (!said) {
            _cleanup_free_ char *line =
                xasprintf("%s was in use by %s %.0f s ago: going on from there if that renews "
                          "nothing for %.0f s, refused if it "
                          "lives",
                          remote->name, seen.lease.holder, (double)age / 1e9,
                          (double)remote->options.lease_ns / 1e9);
            say_progress(remote, line);
        }
        said = true;
        bool given_up =
            remote->options.cancelled && remote->options.cancelled(remote->options.progress_arg);
        if (given_up || !remote_pause(remote, LOOK_MS))
            return -ECANCELED;
    }
    return r;
}

int lease_renew(struct remote *remote)
{
    struct lease lease = {.epoch = remote->store->local.epoch};
    uint8_t *bytes = aligned_alloc(4096, 4096);
    check(bytes != NULL);
    memset(bytes, 0, 4096);
    memcpy(lease.history, remote->store->local.sb.history, sizeof lease.history);
    memcpy(lease.store, remote->store->local.sb.store, sizeof lease.store);
    (void)snprintf(lease.holder, sizeof lease.holder, "%s", remote->holder);
    lease_encode(&lease, bytes);
    int r = remote->tier->ops->put(remote->tier, LEASE_OBJECT, bytes, LEASE_LEN);
    free(bytes);
    return r;
}

/* Without a lease the prefix is free for any store. One that another holds by now is not ours
 * to give. */
static void give_back(struct remote *remote)
{
    const uint8_t *own = remote->store->local.sb.store;
    struct lease_seen seen;
    int r = look_at_lease(remote, &seen);
    if (r == 0 && seen.exists && memcmp(seen.lease.store, own, sizeof seen.lease.store) == 0)
        r = remote->tier->ops->remove(remote->tier, LEASE_OBJECT);
    if (r < 0)
        log_info("remote: the lease on %s could not be given back; it runs out by itself",
                 remote->name);
}

/* Waiters for the remote wait for NVMe first. */
static void urge_local_locked(struct remote *remote)
{
    check_held(&remote->shared.lock);
    if (TAILQ_EMPTY(&remote->shared.waiters) || remote->shared.stopping)
        return;
    mutex_unlock(&remote->shared.lock);
    horizon_urge(remote->store->commit.horizon, clock_monotonic_ns() + 2 * URGE_MS * 1000000ll);
    mutex_lock(&remote->shared.lock);
}

void *lease_main(void *arg)
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
        bool attached = remote->is_attached, works = !remote->shared.unreachable_ns;
        mutex_unlock(&remote->shared.lock);
        if (stopping && attached && works && !fenced)
            give_back(remote);
        if (stopping || fenced)
            break;
        if (!attached)
            continue;
        int r = lease_renew(remote);
        if (r < 0 && r != -ECANCELED)
            remote_error(remote, r, "renewing the lease on %s failed (%s)", remote->name,
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
