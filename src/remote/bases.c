// SPDX-License-Identifier: Apache-2.0
#include "remote/bases.h"

#include <uthash.h>

#include "base/cause.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/vector.h"
#include "codec/encode.h"
#include "remote/maintenance_internal.h"

#define GROUP_GAP (128u * 1024) /* that is read for nothing rather than by another request */
#define TRIES 3                 /* a base may move in the remote between look-up and reading */
#define CHAIN_BYTES (256 * MIB) /* no chain that was made by us needs as much */

/* --- decoded bases ---------------------------------------------------------------------------- */

struct base {
    UT_hash_handle hh;
    TAILQ_ENTRY(base) link; /* by last use */
    struct chunk_name name;
    unsigned pins;
    bool is_known; /* in the table */
    uint32_t len;
    uint8_t bytes[];
};
TAILQ_HEAD(base_list, base);

struct bases_cache {
    struct cairn_mutex lock; /* LOCK_LEAF */
    struct base *table;
    struct base_list by_use;
    uint64_t held; /* bytes of the table */
};

struct bases_cache *bases_cache_new(void)
{
    struct bases_cache *cache = xcalloc(1, sizeof *cache);
    mutex_init(&cache->lock, LOCK_LEAF);
    TAILQ_INIT(&cache->by_use);
    return cache;
}

static void forget_locked(struct bases_cache *cache, struct base *base)
{
    check_held(&cache->lock);
    HASH_DEL(cache->table, base);
    TAILQ_REMOVE(&cache->by_use, base, link);
    cache->held -= base->len;
    free(base);
}

void bases_cache_free(struct bases_cache *cache)
{
    struct base *base, *next;
    if (!cache)
        return;
    mutex_lock(&cache->lock);
    HASH_ITER(hh, cache->table, base, next)
    {
        check(base->pins == 0);
        forget_locked(cache, base);
    }
    mutex_unlock(&cache->lock);
    mutex_done(&cache->lock);
    free(cache);
}

/* Pinned ones are of threads that gather, and counted there, so they stay. */
static void shrink_locked(struct bases_cache *cache)
{
    check_held(&cache->lock);
    struct base *base = TAILQ_FIRST(&cache->by_use), *next;
    for (; base && cache->held > BASES_CACHE_BYTES; base = next) {
        next = TAILQ_NEXT(base, link);
        if (base->pins == 0)
            forget_locked(cache, base);
    }
}

/* Pinned; NULL: it is not there. */
static struct base *cache_find(struct bases_cache *cache, const struct chunk_name *name)
{
    struct base *base = NULL;
    LOCK_SCOPE(&cache->lock);
    HASH_FIND(hh, cache->table, name, sizeof *name, base);
    if (base)
        base->pins++;
    return base;
}

static struct base *base_new(const struct chunk_name *name, uint32_t len)
{
    struct base *base = xmalloc(sizeof *base + len);
    *base = (struct base){.name = *name, .len = len, .pins = 1};
    return base;
}

/* One that was verified; another thread may have been faster. Returns the one that stays. */
static struct base *cache_add(struct bases_cache *cache, struct base *base)
{
    struct base *other = NULL;
    LOCK_SCOPE(&cache->lock);
    HASH_FIND(hh, cache->table, &base->name, sizeof base->name, other);
    if (other) {
        other->pins++;
        free(base);
        return other;
    }
    HASH_ADD(hh, cache->table, name, sizeof base->name, base);
    TAILQ_INSERT_TAIL(&cache->by_use, base, link);
    cache->held += base->len;
    return base;
}

static void cache_unpin(struct bases_cache *cache, struct base *base)
{
    LOCK_SCOPE(&cache->lock);
    TAILQ_REMOVE(&cache->by_use, base, link);
    TAILQ_INSERT_TAIL(&cache->by_use, base, link);
    base->pins--;
    shrink_locked(cache);
}

/* --- what is needed --------------------------------------------------------------------------- */

struct base_need {
    UT_hash_handle hh;
    struct chunk_name name;
    unsigned below;    /* its depth in the remote has to be less */
    struct base *base; /* NULL: it is not here yet, or cannot be had: `error` */
    int error;
    int local_error; /* why NVMe does not give it */
    bool is_local;
    struct chunk_entry place;
};

static struct base_need *find_need(const struct bases *bases, const struct chunk_name *name)
{
    struct base_need *need = NULL;
    HASH_FIND(hh, bases->needs, name, sizeof *name, need);
    return need;
}

