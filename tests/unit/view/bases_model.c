// SPDX-License-Identifier: Apache-2.0
#include "bases_model.h"
#include "../expect.h"

bool rests_on(const struct chunk *c, uint32_t base)
{
    for (size_t i = 0; i < c->ref_count && c->remote; i++)
        if (c->bases[i] == base)
            return true;
    return false;
}

bool is_needed(const struct state *s, uint32_t id)
{
    if (s->chunks[id].refs)
        return true;
    for (uint32_t i = 0; i < IDS; i++)
        if (rests_on(&s->chunks[i], id) && is_needed(s, i))
            return true;
    return false;
}

static bool lacks_base(const struct state *s, uint32_t id)
{
    const struct chunk *c = &s->chunks[id];
    for (size_t i = 0; i < c->ref_count; i++)
        if (!is_complete(s, c->bases[i]))
            return true;
    return false;
}

bool is_complete(const struct state *s, uint32_t id)
{
    const struct chunk *c = &s->chunks[id];
    return c->remote != 0 && !c->suspect && !lacks_base(s, id);
}

void unplace(struct chunk *c)
{
    c->remote = c->depth = c->ref_count = 0;
    c->suspect = false;
}

void leave_incomplete(struct state *s)
{
    for (unsigned depth = CHUNK_DEPTH_MAX + 1; depth-- > 0;)
        for (uint32_t i = 0; i < IDS; i++) {
            struct chunk *c = &s->chunks[i];
            if (c->remote && c->depth == depth && c->local && is_needed(s, i) && !is_complete(s, i))
                unplace(c);
        }
}

static uint32_t pending_of(const struct state *s)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < IDS; i++)
        count += is_needed(s, i) && !s->chunks[i].remote;
    return count;
}

struct comparing {
    const struct state *s;
    uint64_t suspect_packs, suspect_chunks;
};

static int compare_pack(const struct view_remote_pack *pack, void *arg)
{
    struct comparing *comparing = arg;
    const struct state *s = comparing->s;
    uint32_t live = 0;
    for (uint32_t i = 0; i < IDS; i++) {
        bool is_there = s->chunks[i].remote == pack->pack;
        live += is_there && is_needed(s, i);
        if (is_there)
            assert_u64(s->chunks[i].suspect, pack->suspect != 0);
    }
    assert_u64(pack->live_count, live, "pack %lu", (unsigned long)pack->pack);
    comparing->suspect_packs += pack->suspect != 0;
    comparing->suspect_chunks += pack->suspect ? live : 0;
    return 0;
}

static void compare_packs(struct view *view, const struct state *s)
{
    struct comparing comparing = {.s = s};
    struct view_remote remote = view_remote(view);
    assert_i64(view_remote_packs(view, compare_pack, &comparing), 0);
    assert_u64(remote.suspect_packs, comparing.suspect_packs);
    assert_u64(remote.suspect_chunks, comparing.suspect_chunks);
}

void compare(struct view *view, const struct state *s)
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
        assert_i64(r, c->remote && lacks_base(s, i) ? 0 : -ENOENT, "chunk %u", i);
    }
    assert_u64(view_remote(view).pending_chunks, pending_of(s));
    compare_packs(view, s);
    expect_check_ok(view);
}
