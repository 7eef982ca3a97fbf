// SPDX-License-Identifier: Apache-2.0
/* What lies in the remote and rests on other chunks: a random history against a plain model, which
 * recounts need and completeness from the entries alone, and single cases. */
#include "../expect.h"
#include "remote_fixture.h"
#include "view/values.h"

#include <stdio.h>

#define IDS 40u
#define FILES 10u
#define PACKS 4000u

struct chunk {
    uint32_t refs;
    uint64_t local, remote; /* packs; 0: none */
    uint8_t depth, ref_count;
    uint32_t bases[CHUNK_REFS_MAX];
};

struct state {
    struct chunk chunks[IDS];
};

struct remote_pack {
    uint64_t id;
    bool was_there; /* when the cut was opened */
    bool unreferenced, gone;
};

static struct state now, then; /* `then`: at the cut */
static struct remote_pack packs[PACKS];
static size_t pack_count;
static uint64_t next_pack, next_ino, state_of_random;
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
    state_of_random = state_of_random * 6364136223846793005ull + 1442695040888963407ull;
    return (state_of_random >> 33) % below;
}

/* --- the model -------------------------------------------------------------------------------- */

static bool rests_on(const struct chunk *c, uint32_t base)
{
    for (size_t i = 0; i < c->ref_count && c->remote; i++)
        if (c->bases[i] == base)
            return true;
    return false;
}

static bool is_needed(const struct state *s, uint32_t id)
{
    if (s->chunks[id].refs)
        return true;
    for (uint32_t i = 0; i < IDS; i++)
        if (rests_on(&s->chunks[i], id) && is_needed(s, i))
            return true;
    return false;
}

static bool is_complete(const struct state *s, uint32_t id)
{
    const struct chunk *c = &s->chunks[id];
    for (size_t i = 0; i < c->ref_count; i++)
        if (!s->chunks[c->bases[i]].remote || !is_complete(s, c->bases[i]))
            return false;
    return c->remote != 0;
}

/* Needed chunks that lie here do not rest on what is lost: the deepest leave first. */
static void leave_incomplete(struct state *s)
{
    for (unsigned depth = CHUNK_DEPTH_MAX; depth > 0; depth--)
        for (uint32_t i = 0; i < IDS; i++) {
            struct chunk *c = &s->chunks[i];
            if (c->remote && c->depth == depth && c->local && is_needed(s, i) && !is_complete(s, i))
                c->remote = c->depth = c->ref_count = 0;
        }
}

static uint32_t pending_of(const struct state *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IDS; i++)
        count += is_needed(s, i) && !s->chunks[i].remote;
    return count;
}

/* --- the view is as the model says ------------------------------------------------------------ */

static int compare_pack(const struct view_remote_pack *pack, void *arg)
{
    const struct state *s = arg;
    uint32_t live = 0;
    for (uint32_t i = 0; i < IDS; i++)
        live += s->chunks[i].remote == pack->pack && is_needed(s, i);
    assert_u64(pack->live_count, live, "pack %lu", (unsigned long)pack->pack);
    return 0;
}

static void compare(struct view *view, const struct state *s)
{
    for (uint32_t i = 0; i < IDS; i++) {
        const struct chunk *c = &s->chunks[i];
        struct chunk_name name = chunk_of(i), base;
        struct chunk_entry entry = {0};
        bool has_dependents, expected = false;
        int r = view_remote_place(view, &name, &entry);
        assert_i64(r, c->remote ? 0 : -ENOENT, "chunk %u", i);
        assert_u64(entry.pack, c->remote);
        assert_u64(entry.depth, c->depth);
        assert_u64(entry.ref_count, c->ref_count);
        for (uint32_t j = 0; j < IDS; j++)
            expected = expected || rests_on(&s->chunks[j], i);
        assert_i64(view_has_dependents(view, &name, &has_dependents), 0);
        assert_u64(has_dependents, expected, "chunk %u", i);
        r = view_remote_lacks(view, &name, &base);
        assert_i64(r, c->remote && !is_complete(s, i) ? 0 : -ENOENT, "chunk %u", i);
    }
    assert_u64(view_remote(view).pending_chunks, pending_of(s));
    assert_i64(view_remote_packs(view, compare_pack, (void *)(uintptr_t)s), 0);
    expect_check_ok(view);
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

static bool is_published(uint32_t id)
{
    struct chunk_name name = chunk_of(id);
    struct chunk_entry entry;
    bool published;
    int r = view_remote_chunk(f.view, &name, &entry, &published);
    cr_assert(r == 0 || r == -ENOENT);
    return r == 0 && published;
}

/* A pack that nobody needs goes, or one that is published. What is published can be read there. */
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
    struct chunk_entry entry = remote_entry(pack, id, at);
    entry.depth = c->depth;
    entry.ref_count = c->ref_count;
    entry.encoding = c->ref_count ? ENCODING_TWIN : ENCODING_LZ4;
    for (size_t i = 0; i < c->ref_count; i++)
        entry.refs[i] = (struct chunk_ref){chunk_of(c->bases[i]), 0, CHUNK_SIZE_MAX};
    return entry;
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
    }
}

