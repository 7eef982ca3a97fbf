// SPDX-License-Identifier: Apache-2.0
/* Upload: one thread that chooses a cut of the view and sends the objects that the remote lacks,
 * and a few threads that send packs.
 *
 *   packs durable there  ->  run there  ->  head created
 *       ->  view, waiters, removal of runs and segments that are no longer needed
 *
 * The cut is the newest one on NVMe when a round begins. Chunks live at the cut are pinned on NVMe
 * until they were sent, even if they are deleted meanwhile; chunks dead at the cut are never sent.
 * So a remote that is slower than the writer goes from one complete state to a later one. The view
 * records sent chunks at once: after a crash only the packs in progress are sent again. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/round_cut.h"
#include "nodes/node.h"
#include "dense/layout.h"
#include "remote/maintenance_internal.h"
#include "remote/upload.h"

#define TICK_MS 250
#define HEAD_INTERVAL_NS (1ll * 1000000000)
#define RETRY_MS 1000

/* --- pins ------------------------------------------------------------------------------------- */

static int note_pin(const struct chunk_entry *entry, void *arg)
{
    struct upload *up = arg;
    if (entry->pack == 0 || (up->pins.count && up->pins.at[up->pins.count - 1] == entry->pack))
        return 0;
    if (up->pins.count == up->pins.capacity) {
        vector_sort_unique(&up->pins); /* names are in no order of packs */
        vector_reserve(&up->pins, up->pins.count + 1);
    }
    vector_add(&up->pins, entry->pack);
    return 0;
}

static bool is_stopping(void *arg)
{
    return remote_is_stopping(arg);
}

/* Opens a cut such that no drop has begun since: waits for drops in progress. */
static int open_newest_cut(struct upload *up)
{
    struct commit *commit = &up->remote->store->commit;
    uint64_t seen = event_count(horizon_progress(commit->horizon));
    packs_hold_drops(commit->packs, true);
    while (packs_are_dropping(commit->packs) && !remote_is_stopping(up->remote))
        (void)event_wait(horizon_progress(commit->horizon), &seen, INT64_MAX);
    int r = remote_is_stopping(up->remote) ? -ECANCELED
                                           : view_cut_open(up->remote->store->local.view, &up->cut);
    if (r < 0)
        packs_hold_drops(commit->packs, false);
    return r;
}

static void pin_packs(struct upload *up)
{
    struct packs *packs = up->remote->store->commit.packs;
    size_t kept = 0;
    vector_sort_unique(&up->pins);
    for (size_t i = 0; i < up->pins.count; i++)
        if (packs_pin(packs, up->pins.at[i]))
            up->pins.at[kept++] = up->pins.at[i];
    up->pins.count = kept;
}

/* Opens the cut, and pins the packs that it needs. No drop begins in between: a pack that is being
 * emptied cannot be pinned, nor can the pack to which its chunks are moving. If other nodes write
 * the prefix, the cut is at a round common to all nodes. */
static int open_cut(struct upload *up)
{
    struct store *store = up->remote->store;
    struct node *node = store->node;
    struct rounds_span span;
    const struct round_cut_wish wish = {.bits = node ? node_round_bits(node) : 0,
                                        .after = node ? node_told_round(node) : 0,
                                        .is_over = is_stopping,
                                        .arg = up->remote};
    TRY(node ? round_cut_await(&store->commit, &wish, &up->cut, &span) : open_newest_cut(up));
    int r = view_cut_pending(up->cut, NULL, note_pin, up);
    pin_packs(up);
    packs_hold_drops(store->commit.packs, false);
    return r == 0 && node ? node_prepare(node, up->cut, &span) : r;
}

static void close_cut(struct upload *up)
{
    for (size_t i = 0; i < up->pins.count; i++)
        packs_unpin(up->remote->store->commit.packs, up->pins.at[i]);
    vector_free(&up->pins);
    view_cut_close(up->cut);
    upload_drop_open(up);
    dense_round_free(up->dense);
    layout_free(up->layout);
    free(up->list);
}

/* --- a round ---------------------------------------------------------------------------------- */

static void set_target(struct remote *remote, uint64_t bytes)
{
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.target_bytes = bytes;
    if (remote->shared.state == REMOTE_IDLE || remote->shared.state == REMOTE_UPLOADING)
        remote->shared.state = bytes ? REMOTE_UPLOADING : REMOTE_IDLE;
}

