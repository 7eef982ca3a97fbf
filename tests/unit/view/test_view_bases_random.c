// SPDX-License-Identifier: Apache-2.0
/* What lies in the remote and rests on other chunks: a random history against a plain model. */
#include "../base/campaign.h"
#include "../expect.h"
#include "bases_model.h"
#include "remote_fixture.h"

#include <stdio.h>

#define FILES 10u
#define PACKS 4000u

struct remote_pack {
    uint64_t id;
    bool was_there; /* when the cut was opened */
    bool unreferenced, gone;
};

static struct state now, then; /* `then`: at the cut */
static struct remote_pack packs[PACKS];
static size_t pack_count;
static uint64_t next_pack, next_ino;
static struct seeded seeded;
static struct {
    uint64_t ino; /* 0: free */
    char name[16];
    uint32_t ids[4], count;
} files[FILES];
static int64_t medium_time;
static struct view *peer;
static char *peer_path;
static struct state at_peer;

static uint64_t rnd(uint64_t below)
{
    return seeded_below(&seeded, below);
}

/* --- files and local packs -------------------------------------------------------------------- */

static void set_local(uint32_t id, uint64_t pack)
{
    now.chunks[id].local = pack;
    leave_incomplete(&now);
}

static void add_local(const uint32_t *ids, uint32_t count)
{
    uint64_t pack = next_pack++;
    add_pack(&f, pack, ids, count);
    for (uint32_t i = 0; i < count; i++)
        set_local(ids[i], pack);
}

static void write_file(void)
{
    size_t slot = rnd(FILES);
    uint32_t fresh[4], fresh_count = 0;
    if (files[slot].ino)
        return;
    files[slot].ino = next_ino++;
    files[slot].count = 1 + (uint32_t)rnd(4);
    sprintf(files[slot].name, "f%lu", (unsigned long)files[slot].ino);
    for (uint32_t i = 0; i < files[slot].count; i++) {
        uint32_t id = files[slot].ids[i] = (uint32_t)rnd(IDS);
        bool twice = now.chunks[id].local;
        for (uint32_t j = 0; j < fresh_count; j++)
            twice = twice || fresh[j] == id;
        if (!twice)
            fresh[fresh_count++] = id;
    }
    if (fresh_count)
        add_local(fresh, fresh_count);
    add_file_of(files[slot].ino, files[slot].name, files[slot].ids, files[slot].count);
    for (uint32_t i = 0; i < files[slot].count; i++) {
        now.chunks[files[slot].ids[i]].refs++;
        leave_incomplete(&now);
    }
    apply_ok(&f);
}

static void delete_file(void)
{
    size_t slot = rnd(FILES);
    if (!files[slot].ino)
        return;
    add_unlink(&f, files[slot].ino, ROOT_INO, files[slot].name, 0);
    for (uint32_t i = 0; i < files[slot].count; i++)
        now.chunks[files[slot].ids[i]].refs--;
    files[slot].ino = 0;
    apply_ok(&f);
}

static int pick_pack(const struct view_pack *pack, void *arg)
{
    uint64_t *picked = arg;
    if (*picked == 0 || rnd(3) == 0)
        *picked = pack->pack;
    return 0;
}

/* A pack that is not needed goes, or one that is published. What is published can be read there. */
static void drop_local(void)
{
    uint64_t pack = 0;
    bool evicts = false;
    assert_i64(view_packs(f.view, pick_pack, &pack), 0);
    for (uint32_t i = 0; i < IDS && pack; i++)
        if (now.chunks[i].local == pack && now.chunks[i].refs) {
            if (!is_published(i))
                return;
            cr_assert(is_complete(&now, i), "chunk %u", i);
            evicts = true;
        }
    if (!pack)
        return;
    for (uint32_t i = 0; i < IDS; i++)
        if (now.chunks[i].local == pack)
            now.chunks[i].local = 0;
    for (size_t i = 0; i < f.pack_count; i++)
        if (f.packs[i].pack == pack)
            f.packs[i].gone = true;
    add(&f, (struct record){.type = REC_DROP, .flags = evicts ? RECORD_EVICTED : 0, .pack = pack});
    apply_ok(&f);
}

