// SPDX-License-Identifier: Apache-2.0
/* Eviction: a pack leaves NVMe when the published remote has every chunk that lives in it. A batch says so first (DROP with
 * EVICTED: the chunks keep their references), then the file goes.
 *
 * Which: the least recently used. When a pack was used is kept in memory only, in a table of fixed size: packs that share a place in
 * it count as used together, and after a mount the oldest go first. What belongs to a file with the xattr user.cairn.pin, or in a
 * directory with it, stays. */
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "persist/far_care.h"
#include "persist/pull.h"

#define CANDIDATES 256u
#define PINS_EVERY_NS (30ll * 1000000000) /* all xattrs are looked at for them */
#define MOVE_BYTES_MAX (20 * MIB) /* that leave packs of others in one round: less than a pack */
#define PIN_NAME "user.cairn.pin"

/* --- when packs were used ------------------------------------------------------------------------------------------------ */

static _Atomic uint32_t *clock_of(struct store *store, uint64_t pack)
{
    return &store->used_at[(pack * 0x9e3779b97f4a7c15ull) >> 48];
}

void evict_touch(struct store *store, uint64_t pack)
{
    uint32_t now = (uint32_t)((clock_monotonic_ns() - store->started_at) / 100000000) + 1;
    if (atomic_load_explicit(clock_of(store, pack), memory_order_relaxed) != now)
        atomic_store_explicit(clock_of(store, pack), now, memory_order_relaxed);
}

/* --- what is pinned -------------------------------------------------------------------------------------------------------- */

/* Chunks that stay, by the beginning of their names: a false one stays too, which does no harm. */
struct pinned {
    struct store *store;
    uint64_t *list, *dirs;
    size_t count, max, dir_count, dir_max;
    bool any; /* somebody pins something */
    int error;
    bool looks_up; /* packs that hold it on NVMe are wanted, too */
    uint64_t *packs;
    size_t pack_count, pack_max;
    uint64_t pack_bytes; /* of these */
};

static void push(uint64_t **list, size_t *count, size_t *max, uint64_t value)
{
    if (*count == *max) {
        *max = *max ? 2 * *max : 64;
        *list = xrealloc(*list, *max * sizeof **list);
    }
    (*list)[(*count)++] = value;
}

static uint64_t short_name(const struct chunk_name *name)
{
    uint64_t value;
    memcpy(&value, name->bytes, sizeof value);
    return value;
}

static int pin_pack(struct pinned *pinned, const struct chunk_name *name)
{
    struct chunk_entry entry;
    uint64_t refs;
    int r = view_chunk(pinned->store->view, name, &entry, &refs);
    bool is_new = r == 0 && entry.pack && (pinned->pack_count == 0 || pinned->packs[pinned->pack_count - 1] != entry.pack);
    if (is_new)
        push(&pinned->packs, &pinned->pack_count, &pinned->pack_max, entry.pack);
    return r == -ENOENT ? 0 : r;
}

static int pin_chunk(const struct view_extent *part, void *arg)
{
    struct pinned *pinned = arg;
    if (part->extent.kind != EXTENT_CHUNK)
        return 0;
    push(&pinned->list, &pinned->count, &pinned->max, short_name(&part->extent.chunk));
    return pinned->looks_up ? pin_pack(pinned, &part->extent.chunk) : 0;
}

static void pin_inode(struct pinned *pinned, uint64_t ino, mode_t type)
{
    int r = 0;
    if (S_ISDIR(type))
        push(&pinned->dirs, &pinned->dir_count, &pinned->dir_max, ino);
    else if (S_ISREG(type))
        r = view_extents(pinned->store->view, ino, 0, 0, INT64_MAX, pin_chunk, pinned);
    if (r < 0 && r != -ENOENT)
        pinned->error = r;
}

static int pin_entry(const struct view_entry *entry, const char *name, size_t name_len, void *arg)
{
    (void)name;
    (void)name_len;
    pin_inode(arg, entry->ino, entry->type);
    return 0;
}

static int pin_holder(uint64_t ino, void *arg)
{
    struct pinned *pinned = arg;
    struct view_inode inode;
    char value[2];
    ssize_t len = view_getxattr(pinned->store->view, ino, PIN_NAME, strlen(PIN_NAME), value, sizeof value);
    if (len == 1 && value[0] == '0')
        return 0;
    pinned->any = true;
    if (view_inode(pinned->store->view, ino, &inode) == 0)
        pin_inode(pinned, ino, inode.attrs.mode);
    return 0;
}

static bool is_pin(const struct record *rec)
{
    return rec->type == REC_SETXATTR && rec->name_len == strlen(PIN_NAME) && memcmp(rec->name, PIN_NAME, rec->name_len) == 0;
}