static void describe_head(struct remote *remote, const struct view_cut *cut, struct head *head)
{
    struct store *store = remote->store;
    struct view_state state = view_cut_state(cut);
    struct view_remote view = view_remote(store->local.view);
    head_sign(&remote->prefix, head);
    head->time = clock_realtime_ns();
    head->cut = state.applied_seq;
    memcpy(head->chain, state.chain, sizeof head->chain);
    head->max_ino = max_u64(state.max_ino, head->max_ino);
    head->max_id = max_u64(head->max_id, packs_newest_id(store->commit.packs));
    head->files = state.files;
    head->logical_bytes = state.logical_bytes;
    head->chunks = state.chunks;
    head->stored_bytes = state.stored_bytes;
    head->packs = view.packs;
    head->pack_bytes = view.pack_bytes;
}

static int publish_head(struct upload *up, struct head *head)
{
    struct remote *remote = up->remote;
    struct store *store = remote->store;
    describe_head(remote, up->cut, head);
    TRY(remote_publish_head(remote, head));
    /* the head exists: after any later error, the next head must follow it */
    int r = store->node ? 0 : upload_begin_dooms(up);
    if (r == 0)
        r = view_published(store->local.view, up->cut, head->number);
    upload_end_dooms(up);
    if (r == 0)
        runs_tidy(&store->local, store->commit.room, head);
    return r;
}

/* Objects were removed below the mount, or an older copy replaced the remote: nothing counts as
 * published before it is known what is missing. */
static int doubt_all(struct remote *remote)
{
    log_warn("remote: the head before head %llu is gone, which this mount published: what else is "
             "missing is looked for, and stored again",
             (unsigned long long)remote->prefix.head.number);
    remote->maintenance->must_look = true;
    return listed_doubt(remote);
}

static int publish_cut(struct upload *up)
{
    struct remote *remote = up->remote;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    uint64_t missing = 0;
    bool is_news;
    *head = remote->prefix.head;
    int r = runs_publish(remote, up->cut, head, &is_news, &missing);
    if (r == 0 && is_news)
        r = publish_head(up, head);
    if (r < 0)
        return r;
    if (is_news && missing)
        remote_error(remote, 0, "%llu chunks that are damaged on NVMe are missing in the remote",
                     (unsigned long long)missing);
    if (is_news)
        atomic_store(&remote->damaged_chunks, missing);
    if (remote->store->node)
        node_published(remote->store->node, &remote->prefix.head);
    if (remote->prefix.has_lost_head)
        return doubt_all(remote);
    remote_advance(remote, view_cut_state(up->cut).applied_seq);
    return 0;
}

/* Rewrites badly placed chunks first, so that this round's head already has their new places.
 * Errors must not keep new data from being published. */
static int relocate_chunks(struct upload *up)
{
    struct remote *remote = up->remote;
    struct repair_plan plan;
    int r = repair_plan_make(remote, PASS_CHUNKS, &plan);
    if (r == 0 && plan.packs.count) {
        remote->maintenance->is_untold = true; /* until the round ends with a head */
        up->list = plan.list;
        up->count = plan.count;
        up->is_relocating = true;
        r = upload_send_list(up);
        up->is_relocating = false;
        up->list = NULL;
        atomic_store(&up->error, 0);
        if (r == 0)
            r = repair_plan_carried(remote, &plan, atomic_load(&up->unread));
    }
    repair_plan_done(&plan);
    if (r == 0 || r == -ECANCELED)
        return r;
    remote_error(remote, tier_error_is_transient(r) ? r : 0,
                 "writing packs anew failed (%s); retrying later", strerror(-r));
    repair_plan_failed(remote);
    return 0;
}

/* Sends the cut's packs, then its head. */
static int carry_cut(struct upload *up)
{
    struct remote *remote = up->remote;
    struct store *store = remote->store;
    TRY(open_cut(up));
    up->pending_bytes = view_remote(store->local.view).pending_bytes;
    set_target(remote, up->pending_bytes);
    TRY(dense_round_new(store->dense, up->cut, remote->senders, remote->options.upload_threads,
                        &up->dense));
    TRY(upload_send_pending(up));
    TRY(publish_cut(up));
    repair_round_done(remote);
    dense_keep_published(store->dense, up->cut);
    up->cut = NULL;
    return 0;
}

static int upload_round(struct remote *remote)
{
    struct upload up = {.remote = remote};
    int r = upload_wait_for_view_room(remote);
    if (r == 0)
        r = view_track(remote->store->local.view);
    if (r == 0)
        r = relocate_chunks(&up);
    if (r == 0)
        r = carry_cut(&up);
    set_target(remote, 0);
    close_cut(&up);
    return r;
}

/* --- the thread ------------------------------------------------------------------------------- */