static void fetch_some(void)
{
    uint32_t ids[3], count = 0;
    for (uint32_t i = 0; i < IDS && count < ARRAY_LEN(ids); i++)
        if (now.chunks[i].remote && !now.chunks[i].local && rnd(4) == 0)
            ids[count++] = i;
    if (count == 0)
        return;
    add_local(ids, count);
    apply_ok(&f);
}

/* --- the remote ------------------------------------------------------------------------------- */

static struct chunk_entry entry_of(const struct chunk *c, uint32_t id, uint64_t pack, uint64_t at)
{
    return remote_entry_on(pack, id, at, c->depth, c->bases, c->ref_count);
}

/* A pack with these, as `as` describes them. */
static void store(const uint32_t *ids, const struct chunk *as, uint32_t count)
{
    struct chunk_entry entries[IDS];
    uint64_t pack = next_pack++;
    if (count == 0)
        return;
    for (uint32_t i = 0; i < count; i++)
        entries[i] = entry_of(&as[i], ids[i], pack, 64 + 2000ull * i);
    assert_i64(view_remote_placed(f.view, pack, 64 + 2000ull * count, entries, count), 0);
    cr_assert_lt(pack_count, PACKS);
    packs[pack_count++] = (struct remote_pack){.id = pack};
    for (uint32_t i = 0; i < count; i++) {
        struct chunk *c = &now.chunks[ids[i]];
        uint32_t refs = c->refs;
        uint64_t local = c->local;
        *c = as[i];
        c->refs = refs;
        c->local = local;
        c->remote = pack;
        c->suspect = false;
    }
}

/* Does the head of the cut tell of the chunk: something that the cut needs rests on it, or did so
 * when the cut was opened? */
static bool is_reported(uint32_t id)
{
    if (is_needed(&then, id))
        return true;
    for (uint32_t i = 0; i < IDS; i++)
        if (rests_on(&now.chunks[i], id) && is_reported(i))
            return true;
    return false;
}

/* The cut needs it, and tells where it lies: whatever became of it since. */
static bool must_be_allowed(uint32_t id)
{
    uint64_t before = then.chunks[id].remote, place = now.chunks[id].remote;
    return is_needed(&then, id) && place && (!before || before == place) && is_complete(&now, id);
}

/* It is told of if something that is told of rests on it: nothing needs it, and a head may say
 * otherwise. */
static unsigned revived;
static unsigned deleted; /* bases that the cut needs, and nothing does now */

/* Some bases that the cut allows, for a chunk on which nothing rests. */
static struct chunk choose_form(struct view_cut *cut, uint32_t id)
{
    struct chunk form = {0};
    struct chunk_name name = chunk_of(id);
    bool has_dependents, had_dependents;
    assert_i64(view_has_dependents(f.view, &name, &has_dependents), 0);
    assert_i64(view_cut_has_dependents(cut, &name, &had_dependents), 0);
    has_dependents = has_dependents || had_dependents;
    for (int tries = 0; tries < 8 && !has_dependents && form.ref_count < CHUNK_REFS_MAX; tries++) {
        uint32_t base = (uint32_t)rnd(IDS);
        struct chunk_name base_name = chunk_of(base);
        struct chunk_entry entry;
        int r = view_cut_base(cut, &base_name, &entry);
        cr_assert(r == 0 || r == -ENOENT);
        if (r == 0) {
            cr_assert(is_complete(&now, base));
            cr_assert(is_needed(&then, base) || !is_needed(&now, base));
        }
        cr_assert(r == 0 || !must_be_allowed(base), "chunk %u", base);
        if (base == id || r < 0 || entry.depth == CHUNK_DEPTH_MAX || rnd(3) == 0)
            continue;
        revived += !is_reported(base);
        deleted += is_needed(&then, base) && !is_needed(&now, base);
        form.bases[form.ref_count++] = base;
        form.depth = (uint8_t)max_u64(form.depth, entry.depth + 1u);
    }
    return form;
}

