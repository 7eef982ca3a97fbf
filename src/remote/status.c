// SPDX-License-Identifier: Apache-2.0
/* The remote's status. */
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "commit/touched.h"
#include "base/io.h"
#include "nodes/merger.h"
#include "nodes/node.h"
#include "remote/maintenance_internal.h"

#define UNPUBLISHED_MAX 65536u /* changes examined for a status */

/* The last operation on the inode that no union head contains; 0: none. */
static uint64_t not_merged(struct store *store, uint64_t ino)
{
    struct touched *touched = history_touched(store->commit.history);
    return touched ? touched_last(touched, ino) : 0;
}

int remote_needs(struct store *store, uint64_t ino, uint64_t *ret_seq)
{
    struct view_inode inode;
    *ret_seq = ns_last_change(store->local.ns, ino);
    if (!store->remote)
        return -EOPNOTSUPP;
    if (store->remote->options.read_only && *ret_seq == 0)
        return 0; /* the operation was taken from the union */
    if (*ret_seq > horizon_reached(store->commit.horizon))
        return 0;
    int r = view_inode(store->local.view, ino, &inode);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    if (S_ISDIR(inode.attrs.mode)) {
        /* anything below it may have changed: requires everything that is durable */
        uint64_t now = view_state(store->local.view).applied_seq;
        *ret_seq = now > remote_reached(store) ? now : 0;
        return 0;
    }
    r = view_unpublished(store->local.view, ino, ret_seq);
    if (*ret_seq <= horizon_published(store->commit.horizon))
        *ret_seq = 0;
    *ret_seq = max_u64(*ret_seq, not_merged(store, ino));
    return r;
}

void remote_drain(struct store *store)
{
    struct remote *remote = store->remote;
    if (!remote)
        return;
    LOCK_SCOPE(&remote->shared.lock);
    remote->shared.drain = true;
    remote_settle_limit_locked(remote);
    remote_kick_locked(remote);
}

static void shared_status(struct remote *remote, struct remote_status *ret)
{
    int64_t now = clock_monotonic_ns();
    LOCK_SCOPE(&remote->shared.lock);
    ret->state = remote->shared.state;
    ret->head = remote->shared.head_number;
    ret->horizon_seq = horizon_published(remote->store->commit.horizon);
    ret->target_bytes = remote->shared.target_bytes;
    ret->files = remote->shared.files;
    ret->logical_bytes = remote->shared.logical_bytes;
    ret->errors = remote->shared.errors;
    memcpy(ret->error, remote->shared.error, sizeof ret->error);
    ret->error_age_s = remote->shared.error_ns ? (double)(now - remote->shared.error_ns) / 1e9 : -1;
    ret->unreachable_s =
        remote->shared.unreachable_ns ? (double)(now - remote->shared.unreachable_ns) / 1e9 : -1;
}

static void count_stays(const struct merger_status *merger, uint32_t node, struct nodes_status *ret)
{
    for (size_t i = 0; i < merger->stay_count; i++) {
        const struct merger_stay *stay = &merger->stays[i];
        ret->nodes += !stay->has_left;
        ret->silent += stay->is_silent;
        if (stay->is_silent && (double)stay->age_ns / 1e9 > ret->silent_s)
            ret->silent_s = (double)stay->age_ns / 1e9;
        if (stay->epoch == merger->held_back_by && stay->node != node)
            (void)snprintf(ret->held_back_by, sizeof ret->held_back_by, "%s", stay->holder);
        if (stay->is_silent && (stay->epoch == merger->held_back_by || !*ret->waits_for))
            (void)snprintf(ret->waits_for, sizeof ret->waits_for, "%s", stay->holder);
    }
}

static void nodes_status(struct node *node, const struct superblock *sb, struct nodes_status *ret)
{
    struct merger_status merger;
    struct io_sizes aside;
    *ret = (struct nodes_status){.is_node = node != NULL, .union_age_s = -1};
    if (!node)
        return;
    node_merger_status(node, &merger);
    ret->merges = merger.is_merger;
    ret->union_head = merger.head;
    ret->generation = merger.generation;
    ret->ended = merger.ended;
    ret->changes_wait = node_changes_wait(node);
    node_aside(node, &aside);
    ret->aside_bytes = aside.bytes;
    ret->aside_only_there_bytes = aside.only_there_bytes;
    if (merger.head)
        ret->union_age_s = (double)merger.age_ns / 1e9;
    (void)snprintf(ret->merger, sizeof ret->merger, "%s", merger.holder);
    count_stays(&merger, sb->node, ret);
    node_trouble(node, ret->trouble, sizeof ret->trouble);
    merger_status_done(&merger);
}

void remote_get_status(struct store *store, struct remote_status *ret)
{
    struct remote *remote = store->remote;
    *ret = (struct remote_status){.state = REMOTE_NONE, .error_age_s = -1, .unreachable_s = -1};
    if (!remote)
        return;
    struct view_remote view = view_remote(store->local.view);
    struct tier_traffic traffic;
    (void)snprintf(ret->name, sizeof ret->name, "%s", remote->prefix.name);
    shared_status(remote, ret);
    nodes_status(store->node, &store->local.sb, &ret->nodes);
    remote->prefix.tier->ops->traffic(remote->prefix.tier, &traffic);
    ret->behind_bytes = view.pending_bytes;
    ret->behind_chunks = view.pending_chunks;
    ret->damaged_chunks = remote_damaged_chunks(remote);
    remote_suspects(remote, &ret->suspect_packs, &ret->suspect_chunks);
    ret->packs = view.packs;
    ret->pack_bytes = view.pack_bytes;
    snapshots_totals(remote->snapshots, &ret->kept_states, &ret->kept_bytes);
    ret->held_bytes = view.held_bytes;
    ret->requests_total = traffic.requests;
    ret->retries_total = traffic.retries;
    ret->put_total = traffic.by_kind[TIER_PUT];
    ret->get_total = traffic.by_kind[TIER_GET];
    ret->list_total = traffic.by_kind[TIER_LIST];
    ret->head_total = traffic.by_kind[TIER_HEAD];
    ret->delete_total = traffic.by_kind[TIER_DELETE];
    ret->received_bytes_total = traffic.received_bytes;
    ret->uploaded_bytes_total = atomic_load(&remote->prefix.uploaded_total);
    ret->merged_bytes_total = atomic_load(&remote->merged_total);
    ret->fetched_bytes_total = atomic_load(&remote->prefix.fetched_total) + ret->merged_bytes_total;
    ret->encoded = encode_counts(&remote->encoded);
    int64_t since = local_follows(&store->local)
                        ? 0
                        : history_oldest_after(store->commit.history, ret->horizon_seq);
    ret->seconds_behind = since ? (double)(clock_monotonic_ns() - since) / 1e9 : 0;
}

int remote_unpublished(struct store *store, struct remote_unpublished *ret)
{
    struct view_unpublished_total total;
    int r = view_unpublished_total(store->local.view, UNPUBLISHED_MAX, &total);
    *ret = (struct remote_unpublished){total.inodes, total.files, total.bytes, total.has_more};
    return r;
}