/* For a remote that could not be reached at mount. False: it must not be used. */
static bool attach_late(struct remote *remote)
{
    char *text = NULL;
    struct adoption adoption = adoption_of(remote->store);
    int r = prefix_attach(&remote->prefix, adopt_is_consistent, &adoption, &text);
    if (r == 0 && remote->prefix.is_attached)
        r = remote_claim(remote, &text);
    if (r == 0 && remote->prefix.is_attached)
        r = remote_note_head(remote);
    if (r < 0 && !text) /* transient: tried again later */
        remote->prefix.is_attached = false;
    if (text) {
        remote_hold_off(remote, text);
        remote->prefix.is_attached = false;
    }
    bool hopeless = text && adopt_is_lost_for_good(&adoption, r);
    if (hopeless)
        remote_give_up(remote);
    free(text);
    return !hopeless;
}

static bool is_behind(struct remote *remote)
{
    struct view_remote known = view_remote(remote->store->local.view);
    if (remote_repair_is_due(remote) || (known.is_whole && known.cut > 0))
        return true;
    return view_state(remote->store->local.view).applied_seq >
           horizon_published(remote->store->commit.horizon);
}

/* Heads stay for the grace, so there must not be many per second, unless a caller waits for one. */
static bool is_time(struct remote *remote, int64_t last)
{
    return remote_is_urged(remote) || clock_monotonic_ns() - last >= HEAD_INTERVAL_NS;
}

/* Waits until there is a cut to publish, or a request; or for TICK_MS, since gc, and heads for
 * which no caller waits, are due by time. False: the store is stopping. */
static bool await_work(struct remote *remote, int64_t last)
{
    struct event *progress = horizon_progress(remote->store->commit.horizon);
    int64_t until = clock_monotonic_ns() + TICK_MS * MS_NS;
    uint64_t seen = event_count(progress);
    while (!remote_is_called(remote) && !(is_time(remote, last) && is_behind(remote)) &&
           event_wait(progress, &seen, until))
        ;
    return remote_pause(remote, 0);
}

/* Accepts the known published state, once it is known which packs the remote lacks: at once, or
 * with the next head. */
static int look_at_packs(struct remote *remote)
{
    static const uint64_t none[RUN_PLACES];
    bool counts_now;
    if (!remote->maintenance->must_look)
        return 0;
    if (remote->prefix.has_lost_head)
        TRY(runs_keep(&remote->prefix, none));
    TRY(listed_look(remote, &counts_now));
    remote->prefix.has_lost_head = false;
    remote->maintenance->must_look = false;
    if (counts_now)
        remote_advance(remote, view_remote(remote->store->local.view).cut);
    return 0;
}

/* The other nodes need not wait for a mount that has ended. */
static void leave_prefix(struct remote *remote)
{
    if (!remote->store->node)
        return;
    mutex_lock(&remote->shared.lock);
    bool may = remote->shared.stopping && !remote->shared.fenced && !remote->shared.unreachable_ns;
    mutex_unlock(&remote->shared.lock);
    if (may && remote->prefix.is_attached)
        node_leave(remote->store->node, &remote->prefix.head);
    node_end_merging(remote->store->node);
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.has_left = true;
    (void)pthread_cond_broadcast(&remote->shared.changed);
}

void *upload_main(void *arg)
{
    struct remote *remote = arg;
    struct dense *dense = remote->store->dense;
    int64_t last = 0, pause = 0; /* ms, after a failure */
    if (remote->options.read_only)
        return follow_main(remote);
    if (remote->prefix.is_attached)
        dense_find_published(dense); /* before new writes change the view */
    remote_look_for_untold(remote);
    while (pause ? remote_pause(remote, pause) : await_work(remote, last)) {
        pause = 0;
        if (!remote->prefix.is_attached) {
            if (!attach_late(remote))
                break;
            pause = remote->prefix.is_attached ? 0 : 5 * RETRY_MS;
            continue;
        }
        if (look_at_packs(remote) < 0) {
            pause = RETRY_MS;
            continue;
        }
        listed_settle(remote);
        dense_tick(dense, clock_monotonic_ns());
        if (!is_behind(remote))
            dense_find_published(dense);
        suspects_tick(remote);
        if (remote->store->node) {
            node_reserve_ahead(remote->store->node);
            node_tick(remote->store->node, &remote->prefix.head);
        }
        int r = remote_gc_tick(remote);
        if (r == 0)
            r = snapshots_tick(remote->snapshots, horizon_published(remote->store->commit.horizon));
        if (r == 0 && is_time(remote, last) && is_behind(remote)) {
            last = clock_monotonic_ns();
            r = upload_round(remote);
        }
        if (r == 0)
            runs_tick(remote);
        if (r == -ESTALE)
            break;
        if (r < 0 && r != -ECANCELED) {
            remote_error(remote, 0, "the upload stopped: %s; retrying", strerror(-r));
            pause = RETRY_MS;
        }
    }
    dense_keep_published(dense, NULL);
    leave_prefix(remote);
    return NULL;
}