struct pending {
    uint32_t ids[IDS], count;
};

static int list_pending(const struct chunk_entry *entry, void *arg)
{
    struct pending *list = arg;
    list->ids[list->count++] = chunk_id(&entry->name);
    return 0;
}

static void place_pending(struct view_cut *cut, bool all)
{
    struct pending list = {0};
    uint32_t expected = 0;
    assert_i64(view_cut_pending(cut, NULL, list_pending, &list), 0);
    for (uint32_t i = 0; i < IDS; i++)
        expected += is_needed(&then, i) && !then.chunks[i].remote;
    assert_u64(list.count, expected);
    uint32_t ids[3], count = 0;
    struct chunk as[3];
    for (uint32_t i = 0; i < list.count; i++) {
        uint32_t id = list.ids[i];
        if (now.chunks[id].remote || !(then.chunks[id].local || now.chunks[id].local) ||
            (!all && rnd(2)))
            continue;
        as[count] = choose_form(cut, id);
        ids[count++] = id;
        if (count == ARRAY_LEN(ids) || rnd(2)) {
            store(ids, as, count);
            count = 0;
        }
    }
    store(ids, as, count);
}

static struct remote_pack *random_pack(void)
{
    for (int tries = 0; tries < 20 && pack_count; tries++) {
        struct remote_pack *pack = &packs[rnd(pack_count)];
        if (!pack->unreferenced && !pack->gone)
            return pack;
    }
    return NULL;
}

static void relocate(void)
{
    const struct remote_pack *pack = random_pack();
    uint32_t ids[IDS], count = 0;
    struct chunk as[IDS];
    for (uint32_t i = 0; i < IDS && pack; i++) {
        const struct chunk *c = &now.chunks[i];
        if (c->remote != pack->id || !is_needed(&now, i) || rnd(4) == 0)
            continue;
        ids[count] = i;
        as[count++] = rnd(2) && (c->local || is_complete(&now, i)) ? (struct chunk){0} : *c;
    }
    store(ids, as, count);
}

static void set_suspect(uint64_t pack, bool suspect)
{
    for (uint32_t i = 0; i < IDS; i++)
        if (now.chunks[i].remote == pack)
            now.chunks[i].suspect = suspect;
}

static void lose(void)
{
    struct remote_pack *pack = random_pack();
    if (!pack)
        return;
    assert_i64(view_remote_pack_suspect(f.view, pack->id, ++medium_time), 0);
    set_suspect(pack->id, true);
    leave_incomplete(&now);
}

static int pick_suspect(const struct view_remote_pack *pack, void *arg)
{
    uint64_t *picked = arg;
    if (pack->suspect && (*picked == 0 || rnd(2)))
        *picked = pack->pack;
    return 0;
}

static void find_again(void)
{
    uint64_t pack = 0;
    assert_i64(view_remote_packs(f.view, pick_suspect, &pack), 0);
    if (!pack)
        return;
    assert_i64(view_remote_pack_trusted(f.view, pack), 0);
    set_suspect(pack, false);
}

static void delete_objects(void)
{
    for (size_t i = 0; i < pack_count; i++)
        if (packs[i].unreferenced && !packs[i].gone && rnd(2)) {
            assert_i64(view_remote_pack_gone(f.view, packs[i].id), 0);
            packs[i].gone = true;
        }
}

/* --- heads ------------------------------------------------------------------------------------ */

/* What a head says of `then`, with places of now. */
static struct state told(void)
{
    struct state s = {0};
    for (uint32_t i = 0; i < IDS; i++) {
        if (!is_reported(i))
            continue;
        s.chunks[i] = now.chunks[i];
        s.chunks[i].refs = then.chunks[i].refs;
        s.chunks[i].local = 0;
        s.chunks[i].suspect = false;
    }
    return s;
}