/* What the view does not know yet. Whatever gets another place may come below a folder with a pin: until the view tells, it stays. */
static void pin_pending(struct pinned *pinned)
{
    struct store *store = pinned->store;
    size_t count;
    struct op **ops = history_look(store, &count);
    for (size_t i = 0; i < count; i++)
        pinned->any = pinned->any || ops[i]->type == REC_SETXATTR;
    for (size_t i = 0; i < count && pinned->any; i++) {
        struct view_inode inode;
        struct record rec;
        size_t len;
        bool moves = ops[i]->type == REC_RENAME || ops[i]->type == REC_LINK;
        if (!moves && ops[i]->type != REC_SETXATTR)
            continue;
        check(record_decode(ops[i]->bytes, ops[i]->len, &rec, &len) == 0);
        if ((moves || is_pin(&rec)) && view_inode(store->view, rec.ino, &inode) == 0)
            pin_inode(pinned, rec.ino, inode.attrs.mode);
        if (moves && rec.ino2 && view_inode(store->view, rec.ino2, &inode) == 0)
            pin_inode(pinned, rec.ino2, inode.attrs.mode); /* an exchange */
    }
    history_looked(store, ops);
}

static int compare_values(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void pinned_done(struct pinned *pinned)
{
    free(pinned->list);
    free(pinned->dirs);
    free(pinned->packs);
}

/* All of it, or an error: then nothing may be evicted. The writeback thread's alone, as pending operations are. */
static int pinned_find(struct store *store, bool looks_up, struct pinned *ret)
{
    *ret = (struct pinned){.store = store, .looks_up = looks_up};
    int r = view_xattr_holders(store->view, PIN_NAME, pin_holder, ret);
    pin_pending(ret);
    while (r == 0 && ret->error == 0 && ret->dir_count > 0)
        r = view_readdir(store->view, ret->dirs[--ret->dir_count], 0, pin_entry, ret);
    if (r == 0)
        r = ret->error;
    if (ret->count)
        qsort(ret->list, ret->count, sizeof *ret->list, compare_values);
    if (r < 0)
        pinned_done(ret);
    return r;
}

static bool is_pinned(const struct pinned *pinned, const struct chunk_name *name)
{
    uint64_t value = short_name(name);
    return pinned->count && bsearch(&value, pinned->list, pinned->count, sizeof value, compare_values);
}

static int add_pinned_pack(const struct view_pack *pack, void *arg)
{
    struct pinned *pinned = arg;
    if (bsearch(&pack->pack, pinned->packs, pinned->pack_count, sizeof pack->pack, compare_values))
        pinned->pack_bytes += pack->length;
    return 0;
}

/* A pin holds at once, and is gone when the view knows it: pins that changed are counted twice. */
static bool is_account_due(struct store *store, struct upkeep *up)
{
    uint64_t changed = atomic_load(&store->pins_changed);
    bool is_final = view_state(store->view).applied_seq >= changed;
    bool is_new = up->pins_counted != changed || (is_final && !up->pins_final);
    if (!store->remote || !(is_new || (clock_monotonic_ns() >= up->pins_at && atomic_exchange(&store->pins_asked, false))))
        return false;
    up->pins_counted = changed;
    up->pins_final = is_final;
    up->pins_at = clock_monotonic_ns() + PINS_EVERY_NS;
    return true;
}

void evict_account(struct store *store, struct upkeep *up)
{
    struct pinned pinned;
    if (!is_account_due(store, up) || pinned_find(store, true, &pinned) < 0)
        return;
    if (pinned.pack_count)
        qsort(pinned.packs, pinned.pack_count, sizeof *pinned.packs, compare_values);
    int r = pinned.pack_count ? view_packs(store->view, add_pinned_pack, &pinned) : 0;
    atomic_store(&store->pinned_bytes, r < 0 ? UINT64_MAX : pinned.pack_bytes);
    pinned_done(&pinned);
}

uint64_t evict_possible(struct store *store)
{
    atomic_store(&store->pins_asked, true);
    uint64_t pinned = atomic_load(&store->pinned_bytes), packs = view_state(store->view).pack_bytes;
    struct view_remote far = view_remote(store->view);
    if (!remote_has_ours(store->remote) || !far.tracks || far.is_whole || pinned >= packs)
        return 0;
    /* What the remote lacks was written last: a pack at each end of it holds other things, too. */
    uint64_t stays = pinned + far.wanted_bytes + (far.wanted ? 2 * TIER_RESERVE_UNIT : 0);
    return packs > stays ? packs - stays : 0;
}

void store_pins_changed(struct store *store)
{
    atomic_store(&store->pins_changed, store_newest(store));
    horizon_kick(store);
}

/* --- which packs may go ------------------------------------------------------------------------------------------------------ */

static bool is_published(struct store *store, const struct chunk_name *name)
{
    struct chunk_entry far;
    bool published;
    return remote_has_ours(store->remote) && view_far_chunk(store->view, name, &far, &published) == 0 && published &&
           !far_is_bad(store->remote, far.pack);
}

struct judging {
    struct store *store;
    const struct pinned *pinned;
    uint64_t pack;
};

/* Does somebody refer to the chunk, and has it its place in this pack? 1, 0 or -errno. */
static int lives_in(struct store *store, const struct chunk_name *name, uint64_t pack)
{
    struct chunk_entry now;
    uint64_t refs;
    int r = view_chunk(store->view, name, &now, &refs);
    return r == -ENOENT ? 0 : r < 0 ? r : now.pack == pack && refs > 0;
}

static int judge_chunk(const struct chunk_entry *entry, void *arg)
{
    const struct judging *j = arg;
    int r = lives_in(j->store, &entry->name, j->pack);
    if (r <= 0)
        return r;
    return is_published(j->store, &entry->name) && !is_pinned(j->pinned, &entry->name) ? 0 : -EBUSY;
}

/* First the mark, then the questions: whoever refers to a chunk from now on sees the mark. */
static bool mark(struct store *store, uint64_t pack)
{
    if (!packs_begin_drop(store, pack))
        return false;
    if (!stage_uses_pack(store->stage, pack))
        return true;
    packs_end_drop(store, pack);
    return false;
}

static bool mark_if_clean(struct store *store, const struct pinned *pinned, uint64_t pack)
{
    struct judging j = {store, pinned, pack};
    if (!mark(store, pack))
        return false;
    if (packs_read_index(store, pack, judge_chunk, &j) == 0)
        return true;
    packs_end_drop(store, pack);
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
    bool goes_on;          /* there may be more after the last */
    struct candidate after; /* pack 0: from the start */
};

static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->used != b->used ? a->used < b->used : a->pack < b->pack;
}

