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

bool is_complete(const struct state *s, uint32_t id)
{
    const struct chunk *c = &s->chunks[id];
    for (size_t i = 0; i < c->ref_count; i++)
        if (!s->chunks[c->bases[i]].remote || !is_complete(s, c->bases[i]))
            return false;
    return c->remote != 0;
}

void leave_incomplete(struct state *s)
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

static int compare_pack(const struct view_remote_pack *pack, void *arg)
{
    const struct state *s = arg;
    uint32_t live = 0;
    for (uint32_t i = 0; i < IDS; i++)
        live += s->chunks[i].remote == pack->pack && is_needed(s, i);
    assert_u64(pack->live_count, live, "pack %lu", (unsigned long)pack->pack);
    return 0;
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
        assert_i64(r, c->remote && !is_complete(s, i) ? 0 : -ENOENT, "chunk %u", i);
    }
    assert_u64(view_remote(view).pending_chunks, pending_of(s));
    assert_i64(view_remote_packs(view, compare_pack, (void *)(uintptr_t)s), 0);
    expect_check_ok(view);
}
