// SPDX-License-Identifier: Apache-2.0
/* Eviction: a pack leaves NVMe when the published remote has every chunk that lives in it. First a
 * batch records this (DROP with EVICTED: the chunks keep their references), then the file is
 * deleted.
 *
 * The least recently used packs go first (commit/pack_clocks.c); after a mount the oldest ones.
 * Packs with pinned chunks (pins.c) stay. */
#include "base/clock.h"
#include "base/log.h"
#include "base/vector.h"
#include "dense/bases.h"
#include "fetch/pins.h"
#include "remote/maintenance.h"
#include "remote/state.h"
#include "view/remote.h"

#define CANDIDATES 256u
#define EVERY_NS (100ll * 1000000)
#define REST_NS (2ll * 1000000000) /* after a round that found no pack */
#define NONE_NS (2ll * 1000000000) /* after so long without a pack, none will be found */
/* of the chunks that are moved to new packs in one round: less than a pack */
#define MOVE_BYTES_MAX (20 * MIB)

/* --- which packs may go ----------------------------------------------------------------------- */

static bool is_published(struct store *store, const struct chunk_name *name)
{
    struct chunk_entry remote_chunk;
    bool published;
    return remote_has_ours(store->remote) &&
           view_remote_chunk(store->local.view, name, &remote_chunk, &published) == 0 &&
           published && bases_are_sound(store, &remote_chunk);
}

struct judging {
    struct store *store;
    const struct pinned *pinned;
    uint64_t pack;
};

/* Returns 1 if the chunk is live and has its place in this pack, 0 or -errno. `ret_is_base`: other
 * chunks on NVMe refer to it, and have to leave first. */
static int lives_in(struct store *store, const struct chunk_name *name, uint64_t pack,
                    bool *ret_is_base)
{
    struct view_local_chunk now;
    int r = view_local_chunk(store->local.view, name, &now);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    *ret_is_base = now.dependents > 0;
    return now.entry.pack == pack && view_is_live(&now);
}

static int judge_chunk(const struct chunk_entry *entry, void *arg)
{
    const struct judging *j = arg;
    bool is_base;
    int r = lives_in(j->store, &entry->name, j->pack, &is_base);
    if (r <= 0)
        return r;
    bool may_go =
        !is_base && is_published(j->store, &entry->name) && !pinned_has(j->pinned, &entry->name);
    return may_go ? 0 : -EBUSY;
}

/* The pack is marked before the checks: a thread that refers to one of its chunks from now on sees
 * the mark. */
static bool mark_pack_to_evict(struct store *store, uint64_t pack)
{
    if (!packs_begin_drop(store->commit.packs, pack))
        return false;
    if (!stage_uses_pack(store->local.stage, pack))
        return true;
    packs_end_drop(store->commit.packs, pack);
    return false;
}

static bool mark_if_clean(struct store *store, const struct pinned *pinned, uint64_t pack)
{
    struct judging j = {store, pinned, pack};
    if (!mark_pack_to_evict(store, pack))
        return false;
    if (packs_read_index(store->commit.packs, pack, judge_chunk, &j) == 0)
        return true;
    packs_end_drop(store->commit.packs, pack);
    return false;
}

struct candidate {
    uint64_t pack, length;
    uint32_t used;
};

struct candidates {
    struct store *store;
    struct candidate list[CANDIDATES];
    size_t count;
    bool goes_on;           /* there may be more behind the last candidate */
    struct candidate after; /* pack 0: from the start */
};

static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->used != b->used ? a->used < b->used : a->pack < b->pack;
}

/* Keeps the packs that were used least recently, in order. */
static int add_candidate(const struct view_pack *pack, void *arg)
{
    struct candidates *all = arg;
    struct candidate c = {pack->pack, pack->length,
                          packs_used_at(all->store->commit.packs, pack->pack)};
    if (pack->live_count == 0 || (all->after.pack && !is_before(&all->after, &c)))
        return 0;
    if (all->count == CANDIDATES) {
        all->goes_on = true;
        if (!is_before(&c, &all->list[CANDIDATES - 1]))
            return 0;
    }
    size_t at = all->count < CANDIDATES ? all->count++ : CANDIDATES - 1;
    for (; at > 0 && is_before(&c, &all->list[at - 1]); at--)
        all->list[at] = all->list[at - 1];
    all->list[at] = c;
    return 0;
}