/* Some bases that the cut allows, for a chunk on which nothing rests. */
static struct chunk choose_form(struct view_cut *cut, uint32_t id)
{
    struct chunk form = {0};
    struct chunk_name name = chunk_of(id);
    bool has_dependents;
    assert_i64(view_has_dependents(f.view, &name, &has_dependents), 0);
    for (int tries = 0; tries < 8 && !has_dependents && form.ref_count < CHUNK_REFS_MAX; tries++) {
        uint32_t base = (uint32_t)rnd(IDS);
        struct chunk_name base_name = chunk_of(base);
        struct chunk_entry entry;
        int r = view_cut_base(cut, &base_name, &entry);
        cr_assert(r == 0 || r == -ENOENT);
        if (r == 0)
            cr_assert(is_needed(&then, base) && is_complete(&now, base));
        if (base == id || r < 0 || entry.depth == CHUNK_DEPTH_MAX || rnd(3) == 0)
            continue;
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

static void lose(void)
{
    struct remote_pack *pack = random_pack();
    if (!pack)
        return;
    assert_i64(view_remote_pack_lost(f.view, pack->id), 0);
    pack->gone = true;
    for (uint32_t i = 0; i < IDS; i++)
        if (now.chunks[i].remote == pack->id)
            now.chunks[i].remote = now.chunks[i].depth = now.chunks[i].ref_count = 0;
    leave_incomplete(&now);
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

/* What a head says of `then`, with places of `places`. */
static struct state told(const struct state *places)
{
    struct state s = {0};
    for (uint32_t i = 0; i < IDS; i++) {
        if (!is_needed(&then, i))
            continue;
        s.chunks[i] = places->chunks[i];
        s.chunks[i].refs = then.chunks[i].refs;
        s.chunks[i].local = 0;
    }
    return s;
}

static void note_published(void)
{
    for (size_t i = 0; i < pack_count; i++) {
        bool live = false;
        for (uint32_t id = 0; id < IDS; id++)
            live = live || (then.chunks[id].remote == packs[i].id && is_needed(&then, id));
        if (live || !packs[i].was_there || packs[i].gone || packs[i].unreferenced)
            continue;
        packs[i].unreferenced = true;
        for (uint32_t id = 0; id < IDS; id++)
            if (now.chunks[id].remote == packs[i].id)
                now.chunks[id].remote = now.chunks[id].depth = now.chunks[id].ref_count = 0;
    }
    leave_incomplete(&now);
}

static int follow_row(const struct run_row *row, void *arg)
{
    return view_follow_row(arg, row);
}

/* What it has of its own stays, and what a head says of the rest is true. */
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
        if (r == -ENOENT && c->remote && local && is_needed(head, i))
            c->remote = c->depth = c->ref_count = 0;
    }
    struct state settled = at_peer;
    leave_incomplete(&settled);
    assert_i64(memcmp(&settled, &at_peer, sizeof settled), 0);
    compare(peer, &at_peer);
}

static void follow(const struct state *head, bool was_whole)
{
    bool all = was_whole || rnd(3) == 0;
    struct view_follow *follow;
    assert_i64(view_follow_begin(peer, all, NULL, NULL, &follow), 0);
    assert_i64(all ? remote_rows(&remote, follow_row, follow)
                   : remote_newest_rows(&remote, follow_row, follow),
               0);
    assert_i64(view_follow_end(follow, &remote.state, remote.head, UINT64_MAX), 0);
    view_follow_done(follow);
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

static void open_peer(const struct state *head)
{
    peer_path = xasprintf("%s.peer", f.path);
    open_adopted(&remote, peer_path, &peer);
    at_peer = *head;
    compare(peer, &at_peer);
}

static void close_peer(void)
{
    if (!peer)
        return;
    view_close(peer);
    remove_tree(peer_path);
    free(peer_path);
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
    char *path = xasprintf("%s.adopted", f.path);
    struct view *view;
    open_adopted(&remote, path, &view);
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
    }
    compare(view, head);
    view_close(view);
    remove_tree(path);
    free(path);
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
    struct state head = told(&now);
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
    note_published();
    compare(f.view, &now);
    adopt_aside(&head);
    if (peer)
        follow(&head, whole);
    if (rnd(3) == 0)
        remote_merge(&remote, 1 + rnd(remote.count));
    if (!peer && rnd(3) == 0)
        open_peer(&head);
    else if (peer && rnd(8) == 0)
        close_peer();
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
    state_of_random = seed;
    begin_remote();
    assert_i64(view_track(f.view), 0);
    for (int i = 0; i < steps; i++)
        step(&cut);
    if (cut)
        view_cut_close(cut);
    close_peer();
    end_remote();
}

static uint64_t number(const char *variable, uint64_t usual)
{
    const char *text = getenv(variable);
    return text ? strtoull(text, NULL, 10) : usual;
}

Test(view_bases, random_histories)
{
    uint64_t first = number("CAIRN_VIEW_SEED", 1), count = number("CAIRN_VIEW_SEEDS", 3);
    for (uint64_t i = 0; i < count; i++) {
        fprintf(stderr, "seed %lu\n", (unsigned long)(first + i));
        run(first + i, 250);
    }
}

/* --- single cases ----------------------------------------------------------------------------- */

static int place_on(uint32_t id, unsigned depth, const uint32_t *bases, uint32_t count)
{
    struct chunk form = {.depth = (uint8_t)depth, .ref_count = (uint8_t)count};
    for (uint32_t i = 0; i < count; i++)
        form.bases[i] = bases[i];
    uint64_t pack = 1000 + next_pack++;
    struct chunk_entry entry = entry_of(&form, id, pack, 64);
    return view_remote_placed(f.view, pack, 4000, &entry, 1);
}

#define PLACE_ON(id, depth, ...)                                                                   \
    place_on(id, depth, (const uint32_t[]){__VA_ARGS__},                                           \
             ARRAY_LEN(((const uint32_t[]){__VA_ARGS__})))

static void begin_chain(void)
{
    begin_remote();
    assert_i64(view_track(f.view), 0);
    PACK_OF(9, 1);
    PACK_OF(10, 2, 3, 4, 5);
    FILE_OF(2, "base", 1);
    FILE_OF(3, "rests", 2, 3);
    apply_ok(&f);
    PLACE(100, 1, 5);
    assert_i64(PLACE_ON(2, 1, 1, 1), 0, "two references to one base");
    assert_i64(PLACE_ON(3, 2, 1, 2), 0);
}

Test(view_bases, entries_that_rest_on_nothing_or_on_themselves_are_refused)
{
    begin_chain();
    assert_i64(PLACE_ON(4, 1, 6), -EUCLEAN, "a base that is not there");
    assert_i64(PLACE_ON(4, 1, 4), -EUCLEAN, "itself");
    assert_i64(PLACE_ON(4, 0, 1), -EUCLEAN, "no depth");
    assert_i64(PLACE_ON(4, 1, 2), -EUCLEAN, "as deep as its base");
    assert_i64(PLACE_ON(4, CHUNK_DEPTH_MAX + 1, 1), -EUCLEAN, "too deep");
    assert_i64(PLACE_ON(1, 3, 3), -EUCLEAN, "a circle");
    assert_i64(PLACE_ON(2, 2, 1), -EUCLEAN, "as deep as what rests on it");
    expect_check_ok(f.view);
    assert_u64(remote_pack_of(f.view, 4), 0);
    assert_i64(PLACE_ON(2, 1, 1), 0, "as it was");
    end_remote();
}

Test(view_bases, a_base_lives_as_long_as_what_rests_on_it)
{
    begin_chain();
    (void)publish(cut_now(), 5);
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    apply_ok(&f);
    assert_u64(remote_pack(100).live_count, 1);
    (void)publish(cut_now(), 6);
    assert_i64(remote_pack(100).unreferenced, 0);
    expect_same_adopted();
    add_unlink(&f, 3, ROOT_INO, "rests", 0);
    apply_ok(&f);
    assert_u64(remote_pack(100).live_count, 0);
    (void)publish(cut_now(), 7);
    assert_i64(remote_pack(100).unreferenced, 7);
    end_remote();
}

Test(view_bases, what_comes_back_without_its_base_is_sent_anew)
{
    struct chunk on_one = {.depth = 1, .ref_count = 1, .bases = {1}}, plain = {0};
    struct chunk_entry entries[] = {entry_of(&on_one, 2, 101, 64), entry_of(&plain, 3, 101, 2064)};
    begin_remote();
    assert_i64(view_track(f.view), 0);
    PACK_OF(10, 1, 2, 3);
    FILE_OF(2, "base", 1);
    FILE_OF(3, "rests", 2);
    FILE_OF(4, "stays", 3);
    apply_ok(&f);
    PLACE(100, 1);
    assert_i64(view_remote_placed(f.view, 101, 8000, entries, 2), 0);
    (void)publish(cut_now(), 5);
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_unlink(&f, 3, ROOT_INO, "rests", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 6);
    assert_i64(remote_pack(100).unreferenced, 6);
    assert_u64(remote_pack_of(f.view, 2), 101);
    FILE_OF(5, "again", 2);
    apply_ok(&f);
    assert_u64(remote_pack_of(f.view, 2), 0);
    assert_u64(view_remote(f.view).pending_chunks, 1);
    end_remote();
}

struct forging {
    struct view_adoption *adoption;
    struct chunk_entry entry; /* what the row of its chunk says instead */
};

static int adopt_forged(const struct run_row *row, void *arg)
{
    struct forging *forging = arg;
    struct chunk_row forged = {.entry = forging->entry, .refs = 1};
    struct run_row other = *row;
    struct key key;
    uint8_t value[CHUNK_VALUE_LEN_MAX];
    key_chunk(&key, &forging->entry.name);
    if (row->key_len == key.len && memcmp(row->key, key.bytes, key.len) == 0) {
        other.value = value;
        other.value_len = chunk_row_encode(&forged, value);
    }
    return view_adopt_row(forging->adoption, &other);
}

Test(view_bases, a_head_whose_chunks_rest_on_each_other_is_refused)
{
    struct chunk form = {.depth = 2, .ref_count = 1, .bases = {2}};
    struct forging forging = {.entry = entry_of(&form, 1, 100, 64)};
    begin_chain();
    (void)publish(cut_now(), 5);
    char *path = xasprintf("%s.forged", f.path);
    struct view *view;
    open_view_at(path, &view);
    assert_i64(view_adopt_begin(view, &forging.adoption), 0);
    int r = remote_rows(&remote, adopt_forged, &forging);
    if (r == 0)
        r = view_adopt_end(forging.adoption, &remote.state, remote.head, UINT64_MAX);
    assert_i64(r, -EUCLEAN);
    view_adopt_done(forging.adoption);
    view_close(view);
    remove_tree(path);
    free(path);
    end_remote();
}

static void look_at_base(struct view *view)
{
    assert_u64(remote_pack_of(view, 1), 100);
    assert_u64(view_remote(view).pending_chunks, 0);
}

Test(view_bases, a_head_that_says_all_names_bases_that_no_file_has)
{
    begin_chain();
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_drop(&f, 9);
    FILE_OF(6, "beside", 5);
    apply_ok(&f);
    (void)publish(cut_now(), 5);
    expect_adopted(look_at_base);
    end_remote();
}

Test(view_bases, a_base_that_a_whole_head_does_not_name_is_none)
{
    struct view_follow *follow;
    begin_chain();
    add_unlink(&f, 2, ROOT_INO, "base", 0);
    add_drop(&f, 9);
    FILE_OF(6, "beside", 5);
    apply_ok(&f);
    (void)publish(cut_now(), 5);
    char *path = xasprintf("%s.peer", f.path);
    open_adopted(&remote, path, &peer);
    add_unlink(&f, 3, ROOT_INO, "rests", 0);
    apply_ok(&f);
    (void)publish(cut_now(), 6);
    assert_i64(view_follow_begin(peer, true, NULL, NULL, &follow), 0);
    assert_i64(remote_rows(&remote, follow_row, follow), 0);
    assert_i64(view_follow_end(follow, &remote.state, remote.head, UINT64_MAX), 0);
    view_follow_done(follow);
    assert_u64(remote_pack_of(peer, 1), 0);
    expect_check_ok(peer);
    view_close(peer);
    remove_tree(path);
    free(path);
    end_remote();
}
