// SPDX-License-Identifier: Apache-2.0
#include "dense/chains.h"

#include <math.h>

#include "base/vector.h"
#include "view/remote.h"

#define LINKS_MAX 131072u
#define SLOTS (2 * LINKS_MAX)
#define STEP_SHARE 8u /* of a chunk without a base: the estimated length of a first difference */

/* A chunk that has a base by plan, or is one. */
struct link {
    struct chunk_name name, base; /* base: if depth is not 0 */
    uint16_t depth, level;        /* 0: no base */
    uint16_t hanging;             /* planned differences to it */
    bool is_placed;               /* its own base is known from the view */
    uint32_t length;              /* its likely stored length */
};

struct chains {
    VECTOR(struct link) links;
    uint32_t *slots; /* hash table: 1 + index of a link; 0: free */
};

/* --- links ------------------------------------------------------------------------------------ */

struct chains *chains_new(void)
{
    struct chains *chains = xcalloc(1, sizeof *chains);
    chains->slots = xcalloc(SLOTS, sizeof *chains->slots);
    return chains;
}

void chains_free(struct chains *chains)
{
    if (!chains)
        return;
    vector_free(&chains->links);
    free(chains->slots);
    free(chains);
}

/* The slot of the name, or the free one for it. Names are hashes already. */
static uint32_t *slot_of(const struct chains *chains, const struct chunk_name *name)
{
    uint64_t h;
    memcpy(&h, name->bytes, sizeof h);
    for (size_t i = h % SLOTS;; i = (i + 1) % SLOTS) {
        uint32_t *slot = &chains->slots[i];
        if (*slot == 0 || chunk_name_equal(&chains->links.at[*slot - 1].name, name))
            return slot;
    }
}

static struct link *find_link(const struct chains *chains, const struct chunk_name *name)
{
    uint32_t slot = *slot_of(chains, name);
    return slot ? &chains->links.at[slot - 1] : NULL;
}

static void add_link(struct chains *chains, const struct link *link)
{
    uint32_t *slot = slot_of(chains, &link->name);
    check(*slot == 0 && chains->links.count < LINKS_MAX);
    vector_add(&chains->links, *link);
    *slot = (uint32_t)chains->links.count;
}

void chains_add(struct chains *chains, const struct chunk_name *name, const struct chain_base *base)
{
    check(base->depth > 0 && base->level > 0 && base->level <= base->depth);
    if (chains->links.count + 2 > LINKS_MAX || find_link(chains, name))
        return;
    if (!find_link(chains, &base->name))
        add_link(chains, &(struct link){.name = base->name, .is_placed = base->is_placed});
    find_link(chains, &base->name)->hanging++;
    add_link(chains, &(struct link){.name = *name,
                                    .base = base->name,
                                    .depth = (uint16_t)base->depth,
                                    .level = (uint16_t)base->level,
                                    .length = base->length});
}

bool chains_know(const struct chains *chains, const struct chunk_name *name)
{
    return find_link(chains, name) != NULL;
}

unsigned chains_planned(const struct chains *chains, const struct chunk_name *name,
                        struct chunk_name *ret_base)
{
    const struct link *link = find_link(chains, name);
    if (!link || link->level == 0)
        return 0;
    *ret_base = link->base;
    return link->level;
}

/* --- the chain of a chunk --------------------------------------------------------------------- */

/* A chunk as it is in the remote, or as it will be sent. */
struct spot {
    struct chunk_name name, base; /* base: for a difference */
    bool is_difference, is_placed, is_dead;
    unsigned depth, level;
    uint64_t length; /* stored length there, or the likely one */
    uint64_t kept;   /* bytes, of it and its bases, that only differences keep there */
};

/* Typical length of bf16 weights without a base: 0.667 of their bytes. */
static uint64_t plain_length(uint32_t raw_len)
{
    return 2ull * raw_len / 3;
}

static int look_at_place(struct view *view, struct spot *spot)
{
    struct chunk_entry entry, local;
    uint64_t refs = 0;
    int r = view_remote_place(view, &spot->name, &entry);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    spot->is_placed = true;
    spot->depth = entry.depth;
    spot->length = entry.stored_len;
    spot->is_difference = entry.encoding == ENCODING_DX;
    if (spot->is_difference)
        spot->base = entry.refs[0].name;
    r = view_chunk(view, &spot->name, &local, &refs);
    spot->is_dead = refs == 0;
    return r == -ENOENT ? 0 : r;
}