/* `was_reported`: by the head, when it was made. */
static void note_published(const bool *was_reported)
{
    for (size_t i = 0; i < pack_count; i++) {
        bool live = false;
        for (uint32_t id = 0; id < IDS; id++)
            live = live || (then.chunks[id].remote == packs[i].id && is_needed(&then, id)) ||
                   (now.chunks[id].remote == packs[i].id && was_reported[id]);
        if (live || !packs[i].was_there || packs[i].gone || packs[i].unreferenced)
            continue;
        packs[i].unreferenced = true;
        for (uint32_t id = 0; id < IDS; id++)
            if (now.chunks[id].remote == packs[i].id)
                unplace(&now.chunks[id]);
    }
    leave_incomplete(&now);
}

/* What it has of its own stays, and what a head says of the rest is true. What lies here has lost
 * its place when it was needed, and lacked a base. */
static void compare_peer(const struct state *head)
{
    for (uint32_t i = 0; i < IDS; i++) {
        struct chunk *c = &at_peer.chunks[i];
        struct chunk_name name = chunk_of(i);
        struct chunk_entry entry;
        uint64_t local = c->local;
        *c = head->chunks[i];
        c->local = local;
        int r = view_remote_place(peer, &name, &entry);
        if (r == -ENOENT && c->remote && local && (is_needed(head, i) || !is_complete(head, i)))
            unplace(c);
    }
    struct state settled = at_peer;
    leave_incomplete(&settled);
    assert_i64(memcmp(&settled, &at_peer, sizeof settled), 0);
    compare(peer, &at_peer);
}

static void follow(const struct state *head, bool was_whole)
{
    follow_newest(peer, was_whole || rnd(3) == 0);
    compare_peer(head);
}

/* A pack that lies here lies there, too. */
static void fetch_at_peer(void)
{
    uint8_t buf[256];
    const struct test_pack *pack = f.pack_count ? &f.packs[rnd(f.pack_count)] : NULL;
    struct view_pack known;
    if (!pack || view_pack(peer, pack->pack, &known) == 0)
        return;
    struct record rec = {.type = REC_PACK,
                         .seq = view_state(peer).applied_seq,
                         .pack = pack->pack,
                         .length = 64,
                         .count = pack->count};
    bool gone = pack->gone;
    ((struct test_pack *)(uintptr_t)pack)->gone = false;
    record_encode(&rec, buf);
    apply_bytes(&f, peer, buf, record_encoded_len(&rec), view_state(peer).applied_seq);
    ((struct test_pack *)(uintptr_t)pack)->gone = gone;
    for (uint32_t i = 0; i < pack->count; i++) {
        at_peer.chunks[chunk_id(&pack->entries[i].name)].local = pack->pack;
        leave_incomplete(&at_peer);
    }
    compare(peer, &at_peer);
}

static void begin_peer(const struct state *head)
{
    peer = open_peer("peer", &peer_path);
    at_peer = *head;
    compare(peer, &at_peer);
}

static void end_peer(void)
{
    if (peer)
        close_peer(peer, peer_path);
    peer = NULL;
}

/* A chunk that has lost its place since the cut: if the cut has no mark of it, the head says what
 * an older one said. */
static bool left_since(uint32_t id)
{
    return is_needed(&then, id) && then.chunks[id].remote && !now.chunks[id].remote;
}

static void adopt_aside(struct state *head)
{
    char *path;
    struct view *view = open_peer("adopted", &path);
    for (uint32_t i = 0; i < IDS; i++) {
        struct chunk_name name = chunk_of(i);
        struct chunk_entry entry;
        if (head->chunks[i].remote || !then.chunks[i].remote ||
            view_remote_place(view, &name, &entry) < 0)
            continue;
        uint32_t refs = head->chunks[i].refs;
        head->chunks[i] = then.chunks[i];
        head->chunks[i].refs = refs;
        head->chunks[i].local = 0;
        head->chunks[i].suspect = false;
    }
    compare(view, head);
    close_peer(view, path);
}