/* Keeps those that were used least recently, in order. */
static int add_candidate(const struct view_pack *pack, void *arg)
{
    struct candidates *all = arg;
    struct candidate c = {pack->pack, pack->length, atomic_load(clock_of(all->store, pack->pack))};
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

size_t evict_choose(struct store *store, uint64_t bytes, uint64_t *ids, size_t max)
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
        if (view_packs(store->view, add_candidate, all) < 0)
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
    atomic_fetch_add(&store->evicted_total, freed);
    if (count)
        log_debug("nvme: %zu packs of %llu MiB go: the remote has what they hold", count, (unsigned long long)(freed / MIB));
    return count;
}

/* --- because somebody said so -------------------------------------------------------------------------------------------------- */

struct moving_out {
    struct moving moving;
    struct evict_request *request;
    const struct pinned *pinned;
    uint64_t goes, stays, pinned_bytes, unpublished_bytes; /* of the pack, stored bytes */
    bool move;
};

static int compare_names(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct chunk_name));
}

static bool is_asked(const struct evict_request *request, const struct chunk_name *name)
{
    return request->count && bsearch(name, request->names, request->count, sizeof *name, compare_names);
}

/* First round: what would go and what must stay; second: what must stay moves. */
static int sort_out(const struct chunk_entry *entry, void *arg)
{
    struct moving_out *out = arg;
    struct store *store = out->moving.store;
    int r = lives_in(store, &entry->name, out->moving.pack);
    if (r <= 0)
        return r;
    bool asked = is_asked(out->request, &entry->name), pinned = is_pinned(out->pinned, &entry->name);
    bool published = is_published(store, &entry->name);
    if (asked && published && !pinned) {
        out->goes += entry->stored_len;
        return 0;
    }
    out->stays += entry->stored_len;
    if (asked && pinned)
        out->pinned_bytes += entry->stored_len;
    else if (asked)
        out->unpublished_bytes += entry->stored_len;
    return out->move ? gc_move_chunk(entry, &out->moving) : 0;
}

