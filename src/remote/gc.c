// SPDX-License-Identifier: Apache-2.0
/* Garbage in the remote. Four kinds: heads other than the newest, runs that no head names, packs
 * that no head needs, and leftovers of writers that crashed or were fenced.
 *
 * Readers elsewhere may lag: objects named by a head stay for the grace after a later head was
 * published. So a head is deleted when its successor is older than the grace, and objects named
 * only by such heads are deleted after them: the order is the reverse of publishing, so a crash in
 * between leaves objects that no head names, never a head that names deleted objects. Some heads
 * stay for longer, with everything that they name: kept.h.
 *
 * Heads discarded by --rollback, and the objects that they name, stay for `rollback_keep`.
 *
 * A writer that was paused and fenced must not delete objects of its successor. It cannot know of
 * these; so between listing and deleting it reads the newest head again. A successor puts
 * everything after its first head: if that does not exist after the listing, the listing contains
 * nothing of the successor. */
#include "remote/maintenance_internal.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/vector.h"
#include "nodes/node.h"
#include "snapshots/kept.h"

#define INTERVAL_MAX_NS (600ll * 1000000000)
#define INTERVAL_MIN_NS (1ll * 1000000000)
#define BATCH 500u
#define FOUND_MAX 100000u /* per pass; the next one continues */
#define SLACK_NS (2ll * 1000000000)

struct item {
    uint64_t id;
    int64_t modified; /* by the medium's clock; of unreferenced packs: since when they are */
    uint64_t length;
};

DEFINE_VECTOR(found, struct item);

struct pass {
    struct remote *remote;
    struct remote_gc_request *request; /* NULL: not requested by a caller */
    /* by the medium's clock; times before `old` are past the grace */
    int64_t now, old;
    /* when our history began; older objects are not ours to delete */
    int64_t begun;
    uint64_t oldest_head; /* number of the first head that is not kept for history */
    uint64_t needed_head; /* feeds of this node need it and later ones */
    struct found heads;   /* without those kept anyway; ascending */
    /* index: it and later ones stay; of earlier ones only some */
    size_t first_head;
    struct kept history; /* heads kept for longer */
    uint64_t kept_bytes;
    struct found runs[RUN_PLACES], packs, unreferenced, probes; /* candidates for deletion */
    struct found young; /* packs never named by a head, too young to be deleted */
    struct returned returned;
    struct pack_listing listed;
    uint64_t kept[RUN_PLACES]; /* bit i: run i of the newest head exists */
};

/* --- listing ---------------------------------------------------------------------------------- */

static bool is_old(const struct pass *pass, int64_t modified)
{
    return modified != 0 && modified < pass->old;
}

static bool is_kept_for_now(const struct pass *pass, const struct head_given_up *given_up)
{
    return pass->now - given_up->time < pass->remote->options.rollback_keep_ns;
}

/* Returns whether objects made up to `epoch` must stay, since discarded heads may name them: for a
 * configured time, and as long as such a head exists. Lagging readers may then use heads from
 * before the rollback, and objects that only these name, and not the first heads after it, are no
 * leftovers. */
static bool is_held(const struct pass *pass, uint64_t epoch)
{
    const struct head *head = &pass->remote->prefix.head;
    for (uint32_t i = 0; i < head->given_up_count; i++) {
        const struct head_given_up *g = &head->given_up[i];
        if (epoch <= g->epoch && (is_kept_for_now(pass, g) || pass->oldest_head <= g->last ||
                                  kept_has(&pass->history, g->first, g->last)))
            return true;
    }
    return false;
}

/* May an object that no head names be deleted? */
static bool is_own_garbage(const struct pass *pass, int64_t modified)
{
    return is_old(pass, modified) && modified >= pass->begun;
}

static int note_head(uint64_t id, const struct tier_object *object, void *arg)
{
    struct pass *pass = arg;
    vector_add(&pass->heads, (struct item){id, object->modified_ns, object->len});
    return 0;
}

static int note_run_at(struct pass *pass, uint64_t id, const struct tier_object *object,
                       enum run_place place)
{
    const struct head *head = &pass->remote->prefix.head;
    struct found *runs = &pass->runs[place];
    for (uint32_t i = 0; i < head->run_count; i++)
        if (head->runs[i].id == id && head->runs[i].length == object->len)
            pass->kept[place] |= 1ull << i;
    if (is_own_garbage(pass, object->modified_ns) && !is_held(pass, ID_EPOCH(id)) &&
        runs->count < FOUND_MAX && !head_names_run(head, id) && !kept_names_run(&pass->history, id))
        vector_add(runs, (struct item){id, object->modified_ns, object->len});
    return 0;
}