static bool is_readable(const struct chunk_entry *place)
{
    return place->raw_len > 0 && place->raw_len <= CHUNK_SIZE_MAX && place->stored_len > 0 &&
           place->stored_len <= CHUNK_SIZE_MAX && place->ref_count <= CHUNK_REFS_MAX;
}

int remote_find_chunk(struct store *store, const struct chunk_name *name, struct chunk_entry *ret)
{
    int r = view_remote_place(store->view, name, ret);
    return r == 0 && !is_readable(ret) ? -EUCLEAN : r;
}

/* An index's depths are not believed: they have to decrease. */
static void find_remote_place(struct store *store, struct base_need *need)
{
    need->is_local = false;
    need->error = remote_find_chunk(store, &need->name, &need->place);
    if (need->error == 0 && need->place.depth >= need->below)
        need->error = -EUCLEAN;
}

static void find_place(struct store *store, struct base_need *need)
{
    int r = local_find_chunk(store, &need->name, &need->place);
    need->is_local = r == 0 && is_readable(&need->place);
    need->local_error = r;
    need->error = 0;
    if (!need->is_local)
        find_remote_place(store, need);
}

static struct base_need *need_new(struct store *store, const struct chunk_entry *dependent,
                                  const struct chunk_name *name)
{
    struct base_need *need = xcalloc(1, sizeof *need);
    need->name = *name;
    need->below = dependent->depth;
    need->error = -ENOENT;
    if (store->remote)
        need->base = cache_find(store->remote->bases, name);
    if (store->remote && !need->base)
        find_place(store, need);
    return need;
}

static void need_free(struct store *store, struct base_need *need)
{
    if (need->base)
        cache_unpin(store->remote->bases, need->base);
    free(need);
}

static uint32_t need_bytes(const struct base_need *need)
{
    return need->base ? need->base->len : need->error == 0 ? need->place.raw_len : 0;
}

static bool is_dependent(const struct chunk_entry *entry)
{
    return entry->ref_count > 0 && entry->ref_count <= CHUNK_REFS_MAX &&
           entry->depth <= CHUNK_DEPTH_MAX;
}

/* False: together with those before, it would be more than is gathered at once. */
static bool add_dependent(struct bases *bases, const struct chunk_entry *entry)
{
    struct base_need *added[CHUNK_REFS_MAX];
    size_t count = 0;
    uint64_t bytes = 0;
    for (unsigned i = 0; i < entry->ref_count; i++) {
        if (find_need(bases, &entry->refs[i].name))
            continue;
        struct base_need *need = need_new(bases->store, entry, &entry->refs[i].name);
        HASH_ADD(hh, bases->needs, name, sizeof need->name, need);
        added[count++] = need;
        bytes += need_bytes(need);
    }
    bool fits = bases->bytes == 0 || bases->bytes + bytes <= BASES_BYTES;
    for (size_t i = 0; i < count && !fits; i++) {
        HASH_DEL(bases->needs, added[i]);
        need_free(bases->store, added[i]);
    }
    bases->bytes += fits ? bytes : 0;
    return fits;
}

/* --- reading them ----------------------------------------------------------------------------- */

static int bases_read_local(struct store *store, struct base_need *need)
{
    struct base *base = base_new(&need->name, need->place.raw_len);
    int r = local_read_at(store, &need->place, base->bytes);
    if (r < 0) {
        free(base);
        return r;
    }
    need->base = cache_add(store->remote->bases, base);
    return 0;
}

/* A chunk may leave its pack at any time. */
static void load_local(struct store *store, struct base_need *need)
{
    int r = -ENOENT;
    for (int try = 0; try < CHUNK_TRIES && r == -ENOENT && need->is_local; try++) {
        r = bases_read_local(store, need);
        if (r == -ENOENT)
            find_place(store, need);
    }
    if (r == 0 || !need->is_local)
        return;
    need->local_error = r;
    find_remote_place(store, need);
}

/* NVMe has it damaged: it is stored there anew. */
static void heal_base(struct store *store, const struct base_need *need)
{
    if (need->local_error == 0 || need->local_error == -ENOENT)
        return;
    log_warn("a chunk that others refer to is damaged on NVMe (%s): read from %s instead, and "
             "stored anew",
             damage_describe(need->local_error), store->remote->name);
    damage_note_local(store, &need->name);
    (void)heal_give(store, &need->name, need->base->bytes, need->base->len);
}

