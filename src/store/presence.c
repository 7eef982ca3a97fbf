// SPDX-License-Identifier: Apache-2.0
/* Whether the packs that contain a file's content exist, with their length. Each is looked up once,
 * and none is read. */
#include "remote/chunks.h"
#include "store/internal.h"
#include "store/reader.h"
#include "view/remote.h"

struct known_pack {
    uint64_t pack;
    bool is_remote, is_there;
};

struct reader_packs {
    struct store *store;
    struct cairn_mutex lock; /* LOCK_LEAF; guards: */
    VECTOR(struct known_pack) known;
    size_t found; /* the pack that was looked up last: usually it is needed again */
};

struct reader_packs *reader_packs_new(struct store *store)
{
    struct reader_packs *packs = xcalloc(1, sizeof *packs);
    packs->store = store;
    mutex_init(&packs->lock, LOCK_LEAF);
    return packs;
}

void reader_packs_free(struct reader_packs *packs)
{
    if (!packs)
        return;
    vector_free(&packs->known);
    mutex_done(&packs->lock);
    free(packs);
}

static bool find_known(struct reader_packs *packs, struct known_pack *pack)
{
    LOCK_SCOPE(&packs->lock);
    for (size_t n = 0; n < packs->known.count; n++) {
        size_t i = (packs->found + n) % packs->known.count;
        if (packs->known.at[i].pack != pack->pack ||
            packs->known.at[i].is_remote != pack->is_remote)
            continue;
        packs->found = i;
        *pack = packs->known.at[i];
        return true;
    }
    return false;
}

static int expected_length(struct store *store, const struct known_pack *pack, uint64_t *ret)
{
    struct view_remote_pack there;
    struct view_pack here;
    int r = pack->is_remote ? view_remote_pack(store->local.view, pack->pack, &there)
                            : view_pack(store->local.view, pack->pack, &here);
    *ret = r < 0 ? 0 : pack->is_remote ? there.length : here.length;
    return r;
}

static int ask(struct store *store, struct known_pack *pack)
{
    struct tier *tier = pack->is_remote ? remote_tier(store->remote) : store->local.tier;
    char object[32];
    uint64_t length, expected;
    pack_object_name(pack->pack, object);
    int r = expected_length(store, pack, &expected);
    if (r == 0)
        r = tier->ops->stat(tier, object, &length);
    pack->is_there = r == 0 && length == expected;
    return r == -ENOENT ? 0 : r;
}

static int look_at_pack(struct reader_packs *packs, uint64_t id, bool is_remote, bool *ret)
{
    struct known_pack pack = {.pack = id, .is_remote = is_remote};
    if (!find_known(packs, &pack)) {
        TRY(ask(packs->store, &pack));
        LOCK_SCOPE(&packs->lock);
        vector_add(&packs->known, pack);
    }
    *ret = *ret && pack.is_there;
    return 0;
}

/* Looks up the chunk's pack, and those of the chunks that it is stored by. */
static int look_at_chunk(struct reader_packs *packs, const struct chunk_name *name, unsigned levels,
                         bool *ret)
{
    struct view *view = packs->store->local.view;
    struct chunk_entry entry;
    uint64_t refs;
    int r = view_chunk(view, name, &entry, &refs);
    bool is_remote = r == -ENOENT || (r == 0 && entry.pack == 0);
    if (is_remote)
        r = view_remote_place(view, name, &entry);
    if (r == -ENOENT || levels == 0)
        *ret = false;
    if (r < 0 || !*ret)
        return r == -ENOENT ? 0 : r;
    TRY(look_at_pack(packs, entry.pack, is_remote, ret));
    for (unsigned i = 0; i < entry.ref_count && *ret; i++)
        TRY(look_at_chunk(packs, &entry.refs[i].name, levels - 1, ret));
    return 0;
}

struct file_look {
    struct reader_packs *packs;
    bool is_there;
};

static int look_at_extent(const struct view_extent *part, void *arg)
{
    struct file_look *look = arg;
    return look->is_there && part->extent.kind == EXTENT_CHUNK
               ? look_at_chunk(look->packs, &part->extent.chunk, CHUNK_DEPTH_MAX + 1,
                               &look->is_there)
               : 0;
}

int reader_packs_have(struct reader_packs *packs, uint64_t ino, bool *ret)
{
    struct file_look look = {.packs = packs, .is_there = true};
    int r = view_extents(packs->store->local.view, ino, 0, INT64_MAX, look_at_extent, &look);
    *ret = r == 0 && look.is_there;
    return r;
}