static int note_run(uint64_t id, const struct tier_object *object, void *arg)
{
    return note_run_at(arg, id, object, RUN_FIRST);
}

static int note_run_copy(uint64_t id, const struct tier_object *object, void *arg)
{
    return note_run_at(arg, id, object, RUN_COPY);
}

static int note_probe(uint64_t id, const struct tier_object *object, void *arg)
{
    struct pass *pass = arg;
    if (is_own_garbage(pass, object->modified_ns) && pass->probes.count < FOUND_MAX)
        vector_add(&pass->probes, (struct item){id, object->modified_ns, object->len});
    return 0;
}

/* No head has ever named a pack unknown to the view: its writer crashed or was fenced before. */
static int note_pack(uint64_t id, const struct tier_object *object, void *arg)
{
    struct pass *pass = arg;
    int r = listed_note(&pass->listed, id, object->len);
    bool may_go = is_own_garbage(pass, object->modified_ns) && !is_held(pass, ID_EPOCH(id));
    struct found *found = may_go ? &pass->packs : &pass->young;
    if (r == -ENOENT && found->count < FOUND_MAX)
        vector_add(found, (struct item){id, object->modified_ns, object->len});
    return r == -ENOENT ? 0 : r;
}

static int64_t slack_of(const struct remote *remote)
{
    return remote->options.gc_grace_ns / 4 + SLACK_NS;
}

static int note_unreferenced(const struct view_remote_pack *pack, void *arg)
{
    struct pass *pass = arg;
    const int64_t slack = slack_of(pass->remote);
    bool is_kept =
        pack->unreferenced && !pack->gone && kept_needs_pack(&pass->history, pack, slack);
    pass->kept_bytes += is_kept ? pack->length : 0;
    if (is_kept)
        kept_count_pack(&pass->history, pack, slack);
    if (pack->unreferenced && !pack->gone && !is_kept && pack->unreferenced < pass->old &&
        !is_held(pass, ID_EPOCH(pack->pack)) && pass->unreferenced.count < FOUND_MAX)
        vector_add(&pass->unreferenced,
                   (struct item){pack->pack, pack->unreferenced, pack->length});
    return 0;
}

/* Heads older than our history, beside which it was begun anew, come first, and stay: an operator
 * may have restored them. */
static void leave_foreign_heads(struct pass *pass)
{
    size_t foreign = 0;
    while (foreign < pass->heads.count && pass->heads.at[foreign].modified < pass->begun &&
           pass->heads.at[foreign].id != pass->remote->prefix.head.number)
        foreign++;
    if (foreign == 0) /* the list may be NULL */
        return;
    pass->heads.count -= foreign;
    memmove(pass->heads.at, pass->heads.at + foreign, pass->heads.count * sizeof *pass->heads.at);
}

static void leave_given_up_heads(struct pass *pass)
{
    const struct head *head = &pass->remote->prefix.head;
    size_t kept = 0;
    for (size_t i = 0; i < pass->heads.count; i++) {
        bool stays = false;
        for (uint32_t k = 0; k < head->given_up_count; k++)
            stays = stays || (pass->heads.at[i].id >= head->given_up[k].first &&
                              pass->heads.at[i].id <= head->given_up[k].last &&
                              is_kept_for_now(pass, &head->given_up[k]));
        if (!stays)
            pass->heads.at[kept++] = pass->heads.at[i];
    }
    pass->heads.count = kept;
}

static bool stays(const struct pass *pass, uint64_t head)
{
    return kept_has(&pass->history, head, head);
}

static int choose_kept(struct pass *pass)
{
    VECTOR(struct kept_head) listed = {0};
    for (size_t i = 0; i < pass->heads.count; i++)
        vector_add(&listed, (struct kept_head){.number = pass->heads.at[i].id,
                                               .modified = pass->heads.at[i].modified});
    int r = snapshots_choose(pass->remote->snapshots, listed.at, listed.count, &pass->history);
    vector_free(&listed);
    return r;
}

