// SPDX-License-Identifier: Apache-2.0
/* While a store is being opened, its calls may wait for the remote one after the other: cancelling
 * the start ends them all. */
#include "remote/internal.h"

#define LOOK_MS 50

static bool wait_for_end(struct remote *remote)
{
    LOCK_SCOPE(&remote->watch.lock);
    if (!remote->watch.over)
        (void)mutex_wait(&remote->watch.lock, &remote->watch.ended, LOOK_MS);
    return remote->watch.over;
}

static void *watch(void *arg)
{
    struct remote *remote = arg;
    while (!wait_for_end(remote)) {
        if (!remote->options.cancelled(remote->options.progress_arg))
            continue;
        remote->prefix.tier->ops->interrupt(remote->prefix.tier);
        break;
    }
    return NULL;
}

void remote_watch_start(struct remote *remote)
{
    if (!remote || !remote->options.cancelled || !remote->prefix.tier->ops->interrupt)
        return;
    remote->watch.started = thread_start(&remote->watch.thread, "cairn-start", watch, remote) == 0;
}

void remote_watch_end(struct remote *remote)
{
    if (!remote || !remote->watch.started)
        return;
    mutex_lock(&remote->watch.lock);
    remote->watch.over = true;
    (void)pthread_cond_broadcast(&remote->watch.ended);
    mutex_unlock(&remote->watch.lock);
    (void)pthread_join(remote->watch.thread, NULL);
    remote->watch.started = false;
}
