// SPDX-License-Identifier: Apache-2.0
#include "remote_peer.h"
#include "../expect.h"

struct peer peers[PEERS];
struct view *reference;
uint64_t next_remote_pack;

uint64_t refs_in(struct view *view, uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    uint64_t refs;
    int r = view_chunk(view, &name, &entry, &refs);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 ? refs : 0;
}

struct peer_pack *pack_of(struct peer *p, uint64_t id)
{
    for (size_t i = 0; i < p->pack_count; i++)
        if (p->packs[i].id == id)
            return &p->packs[i];
    cr_fatal("remote pack %lu is unknown", (unsigned long)id);
    return NULL;
}

/* --- what must hold at any time --------------------------------------------------------------- */

static void check_pack_account(struct peer *p, const struct peer_pack *pack)
{
    struct view_remote_pack is;
    uint64_t bytes = 0;
    uint32_t count = 0;
    int r = view_remote_pack(p->view, pack->id, &is);
    assert_i64(r, 0);
    for (uint32_t id = 0; id < m.next_chunk; id++)
        if (p->places[id].pack == pack->id && refs_in(p->view, id)) {
            count++;
            bytes += 1000 + id;
        }
    assert_u64(is.live_count, count);
    assert_u64(is.live_bytes, bytes);
    assert_u64(is.count, pack->count);
    assert_u64(is.length, pack->length);
    assert_i64(is.unreferenced != 0, pack->unreferenced);
    assert_i64(is.head != 0, pack->published);
    assert_u64(is.gone, pack->gone);
}

void check_peer(struct peer *p)
{
    expect_check_ok(p->view);
    uint64_t pending = 0, packs = 0, bytes = 0;
    for (uint32_t id = 0; id < m.next_chunk; id++) {
        struct chunk_name name = chunk_of(id);
        struct chunk_entry entry;
        bool published;
        int r = view_remote_chunk(p->view, &name, &entry, &published);
        assert_i64(r, p->places[id].pack ? 0 : -ENOENT, "chunk %u: %d", id, r);
        if (r == 0)
            cr_assert(entry.pack == p->places[id].pack && entry.offset == p->places[id].offset);
        pending += r < 0 && refs_in(p->view, id) > 0;
    }
    for (size_t i = 0; i < p->pack_count; i++) {
        const struct peer_pack *pack = &p->packs[i];
        check_pack_account(p, pack);
        packs += !pack->unreferenced;
        bytes += pack->unreferenced ? 0 : pack->length;
    }
    struct view_remote remote = view_remote(p->view);
    assert_u64(remote.pending_chunks, remote.tracks ? pending : 0, "%lu, %lu",
               (unsigned long)remote.pending_chunks, (unsigned long)pending);
    assert_u64(remote.packs, packs);
    assert_u64(remote.pack_bytes, bytes);
}

/* --- packs of the remote ---------------------------------------------------------------------- */

static void store_pack(struct peer *p, const uint32_t *ids, uint32_t count)
{
    _cleanup_free_ struct chunk_entry *entries = xcalloc(count, sizeof *entries);
    uint64_t id = next_remote_pack++, offset = 64;
    for (uint32_t i = 0; i < count; i++) {
        entries[i] = (struct chunk_entry){.name = chunk_of(ids[i]),
                                          .pack = id,
                                          .offset = offset,
                                          .stored_len = 1000 + ids[i],
                                          .raw_len = CHUNK_SIZE_MAX,
                                          .encoding = ENCODING_LZ4};
        p->places[ids[i]] = (struct place){id, offset};
        offset += 1000 + ids[i];
    }
    cr_assert_lt(p->pack_count, PEER_PACKS);
    p->packs[p->pack_count++] =
        (struct peer_pack){.id = id, .length = offset, .count = count, .is_new = p->cut != NULL};
    assert_i64(view_remote_placed(p->view, id, offset, entries, count), 0);
}

struct list {
    uint32_t ids[CHUNKS];
    uint32_t count, limit;
    struct chunk_name last;
};

static int list_pending(const struct chunk_entry *entry, void *arg)
{
    struct list *list = arg;
    if (list->count)
        cr_assert_lt(memcmp(&list->last, &entry->name, sizeof entry->name), 0);
    list->last = entry->name;
    list->ids[list->count++] = chunk_id(&entry->name);
    return list->count == list->limit;
}

/* What is pending at the cut and has no place yet, a few packs at a time. */
void place_pending(struct peer *p, bool all)
{
    static struct list list;
    struct chunk_name after;
    bool first = true;
    do {
        list.count = 0;
        list.limit = 1 + (uint32_t)rnd(60);
        assert_i64(view_cut_pending(p->cut, first ? NULL : &after, list_pending, &list), 0);
        if (list.count == 0)
            return;
        first = false;
        after = list.last;
        uint32_t kept = 0, full = list.count == list.limit;
        for (uint32_t i = 0; i < list.count; i++) {
            cr_assert_gt(p->refs_then[list.ids[i]], 0);
            assert_u64(p->places_then[list.ids[i]].pack, 0);
            if (p->places[list.ids[i]].pack == 0 && (all || rnd(2)))
                list.ids[kept++] = list.ids[i];
        }
        if (kept)
            store_pack(p, list.ids, kept);
        if (!full)
            return;
    } while (all || rnd(3));
}