static int list_heads(struct pass *pass)
{
    const struct found *heads = &pass->heads;
    TRY(prefix_list(&pass->remote->prefix, "heads", 0, note_head, pass));
    vector_sort(&pass->heads, compare_u64);
    leave_foreign_heads(pass);
    leave_given_up_heads(pass);
    TRY(choose_kept(pass));
    for (size_t i = heads->count; i-- > 0;)
        if (!stays(pass, heads->at[i].id))
            pass->oldest_head = heads->at[i].id;
    size_t first = 0;
    while (!pass->history.is_unsure && first + 1 < heads->count &&
           is_old(pass, heads->at[first + 1].modified) &&
           heads->at[first + 1].id <= pass->needed_head)
        first++;
    pass->first_head = first;
    return 0;
}

static int list_objects(struct pass *pass)
{
    const struct {
        const char *directory;
        prefix_object_fn *note;
    } lists[] = {{run_directories[RUN_FIRST], note_run},
                 {run_directories[RUN_COPY], note_run_copy},
                 {"packs", note_pack},
                 {"probe", note_probe}};
    struct remote *remote = pass->remote;
    struct tier *tier = remote->prefix.tier;
    int r = tier->ops->now(tier, &pass->now);
    pass->old = pass->now - remote->options.gc_grace_ns;
    pass->begun = remote->prefix.marker.created;
    pass->needed_head = UINT64_MAX;
    if (r == 0 && remote->store->node)
        r = node_first_needed_head(remote->store->node, &pass->needed_head);
    if (r == 0)
        r = list_heads(pass);
    for (size_t i = 0; i < ARRAY_LEN(lists) && r == 0; i++)
        r = prefix_list(&remote->prefix, lists[i].directory, 0, lists[i].note, pass);
    return r < 0 ? r : view_remote_packs(remote->store->local.view, note_unreferenced, pass);
}

/* --- is the prefix still ours? ---------------------------------------------------------------- */

int gc_check_ours(struct remote *remote)
{
    _cleanup_free_ struct head *newest = xmalloc(sizeof *newest);
    const struct head *ours = &remote->prefix.head;
    int r = heads_newest(&remote->prefix, ours->number - 1, newest);
    if (r < 0)
        return r == -ENOENT ? -EAGAIN : r;
    if (newest->number == ours->number &&
        memcmp(newest->nonce, ours->nonce, sizeof ours->nonce) == 0)
        return 0;
    if (!head_is_theirs(&remote->store->local, newest) && newest->number <= ours->number)
        return -EAGAIN;
    remote_fence(remote, newest);
    return -ESTALE;
}

/* The view must know the objects that the newest head names: otherwise they would all look like
 * leftovers. */
static bool view_is_of_head(struct remote *remote)
{
    struct view_remote view = view_remote(remote->store->local.view);
    return remote->prefix.head.number != 0 && view.tracks && !view.is_whole && view.head != 0 &&
           view.cut == remote->prefix.head.cut;
}

/* --- deleting --------------------------------------------------------------------------------- */

static void say_deleted(struct pass *pass, const char *object, const struct item *item,
                        const char *why)
{
    if (!pass->request)
        return;
    pass->request->objects++;
    pass->request->bytes += item->length;
    _cleanup_free_ char *line = xasprintf(
        "%s%s, %llu bytes: %s for %.0f s", pass->request->dry_run ? "would delete " : "deleted ",
        object, (unsigned long long)item->length, why, (double)(pass->now - item->modified) / 1e9);
    pass->request->say(line, pass->request->arg);
}

static void log_batch(const struct remote *remote, char names[][OBJECT_NAME_LEN],
                      const struct item *items, size_t count, const char *why)
{
    uint64_t bytes = 0;
    check(count > 0 && count <= BATCH);
    for (size_t i = 0; i < count; i++)
        bytes += items[i].length;
    log_info("gc: deleted %zu objects from %s to %s, %llu bytes, in %s: %s for longer than the "
             "grace",
             count, names[0], names[count - 1], (unsigned long long)bytes, remote->prefix.name,
             why);
}

static int remove_batch(struct pass *pass, const char *directory, const struct item *items,
                        size_t count, const char *why)
{
    struct remote *remote = pass->remote;
    char names[BATCH][OBJECT_NAME_LEN];
    const char *list[BATCH];
    bool dry = pass->request && pass->request->dry_run;
    for (size_t i = 0; i < count; i++) {
        object_name(directory, items[i].id, names[i]);
        list[i] = names[i];
    }
    TRY(remote_is_stopping(remote) ? -ECANCELED : dry ? 0 : gc_check_ours(remote));
    TRY(dry ? 0 : tier_remove_all(remote->prefix.tier, list, count));
    for (size_t i = 0; i < count; i++)
        say_deleted(pass, names[i], &items[i], why);
    if (!dry)
        log_batch(remote, names, items, count, why);
    return 0;
}