/* Returns packs, marked as dropping, whose live chunks are all in the remote: the least recently
 * used ones, of `bytes` together or a little more, at most `max`. */
static size_t choose_packs(struct store *store, uint64_t bytes, uint64_t *ids, size_t max)
{
    struct pinned pinned;
    struct candidates *all = xcalloc(1, sizeof *all);
    size_t count = 0;
    uint64_t freed = 0;
    if (pinned_find(store, false, &pinned) < 0) {
        free(all);
        return 0;
    }
    *all = (struct candidates){.store = store, .goes_on = true};
    while (all->goes_on && freed < bytes && count < max) {
        all->goes_on = false;
        all->count = 0;
        if (view_packs(store->local.view, add_candidate, all) < 0)
            break;
        for (size_t i = 0; i < all->count && freed < bytes && count < max; i++) {
            if (!mark_if_clean(store, &pinned, all->list[i].pack))
                continue;
            freed += all->list[i].length;
            ids[count++] = all->list[i].pack;
        }
        if (all->count)
            all->after = all->list[all->count - 1];
    }
    free(all);
    pinned_done(&pinned);
    atomic_fetch_add(&store->fetch->evict.evicted_total, freed);
    if (count)
        log_debug("nvme: %zu packs of %llu MiB go: the remote has what they hold", count,
                  (unsigned long long)(freed / MIB));
    return count;
}

/* --- on request --- */

struct moving_out {
    struct store *store;
    struct moving moving;
    struct evict_request *request;
    const struct pinned *pinned;
    uint64_t goes, stays; /* of the pack, stored bytes */
    uint64_t pinned_bytes, unpublished_bytes, base_bytes;
    bool move;
};

