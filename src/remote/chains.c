// SPDX-License-Identifier: Apache-2.0
#include "remote/chains.h"

#include "base/vector.h"
#include "view/remote.h"

#define LINKS_MAX 131072u
#define SLOTS (2 * LINKS_MAX)

/* A chunk that has a base by plan, or is one. */
struct link {
    struct chunk_name name, base; /* base: with a depth */
    uint16_t depth, level;        /* 0: it has none */
    uint16_t hanging;             /* planned differences to it */
    bool is_placed;               /* the view knows what it rests on */
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

/* Slot of the name, or the free one where it belongs. Names are hashes already. */
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
                                    .level = (uint16_t)base->level});
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

/* --- what a chunk rests on -------------------------------------------------------------------- */

/* A chunk as it is in the remote, or as it is to be sent. */
struct spot {
    struct chunk_name name, base; /* base: of a difference */
    bool is_difference, is_placed;
    unsigned depth, level;
    uint64_t held; /* bytes of it there, if no file refers to it */
};

static int look_at_place(struct view *view, struct spot *spot)
{
    struct chunk_entry entry, local;
    uint64_t refs = 0;
    int r = view_remote_place(view, &spot->name, &entry);
    if (r < 0)
        return r == -ENOENT ? 0 : r;
    spot->is_placed = true;
    spot->depth = entry.depth;
    spot->is_difference = entry.encoding == ENCODING_DX;
    if (spot->is_difference)
        spot->base = entry.refs[0].name;
    r = view_chunk(view, &spot->name, &local, &refs);
    spot->held = refs ? 0 : entry.stored_len;
    return r == -ENOENT ? 0 : r;
}

static int look_at(const struct chains *chains, struct view *view, const struct chunk_name *name,
                   struct spot *ret)
{
    const struct link *link = find_link(chains, name);
    *ret = (struct spot){.name = *name};
    if (!link || link->is_placed)
        return look_at_place(view, ret);
    ret->is_difference = link->depth > 0;
    ret->base = link->base;
    ret->depth = link->depth;
    ret->level = link->level;
    return 0;
}

/* From the partner down: what it rests on, and what of that only differences need. */
struct chain {
    struct spot partner, keyframe;
    struct spot head; /* what rests on the keyframe; the keyframe itself, where nothing does */
    uint64_t held;
    bool has_name; /* of the chunk that a base is looked for */
};

static int walk_chain(const struct chains *chains, struct view *view, const struct chunk_name *name,
                      const struct chunk_name *partner, struct chain *ret)
{
    int r = look_at(chains, view, partner, &ret->partner);
    ret->keyframe = ret->head = ret->partner;
    ret->held = ret->partner.held;
    ret->has_name = chunk_name_equal(partner, name);
    for (unsigned i = 0; r == 0 && ret->keyframe.is_difference && i < CHUNK_DEPTH_MAX; i++) {
        struct chunk_name base = ret->keyframe.base;
        ret->head = ret->keyframe;
        r = look_at(chains, view, &base, &ret->keyframe);
        ret->held += ret->keyframe.held;
        ret->has_name = ret->has_name || chunk_name_equal(&base, name);
    }
    return r;
}

/* Differences to it, there and by plan, are fewer than `most`. */
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

static int is_image(struct view *view, const struct spot *spot, bool *ret)
{
    uint64_t twins = 0;
    int r = spot->is_placed ? view_dependents(view, &spot->name, ENCODING_TWIN, 1, &twins) : 0;
    *ret = twins > 0;
    return r;
}

/* Bytes that nothing but differences needs of what the base rests on, and of it. */
static uint64_t held_by(const struct chain *chain, const struct spot *base)
{
    if (base == &chain->partner)
        return chain->held;
    return chain->keyframe.held + (base == &chain->head ? chain->head.held : 0);
}

/* A spot that is nearer than the keyframe; NULL: none is, of this form. */
static const struct spot *find_nearest(const struct chain *chain, enum chain_form form)
{
    if (form == FORM_CHAIN && chain->partner.depth < CHAIN_DEPTH_MAX)
        return &chain->partner;
    return form == FORM_NESTED && chain->head.is_difference ? &chain->head : NULL;
}

/* The one of the chain that is nearest, may have one more, and keeps no more than `held_max`; NULL:
 * none. */
static int choose_base(const struct chains *chains, struct view *view, const struct chain *chain,
                       enum chain_form form, uint64_t held_max, const struct spot **ret)
{
    static const uint64_t on_keyframe[] = {KEYFRAME_EVERY - 1, NESTED_STARS, CHAINS_MAX};
    const struct spot *base = find_nearest(chain, form);
    uint64_t most = form == FORM_NESTED ? NESTED_MEMBERS : KEYFRAME_EVERY - 1;
    bool is_free = false;
    int r = 0;
    if (base && held_by(chain, base) <= held_max)
        r = has_room(chains, view, base, most, &is_free);
    if (r == 0 && !is_free) {
        base = &chain->keyframe;
        if (held_by(chain, base) <= held_max)
            r = has_room(chains, view, base, on_keyframe[form], &is_free);
    }
    *ret = is_free ? base : NULL;
    return r;
}

int chains_find_base(const struct chains *chains, struct view *view, const struct chunk_name *name,
                     const struct chunk_name *partner, uint32_t raw_len, enum chain_form form,
                     struct chain_base *ret)
{
    struct chain chain;
    const struct spot *base = NULL;
    bool has_twins = false;
    *ret = (struct chain_base){0};
    int r = walk_chain(chains, view, name, partner, &chain);
    if (r == 0 && form == FORM_CHAIN)
        r = is_image(view, &chain.partner, &has_twins);
    if (r == 0)
        r = choose_base(chains, view, &chain, has_twins ? FORM_STAR : form, raw_len, &base);
    if (r < 0 || !base || chain.has_name)
        return r;
    *ret = (struct chain_base){base->name, base->depth + 1, base->is_placed ? 1 : base->level + 1,
                               base->is_placed, base->held > 0};
    return 0;
}