static int remove_items(struct pass *pass, const char *directory, const struct item *items,
                        size_t count, const char *why)
{
    struct tier *tier = pass->remote->prefix.tier;
    /* the objects that named them must be gone for good */
    int r = count ? tier->ops->sync(tier) : 0;
    for (size_t at = 0; at < count && r == 0; at += BATCH)
        r = remove_batch(pass, directory, items + at, min_u64(count - at, BATCH), why);
    return r;
}

/* Removes the heads before one that is older than the grace, except those that stay. */
static int remove_heads(struct pass *pass)
{
    struct found gone = {0};
    for (size_t i = 0; i < pass->first_head; i++)
        if (!stays(pass, pass->heads.at[i].id))
            vector_add(&gone, pass->heads.at[i]);
    int r = remove_items(pass, "heads", gone.at, gone.count, "later heads are there");
    vector_free(&gone);
    return r;
}

static int remove_runs_at(struct pass *pass, enum run_place place, const struct head *head,
                          int64_t before)
{
    struct found *runs = &pass->runs[place];
    bool is_newest = head->number == pass->remote->prefix.head.number;
    size_t kept = 0;
    for (size_t i = 0; i < runs->count; i++)
        if (!head_names_run(head, runs->at[i].id) && (is_newest || runs->at[i].modified < before))
            runs->at[kept++] = runs->at[i];
    return remove_items(pass, run_directories[place], runs->at, kept,
                        "no head names it, and it is there");
}

/* Removes runs that no remaining head names. A run is put just before the first head that names it,
 * and later heads name it without a gap. So among the runs put before the oldest remaining head,
 * those that it does not name are named by none; later ones wait until that head is removed. Copies
 * are removed first: so a run left by a crash is also found by earlier versions. */
static int remove_runs(struct pass *pass, const struct item *oldest)
{
    struct remote *remote = pass->remote;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    if (oldest->id == remote->prefix.head.number)
        *head = remote->prefix.head;
    else
        TRY(head_read(&remote->prefix, oldest->id, head));
    /* clocks of one medium's servers may differ a little */
    int64_t before = oldest->modified - remote->options.gc_grace_ns / 4;
    TRY(remove_runs_at(pass, RUN_COPY, head, before));
    return remove_runs_at(pass, RUN_FIRST, head, before);
}

/* From now on no file can be made to refer to a chunk of these packs (lookback_claim.c). Skips
 * packs that are referred to again. An object that still exists after a crash, or because it cannot
 * be deleted, is a leftover unknown to the view. */
static int give_up_packs(struct view *view, struct item *items, size_t *count)
{
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++) {
        int r = view_remote_pack_gone(view, items[i].id);
        if (r < 0 && r != -EINVAL)
            return r;
        if (r == 0)
            items[kept++] = items[i];
    }
    *count = kept;
    return 0;
}

/* A pack becomes unreferenced just before the head that does not need it is published: earlier
 * heads may need it. */
static int remove_unreferenced(struct pass *pass, const struct item *oldest)
{
    struct remote *remote = pass->remote;
    bool dry = pass->request && pass->request->dry_run;
    size_t kept = 0;
    for (size_t i = 0; i < pass->unreferenced.count; i++)
        if (oldest->id == remote->prefix.head.number ||
            oldest->modified > pass->unreferenced.at[i].modified)
            pass->unreferenced.at[kept++] = pass->unreferenced.at[i];
    int r = kept ? room_for_view(remote->store->commit.room) : 0;
    if (r == 0 && kept)
        r = remote->prefix.tier->ops->sync(remote->prefix.tier); /* as in remove_items() */
    for (size_t at = 0; at < kept && r == 0; at += BATCH) {
        struct item *items = pass->unreferenced.at + at;
        size_t count = min_u64(kept - at, BATCH);
        r = remote_is_stopping(remote) ? -ECANCELED : dry ? 0 : gc_check_ours(remote);
        if (r == 0 && !dry)
            r = give_up_packs(remote->store->local.view, items, &count);
        if (r == 0 && count)
            r = remove_batch(pass, "packs", items, count, "no head has needed it");
    }
    return r;
}

