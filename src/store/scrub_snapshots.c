// SPDX-License-Identifier: Apache-2.0
/* The part of a scrub that verifies chunks which only snapshots of the store need. There is no
 * other copy of these chunks: damage is reported, with the snapshots that need them. */
#include "base/text.h"
#include "store/chunk_users.h"
#include "store/local_snapshots.h"
#include "store/scrub.h"

#define HURT_MAX 65536u /* damaged chunks of which the files are named */

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

/* Returns whether the snapshot needs the chunk; true if it cannot be opened. */
static bool needs_chunk(struct scrub *s, uint64_t number, const struct chunk_name *name)
{
    struct local_snapshots *snapshots = s->store->own->snapshots;
    struct view_local_chunk then;
    struct view *view;
    int r = local_snapshots_enter(snapshots, number, &view);
    if (r < 0)
        return r != -ENOENT; /* -ENOENT: it was given up */
    r = view_local_chunk(view, name, &then);
    bool needs = r == 0 ? view_is_live(&then) : r != -ENOENT;
    view_close(view);
    local_snapshots_leave(snapshots, number);
    return needs;
}

/* Returns the snapshots that need the damaged chunk, for a message, and adds them to s->hurt; NULL:
 * none. Caller frees. */
static char *find_hurt(struct scrub *s, const struct chunk_name *name)
{
    struct local_snapshot_list list = {0};
    struct text_list hurt = {0};
    local_snapshots_list(s->store->own->snapshots, &list);
    for (size_t i = 0; i < list.count; i++) {
        const struct local_snapshot_info *one = &list.at[i];
        if (!needs_chunk(s, one->number, name))
            continue;
        local_snapshots_add_text(&hurt, one->name, one->number);
        if (s->hurt.count < HURT_MAX)
            vector_add(&s->hurt, (struct hurt_chunk){one->number, *name});
    }
    vector_free(&list);
    return text_list_take(&hurt);
}

/* There is no other copy of the chunk. Of a pack that a snapshot needs, some chunks may have been
 * unused already before it was taken. */
static int bad_in_snapshot(struct scrub *s, const struct chunk_entry *entry, int error)
{
    _cleanup_free_ char *hurt = find_hurt(s, &entry->name);
    if (!hurt)
        return 0;
    job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    job_say(s->job, "NVMe: packs/%016llx: a chunk of %u bytes at %llu %s: it hurts the snapshot %s",
            (unsigned long long)entry->pack, entry->raw_len, (unsigned long long)entry->offset,
            scrub_explain(error), hurt);
    return 0;
}

static int scrub_dead_chunks(struct scrub *s, uint64_t pack)
{
    struct scrub_collecting c = {s, pack};
    char object[32];
    pack_object_name(pack, object);
    s->entries.count = 0;
    int r = packs_read_index(s->store->commit.packs, pack, collect_dead, &c);
    if (!reader_is_damage(r) && r != -EIO)
        return r < 0 ? r : scrub_entries(s, object, bad_in_snapshot);
    _cleanup_free_ char *hurt = local_snapshots_that_need(s->store->own->snapshots, pack);
    if (!hurt)
        return 0;
    job_count(s->job, &(struct job_counts){.found = 1, .unhealed = 1});
    job_say(s->job, "NVMe: packs/%016llx: its index %s: it hurts the snapshot %s",
            (unsigned long long)pack, scrub_explain(r), hurt);
    return 0;
}

/* --- files that damage hurts ------------------------------------------------------------------ */

struct hurt_snapshot {
    struct scrub *s;
    struct view *view;
    char *text; /* its name or number */
};

static bool is_cancelled(void *arg)
{
    struct hurt_snapshot *hurt = arg;
    return job_is_cancelled(hurt->s->job);
}

static void name_file(uint64_t ino, void *arg)
{
    struct hurt_snapshot *hurt = arg;
    _cleanup_free_ char *path = view_path(hurt->view, ino);
    job_say(hurt->s->job, "NVMe: the snapshot %s: %s: bytes of it are damaged or missing",
            hurt->text, path);
}

/* Reports no file of a snapshot that cannot be opened, or was given up meanwhile. */
static int name_files_of(struct scrub *s, const struct local_snapshot_info *one,
                         struct chunk_names *names)
{
    struct local_snapshots *snapshots = s->store->own->snapshots;
    struct hurt_snapshot hurt = {.s = s};
    struct text_list text = {0};
    if (local_snapshots_enter(snapshots, one->number, &hurt.view) < 0)
        return 0;
    local_snapshots_add_text(&text, one->name, one->number);
    hurt.text = text_list_take(&text);
    const struct chunk_users want = {hurt.view, names, is_cancelled, name_file, &hurt};
    int r = chunk_users_find(&want);
    free(hurt.text);
    view_close(hurt.view);
    local_snapshots_leave(snapshots, one->number);
    return r;
}

static int name_hurt_files(struct scrub *s)
{
    struct local_snapshot_list list = {0};
    _cleanup_vector_ struct chunk_names names = {0};
    int r = 0;
    if (s->hurt.count > 0)
        local_snapshots_list(s->store->own->snapshots, &list);
    for (size_t i = 0; i < list.count && r == 0; i++) {
        names.count = 0;
        for (size_t k = 0; k < s->hurt.count; k++)
            if (s->hurt.at[k].snapshot == list.at[i].number)
                vector_add(&names, s->hurt.at[k].name);
        r = names.count > 0 ? name_files_of(s, &list.at[i], &names) : 0;
    }
    vector_free(&list);
    return r;
}

int scrub_local_snapshots(struct scrub *s)
{
    _cleanup_vector_ struct pack_ids packs = {0};
    int r = 0;
    local_snapshots_packs(s->store->own->snapshots, &packs);
    for (size_t i = 0; i < packs.count && r == 0; i++) {
        if (!packs_pin(s->store->commit.packs, packs.at[i]))
            continue; /* the snapshots that needed it were given up meanwhile */
        r = job_is_cancelled(s->job) ? -ECANCELED : scrub_dead_chunks(s, packs.at[i]);
        packs_unpin(s->store->commit.packs, packs.at[i]);
    }
    r = r == -ENOENT ? 0 : r;
    int named = name_hurt_files(s);
    return r < 0 ? r : named;
}