static int look_at_chunk(const struct chains *chains, struct view *view,
                         const struct chunk_name *name, uint32_t raw_len, struct spot *ret)
{
    const struct link *link = find_link(chains, name);
    *ret = (struct spot){.name = *name, .length = plain_length(raw_len)};
    if (!link || link->is_placed)
        return look_at_place(view, ret);
    if (link->depth == 0)
        return 0;
    ret->is_difference = true;
    ret->base = link->base;
    ret->depth = link->depth;
    ret->level = link->level;
    ret->length = link->length;
    return 0;
}

/* From the partner to the keyframe at the end of its chain. */
struct chain {
    struct spot spots[CHUNK_DEPTH_MAX + 1];
    unsigned count;
    bool has_name; /* the chain contains the chunk for which a base is sought */
};

static const struct spot *keyframe_of(const struct chain *chain)
{
    return &chain->spots[chain->count - 1];
}

static void note_kept(struct chain *chain)
{
    uint64_t kept = 0;
    for (unsigned i = chain->count; i-- > 0;) {
        struct spot *spot = &chain->spots[i];
        kept += spot->is_dead ? spot->length : 0;
        spot->kept = kept;
    }
}

static int walk_chain(const struct chains *chains, struct view *view, const struct chunk_name *name,
                      const struct chunk_name *partner, uint32_t raw_len, struct chain *ret)
{
    struct chunk_name next = *partner;
    int r;
    *ret = (struct chain){0};
    do {
        struct spot *spot = &ret->spots[ret->count++];
        r = look_at_chunk(chains, view, &next, raw_len, spot);
        ret->has_name = ret->has_name || chunk_name_equal(&next, name);
        next = spot->base;
    } while (r == 0 && keyframe_of(ret)->is_difference && ret->count < ARRAY_LEN(ret->spots));
    note_kept(ret);
    return r;
}

static int is_image(struct view *view, const struct spot *spot, bool *ret)
{
    uint64_t twins = 0;
    int r = spot->is_placed ? view_dependents(view, &spot->name, ENCODING_TWIN, 1, &twins) : 0;
    *ret = twins > 0;
    return r;
}

/* --- stars ------------------------------------------------------------------------------------ */

/* Are there fewer than `most` differences to it, stored and planned? */
static int has_room(const struct chains *chains, struct view *view, const struct spot *spot,
                    uint64_t most, bool *ret)
{
    const struct link *link = find_link(chains, &spot->name);
    uint64_t hanging = 0;
    int r = 0;
    if (spot->is_placed)
        r = view_dependents(view, &spot->name, ENCODING_DX, most, &hanging);
    *ret = hanging + (link ? link->hanging : 0) < most && spot->depth < CHUNK_DEPTH_MAX;
    return r;
}

/* Chooses the head of a nested star, or the keyframe: one with room for another member, which keeps
 * no more than `kept_max`; NULL: none. */
static int choose_of_star(const struct chains *chains, struct view *view, const struct chain *chain,
                          enum chain_form form, uint64_t kept_max, const struct spot **ret)
{
    const struct spot *keyframe = keyframe_of(chain), *base = keyframe;
    bool is_free = false;
    int r = 0;
    if (form == FORM_NESTED && chain->count > 1)
        base = keyframe - 1;
    if (base != keyframe && base->kept <= kept_max)
        r = has_room(chains, view, base, NESTED_MEMBERS, &is_free);
    if (r == 0 && !is_free) {
        base = keyframe;
        if (base->kept <= kept_max)
            r = has_room(chains, view, base,
                         form == FORM_NESTED ? NESTED_STARS : KEYFRAME_EVERY - 1, &is_free);
    }
    *ret = is_free ? base : NULL;
    return r;
}

/* --- chains ----------------------------------------------------------------------------------- */

/* Estimated bytes of a difference to the preceding chunk: those of the shortest one in the
 * chain. */
static uint64_t step_of(const struct chain *chain)
{
    uint64_t step = keyframe_of(chain)->length / STEP_SHARE;
    for (unsigned i = 0; i + 1 < chain->count; i++)
        step = i ? min_u64(step, chain->spots[i].length) : chain->spots[i].length;
    return max_u64(step, 1);
}