/* Removes packs from the list that contain chunks missing in all tiers. */
static void keep_returned(struct pass *pass, struct found *packs)
{
    size_t kept = 0;
    for (size_t i = 0; i < packs->count && !remote_is_stopping(pass->remote); i++)
        if (!returned_keeps(&pass->returned, packs->at[i].id))
            packs->at[kept++] = packs->at[i];
    packs->count = kept;
}

/* --- a pass ----------------------------------------------------------------------------------- */

static int clean_remote(struct pass *pass)
{
    TRY(pass->heads.count ? gc_check_ours(pass->remote) : -EAGAIN);
    if (pass->heads.at[pass->heads.count - 1].id != pass->remote->prefix.head.number)
        return -EAGAIN; /* the listing is older than our last head */
    TRY(remove_heads(pass));
    const struct item *oldest = &pass->heads.at[pass->first_head];
    keep_returned(pass, &pass->packs);
    keep_returned(pass, &pass->unreferenced);
    keep_returned(pass, &pass->young);
    TRY(remove_runs(pass, oldest));
    TRY(remove_unreferenced(pass, oldest));
    TRY(remove_items(pass, "packs", pass->packs.at, pass->packs.count,
                     "no head ever named it, and it is there"));
    return remove_items(pass, "probe", pass->probes.at, pass->probes.count,
                        "it is left over, and there");
}

static void note_kept(struct pass *pass)
{
    snapshots_note_kept(pass->remote->snapshots, &pass->history, pass->kept_bytes);
    pass->remote->prefix.head.has_names = pass->history.has_names; /* recorded in the next head */
}

static int make_pass(struct remote *remote, struct remote_gc_request *request)
{
    struct pass pass = {.remote = remote, .request = request, .listed.remote = remote};
    int r = view_is_of_head(remote) ? list_objects(&pass) : -EAGAIN;
    if (r == 0)
        note_kept(&pass);
    if (r == 0)
        r = returned_begin(&pass.returned, remote, request && request->dry_run);
    if (r == 0)
        r = clean_remote(&pass);
    if (r == 0)
        r = listed_find_missing(&pass.listed);
    if (r == 0 && !(request && request->dry_run))
        r = runs_keep(&remote->prefix, pass.kept);
    if (r == 0)
        remote_ask_again(remote);
    returned_done(&pass.returned);
    vector_free(&pass.young);
    vector_free(&pass.heads);
    for (unsigned place = 0; place < RUN_PLACES; place++)
        vector_free(&pass.runs[place]);
    vector_free(&pass.packs);
    vector_free(&pass.unreferenced);
    vector_free(&pass.probes);
    listed_done(&pass.listed);
    kept_done(&pass.history);
    return r;
}

static struct remote_gc_request *take_request(struct remote_maintenance *maintenance)
{
    LOCK_SCOPE(&maintenance->lock);
    if (maintenance->gc != REMOTE_GC_ASKED)
        return NULL;
    maintenance->gc = REMOTE_GC_RUNNING;
    return maintenance->request;
}

static void end_request(struct remote *remote, int result)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    LOCK_SCOPE(&maintenance->lock);
    maintenance->gc = REMOTE_GC_NONE;
    maintenance->gc_result = result;
    event_signal(horizon_progress(remote->store->commit.horizon));
}

static int64_t interval_of(const struct remote *remote)
{
    int64_t quarter = remote->options.gc_grace_ns / 4;
    return quarter < INTERVAL_MIN_NS   ? INTERVAL_MIN_NS
           : quarter > INTERVAL_MAX_NS ? INTERVAL_MAX_NS
                                       : quarter;
}

int remote_gc_tick(struct remote *remote)
{
    struct remote_maintenance *maintenance = remote->maintenance;
    struct remote_gc_request *request = take_request(maintenance);
    int64_t now = clock_monotonic_ns();
    if (maintenance->gc_at == 0)
        maintenance->gc_at = now + interval_of(remote);
    if (!request && now < maintenance->gc_at)
        return 0;
    int r = make_pass(remote, request);
    maintenance->gc_at = clock_monotonic_ns() + interval_of(remote);
    if (request)
        end_request(remote, r);
    if (r < 0 && r != -ESTALE && r != -ECANCELED && r != -EAGAIN)
        remote_error(remote, tier_error_is_transient(r) ? r : 0,
                     "deleting unreferenced objects in %s failed (%s); retrying",
                     remote->prefix.name, strerror(-r));
    return r == -ESTALE ? r : 0;
}
