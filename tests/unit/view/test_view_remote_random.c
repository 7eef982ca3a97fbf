// SPDX-License-Identifier: Apache-2.0
/* Random histories that are published and taken over: views that track, cuts that stay open while
 * batches go on, runs that are merged, and views made from them, which must be what the first one
 * was at the cut and go on like it. */
#include "../expect.h"
#include "../base/campaign.h"
#include "remote_peer.h"

#include <stdio.h>

static size_t reference_applied;
static uint64_t next_path;
static int64_t now;

/* --- what was published, taken over ----------------------------------------------------------- */

/* Places when the rows were made: of each chunk now, or where it was at the cut if it
 * moved since. */
static void check_adopted_chunk(struct peer *from, struct peer *p, const struct place *at_rows,
                                uint32_t id, uint64_t *missing)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    struct view_remote_pack pack;
    bool published;
    int r = view_remote_chunk(p->view, &name, &entry, &published);
    assert_u64(refs_in(p->view, id), from->refs_then[id]);
    if (from->refs_then[id] == 0) {
        assert_i64(r, -ENOENT);
        return;
    }
    if (r == -ENOENT) {
        assert_u64(at_rows[id].pack, 0);
        ++*missing;
        return;
    }
    const struct place *then = &from->places_then[id];
    assert_i64(r, 0);
    cr_assert(published);
    bool is_now = entry.pack == at_rows[id].pack && entry.offset == at_rows[id].offset;
    bool is_then = entry.pack == then->pack && entry.offset == then->offset;
    cr_assert(is_now || is_then, "chunk %u", id);
    cr_assert(entry.stored_len == 1000 + id && entry.raw_len == CHUNK_SIZE_MAX &&
              entry.encoding == ENCODING_LZ4);
    assert_i64(view_remote_pack(p->view, entry.pack, &pack), 0);
    assert_i64(pack.unreferenced, 0);
    p->places[id] = (struct place){entry.pack, entry.offset};
}

static int adopt_model_pack(const struct view_remote_pack *pack, void *arg)
{
    struct peer *p = arg;
    cr_assert(pack->head != 0 && !pack->gone);
    p->packs[p->pack_count++] = (struct peer_pack){.id = pack->pack,
                                                   .length = pack->length,
                                                   .count = pack->count,
                                                   .published = true,
                                                   .unreferenced = pack->unreferenced != 0};
    return 0;
}

static void check_adopted_packs(struct peer *from, struct peer *p)
{
    for (size_t i = 0; i < p->pack_count; i++) {
        const struct peer_pack *is = &p->packs[i], *known = pack_of(from, is->id);
        cr_assert(is->length == known->length && is->count == known->count);
        cr_assert_not(known->gone);
        assert_u64(is->unreferenced, known->unreferenced);
    }
    for (size_t i = 0; i < from->pack_count; i++)
        if (from->packs[i].published)
            assert_u64(pack_of(p, from->packs[i].id)->length, from->packs[i].length);
}

static void adopt(struct peer *from, struct peer *p, const struct place *at_rows)
{
    uint64_t missing = 0;
    *p = (struct peer){.remote = remote_copy(&from->remote), .applied = from->cut_batch};
    p->path = xasprintf("%s.adopted%lu", m.f.path, (unsigned long)next_path++);
    open_adopted(&p->remote, p->path, &p->view);
    if (rnd(4) == 0) {
        view_close(p->view);
        open_view_at(p->path, &p->view);
    }
    _cleanup_free_ char *is = dump_shared(p->view);
    assert_str(is, from->expected);
    for (uint32_t id = 0; id < m.next_chunk; id++)
        check_adopted_chunk(from, p, at_rows, id, &missing);
    assert_i64(view_remote_packs(p->view, adopt_model_pack, p), 0);
    check_adopted_packs(from, p);
    struct view_remote remote = view_remote(p->view);
    cr_assert(remote.tracks && !remote.is_whole && remote.head == from->remote.head);
    assert_u64(remote.cut, from->remote.state.applied_seq);
    assert_u64(remote.pending_chunks, missing);
    check_peer(p);
}

static void close_peer(struct peer *p)
{
    if (p->cut)
        close_cut(p);
    view_close(p->view);
    remove_tree(p->path);
    free(p->path);
    remote_done(&p->remote);
    p->view = NULL;
}

