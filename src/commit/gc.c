// SPDX-License-Identifier: Apache-2.0
/* Drops packs that nothing needs any more: first a batch that says so is made durable, then the
 * file is removed. If room is short, mostly dead packs are emptied first.
 *
 * With reduce=dense, a pack that may provide bases for the next upload stays for a while
 * (view_pack_may_serve()): its overwritten file is similar to the new content. It is dropped when
 * room is needed. */
#include "commit/horizon.h"
#include "commit/local.h"
#include "commit/packs_internal.h"
#include "commit/read.h"
#include "commit/room_internal.h"
#include "commit/writeback_internal.h"
#include "tier/tier.h"
#include "view/remote.h"

struct dead {
    struct commit *commit;
    uint64_t *ids;
    size_t count, max;
    bool spares; /* whether to keep packs that may provide bases */
    bool has_spared;
};

/* Returns whether the pack's index could not be read when the view was rebuilt: its chunks may be
 * intact, and the only copies. An operator may decide otherwise and remove the file by hand. */
static bool may_be_needed(struct commit *commit, const struct view_pack *pack)
{
    char object[32];
    uint64_t len;
    pack_object_name(pack->pack, object);
    return pack->count == 0 &&
           commit->local->tier->ops->stat(commit->local->tier, object, &len) != -ENOENT;
}

/* Marks an unused pack as dropping. Sets the mark first, then checks: a thread that makes a new
 * reference to one of its chunks sees the mark. */
static bool claim_pack(struct commit *commit, uint64_t pack)
{
    if (!packs_begin_drop(commit->packs, pack))
        return false;
    bool is_used = stage_uses_pack(commit->local->stage, pack);
    if (is_used)
        packs_end_drop(commit->packs, pack);
    return !is_used;
}

static int find_dead(const struct view_pack *pack, void *arg)
{
    struct dead *dead = arg;
    bool may_serve = false;
    if (dead->count == dead->max)
        return 1;
    if (pack->live_bytes > 0 || pack->live_count > 0 || may_be_needed(dead->commit, pack))
        return 0;
    if (dead->spares)
        TRY(view_pack_may_serve(dead->commit->local->view, pack->pack, &may_serve));
    dead->has_spared = dead->has_spared || may_serve;
    if (!may_serve && claim_pack(dead->commit, pack->pack))
        dead->ids[dead->count++] = pack->pack;
    return 0;
}

size_t gc_dead_packs(struct commit *commit, bool now, uint64_t *ids, size_t max)
{
    struct dead dead = {.commit = commit, .ids = ids, .max = max};
    dead.spares = !now && commit->local->options.reduce == REDUCE_DENSE &&
                  local_has_remote(commit->local) && room_missing(commit->room) == 0;
    int r = view_packs(commit->local->view, find_dead, &dead);
    if (r < 0)
        horizon_error(commit->horizon, "gc: reading the view failed: %s", strerror(-r));
    commit->upkeep->has_spared = dead.has_spared;
    return dead.count;
}

/* --- compaction: moves live chunks out of mostly dead packs ----------------------------------- */

#define COMPACT_PACKS_MAX 64u
#define COMPACT_BYTES_MAX (20 * MIB) /* moved in one round: less than a pack */

struct candidates {
    struct view_pack packs[COMPACT_PACKS_MAX];
    size_t count;
    unsigned worth_percent;
};

static bool is_emptier(const struct view_pack *a, const struct view_pack *b)
{
    return a->live_bytes * b->length < b->live_bytes * a->length;
}

#define WORTH_PERCENT 10u /* part of a pack that must be dead */

bool gc_frees(const struct view_pack *pack)
{
    return pack->live_bytes == 0 ||
           (pack->live_bytes <= COMPACT_BYTES_MAX &&
            pack->live_bytes <= pack->length / 100 * (100 - WORTH_PERCENT));
}

/* Collects the emptiest packs, emptiest first. */
static int add_candidate(const struct view_pack *pack, void *arg)
{
    struct candidates *all = arg;
    bool is_known = pack->count > 0; /* otherwise it only seems empty: may_be_needed() */
    if (!is_known || pack->live_bytes > pack->length / 100 * (100 - all->worth_percent) ||
        pack->live_bytes > COMPACT_BYTES_MAX)
        return 0;
    if (all->count == COMPACT_PACKS_MAX && !is_emptier(pack, &all->packs[all->count - 1]))
        return 0;
    size_t at = all->count < COMPACT_PACKS_MAX ? all->count++ : COMPACT_PACKS_MAX - 1;
    for (; at > 0 && is_emptier(pack, &all->packs[at - 1]); at--)
        all->packs[at] = all->packs[at - 1];
    all->packs[at] = *pack;
    return 0;
}

