// SPDX-License-Identifier: Apache-2.0
/* The part of a scrub that verifies what snapshots of the store alone need. Nothing else has a copy
 * of it: damage is told, with the snapshots that it hurts. */
#include "store/local_snapshots.h"
#include "store/scrub.h"

static int collect_dead(const struct chunk_entry *entry, void *arg)
{
    struct scrub_collecting *c = arg;
    struct view_local_chunk now;
    int r = view_local_chunk(c->s->store->local.view, &entry->name, &now);
    if (r == -ENOENT) /* its place was in another pack, which was deleted */
        return reader_add_entry(entry, true, &c->s->entries);
    if (r == 0 && !view_is_live(&now) && now.entry.pack == c->pack)
        return reader_add_entry(&now.entry, true, &c->s->entries);
    return r;
}

/* Does the snapshot need the chunk? One that cannot be opened may. */
static bool needs_chunk(struct scrub *s, uint64_t number, const struct chunk_name *name)
{
    struct local_snapshots *snapshots = s->store->own->snapshots;
    struct view_local_chunk then;
    struct view *view;
    int r = local_snapshots_enter(snapshots, number, &view);
    if (r < 0)
        return r != -ENOENT; /* then it was given up */
    r = view_local_chunk(view, name, &then);
    bool needs = r == 0 ? view_is_live(&then) : r != -ENOENT;
    view_close(view);
    local_snapshots_leave(snapshots, number);
    return needs;
}

static bool is_needed(struct scrub *s, const struct chunk_name *name)
{
    struct local_snapshot_list list = {0};
    bool is = false;
    local_snapshots_list(s->store->own->snapshots, &list);
    for (size_t i = 0; i < list.count && !is; i++)
        is = needs_chunk(s, list.at[i].number, name);
    vector_free(&list);
    return is;
}

/* Nothing has another copy of it. Of a pack that a snapshot needs, some chunks may have been of no
 * file before it was taken. */
static int bad_in_snapshot(struct scrub *s, const struct chunk_entry *entry, int error)
{
    if (!is_needed(s, &entry->name))
        return 0;
    job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    job_say(s->job, "NVMe: packs/%016llx: a chunk of %u bytes at %llu %s: it hurts the snapshot %s",
            (unsigned long long)entry->pack, entry->raw_len, (unsigned long long)entry->offset,
            scrub_explain(error), s->needed_by);
    return 0;
}

static int scrub_dead_chunks(struct scrub *s, uint64_t pack)
{
    struct scrub_collecting c = {s, pack};
    char object[32];
    pack_object_name(pack, object);
    s->entries.count = 0;
    int r = packs_read_index(s->store->commit.packs, pack, collect_dead, &c);
    if (reader_is_damage(r) || r == -EIO) {
        job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
        job_say(s->job, "NVMe: packs/%016llx: its index %s: it hurts the snapshot %s",
                (unsigned long long)pack, scrub_explain(r), s->needed_by);
        return 0;
    }
    return r < 0 ? r : scrub_entries(s, object, bad_in_snapshot);
}

int scrub_local_snapshots(struct scrub *s)
{
    _cleanup_vector_ struct pack_ids packs = {0};
    int r = 0;
    local_snapshots_packs(s->store->own->snapshots, &packs);
    for (size_t i = 0; i < packs.count && r == 0; i++) {
        if (!packs_pin(s->store->commit.packs, packs.at[i]))
            continue; /* what needed it was given up meanwhile */
        s->needed_by = local_snapshots_that_need(s->store->own->snapshots, packs.at[i]);
        r = job_is_cancelled(s->job) ? -ECANCELED
            : s->needed_by           ? scrub_dead_chunks(s, packs.at[i])
                                     : 0;
        packs_unpin(s->store->commit.packs, packs.at[i]);
        free(s->needed_by);
        s->needed_by = NULL;
    }
    return r == -ENOENT ? 0 : r;
}
