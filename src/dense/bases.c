// SPDX-License-Identifier: Apache-2.0
#include "dense/bases.h"

#include <uthash.h>

#include "base/cause.h"
#include "base/hex.h"
#include "base/log.h"
#include "base/vector.h"
#include "codec/encode.h"
#include "dense/bases_cache.h"
#include "dense/internal.h"

#define GROUP_GAP (128u * 1024) /* a gap is read rather than making another request */
#define TRIES 3                 /* a base may move in the remote between look-up and read */
#define CHAIN_BYTES (256 * MIB) /* no chain that we write needs as much */

/* --- what is needed --------------------------------------------------------------------------- */

struct base_need {
    UT_hash_handle hh;
    struct chunk_name name;
    unsigned below;    /* its depth in the remote must be less */
    struct base *base; /* NULL: not read yet, or not available: `error` */
    int error;
    int local_error; /* why it cannot be read from NVMe */
    bool is_local;
    struct chunk_entry place;
};

static struct base_need *find_need(const struct bases *bases, const struct chunk_name *name)
{
    struct base_need *need = NULL;
    HASH_FIND(hh, bases->needs, name, sizeof *name, need);
    return need;
}

int dense_find_place(struct store *store, const struct chunk_name *name, struct chunk_entry *ret)
{
    int r = view_remote_place(store->local.view, name, ret);
    if (r == -ENOENT)
        r = past_views_find_place(store->past, name, ret);
    return r == 0 && !chunk_is_readable(ret) ? -EUCLEAN : r;
}

/* Does not trust the depths in an index: they must decrease. */
static void find_remote_place(struct store *store, struct base_need *need)
{
    need->is_local = false;
    need->error = dense_find_place(store, &need->name, &need->place);
    if (need->error == 0 && need->place.depth >= need->below)
        need->error = -EUCLEAN;
}

static void find_place(struct store *store, struct base_need *need)
{
    int r = packs_find(store->commit.packs, &need->name, &need->place);
    need->is_local = r == 0 && chunk_is_readable(&need->place);
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
    if (store->dense)
        need->base = bases_cache_find(store->dense->bases, name);
    if (store->dense && !need->base)
        find_place(store, need);
    return need;
}