/* The packs that lie here, as of the cut. */
static void register_packs(struct peer *from, struct peer *p)
{
    uint8_t buf[256];
    for (size_t i = 0; i < from->local_count; i++) {
        struct record rec = {.type = REC_PACK,
                             .seq = from->remote.state.applied_seq,
                             .pack = from->local[i].pack,
                             .length = from->local[i].length,
                             .count = from->local[i].count};
        record_encode(&rec, buf);
        apply_bytes(&m.f, p->view, buf, record_encoded_len(&rec), from->remote.state.applied_seq);
    }
}

static void follow(struct view *view, size_t *applied)
{
    while (*applied < m.f.batch_count)
        apply_again(&m.f, view, (*applied)++);
}

/* A dead chunk may be known from another pack here than there: the history of the one does not fit
 * the other then. */
static bool lies_alike(struct view *a, struct view *b)
{
    for (uint32_t id = 0; id < m.next_chunk; id++) {
        struct chunk_name name = chunk_of(id);
        struct chunk_entry x = {0}, y = {0};
        uint64_t refs;
        int r = view_chunk(a, &name, &x, &refs);
        if (r != view_chunk(b, &name, &y, &refs) || x.pack != y.pack)
            return false;
    }
    return true;
}

/* The adopted view follows to where the first one is now. False: it cannot go on with the same
 * history. */
static bool catch_up(struct peer *from, struct peer *p)
{
    register_packs(from, p);
    follow(p->view, &p->applied);
    _cleanup_free_ char *is = dump(p->view), *expected = dump(reference);
    assert_str(is, expected);
    check_peer(p);
    return lies_alike(p->view, reference);
}

/* --- actions ---------------------------------------------------------------------------------- */

static void publish(struct peer *p)
{
    static struct place at_rows[CHUNKS];
    bool all = rnd(8) > 0;
    place_pending(p, all);
    uint64_t missing = remote_make(&p->remote, p->cut, ++now);
    if (rnd(10) == 0) /* once more: the first try failed */
        missing = remote_make(&p->remote, p->cut, ++now);
    memcpy(at_rows, p->places, sizeof at_rows);
    if (rnd(10) == 0) {
        close_cut(p);
        return;
    }
    remote_publish(&p->remote, p->view, p->cut);
    note_all_published(p);
    if (rnd(3) == 0)
        remote_merge(&p->remote, 1 + rnd(p->remote.count));
    check_peer(p);
    uint64_t unplaced = 0;
    for (uint32_t id = 0; id < m.next_chunk; id++)
        unplaced += p->refs_then[id] && at_rows[id].pack == 0;
    cr_assert_leq(missing, unplaced);
    struct peer *other = xcalloc(1, sizeof *other),
                *q = p == peers && !peers[1].view ? &peers[1] : other;
    adopt(p, q, at_rows);
    if (q == other || !catch_up(p, q) || rnd(3) == 0)
        close_peer(q);
    free(other);
    close_cut(p);
}

static void forget_remote(struct peer *p)
{
    assert_i64(view_forget_remote(p->view), 0);
    memset(p->places, 0, sizeof p->places);
    p->pack_count = 0;
}

static void act(struct peer *p)
{
    if (rnd(5) == 0 && view_remote(p->view).tracks)
        relocate(p);
    if (rnd(12) == 0 && view_remote(p->view).tracks)
        lose(p);
    if (rnd(4) == 0)
        delete_unreferenced(p);
    if (!p->cut && rnd(60) == 0)
        forget_remote(p);
    if (!p->cut && rnd(3) == 0)
        open_cut(p);
    else if (p->cut && rnd(2))
        publish(p);
    else if (p->cut)
        place_pending(p, false);
}

static int pick(const struct view_pack *pack, void *arg)
{
    uint64_t *picked = arg;
    if (*picked == 0 || rnd(3) == 0)
        *picked = pack->pack;
    return 0;
}