static struct peer_pack *random_pack(struct peer *p)
{
    for (int tries = 0; tries < 20 && p->pack_count; tries++) {
        struct peer_pack *pack = &p->packs[rnd(p->pack_count)];
        if (!pack->unreferenced)
            return pack;
    }
    return NULL;
}

static int list_chunk(const struct chunk_entry *entry, bool is_needed, void *arg)
{
    struct list *list = arg;
    uint32_t id = chunk_id(&entry->name);
    assert_u64(is_needed, refs_in(peers[list->limit].view, id) > 0);
    list->ids[list->count++] = id;
    return 0;
}

/* Some chunks of an old pack move to a new one. */
void relocate(struct peer *p)
{
    static struct list list;
    const struct peer_pack *pack = random_pack(p);
    if (!pack)
        return;
    list.count = 0;
    list.limit = (uint32_t)(p - peers);
    assert_i64(view_remote_pack_chunks(p->view, pack->id, list_chunk, &list), 0);
    uint32_t kept = 0, one_of = 1 + (uint32_t)rnd(3);
    for (uint32_t i = 0; i < list.count; i++) {
        assert_u64(p->places[list.ids[i]].pack, pack->id);
        if (rnd(one_of) == 0)
            list.ids[kept++] = list.ids[i];
    }
    if (kept)
        store_pack(p, list.ids, kept);
}

static bool is_local_in(struct view *view, uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    uint64_t refs;
    return view_chunk(view, &name, &entry, &refs) == 0 && refs > 0 && entry.pack != 0;
}

/* It cannot be read for a moment: what lies here, too, is sent anew. */
void lose(struct peer *p)
{
    struct peer_pack *pack = random_pack(p);
    if (!pack)
        return;
    assert_i64(view_remote_pack_suspect(p->view, pack->id, 1), 0);
    for (uint32_t id = 0; id < m.next_chunk; id++)
        if (p->places[id].pack == pack->id && is_local_in(p->view, id))
            p->places[id].pack = 0;
    check_peer(p);
    assert_i64(view_remote_pack_trusted(p->view, pack->id), 0);
}

void delete_unreferenced(struct peer *p)
{
    for (size_t i = 0; i < p->pack_count; i++)
        if (p->packs[i].unreferenced && !p->packs[i].gone && rnd(2)) {
            assert_i64(view_remote_pack_gone(p->view, p->packs[i].id), 0);
            p->packs[i].gone = true;
        }
}

/* --- cuts ------------------------------------------------------------------------------------- */

static int note_local(const struct view_pack *pack, void *arg)
{
    struct peer *p = arg;
    p->local[p->local_count++] = *pack;
    return 0;
}

void open_cut(struct peer *p)
{
    assert_i64(view_track(p->view), 0);
    assert_i64(view_cut_open(p->view, &p->cut), 0);
    p->expected = dump_shared(reference);
    p->cut_batch = m.f.batch_count;
    p->local_count = 0;
    assert_i64(view_packs(reference, note_local, p), 0);
    memcpy(p->places_then, p->places, sizeof p->places);
    for (uint32_t id = 0; id < CHUNKS; id++)
        p->refs_then[id] = id < m.next_chunk ? refs_in(reference, id) : 0;
    for (size_t i = 0; i < p->pack_count; i++)
        p->packs[i].is_new = false;
}

void close_cut(struct peer *p)
{
    view_cut_close(p->cut);
    free(p->expected);
    p->cut = NULL;
    p->expected = NULL;
}

static bool is_live_then(const struct peer *p, uint64_t pack)
{
    for (uint32_t id = 0; id < CHUNKS; id++)
        if (p->places_then[id].pack == pack && p->refs_then[id])
            return true;
    return false;
}

static void forget_pack(struct peer *p, size_t i)
{
    struct view_remote_pack is;
    assert_i64(view_remote_pack(p->view, p->packs[i].id, &is), -ENOENT);
    memmove(&p->packs[i], &p->packs[i + 1], (p->pack_count - i - 1) * sizeof *p->packs);
    p->pack_count--;
}

/* What publishing does to a pack. False: it is not known any more. */
static bool note_published(struct peer *p, size_t i)
{
    struct peer_pack *pack = &p->packs[i];
    if (pack->gone)
        return false;
    pack->published = true;
    if (pack->unreferenced || pack->is_new || is_live_then(p, pack->id))
        return true;
    pack->unreferenced = true;
    for (uint32_t id = 0; id < m.next_chunk; id++)
        if (p->places[id].pack == pack->id)
            p->places[id].pack = 0;
    return true;
}

void note_all_published(struct peer *p)
{
    for (size_t i = 0; i < p->pack_count;)
        if (note_published(p, i))
            i++;
        else
            forget_pack(p, i);
}
