// SPDX-License-Identifier: Apache-2.0
#include "snapshots/internal.h"

struct snapshots *snapshots_new(struct prefix *prefix, const struct snapshots_remote *remote)
{
    struct snapshots *snapshots = xcalloc(1, sizeof *snapshots);
    snapshots->prefix = prefix;
    snapshots->remote = *remote;
    mutex_init(&snapshots->lock, LOCK_LEAF);
    return snapshots;
}

void snapshots_free(struct snapshots *snapshots)
{
    if (!snapshots)
        return;
    known_done(snapshots);
    vector_free(&snapshots->kept);
    vector_free(&snapshots->held);
    mutex_done(&snapshots->lock);
    free(snapshots);
}

void snapshots_hold(struct snapshots *snapshots, uint64_t head)
{
    LOCK_SCOPE(&snapshots->lock);
    vector_add(&snapshots->held, head);
}

void snapshots_let_go(struct snapshots *snapshots, uint64_t head)
{
    LOCK_SCOPE(&snapshots->lock);
    struct numbers *held = &snapshots->held;
    size_t i = 0;
    while (i < held->count && held->at[i] != head)
        i++;
    check(i < held->count);
    held->at[i] = held->at[--held->count];
}

void snapshots_note_kept(struct snapshots *snapshots, const struct kept *kept, uint64_t bytes)
{
    LOCK_SCOPE(&snapshots->lock);
    snapshots->kept.count = 0;
    vector_add_all(&snapshots->kept, kept->heads.at, kept->heads.count);
    snapshots->kept_bytes = bytes;
}

void snapshots_totals(struct snapshots *snapshots, uint64_t *ret_heads, uint64_t *ret_bytes)
{
    LOCK_SCOPE(&snapshots->lock);
    *ret_heads = snapshots->kept.count;
    *ret_bytes = snapshots->kept_bytes;
}

void snapshots_each(struct snapshots *snapshots,
                    void (*fn)(uint64_t head, uint64_t bytes, void *arg), void *arg)
{
    LOCK_SCOPE(&snapshots->lock);
    for (size_t i = 0; i < snapshots->kept.count; i++)
        fn(snapshots->kept.at[i].number, snapshots->kept.at[i].only_bytes, arg);
}