/* A pack whose live chunks are all published goes from here. */
static void evict(void)
{
    uint64_t id = 0;
    struct test_pack *pack = NULL;
    assert_i64(view_packs(m.f.view, pick, &id), 0);
    for (size_t i = 0; i < m.f.pack_count; i++)
        if (m.f.packs[i].pack == id)
            pack = &m.f.packs[i];
    for (uint32_t i = 0; pack && i < pack->count; i++) {
        struct chunk_entry entry, remote;
        uint64_t refs;
        bool published = false;
        int r = view_chunk(m.f.view, &pack->entries[i].name, &entry, &refs);
        if (r == 0 && entry.pack == id && refs > 0 &&
            (view_remote_chunk(m.f.view, &pack->entries[i].name, &remote, &published) < 0 ||
             !published))
            return;
    }
    if (!pack)
        return;
    for (uint32_t i = 0; i < pack->count; i++) {
        struct chunk_entry entry;
        uint64_t refs;
        if (view_chunk(m.f.view, &pack->entries[i].name, &entry, &refs) == 0 && entry.pack == id)
            m.placed[chunk_id(&pack->entries[i].name)] = false;
    }
    pack->gone = true;
    add(&m.f, (struct record){.type = REC_DROP, .flags = RECORD_EVICTED, .pack = id});
    apply_ok(&m.f);
}

/* A chunk that was sent away lies in the remote: its places are in packs that are needed. Only the
 * view that published it promises that. */
static void check_evicted(void)
{
    struct peer *p = &peers[0];
    for (uint32_t id = 0; id < m.next_chunk; id++) {
        struct chunk_name name = chunk_of(id);
        struct chunk_entry entry;
        uint64_t refs;
        if (view_chunk(p->view, &name, &entry, &refs) == 0 && refs && entry.pack == 0 &&
            entry.raw_len && p->places[id].pack)
            cr_assert_not(pack_of(p, p->places[id].pack)->unreferenced);
    }
}

/* Before a pack goes whose index the others still need. */
static void follow_all(void)
{
    follow(reference, &reference_applied);
    if (peers[1].view)
        follow(peers[1].view, &peers[1].applied);
}

static void run(uint64_t seed, uint64_t unit, uint64_t units_max, uint64_t base, int batches)
{
    model_begin(seed, unit, units_max, base);
    _cleanup_free_ char *path = xasprintf("%s.reference", m.f.path);
    int track_at = rnd(2) ? 0 : (int)rnd(20);
    open_view_at(path, &reference);
    reference_applied = 0;
    next_remote_pack = 5000;
    peers[0] = (struct peer){.view = m.f.view};
    for (int i = 0; i < batches; i++) {
        if (i == track_at)
            assert_i64(view_track(m.f.view), 0);
        for (uint64_t n = rnd(20); n > 0; n--)
            random_op();
        apply_ok(&m.f);
        follow_all();
        if (rnd(8) == 0)
            compact();
        follow_all();
        if (rnd(4) == 0)
            evict();
        follow_all();
        if (rnd(15) == 0 && !peers[0].cut) {
            fixture_reopen(&m.f);
            peers[0].view = m.f.view;
        }
        peers[0].applied = m.f.batch_count;
        if (i >= track_at)
            act(&peers[0]);
        check_peer(&peers[0]);
        check_evicted();
        if (!peers[1].view)
            continue;
        act(&peers[1]);
        check_peer(&peers[1]);
        if (rnd(12) == 0)
            close_peer(&peers[1]);
    }
    _cleanup_free_ char *is = dump(m.f.view), *expected = dump(reference);
    assert_str(is, expected);
    if (peers[1].view)
        close_peer(&peers[1]);
    if (peers[0].cut)
        close_cut(&peers[0]);
    remote_done(&peers[0].remote);
    view_close(reference);
    remove_tree(path);
    model_end();
}

static void run_seeds(unsigned usual, uint64_t offset, uint64_t unit, uint64_t units_max,
                      uint64_t base, int batches)
{
    uint64_t first = test_number("CAIRN_VIEW_SEED", 1) + offset;
    unsigned count = (unsigned)test_number("CAIRN_VIEW_SEEDS", usual);
    FOR_CAMPAIGN(i, count)
    {
        fprintf(stderr, "seed %lu\n", (unsigned long)(first + i));
        run(first + i, unit, units_max, base, batches);
    }
}

Test(remote_random, bytes_around_a_page_border)
{
    run_seeds(6, 0, 1, 600, TEST_PAGE - 300, 80);
}

Test(remote_random, kibibytes_over_pages)
{
    run_seeds(3, 1000, 1024, 20000, 0, 60);
}