/* Would a pack with all live chunks of these packs be smaller by a worthwhile amount? The length of
 * a pack is rounded up, so a small pack is never completely full: alone, it would be rewritten for
 * ever at the same length. Chunks of each depth need a pack of their own. */
static bool is_worth(const struct commit *commit, const struct view_pack *packs, size_t count,
                     unsigned percent)
{
    uint64_t made =
        commit->local->sb.incompat & SUPERBLOCK_INCOMPAT_DENSE ? CHUNK_DEPTH_MAX + 1 : 1;
    uint64_t length = 0,
             needed = PACK_HEADER_LEN + PACK_TRAILER_LEN + (made - 1) * (uint64_t)PACK_ALIGN;
    for (size_t i = 0; i < count; i++) {
        length += packs[i].length;
        needed += packs[i].live_bytes +
                  packs[i].live_count * (uint64_t)(PACK_ENTRY_LEN_MAX + PACK_FRAME_LEN_MAX);
    }
    return align_up(needed, PACK_ALIGN) + length / 100 * percent <= length && count > 0;
}

/* Moves a live chunk, after verification: damage must not be copied as good data. */
int gc_move_chunk(const struct chunk_entry *entry, void *arg)
{
    struct moving *moving = arg;
    struct commit *commit = moving->commit;
    struct tier *tier = commit->local->tier;
    struct view_local_chunk now;
    uint32_t len;
    int r = view_local_chunk(commit->local->view, &entry->name, &now);
    if (r == -ENOENT || (r == 0 && (now.entry.pack != moving->pack || !view_is_live(&now))))
        return 0;
    TRY(r);
    TRY(packs_read_chunk(commit->packs, &entry->name, moving->raw, &len));
    TRY(pack_read_part(tier, now.entry.pack, now.entry.offset, moving->stored,
                       now.entry.stored_len));
    packs_add_stored(commit->packs, &now.entry, moving->stored);
    return 0;
}

static int move_live_chunks(struct commit *commit, uint64_t pack)
{
    _cleanup_free_ uint8_t *raw = xmalloc(CHUNK_SIZE_MAX), *stored = xmalloc(CHUNK_SIZE_MAX);
    struct moving moving = {.commit = commit, .pack = pack, .raw = raw, .stored = stored};
    return packs_read_index(commit->packs, pack, gc_move_chunk, &moving);
}

/* Marks as dropping those that nothing uses now, as many as are moved in one round, and drops the
 * others from the list. */
static void claim_candidates(struct commit *commit, struct candidates *all, size_t max)
{
    size_t kept = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < all->count && kept < max; i++) {
        struct view_pack pack = all->packs[i];
        if (bytes + pack.live_bytes > COMPACT_BYTES_MAX)
            break;
        if (!claim_pack(commit, pack.pack))
            continue;
        bytes += pack.live_bytes;
        all->packs[kept++] = pack;
    }
    all->count = kept;
}

size_t gc_compact(struct commit *commit, unsigned worth_percent, uint64_t *ids, size_t max)
{
    struct candidates all = {.worth_percent = worth_percent};
    if (!room_for_moving(commit->room) || view_packs(commit->local->view, add_candidate, &all) < 0)
        return 0;
    claim_candidates(commit, &all, max);
    size_t worth = all.count, moved = 0;
    while (worth > 0 && !is_worth(commit, all.packs, worth, worth_percent))
        worth--;
    for (size_t i = 0; i < all.count; i++) {
        /* chunks copied from a pack that cannot be dropped are in two packs, which is harmless */
        if (i < worth && move_live_chunks(commit, all.packs[i].pack) == 0)
            all.packs[moved++] = all.packs[i];
        else
            packs_end_drop(commit->packs, all.packs[i].pack);
    }
    bool frees = is_worth(commit, all.packs, moved, worth_percent);
    for (size_t i = 0; i < moved; i++) {
        ids[i] = all.packs[i].pack;
        if (!frees)
            packs_end_drop(commit->packs, ids[i]);
    }
    return frees ? moved : 0;
}

void gc_remove(struct commit *commit, const uint64_t *ids, size_t count)
{
    if (count == 0)
        return;
    for (size_t i = 0; i < count; i++) {
        char object[32];
        pack_object_name(ids[i], object);
        int r = commit->local->tier->ops->remove(commit->local->tier, object);
        /* the journal says that it is gone: the next mount removes it */
        if (r < 0)
            horizon_error(commit->horizon, "gc: removing %s failed: %s", object, strerror(-r));
        packs_end_drop(commit->packs, ids[i]);
    }
    room_account(commit->room);
}