static void need_free(struct store *store, struct base_need *need)
{
    if (need->base)
        bases_cache_unpin(store->dense->bases, need->base);
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

/* False: the bytes gathered at once would exceed the limit. */
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

static int read_local(struct store *store, struct base_need *need)
{
    struct base *base = base_new(&need->name, need->place.raw_len);
    int r = packs_read_at(store->commit.packs, &need->place, base->bytes);
    if (r < 0) {
        free(base);
        return r;
    }
    need->base = bases_cache_add(store->dense->bases, base);
    return 0;
}

/* A chunk may leave its pack at any time. */
static void load_local(struct store *store, struct base_need *need)
{
    int r = -ENOENT;
    for (int try = 0; try < CHUNK_TRIES && r == -ENOENT && need->is_local; try++) {
        r = read_local(store, need);
        if (r == -ENOENT)
            find_place(store, need);
    }
    if (r == 0 || !need->is_local)
        return;
    need->local_error = r;
    find_remote_place(store, need);
}

/* The copy on NVMe is damaged: stores the chunk there again. */
static void heal_base(struct store *store, const struct base_need *need)
{
    if (need->local_error == 0 || need->local_error == -ENOENT)
        return;
    log_warn("a chunk that others refer to is damaged on NVMe (%s): read from %s instead, and "
             "stored anew",
             damage_describe(need->local_error), store->local.options.remote.name);
    damage_note_local(store->commit.damage, &need->name);
    (void)heal_give(store->commit.heal, &need->name, need->base->bytes, need->base->len);
}

/* Publishes the fetched base, or the error, to all threads that wait for it. */
static void open_base(struct store *store, const struct bases *below, struct base_need *need,
                      const uint8_t *stored, int error)
{
    need->error =
        error ? error : bases_decode(below, &need->place, stored, need->base->bytes, NULL);
    bases_cache_came(store->dense->bases, need->base, need->error);
    if (need->error == 0)
        heal_base(store, need);
}

/* Counts the bases that one request reads: [from, to) of a pack. */
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

/* Makes one GET. */
static void fetch_adjacent(struct store *store, const struct bases *below,
                           struct base_need *const *needs, size_t count, uint64_t length)
{
    const struct dense_remote *remote = &store->dense->remote;
    uint64_t from = needs[0]->place.offset;
    _cleanup_free_ uint8_t *stored = xmalloc(length);
    int r = remote->read(remote->remote, needs[0]->place.pack, from, stored, length);
    for (size_t i = 0; i < count; i++)
        open_base(store, below, needs[i], stored + (needs[i]->place.offset - from), r);
}

/* Claims the bases that no other thread is fetching, and moves them to the front, in order of
 * place; returns their number. */
static size_t claim_bases(struct store *store, struct base_need **needs, size_t count)
{
    _cleanup_free_ struct base_need **others = xcalloc(count, sizeof(struct base_need *));
    size_t own = 0, other = 0;
    for (size_t i = 0; i < count; i++) {
        struct base_need *need = needs[i];
        bool is_own;
        need->base =
            bases_cache_claim(store->dense->bases, &need->name, need->place.raw_len, &is_own);
        if (is_own)
            needs[own++] = need;
        else
            others[other++] = need;
    }
    memcpy(needs + own, others, other * sizeof(struct base_need *));
    return own;
}

/* Fetches the bases that no other thread is fetching, and then waits for the others. */
static void fetch_bases(struct store *store, const struct bases *below, struct base_need **needs,
                        size_t count)
{
    struct bases_cache *cache = store->dense->bases;
    size_t own = claim_bases(store, needs, count);
    for (size_t i = 0, n; i < own; i += n) {
        uint64_t length;
        n = count_adjacent(needs + i, own - i, &length);
        fetch_adjacent(store, below, needs + i, n, length);
    }
    for (size_t i = 0; i < count; i++) {
        needs[i]->error = bases_cache_await(cache, needs[i]->base);
        if (needs[i]->error == 0)
            continue;
        bases_cache_unpin(cache, needs[i]->base);
        needs[i]->base = NULL;
    }
}

static int compare_places(const void *a, const void *b)
{
    const struct chunk_entry *x = &(*(struct base_need *const *)a)->place,
                             *y = &(*(struct base_need *const *)b)->place;
    if (x->pack != y->pack)
        return x->pack < y->pack ? -1 : 1;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static size_t gather_needs(struct bases *bases, const struct chunk_entry *entries, size_t count);

/* Loads `needs` from the remote, in order of place. Gathers their own bases before memory for them
 * is allocated. */
static void load_remote(struct bases *bases, struct base_need **needs, size_t count)
{
    struct chunk_entry *places = xcalloc(count, sizeof *places);
    qsort(needs, count, sizeof *needs, compare_places);
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

bool bases_is_final(int error)
{
    return error == -ENOENT || error == -EBADMSG || error == -EUCLEAN ||
           error == -EPROTONOSUPPORT || error == -ENOLINK;
}

/* The base had a place when it was looked up. True: it has moved since. */
static bool has_moved(struct store *store, struct base_need *need)
{
    const struct dense_remote *remote = &store->dense->remote;
    struct chunk_entry before = need->place;
    int error = need->error;
    find_remote_place(store, need);
    if (need->error == 0 &&
        (need->place.pack != before.pack || need->place.offset != before.offset))
        return true;
    if (need->error == 0 && error != -ENOLINK)
        remote->note_bad_pack(remote->remote, before.pack, error);
    need->error = error;
    return false;
}

/* Lists the bases to be read from the remote now. */
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

static void load_needed(struct bases *bases)
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
                list[i]->error = -EAGAIN; /* it exists, and may stay at its place the next time */
    }
    free(list);
}

static size_t gather_needs(struct bases *bases, const struct chunk_entry *entries, size_t count)
{
    size_t n = 0;
    while (n < count && (!is_dependent(&entries[n]) || add_dependent(bases, &entries[n])))
        n++;
    if (bases->needs)
        load_needed(bases);
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
    /* Their stored and decoded bytes, and the bases of bases, of which only those of the next level
     * are in memory. */
    uint64_t bytes = min_u64(refs * (CHUNK_SIZE_MAX + GROUP_GAP), BASES_BYTES);
    return 2 * bytes + (is_deep ? BASES_BYTES : 0);
}

/* --- decoding --------------------------------------------------------------------------------- */

/* Finds the bytes that a reference names. */
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
    return local_is_chunk(&bases->store->local, &entry->name, raw, entry->raw_len) ? 0 : -EBADMSG;
}

bool bases_find_loss(const struct bases *bases, const struct chunk_entry *entry,
                     struct base_loss *ret_loss)
{
    struct iovec ignored;
    int r = 0;
    for (unsigned i = 0; i < entry->ref_count && r == 0; i++)
        r = resolve_ref(bases, &entry->refs[i], &ignored, ret_loss);
    return r == -ENOLINK;
}

void bases_note_loss(const struct base_loss *loss)
{
    char hex[17];
    hex_print(hex, loss->name.bytes, 8);
    cause_note("it refers to chunk %s, which %s", hex,
               loss->error == -ENOENT ? "is nowhere" : "is damaged");
}

/* --- checks before something relies on a base ------------------------------------------------- */

static bool is_sound(struct store *store, const struct chunk_entry *place, unsigned below)
{
    bool sound = place->depth < below && place->ref_count <= CHUNK_REFS_MAX &&
                 !dense_is_bad_pack(store->dense, place->pack);
    for (unsigned i = 0; i < place->ref_count && sound; i++) {
        struct chunk_entry base;
        sound = view_remote_place(store->local.view, &place->refs[i].name, &base) == 0 &&
                is_sound(store, &base, place->depth);
    }
    return sound;
}

bool bases_are_sound(struct store *store, const struct chunk_entry *place)
{
    return is_sound(store, place, CHUNK_DEPTH_MAX + 1);
}