/* The distance between two versions of 2-byte numbers, from the length of their difference: numbers
 * that moved by n units take log2(1 + n) bits. Successive training steps partly continue in the
 * same direction, partly not: n grows with the number of steps to the power of 3/4. So distances
 * n^(4/3) can be added. */
static double way_of(uint64_t length, uint32_t raw_len)
{
    double bits = 16.0 * (double)min_u64(length, raw_len) / raw_len;
    return pow(exp2(bits) - 1, 4.0 / 3);
}

static uint64_t length_of_way(double way, uint32_t raw_len)
{
    return (uint64_t)(log2(1 + pow(way, 3.0 / 4)) / 16 * raw_len);
}

/* The length of a difference to a chunk further back, from the sum of the distances in between. */
static uint64_t length_to_spot(const struct chain *chain, const struct spot *base, uint32_t raw_len)
{
    double way = way_of(step_of(chain), raw_len);
    for (const struct spot *spot = chain->spots; spot != base; spot++)
        way += way_of(spot->length, raw_len);
    return max_u64(step_of(chain), length_of_way(way, raw_len));
}

/* Bytes in addition to a step, for each chunk of the row that may follow. */
struct cost {
    uint64_t bytes, row;
};

static bool is_less(const struct cost *a, const struct cost *b)
{
    return a->bytes * b->row < b->bytes * a->row;
}

/* A row ends where the chain reaches its greatest depth; and, if chunks of it were deleted, where
 * there is no room to keep more of them. */
static struct cost cost_of(const struct chain *chain, uint64_t length, unsigned levels,
                           uint64_t room)
{
    uint64_t step = step_of(chain);
    struct cost cost = {length > step ? length - step : 0, levels};
    if (chain->spots[0].kept > 0)
        cost.row = min_u64(levels, 1 + room / step);
    return cost;
}

/* Chooses the base with the lowest cost. That is the partner while the chain may get deeper, then
 * mostly the head of the chain. NULL: a keyframe costs less. */
static const struct spot *choose_of_chain(const struct chain *chain, uint32_t raw_len)
{
    const struct spot *best = NULL;
    uint64_t plain = min_u64(keyframe_of(chain)->length, raw_len);
    struct cost least = cost_of(chain, plain, CHAIN_DEPTH_MAX + 1, raw_len - plain);
    for (unsigned i = 0; i < chain->count; i++) {
        const struct spot *spot = &chain->spots[i];
        if (spot->depth >= CHAIN_DEPTH_MAX || spot->kept > raw_len)
            continue;
        struct cost cost = cost_of(chain, length_to_spot(chain, spot, raw_len),
                                   CHAIN_DEPTH_MAX - spot->depth, raw_len - spot->kept);
        if (is_less(&cost, &least)) {
            least = cost;
            best = spot;
        }
    }
    return best;
}

/* --- any -------------------------------------------------------------------------------------- */

static int choose_base(const struct chains *chains, struct view *view, const struct chain *chain,
                       enum chain_form form, uint32_t raw_len, const struct spot **ret)
{
    bool has_twins = false;
    TRY(form == FORM_CHAIN ? is_image(view, &chain->spots[0], &has_twins) : 0);
    if (form != FORM_CHAIN || has_twins)
        return choose_of_star(chains, view, chain, form, raw_len, ret);
    *ret = choose_of_chain(chain, raw_len);
    return 0;
}

int chains_find_base(const struct chains *chains, struct view *view,
                     const struct chain_place *place, struct chain_base *ret)
{
    uint32_t raw_len = place->raw_len;
    struct chain chain;
    const struct spot *base = NULL;
    *ret = (struct chain_base){0};
    int r = walk_chain(chains, view, place->name, place->partner, raw_len, &chain);
    if (r == 0)
        r = choose_base(chains, view, &chain, place->form, raw_len, &base);
    if (r < 0 || !base || chain.has_name)
        return r;
    *ret = (struct chain_base){.name = base->name,
                               .depth = base->depth + 1,
                               .level = base->is_placed ? 1 : base->level + 1,
                               .length = (uint32_t)length_to_spot(&chain, base, raw_len),
                               .is_placed = base->is_placed,
                               .is_dead = base->is_dead};
    return 0;
}
