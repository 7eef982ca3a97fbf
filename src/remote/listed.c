// SPDX-License-Identifier: Apache-2.0
/* Compares the packs that should exist with a listing.
 *
 * A listing may be stale: a pack missing in it is checked by name, before it is recorded (noted.c).
 * gc makes a listing anyway. A mount whose view was rebuilt makes one before anything counts as
 * published: the old view knew which packs were suspect, which no head records; and of a head
 * published by another writer nothing is known. The start that rebuilds the view may be killed
 * earlier, or follow, or have no remote: so STORE/unlisted exists until the view has the result of
 * a listing. It also exists while chunks of a bad pack have a new place, but no head says so. */
#include "remote/maintenance_internal.h"

#include "base/log.h"

int listed_note(struct pack_listing *listed, uint64_t pack, uint64_t length)
{
    struct remote *remote = listed->remote;
    struct view_remote_pack known;
    TRY(view_remote_pack(remote->store->local.view, pack, &known));
    if (length != known.length && !known.unreferenced && !known.gone)
        remote_note_bad_pack(remote, pack, -EUCLEAN);
    vector_add(&listed->packs, pack);
    return 0;
}

static int note_missing(const struct view_remote_pack *pack, void *arg)
{
    struct pack_listing *listed = arg;
    struct remote *remote = listed->remote;
    uint64_t len;
    char object[32];
    /* an empty list may be NULL, which bsearch() does not accept */
    bool is_listed = vector_search(&listed->packs, &pack->pack, compare_u64);
    if (pack->unreferenced || pack->gone || pack->suspect || pack->live_count == 0 || is_listed)
        return 0;
    pack_object_name(pack->pack, object);
    int r = remote->prefix.tier->ops->stat(remote->prefix.tier, object, &len);
    if (r == -ENOENT)
        remote_note_bad_pack(remote, pack->pack, r);
    return r == -ECANCELED || tier_error_is_transient(r) ? r : 0;
}

int listed_find_missing(struct pack_listing *listed)
{
    vector_sort(&listed->packs, compare_u64);
    return view_remote_packs(listed->remote->store->local.view, note_missing, listed);
}

void listed_done(struct pack_listing *listed)
{
    vector_free(&listed->packs);
}

/* --- at the start ----------------------------------------------------------------------------- */

static int note_object(uint64_t id, const struct tier_object *object, void *arg)
{
    int r = listed_note(arg, id, object->len);
    return r == -ENOENT ? 0 : r;
}

static int stop_at_unnamed(const struct view_remote_pack *pack, void *arg)
{
    bool is_unnamed = pack->head == 0 && pack->live_count > 0 && !pack->unreferenced && !pack->gone;
    *(bool *)arg = *(bool *)arg || is_unnamed;
    return *(bool *)arg;
}

int listed_look(struct remote *remote, bool *ret_counts_now)
{
    bool is_unnamed = false;
    struct pack_listing listed = {.remote = remote};
    int r = prefix_list(&remote->prefix, "packs", 0, note_object, &listed);
    if (r == 0)
        r = listed_find_missing(&listed);
    /* chunks of a pack that no head names may have been in a missing one */
    if (r == 0)
        r = view_remote_packs(remote->store->local.view, stop_at_unnamed, &is_unnamed);
    *ret_counts_now = !is_unnamed;
    listed_done(&listed);
    if (r == 0)
        remote_works(remote);
    else if (r != -ECANCELED)
        remote_error(remote, tier_error_is_transient(r) ? r : 0,
                     "the packs of %s cannot be listed (%s), so what it lacks is not known; "
                     "retrying",
                     remote->prefix.name, strerror(-r));
    return r;
}

/* --- STORE/unlisted: the listing is still to be made ------------------------------------------ */

int listed_doubt(struct remote *remote)
{
    int r = remote->maintenance->is_unsure ? 0 : local_ask_listing(&remote->store->local);
    remote->maintenance->is_unsure = remote->maintenance->is_unsure || r == 0;
    return r;
}

/* Call when recorded packs are suspect in the view, or a head names their rewritten chunks. The
 * removal need not be durable: if the file is still there, one listing more is made. */
void listed_settle(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    if (!maintenance->is_unsure || maintenance->must_look || noted_any(remote))
        return;
    struct local *local = &remote->store->local;
    int r = view_flush(local->view);
    if (r == 0)
        r = local_end_listing(local);
    if (r < 0)
        log_warn("%s/unlisted cannot be removed (%s): the next mount lists the packs again",
                 local->path, strerror(-r));
    maintenance->is_unsure = false;
}
