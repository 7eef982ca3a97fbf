// SPDX-License-Identifier: Apache-2.0
/* Opens a store; the store of a node that is behind the union goes back (back.c). */
#include <stdio.h>

#include "base/clock.h"
#include "nodes/node.h"
#include "store/back.h"
#include "store/internal.h"

#define REFUSED_MAX_NS (30 * SECOND_NS)
#define POLL_NS (100 * MS_NS)

/* --- everything is written to NVMe --- */

static void ignore_room(void *arg)
{
    (void)arg;
}

/* Errors of the disk are retried as long as this may help. False: nothing could be written to the
 * disk for long. */
static bool await_progress(struct store *store, uint64_t *seen, int64_t *refused_since)
{
    struct event *progress = horizon_progress(store->commit.horizon);
    int64_t now = clock_monotonic_ns();
    horizon_urge(store->commit.horizon, now + SECOND_NS);
    (void)event_wait(progress, seen, now + POLL_NS);
    if (!room_refuses(store->commit.room))
        *refused_since = 0;
    else if (!*refused_since)
        *refused_since = now;
    return !*refused_since || now - *refused_since <= REFUSED_MAX_NS;
}

static int drain(struct store *store)
{
    struct horizon *horizon = store->commit.horizon;
    int64_t refused_since = 0;
    int r;
    TRY(store_start(store, ignore_room, NULL));
    history_end_lease(store->commit.history);
    uint64_t seen = event_count(horizon_progress(horizon));
    while ((r = history_seal_all(store->commit.history)) == -EAGAIN)
        if (!await_progress(store, &seen, &refused_since))
            return -ENOSPC;
    TRY(r);
    while (horizon_reached(horizon) < history_newest(store->commit.history))
        if (!await_progress(store, &seen, &refused_since))
            return -ENOSPC;
    return 0;
}

/* Closes the store in any case. */
static int set_all_aside(struct store *store, uint64_t generation, char **ret_text)
{
    _cleanup_free_ char *path = xstrdup(store->local.path);
    int r = back_ask(path, generation);
    if (r == 0)
        r = node_note_used(store->node);
    if (r == 0)
        r = drain(store);
    store_close(store);
    if (r == 0)
        r = back_link_aside(path, generation);
    if (r < 0)
        *ret_text = xasprintf("%s: all nodes go back to an earlier state, since one was lost, and "
                              "what this one did since cannot be set aside: %s",
                              path, strerror(-r));
    return r;
}

/* --- opening ---------------------------------------------------------------------------------- */

int store_open(const struct store_options *options, struct store **ret, bool *ret_again,
               char **ret_text)
{
    struct back back = {0};
    struct store *store = NULL;
    *ret_text = NULL;
    *ret_again = false;
    int r = back_look(options->path, &back);
    if (r < 0) {
        *ret_text = xasprintf("%s/back cannot be read: %s", options->path, strerror(-r));
        if (options->remote.tier) /* ours, failed or not */
            options->remote.tier->ops->close(options->remote.tier);
        return r;
    }
    /* A mount that continues loses its open files, which belong to the state that is given up. */
    struct store_options once = *options;
    once.adopting = options->adopting && back.step == BACK_NOT;
    TRY(store_open_once(&once, &back, options->adopting, &store, ret_again, ret_text));
    bool is_behind = store->node && (back.step == BACK_ASKED || node_is_behind(store->node));
    if (!is_behind) {
        *ret = store;
        return 0;
    }
    r = set_all_aside(store, max_u64(back.generation, node_next_generation(store->node)), ret_text);
    *ret_again = r == 0;
    return r < 0 ? r : -EAGAIN;
}
