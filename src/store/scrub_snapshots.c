// SPDX-License-Identifier: Apache-2.0
/* The part of a scrub that verifies what earlier states alone need. Nothing else has a copy of it:
 * damage is told, with the states that it hurts. */
#include "base/clock.h"
#include "prefix/prefix.h"
#include "remote/chunks.h"
#include "remote/maintenance.h"
#include "store/local_snapshots.h"
#include "store/scrub.h"
#include "view/remote.h"

#define NAMED_MAX 5u /* heads that a line names */
#define LEARN_TRIES 10u
#define LEARN_AGAIN_NS (3ll * 1000000000)

struct collecting {
    struct scrub *s;
    uint64_t pack;
};

/* --- snapshots of the store ------------------------------------------------------------------- */

static int collect_dead(const struct chunk_entry *entry, void *arg)
{
    struct collecting *c = arg;
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
    struct collecting c = {s, pack};
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

/* --- earlier states of the remote ------------------------------------------------------------- */

/* An unreferenced pack is one that the newest state does not need. */

static void say_nothing(const char *line, void *arg)
{
    (void)line;
    (void)arg;
}

static bool is_over(void *arg)
{
    struct scrub *s = arg;
    return job_is_cancelled(s->job);
}

/* Which states stay is known from a pass of gc: this one deletes nothing. It can be made once the
 * newest changes are published; and not by a mount that does not hold the prefix. */
static int learn_states(struct scrub *s, bool *ret_known)
{
    int r = -EAGAIN;
    for (unsigned i = 0; i < LEARN_TRIES && r == -EAGAIN; i++) {
        struct remote_gc_request request = {
            .dry_run = true, .say = say_nothing, .is_cancelled = is_over, .arg = s};
        if (i > 0 && !job_sleep(s->job, clock_monotonic_ns() + LEARN_AGAIN_NS))
            return -ECANCELED;
        r = remote_gc_ask(s->store->remote, &request);
    }
    *ret_known = r == 0;
    if (r < 0 && r != -ECANCELED)
        job_say(s->job,
                "remote: which earlier states stay cannot be told now, and what they alone need is "
                "not verified; 'cairn fsck %s' verifies it",
                s->store->local.options.remote.name);
    return r == -EAGAIN || r == -ESHUTDOWN ? 0 : r;
}

static int add_unreferenced(const struct view_remote_pack *pack, void *arg)
{
    if (pack->unreferenced && !pack->gone)
        vector_add((struct numbers *)arg, pack->pack);
    return 0;
}

/* "head 3, head 7 and 2 more". NULL: no state that stays needs the pack. Caller frees. */
static char *find_states(struct scrub *s, const struct view_remote_pack *pack)
{
    _cleanup_vector_ struct numbers heads = {0};
    char *all = NULL;
    remote_states_that_need(s->store->remote, pack, &heads);
    for (size_t i = 0; i < heads.count && i < NAMED_MAX; i++) {
        _cleanup_free_ char *before = all;
        all = xasprintf("%s%shead %llu", before ? before : "", before ? ", " : "",
                        (unsigned long long)heads.at[i]);
    }
    _cleanup_free_ char *named = all;
    return heads.count > NAMED_MAX ? xasprintf("%s and %zu more", named, heads.count - NAMED_MAX)
           : named                 ? xstrdup(named)
                                   : NULL;
}

/* Gc may delete it meanwhile, once the states that need it are given up. */
static int is_there_still(struct scrub *s, uint64_t id, bool *ret)
{
    struct view_remote_pack now;
    int r = view_remote_pack(s->store->local.view, id, &now);
    *ret = r == 0 && !now.gone;
    return r == -ENOENT ? 0 : r;
}

static int bad_in_state(struct scrub *s, const struct chunk_entry *entry, int error)
{
    bool is_there;
    TRY(is_there_still(s, entry->pack, &is_there));
    if (!is_there)
        return 0;
    job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    job_say(s->job, "remote: packs/%016llx: a chunk of %u bytes at %llu %s: it hurts %s",
            (unsigned long long)entry->pack, entry->raw_len, (unsigned long long)entry->offset,
            scrub_explain(error), s->needed_by);
    return 0;
}

struct index_look {
    struct scrub *s;
    const struct view_remote_pack *pack;
};

/* A chunk that is stored by others cannot be decoded without them, and the newest view may not know
 * where they lie. 'cairn fsck' of the remote verifies such chunks. */
static int collect_whole(const struct chunk_entry *entry, void *arg)
{
    struct scrub *s = arg;
    return reader_add_entry(entry, entry->ref_count == 0, &s->entries);
}

static int look_at_index(void *arg)
{
    struct index_look *look = arg;
    struct store *store = look->s->store;
    uint64_t length = 0;
    look->s->entries.count = 0;
    TRY(pack_read_index(remote_tier(store->remote), store->local.sb.history, look->pack->pack,
                        collect_whole, look->s, &length));
    return length == look->pack->length ? 0 : -EUCLEAN;
}

static int bad_pack(struct scrub *s, uint64_t id, int error)
{
    bool is_there;
    TRY(is_there_still(s, id, &is_there));
    if (!is_there)
        return 0;
    job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    job_say(s->job, "remote: packs/%016llx: it %s: it hurts %s; 'cairn fsck %s' tells more",
            (unsigned long long)id, scrub_explain(error), s->needed_by,
            s->store->local.options.remote.name);
    return 0;
}

static int scrub_needed_pack(struct scrub *s, const struct view_remote_pack *pack)
{
    struct index_look look = {s, pack};
    char object[32];
    pack_object_name(pack->pack, object);
    int r = remote_look_twice(s->store->remote, pack->pack, look_at_index, &look);
    job_count(s->job, &(struct job_counts){.packs = 1});
    if (reader_is_damage(r))
        return bad_pack(s, pack->pack, r);
    return r < 0 ? r : scrub_entries(s, object, bad_in_state);
}

static int scrub_unreferenced(struct scrub *s, uint64_t id)
{
    struct view_remote_pack pack;
    int r = view_remote_pack(s->store->local.view, id, &pack);
    if (r < 0 || !pack.unreferenced || pack.gone)
        return r == -ENOENT ? 0 : r;
    s->needed_by = find_states(s, &pack);
    r = s->needed_by ? scrub_needed_pack(s, &pack) : 0;
    free(s->needed_by);
    s->needed_by = NULL;
    return r;
}

int scrub_earlier_states(struct scrub *s)
{
    _cleanup_vector_ struct numbers packs = {0};
    TRY(view_remote_packs(s->store->local.view, add_unreferenced, &packs));
    bool is_known = false;
    if (packs.count > 0)
        TRY(learn_states(s, &is_known));
    for (size_t i = 0; i < packs.count && is_known; i++)
        TRY(job_is_cancelled(s->job) ? -ECANCELED : scrub_unreferenced(s, packs.at[i]));
    return 0;
}