static void open_base(struct store *store, const struct bases *below, struct base_need *need,
                      const uint8_t *stored)
{
    struct base *base = base_new(&need->name, need->place.raw_len);
    need->error = bases_decode(below, &need->place, stored, base->bytes, NULL);
    if (need->error < 0) {
        free(base);
        return;
    }
    need->base = cache_add(store->remote->bases, base);
    heal_base(store, need);
}

/* Bases that one request reads: [from, to) of a pack. */
static size_t count_adjacent(struct base_need *const *needs, size_t count, uint64_t *ret_length)
{
    const struct chunk_entry *first = &needs[0]->place;
    uint64_t end = first->offset + first->stored_len;
    size_t n = 1;
    for (; n < count; n++) {
        const struct chunk_entry *next = &needs[n]->place;
        if (next->pack != first->pack || next->offset < end || next->offset - end > GROUP_GAP ||
            next->offset + next->stored_len - first->offset > BASES_BYTES)
            break;
        end = next->offset + next->stored_len;
    }
    *ret_length = end - first->offset;
    return n;
}

static void fetch_bases(struct store *store, const struct bases *below, struct base_need **needs,
                        size_t count)
{
    struct tier *tier = store->remote->tier;
    for (size_t i = 0, n; i < count; i += n) {
        uint64_t length, from = needs[i]->place.offset;
        char object[32];
        n = count_adjacent(needs + i, count - i, &length);
        _cleanup_free_ uint8_t *stored = xmalloc(length);
        pack_object_name(needs[i]->place.pack, object);
        int r = tier->ops->get_range(tier, object, from, stored, length);
        if (r == 0)
            atomic_fetch_add(&store->remote->fetched_total, length);
        for (size_t k = i; k < i + n; k++) {
            needs[k]->error = r;
            if (r == 0)
                open_base(store, below, needs[k], stored + (needs[k]->place.offset - from));
        }
    }
}