/* True: the pack may be dropped, what stays of it is in a new one. */
static bool empty_pack(struct moving_out *out, uint64_t *moved)
{
    struct store *store = out->moving.store;
    struct evict_request *request = out->request;
    uint64_t pack = out->moving.pack;
    out->goes = out->stays = out->pinned_bytes = out->unpublished_bytes = 0;
    out->move = false;
    bool marked = mark(store, pack);
    int r = packs_read_index(store, pack, sort_out, out);
    uint64_t goes = out->goes, stays = out->stays;
    request->pinned_bytes += out->pinned_bytes;
    request->unpublished_bytes += out->unpublished_bytes;
    if (r == 0 && marked && goes > 0 && stays > 0) {
        out->move = true;
        r = packs_read_index(store, pack, sort_out, out);
    }
    if (r == 0 && marked && goes > 0) {
        request->going_bytes += goes;
        *moved += stays;
        return true;
    }
    if (marked)
        packs_end_drop(store, pack);
    request->busy_bytes += goes;
    return false;
}

/* Packs on NVMe in which chunks of the request lie, each once. */
static uint64_t *packs_of(struct store *store, const struct evict_request *request, size_t *ret_count)
{
    uint64_t *packs = NULL;
    size_t count = 0, max = 0, kept = 0;
    for (size_t i = 0; i < request->count; i++) {
        struct chunk_entry entry;
        uint64_t refs;
        if (view_chunk(store->view, &request->names[i], &entry, &refs) == 0 && entry.pack)
            push(&packs, &count, &max, entry.pack);
    }
    if (count)
        qsort(packs, count, sizeof *packs, compare_values);
    for (size_t i = 0; i < count; i++)
        if (kept == 0 || packs[kept - 1] != packs[i])
            packs[kept++] = packs[i];
    *ret_count = kept;
    return packs;
}

static size_t serve(struct store *store, struct evict_request *request, uint64_t *ids, size_t max, bool *ret_all)
{
    struct pinned pinned;
    size_t count = 0, pack_count, i = 0;
    uint64_t moved = 0;
    *ret_all = true;
    if (pinned_find(store, false, &pinned) < 0)
        return 0;
    struct moving_out out = {.moving = {.store = store}, .request = request, .pinned = &pinned};
    uint64_t *packs = packs_of(store, request, &pack_count);
    out.moving.raw = xmalloc(CHUNK_SIZE_MAX);
    out.moving.stored = xmalloc(CHUNK_SIZE_MAX);
    request->pinned_bytes = request->unpublished_bytes = request->busy_bytes = request->going_bytes = 0;
    for (; i < pack_count && count < max && moved < MOVE_BYTES_MAX; i++) {
        out.moving.pack = packs[i];
        if (empty_pack(&out, &moved))
            ids[count++] = packs[i];
    }
    /* What was looked at and stays is looked at again in the next round, with what is left. */
    *ret_all = i == pack_count || count == 0;
    free(out.moving.raw);
    free(out.moving.stored);
    free(packs);
    pinned_done(&pinned);
    return count;
}

size_t evict_requested(struct store *store, uint64_t *ids, size_t max)
{
    mutex_lock(&store->evict.lock);
    struct evict_request *request = store->evict.request;
    store->evict.serving = request != NULL;
    mutex_unlock(&store->evict.lock);
    if (!request)
        return 0;
    bool all;
    size_t count = serve(store, request, ids, max, &all);
    LOCK_SCOPE(&store->evict.lock);
    request->is_last_round = all;
    return count;
}

void evict_served(struct store *store, bool dropped)
{
    LOCK_SCOPE(&store->evict.lock);
    struct evict_request *request = store->evict.request;
    if (!store->evict.serving)
        return;
    *(dropped ? &request->dropped_bytes : &request->busy_bytes) += request->going_bytes;
    request->going_bytes = 0;
    request->done = request->is_last_round || !dropped;
    if (request->done)
        store->evict.request = NULL;
    store->evict.serving = false;
    (void)pthread_cond_broadcast(&store->evict.changed);
}

int evict_now(struct store *store, struct evict_request *request)
{
    if (request->count > 1)
        qsort(request->names, request->count, sizeof *request->names, compare_names);
    mutex_lock(&store->evict.lock);
    while (store->evict.request && !store->evict.stopping)
        (void)mutex_wait(&store->evict.lock, &store->evict.changed, 1000);
    if (!store->evict.stopping)
        store->evict.request = request;
    mutex_unlock(&store->evict.lock);
    horizon_kick(store);
    LOCK_SCOPE(&store->evict.lock);
    while (!request->done && !(store->evict.stopping && !store->evict.serving))
        (void)mutex_wait(&store->evict.lock, &store->evict.changed, 1000);
    if (store->evict.request == request)
        store->evict.request = NULL;
    return request->done ? 0 : -ESHUTDOWN;
}

void evict_stop(struct store *store)
{
    LOCK_SCOPE(&store->evict.lock);
    store->evict.stopping = true;
    (void)pthread_cond_broadcast(&store->evict.changed);
}