static int compare_names(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

static bool is_asked_to_evict(const struct evict_request *request, const struct chunk_name *name)
{
    return request->count &&
           bsearch(name, request->names, request->count, sizeof *name, compare_names);
}

/* First call: counts the chunks that would go and those that must stay; second call: moves those
 * that must stay. */
static int sort_out(const struct chunk_entry *entry, void *arg)
{
    struct moving_out *out = arg;
    struct store *store = out->store;
    bool is_base;
    int r = lives_in(store, &entry->name, out->moving.pack, &is_base);
    if (r <= 0)
        return r;
    bool asked = is_asked_to_evict(out->request, &entry->name),
         pinned = pinned_has(out->pinned, &entry->name);
    bool published = is_published(store, &entry->name);
    if (asked && published && !pinned && !is_base) {
        out->goes += entry->stored_len;
        return 0;
    }
    out->stays += entry->stored_len;
    if (asked && pinned)
        out->pinned_bytes += entry->stored_len;
    else if (asked && !published)
        out->unpublished_bytes += entry->stored_len;
    else if (asked)
        out->base_bytes += entry->stored_len;
    return out->move ? gc_move_chunk(entry, &out->moving) : 0;
}

/* True: the pack may be dropped; the chunks that stay are in a new pack. */
static bool empty_pack(struct moving_out *out, uint64_t *moved)
{
    struct store *store = out->store;
    struct evict_request *request = out->request;
    uint64_t pack = out->moving.pack;
    out->goes = out->stays = out->pinned_bytes = out->unpublished_bytes = out->base_bytes = 0;
    out->move = false;
    bool marked = mark_pack_to_evict(store, pack);
    int r = packs_read_index(store->commit.packs, pack, sort_out, out);
    uint64_t goes = out->goes, stays = out->stays;
    request->pinned_bytes += out->pinned_bytes;
    request->unpublished_bytes += out->unpublished_bytes;
    request->busy_bytes += out->base_bytes;
    request->base_bytes += out->base_bytes;
    if (r == 0 && marked && goes > 0 && stays > 0) {
        out->move = true;
        r = packs_read_index(store->commit.packs, pack, sort_out, out);
    }
    if (r == 0 && marked && goes > 0) {
        request->going_bytes += goes;
        *moved += stays;
        return true;
    }
    if (marked)
        packs_end_drop(store->commit.packs, pack);
    else if (goes > 0)
        request->busy_pack = pack;
    request->busy_bytes += goes;
    return false;
}

DEFINE_VECTOR(pack_ids, uint64_t);

/* Returns the packs on NVMe that hold chunks of the request, each once. */
static struct pack_ids packs_to_evict(struct store *store, const struct evict_request *request)
{
    struct pack_ids packs = {0};
    for (size_t i = 0; i < request->count; i++) {
        struct chunk_entry entry;
        uint64_t refs;
        if (view_chunk(store->local.view, &request->names[i], &entry, &refs) == 0 && entry.pack)
            vector_add(&packs, entry.pack);
    }
    vector_sort_unique(&packs);
    return packs;
}

static size_t serve_request(struct store *store, struct evict_request *request, uint64_t *ids,
                            size_t max, bool *ret_all)
{
    struct pinned pinned;
    size_t count = 0, i = 0;
    uint64_t moved = 0;
    *ret_all = true;
    if (pinned_find(store, false, &pinned) < 0)
        return 0;
    struct moving_out out = {.moving = {.commit = &store->commit},
                             .store = store,
                             .request = request,
                             .pinned = &pinned};
    _cleanup_vector_ struct pack_ids packs = packs_to_evict(store, request);
    out.moving.raw = xmalloc(CHUNK_SIZE_MAX);
    out.moving.stored = xmalloc(CHUNK_SIZE_MAX);
    request->pinned_bytes = request->unpublished_bytes = request->busy_bytes =
        request->going_bytes = request->busy_pack = request->base_bytes = 0;
    for (; i < packs.count && count < max && moved < MOVE_BYTES_MAX; i++) {
        out.moving.pack = packs.at[i];
        if (empty_pack(&out, &moved))
            ids[count++] = packs.at[i];
    }
    /* Packs that were checked and stay are checked again in the next round, with the rest. */
    /* the chunks that refer to them have left by then */
    bool more_may_come = request->base_bytes > 0;
    *ret_all = (i == packs.count && !more_may_come) || count == 0;
    free(out.moving.raw);
    free(out.moving.stored);
    pinned_done(&pinned);
    return count;
}

/* Chooses packs for a caller of evict_now(); chunks that must stay are added to a new pack, as by a
 * compaction. */
static size_t choose_requested(struct store *store, uint64_t *ids, size_t max)
{
    mutex_lock(&store->fetch->evict.lock);
    struct evict_request *request = store->fetch->evict.request;
    store->fetch->evict.serving = request != NULL;
    mutex_unlock(&store->fetch->evict.lock);
    if (!request)
        return 0;
    bool all;
    size_t count = serve_request(store, request, ids, max, &all);
    LOCK_SCOPE(&store->fetch->evict.lock);
    request->is_last_round = all;
    return count;
}

/* Called after each choose_requested(), when its packs are gone, or could not be dropped: adds to
 * the result, and wakes the waiter after the last round. */
static void end_requested(struct store *store, bool dropped)
{
    LOCK_SCOPE(&store->fetch->evict.lock);
    struct evict_request *request = store->fetch->evict.request;
    if (!store->fetch->evict.serving)
        return;
    *(dropped ? &request->dropped_bytes : &request->busy_bytes) += request->going_bytes;
    request->going_bytes = 0;
    request->done = request->is_last_round || !dropped;
    if (request->done)
        store->fetch->evict.request = NULL;
    store->fetch->evict.serving = false;
    (void)pthread_cond_broadcast(&store->fetch->evict.changed);
}

int evict_now(struct store *store, struct evict_request *request)
{
    if (request->count > 1)
        qsort(request->names, request->count, sizeof *request->names, compare_names);
    mutex_lock(&store->fetch->evict.lock);
    while (store->fetch->evict.request && !store->fetch->evict.stopping)
        (void)mutex_wait(&store->fetch->evict.lock, &store->fetch->evict.changed, -1);
    if (!store->fetch->evict.stopping)
        store->fetch->evict.request = request;
    mutex_unlock(&store->fetch->evict.lock);
    horizon_kick(store->commit.horizon);
    LOCK_SCOPE(&store->fetch->evict.lock);
    while (!request->done && !(store->fetch->evict.stopping && !store->fetch->evict.serving))
        (void)mutex_wait(&store->fetch->evict.lock, &store->fetch->evict.changed, -1);
    if (store->fetch->evict.request == request)
        store->fetch->evict.request = NULL;
    return request->done ? 0 : -ESHUTDOWN;
}

void evict_stop(struct store *store)
{
    LOCK_SCOPE(&store->fetch->evict.lock);
    store->fetch->evict.stopping = true;
    (void)pthread_cond_broadcast(&store->fetch->evict.changed);
}

/* --- the writeback thread's round ------------------------------------------------------------- */

/* No pack could be evicted. Packs may be in use for a moment, or were published just now: NVMe
 * counts as full only when this lasts. */
static void note_none(struct store *store)
{
    struct evict *evict = &store->fetch->evict;
    int64_t now = clock_monotonic_ns();
    uint64_t published = horizon_published(store->commit.horizon);
    if (!atomic_load(&evict->none_since) || published != evict->none_published)
        atomic_store(&evict->none_since, now);
    evict->none_published = published;
    atomic_store(&evict->none_until, now + REST_NS);
    event_signal(room_more(store->commit.room));
}

/* Chooses packs to evict because room is short, or will be: early, so that writers need not
 * wait. */
static size_t choose_for_room(struct store *store, bool now, uint64_t *ids, size_t max)
{
    struct evict *evict = &store->fetch->evict;
    int64_t time = clock_monotonic_ns();
    if (!store->remote || time < evict->next_at || (!now && time < atomic_load(&evict->none_until)))
        return 0;
    evict->next_at = time + EVERY_NS;
    uint64_t missing = room_missing(store->commit.room);
    size_t count = missing ? choose_packs(store, missing, ids, max) : 0;
    if (missing && count == 0)
        note_none(store);
    return count;
}

bool evict_round(struct store *store, bool now)
{
    struct evict *evict = &store->fetch->evict;
    uint64_t ids[DROPS_MAX];
    size_t count = choose_requested(store, ids, DROPS_MAX);
    if (count == 0)
        count = choose_for_room(store, now, ids, DROPS_MAX);
    bool dropped = count > 0 && upkeep_drop(&store->commit, ids, count, RECORD_EVICTED);
    end_requested(store, dropped);
    if (!dropped)
        return false;
    evict->next_at = 0;
    atomic_store(&evict->none_since, 0);
    atomic_store(&evict->none_until, 0);
    return true;
}

bool evict_is_hopeless(struct store *store)
{
    return clock_monotonic_ns() < atomic_load(&store->fetch->evict.none_until);
}

bool evict_may_free(struct store *store)
{
    int64_t since = atomic_load(&store->fetch->evict.none_since);
    return remote_will_relieve(store->remote) ||
           (store->remote && (!since || clock_monotonic_ns() - since < NONE_NS));
}

uint64_t evict_possible(struct store *store)
{
    atomic_store(&store->fetch->evict.pins_asked, true);
    uint64_t pinned = atomic_load(&store->fetch->evict.pinned_bytes),
             packs = view_state(store->local.view).pack_bytes;
    struct view_remote remote = view_remote(store->local.view);
    if (!remote_has_ours(store->remote) || !remote.tracks || remote.is_whole || pinned >= packs)
        return 0;
    /* The chunks that the remote lacks were written last: the packs at both ends of them hold other
     * chunks, too. */
    uint64_t stays =
        pinned + remote.pending_bytes + (remote.pending_chunks ? 2 * TIER_RESERVE_UNIT : 0);
    return packs > stays ? packs - stays : 0;
}

uint64_t evict_total(const struct store *store)
{
    return atomic_load(&store->fetch->evict.evicted_total);
}