static struct view_cut *begin_cut(void)
{
    struct view_cut *cut = cut_now();
    then = now;
    for (size_t i = 0; i < pack_count; i++)
        packs[i].was_there = true;
    return cut;
}

static void end_cut(struct view_cut *cut)
{
    bool whole = view_cut_is_whole(cut);
    place_pending(cut, rnd(6) > 0);
    bool was_reported[IDS];
    struct state head = told();
    for (uint32_t i = 0; i < IDS; i++)
        was_reported[i] = is_reported(i);
    uint64_t missing = 0, left = 0, is = remote_make(&remote, cut, ++medium_time);
    for (uint32_t i = 0; i < IDS; i++) {
        missing += is_needed(&then, i) && !now.chunks[i].remote;
        left += left_since(i);
    }
    cr_assert(is <= missing && is + left >= missing);
    if (rnd(6) == 0) { /* this head is never published */
        view_cut_close(cut);
        return;
    }
    if (rnd(3) == 0 && !whole) { /* between the run and its head */
        write_file();
        delete_file();
    }
    remote_publish(&remote, f.view, cut);
    view_cut_close(cut);
    note_published(was_reported);
    compare(f.view, &now);
    adopt_aside(&head);
    if (peer)
        follow(&head, whole);
    if (rnd(3) == 0)
        remote_merge(&remote, 1 + rnd(remote.count));
    if (!peer && rnd(3) == 0)
        begin_peer(&head);
    else if (peer && rnd(8) == 0)
        end_peer();
}

static void step(struct view_cut **cut)
{
    static void (*const ops[])(void) = {write_file, write_file, delete_file, delete_file,
                                        drop_local, drop_local, fetch_some,  delete_objects};
    ops[rnd(ARRAY_LEN(ops))]();
    compare(f.view, &now);
    if (peer && rnd(6) == 0)
        fetch_at_peer();
    if (!*cut && rnd(4) == 0) {
        if (rnd(3) == 0)
            relocate();
        if (rnd(5) == 0)
            lose();
        if (rnd(5) == 0)
            find_again();
        compare(f.view, &now);
        *cut = begin_cut();
    } else if (*cut && rnd(3) == 0) {
        place_pending(*cut, false);
        compare(f.view, &now);
    } else if (*cut && rnd(3) == 0) {
        end_cut(*cut);
        *cut = NULL;
    }
    if (!*cut && rnd(40) == 0)
        fixture_reopen(&f);
}

static void run(uint64_t seed, int steps)
{
    struct view_cut *cut = NULL;
    memset(&now, 0, sizeof now);
    memset(files, 0, sizeof files);
    pack_count = 0;
    next_pack = 1;
    next_ino = 100;
    seeded = (struct seeded){seed};
    begin_tracking();
    for (int i = 0; i < steps; i++)
        step(&cut);
    if (cut)
        view_cut_close(cut);
    end_peer();
    end_remote();
}

/* Others for each commit: what they have missed until now is rare. */
Test(view_bases_random, histories)
{
    uint64_t first = test_number("CAIRN_VIEW_SEED", campaign_pick(1, 1u << 20));
    uint64_t count = test_number("CAIRN_VIEW_SEEDS", campaign_is_full() ? 100 : 10);
    revived = deleted = 0;
    for (uint64_t i = 0; i < count; i++) {
        fprintf(stderr, "seed %lu\n", (unsigned long)(first + i));
        run(first + i, 250);
    }
    cr_assert(revived > 0, "nothing was sent that rests on what nothing needed");
    cr_assert(deleted > 0, "nothing was sent that rests on what was deleted meanwhile");
}
