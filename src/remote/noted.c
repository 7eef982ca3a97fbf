// SPDX-License-Identifier: Apache-2.0
/* Packs of the remote that are missing or damaged, until a round has handled them: then they are
 * whole, have no needed chunks, or are suspect (suspects.c). Any thread records them. */
#include "remote/maintenance_internal.h"

static struct noted_pack *find_locked(struct remote_maintenance *maintenance, uint64_t pack)
{
    check_held(&maintenance->lock);
    struct noted_pack *noted = NULL;
    HASH_FIND(hh, maintenance->noted, &pack, sizeof pack, noted);
    return noted;
}

bool noted_add(struct remote *remote, uint64_t pack, int error)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    LOCK_SCOPE(&maintenance->lock);
    if (find_locked(maintenance, pack) || HASH_COUNT(maintenance->noted) == NOTED_MAX)
        return false; /* if there is no room, it will be found again */
    struct noted_pack *noted = xcalloc(1, sizeof *noted);
    noted->pack = pack;
    noted->was_missing = error == -ENOENT;
    HASH_ADD(hh, maintenance->noted, pack, sizeof noted->pack, noted);
    return true;
}

void remote_note_bad_pack(struct remote *remote, uint64_t pack, int error)
{
    struct view_remote_pack known;
    char object[32];
    if (remote->options.read_only ||
        view_remote_pack(remote->store->local.view, pack, &known) < 0 || known.unreferenced ||
        known.gone || known.suspect || !noted_add(remote, pack, error))
        return;
    pack_object_name(pack, object);
    remote_error(remote, 0, "%s %s; NVMe's copies of its chunks are uploaded again", object,
                 error == -ENOENT ? "is missing" : "is damaged, in part or whole");
    LOCK_SCOPE(&remote->shared.lock);
    remote_kick_locked(remote);
}

bool remote_is_noted_pack(struct remote *remote, uint64_t pack)
{
    LOCK_SCOPE(&remote->maintenance->lock);
    return find_locked(remote->maintenance, pack) != NULL;
}

bool remote_is_bad_pack(struct remote *remote, uint64_t pack)
{
    struct view_remote_pack known;
    if (remote_is_noted_pack(remote, pack))
        return true;
    return view_remote(remote->store->local.view).suspect_packs > 0 &&
           view_remote_pack(remote->store->local.view, pack, &known) == 0 && known.suspect;
}

bool remote_can_repair(struct remote *remote)
{
    LOCK_SCOPE(&remote->shared.lock);
    return !remote->options.read_only && !remote->shared.fenced && !remote->shared.stopping &&
           !remote->shared.unreachable_ns;
}

static size_t list(struct remote *remote, bool also_rewritten, uint64_t *ids, size_t max)
{
    struct noted_pack *noted, *next;
    size_t count = 0;
    LOCK_SCOPE(&remote->maintenance->lock);
    HASH_ITER(hh, remote->maintenance->noted, noted, next)
    {
        if ((also_rewritten || !noted->is_rewritten) && count < max)
            ids[count++] = noted->pack;
    }
    return count;
}

size_t noted_list(struct remote *remote, uint64_t *ids, size_t max)
{
    return list(remote, false, ids, max);
}

bool noted_any(struct remote *remote)
{
    LOCK_SCOPE(&remote->maintenance->lock);
    return HASH_COUNT(remote->maintenance->noted) > 0;
}

bool noted_was_missing(struct remote *remote, uint64_t pack)
{
    LOCK_SCOPE(&remote->maintenance->lock);
    const struct noted_pack *noted = find_locked(remote->maintenance, pack);
    return noted && noted->was_missing;
}

void noted_rewritten(struct remote *remote, uint64_t pack)
{
    LOCK_SCOPE(&remote->maintenance->lock);
    struct noted_pack *noted = find_locked(remote->maintenance, pack);
    if (noted)
        noted->is_rewritten = true;
}

static void forget(struct remote_maintenance *maintenance, bool all)
{
    struct noted_pack *noted, *next;
    LOCK_SCOPE(&maintenance->lock);
    HASH_ITER(hh, maintenance->noted, noted, next)
    {
        if (!all && !noted->is_rewritten)
            continue;
        HASH_DEL(maintenance->noted, noted);
        free(noted);
    }
}

void repair_round_done(struct remote *remote)
{
    forget(remote->maintenance, false);
    remote->maintenance->has_returned = remote->maintenance->is_untold = false;
    event_signal(horizon_progress(remote->store->commit.horizon));
}

void remote_suspects(struct remote *remote, uint64_t *ret_packs, uint64_t *ret_chunks)
{
    struct view_remote view = view_remote(remote->store->local.view);
    uint64_t ids[64]; /* if there are more, which a round handles soon, these suffice */
    /* until the round has published it, no head has the new places of their chunks */
    size_t noted = list(remote, true, ids, ARRAY_LEN(ids));
    *ret_packs = view.suspect_packs;
    *ret_chunks = view.suspect_chunks;
    for (size_t i = 0; i < noted; i++) {
        struct view_remote_pack known;
        if (view_remote_pack(remote->store->local.view, ids[i], &known) < 0 || known.suspect)
            continue;
        ++*ret_packs;
        *ret_chunks += known.live_count;
    }
}

struct remote_maintenance *remote_maintenance_new(void)
{
    struct remote_maintenance *maintenance = xcalloc(1, sizeof *maintenance);
    mutex_init(&maintenance->lock, LOCK_LEAF);
    return maintenance;
}

void remote_maintenance_free(struct remote_maintenance *maintenance)
{
    if (!maintenance)
        return;
    forget(maintenance, true);
    vector_free(&maintenance->asking);
    mutex_done(&maintenance->lock);
    free(maintenance);
}