static int bases_compare_places(const void *a, const void *b)
{
    const struct chunk_entry *x = &(*(struct base_need *const *)a)->place,
                             *y = &(*(struct base_need *const *)b)->place;
    if (x->pack != y->pack)
        return x->pack < y->pack ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t gather_needs(struct bases *bases, const struct chunk_entry *entries, size_t count);

/* Loads `needs` from the remote, in order of place, with what they refer to themselves gathered
 * before memory is taken for them. */
static void load_remote(struct bases *bases, struct base_need **needs, size_t count)
{
    struct chunk_entry *places = xcalloc(count, sizeof *places);
    qsort(needs, count, sizeof *needs, bases_compare_places);
    for (size_t i = 0; i < count; i++)
        places[i] = needs[i]->place;
    for (size_t i = 0, n; i < count; i += n) {
        struct bases below = {.store = bases->store, .allowance = bases->allowance};
        n = gather_needs(&below, places + i, count - i);
        fetch_bases(bases->store, &below, needs + i, n);
        bases_release(&below);
    }
    free(places);
}

/* Is it certain that no other try will read it? */
static bool bases_is_final(int error)
{
    return error == -ENOENT || error == -EBADMSG || error == -EUCLEAN ||
           error == -EPROTONOSUPPORT || error == -ENOLINK;
}

/* The base was there when it was looked up. True: it is elsewhere by now. */
static bool has_moved(struct store *store, struct base_need *need)
{
    struct chunk_entry before = need->place;
    int error = need->error;
    find_remote_place(store, need);
    if (need->error == 0 &&
        (need->place.pack != before.pack || need->place.offset != before.offset))
        return true;
    if (need->error == 0 && error != -ENOLINK)
        remote_note_bad_pack(store->remote, before.pack, error == -ENOENT ? "missing" : "damaged");
    need->error = error;
    return false;
}

/* Lists those that are to be read from the remote now. */
static size_t list_remote(struct bases *bases, struct base_need **list)
{
    struct base_need *need, *next;
    size_t count = 0;
    HASH_ITER(hh, bases->needs, need, next)
    {
        if (need->base || need->error < 0)
            continue;
        if (*bases->allowance < need->place.raw_len) {
            need->error = -EUCLEAN;
            continue;
        }
        *bases->allowance -= need->place.raw_len;
        list[count++] = need;
    }
    return count;
}

static void load_needs(struct bases *bases)
{
    struct base_need *need, *next;
    struct base_need **list = xcalloc(HASH_COUNT(bases->needs), sizeof(struct base_need *));
    HASH_ITER(hh, bases->needs, need, next)
    if (!need->base && need->error == 0 && need->is_local)
        load_local(bases->store, need);
    for (int try = 0; try < TRIES; try++) {
        size_t count = list_remote(bases, list);
        if (count == 0)
            break;
        load_remote(bases, list, count);
        for (size_t i = 0; i < count; i++)
            if (!list[i]->base && bases_is_final(list[i]->error) &&
                has_moved(bases->store, list[i]) && try + 1 == TRIES)
                list[i]->error = -EAGAIN; /* it is somewhere, and may stay there the next time */
    }
    free(list);
}

static size_t gather_needs(struct bases *bases, const struct chunk_entry *entries, size_t count)
{
    size_t n = 0;
    while (n < count && (!is_dependent(&entries[n]) || add_dependent(bases, &entries[n])))
        n++;
    if (bases->needs)
        load_needs(bases);
    return n;
}

size_t bases_gather(struct bases *ret, struct store *store, const struct chunk_entry *entries,
                    size_t count)
{
    *ret = (struct bases){.store = store, .own_allowance = CHAIN_BYTES};
    ret->allowance = &ret->own_allowance;
    return gather_needs(ret, entries, count);
}

void bases_release(struct bases *bases)
{
    struct base_need *need, *next;
    HASH_ITER(hh, bases->needs, need, next)
    {
        HASH_DEL(bases->needs, need);
        need_free(bases->store, need);
    }
}

uint64_t bases_room(const struct chunk_entry *entries, size_t count)
{
    uint64_t refs = 0;
    bool is_deep = false;
    for (size_t i = 0; i < count; i++) {
        refs += is_dependent(&entries[i]) ? entries[i].ref_count : 0;
        is_deep = is_deep || (is_dependent(&entries[i]) && entries[i].depth > 1);
    }
    /* Their stored and decoded bytes; and beside them the bases of bases, of which only the next
     * ones are there. */
    uint64_t bytes = min_u64(refs * (CHUNK_SIZE_MAX + GROUP_GAP), BASES_BYTES);
    return 2 * bytes + (is_deep ? BASES_BYTES : 0);
}

/* --- decoding --------------------------------------------------------------------------------- */

/* The bytes that one reference names. */
static int resolve_ref(const struct bases *bases, const struct chunk_ref *ref, struct iovec *ret,
                       struct base_loss *loss)
{
    const struct base_need *need = find_need(bases, &ref->name);
    int error = need ? need->error : -EUCLEAN;
    if (!need || !need->base) {
        *loss = (struct base_loss){ref->name, error};
        return bases_is_final(error) ? -ENOLINK : error;
    }
    if (ref->offset > need->base->len || ref->length > need->base->len - ref->offset)
        return -EUCLEAN;
    *ret = (struct iovec){need->base->bytes + ref->offset, ref->length};
    return 0;
}

int bases_decode(const struct bases *bases, const struct chunk_entry *entry, const void *stored,
                 void *raw, struct base_loss *ret_loss)
{
    struct iovec of_refs[CHUNK_REFS_MAX];
    struct base_loss loss = {.error = 0};
    int r = is_dependent(entry) || entry->ref_count == 0 ? 0 : -EUCLEAN;
    for (unsigned i = 0; i < entry->ref_count && r == 0; i++)
        r = resolve_ref(bases, &entry->refs[i], &of_refs[i], &loss);
    if (ret_loss)
        *ret_loss = loss;
    if (r == 0)
        r = chunk_decode_entry(entry, stored, of_refs, raw);
    if (r < 0)
        return r;
    struct iovec iov = {raw, entry->raw_len};
    struct chunk_name actual = hash_chunk(&bases->store->sb.key, &iov, 1);
    return chunk_name_equal(&actual, &entry->name) ? 0 : -EBADMSG;
}

void bases_note_loss(const struct base_loss *loss)
{
    char hex[17];
    hex_print(hex, loss->name.bytes, 8);
    cause_note("it refers to chunk %s, which %s", hex,
               loss->error == -ENOENT ? "is nowhere" : "is damaged");
}

/* --- before something relies on them ---------------------------------------------------------- */

static bool is_sound(struct store *store, const struct chunk_entry *place, unsigned below)
{
    bool sound = place->depth < below && place->ref_count <= CHUNK_REFS_MAX &&
                 !remote_is_bad_pack(store->remote, place->pack);
    for (unsigned i = 0; i < place->ref_count && sound; i++) {
        struct chunk_entry base;
        sound = view_remote_place(store->view, &place->refs[i].name, &base) == 0 &&
                is_sound(store, &base, place->depth);
    }
    return sound;
}

bool bases_are_sound(struct store *store, const struct chunk_entry *place)
{
    return is_sound(store, place, CHUNK_DEPTH_MAX + 1);
}
