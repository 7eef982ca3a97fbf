// SPDX-License-Identifier: Apache-2.0
/* Resolves a range of a file into parts of one generation of the view and of one version of the
 * content. The stage is read before the view: content that leaves the stage is in the view
 * before. */
#include "fetch/plan.h"

static bool plan_is_full(const struct plan *plan)
{
    return plan->part_count == PLAN_PARTS;
}

/* Adds the next part, which begins where the last one ends. */
static struct plan_part *plan_add(struct plan *plan, enum plan_kind kind, size_t length)
{
    check(!plan_is_full(plan));
    struct plan_part *part = &plan->parts[plan->part_count++];
    *part = (struct plan_part){.kind = kind, .offset = plan->end, .length = length};
    plan->end += length;
    return part;
}

static void plan_add_inline(struct plan *plan, const void *bytes, size_t length)
{
    struct plan_part *part = plan_add(plan, KIND_INLINE, length);
    part->within = plan->bytes.count;
    vector_add_all(&plan->bytes, bytes, length);
}

static void plan_add_chunk(struct plan *plan, const struct chunk_name *name, size_t within,
                           size_t length)
{
    struct plan_part *part = plan_add(plan, KIND_CHUNK, length);
    part->name = *name;
    part->within = within;
}

static int plan_add_extent(const struct view_extent *part, void *arg)
{
    struct plan *plan = arg;
    const struct extent *e = &part->extent;
    if (plan_is_full(plan))
        return 1;
    if (e->kind == EXTENT_CHUNK)
        plan_add_chunk(plan, &e->chunk, e->chunk_offset, e->length);
    else if (e->kind == EXTENT_INLINE)
        plan_add_inline(plan, part->bytes, e->length);
    else
        (void)plan_add(plan, KIND_HOLE, e->length);
    return 0;
}

/* Resolves the next `length` bytes by the view. A file that the view does not have was created
 * later: all its content is staged, so this range is a hole, like any range past the end of the
 * file in the view. */
static int plan_resolve_below(struct plan *plan, size_t length)
{
    struct pull *pull = pull_of(plan->store);
    uint64_t offset = plan->want.offset + plan->end, version = 0;
    size_t end = plan->end + length;
    if (pull)
        prefetch_note_read(pull, plan->want.ino, offset, length);
    const struct fetch_view of = fetch_view_enter(plan->store, plan->want.ino);
    const struct view_range range = {of.ino, offset, length};
    int r = of.view ? view_content(of.view, &range, &version, plan_add_extent, plan) : -ESTALE;
    fetch_view_leave(plan->store, plan->want.ino, &of);
    if (r < 0 && r != -ENOENT)
        return r;
    plan->is_overtaken = plan->is_overtaken || version > plan->version;
    if (!plan_is_full(plan) && plan->end < end)
        (void)plan_add(plan, KIND_HOLE, end - plan->end);
    return 0;
}

static int plan_resolve_part(struct plan *plan, const struct stage_part *part)
{
    size_t length = min_u64(part->length, plan->length - plan->end);
    switch (part->kind) {
    case PART_MEMORY:
        memcpy(plan->buffer + plan->end, part->memory, length);
        plan_add(plan, KIND_STAGED, length)->is_filled = true;
        return 0;
    case PART_HOLE:
        (void)plan_add(plan, KIND_HOLE, length);
        return 0;
    case PART_CHUNK:
        plan_add_chunk(plan, &part->name, part->chunk_offset, length);
        return 0;
    case PART_BELOW:
        return plan_resolve_below(plan, length);
    }
    return -EIO;
}

/* Returns whether the content has changed since the parts before `at` were read. */
static bool plan_differs(const struct plan *plan, const struct commit_now *now)
{
    return plan->at > 0 && plan->tries < PLAN_TRIES &&
           (now->inode.version != plan->version || now->size < plan->want.offset + plan->length);
}

/* -EAGAIN: the plan must begin again. */
static int plan_resolve_parts(struct plan *plan, const struct commit_now *now,
                              const struct stage_part *parts, size_t count)
{
    const struct fetch_read_request *want = &plan->want;
    if (plan_differs(plan, now))
        return -EAGAIN;
    plan->version = now->inode.version;
    if (plan->at == 0)
        plan->length =
            now->size > want->offset ? min_u64(want->length, now->size - want->offset) : 0;
    int r = 0;
    for (size_t i = 0; i < count && r == 0 && plan->end < plan->length && !plan_is_full(plan); i++)
        r = plan_resolve_part(plan, &parts[i]);
    return r;
}

/* Content in the stage's memory is copied, and is pinned only for this time. */
static int plan_resolve_staged(struct plan *plan)
{
    struct stage_part parts[PLAN_PARTS];
    struct store *store = plan->store;
    struct commit_now now;
    const struct stage_range range = {plan->want.ino, plan->want.offset + plan->at,
                                      plan->want.length - plan->at};
    size_t count = stage_resolve(store->local.stage, &range, parts, PLAN_PARTS, &now.staged);
    int r = ns_inode(store->local.ns, plan->want.ino, &now.inode);
    if (r < 0) {
        plan_fail(plan, r, plan->at);
    } else {
        commit_now_settle(&now);
        r = plan_resolve_parts(plan, &now, parts, count);
    }
    stage_unpin_parts(store->local.stage, parts, count);
    return r;
}

/* -EAGAIN: the view is of another generation than the parts before `at`. */
static int plan_resolve_once(struct plan *plan)
{
    if (plan_is_past(plan))
        return plan_resolve_below(plan, plan->length - plan->end);
    if (plan->is_looked)
        return plan_resolve_below(plan, plan->length);
    uint64_t generation = change_generation(plan->store->commit.change);
    if (plan->at == 0)
        plan->generation = generation;
    return generation == plan->generation ? plan_resolve_staged(plan) : -EAGAIN;
}

void plan_resolve(struct plan *plan)
{
    plan_unpin(plan);
    plan->part_count = plan->bytes.count = 0;
    plan->end = plan->at;
    plan->is_overtaken = false;
    int r = plan_resolve_once(plan);
    plan->is_looked = false;
    bool is_exchanged =
        r == -EAGAIN || (!plan_is_past(plan) &&
                         change_generation_now(plan->store->commit.change) != plan->generation);
    if (plan->state == PLAN_ANSWER) /* there is no such file */
        return;
    if ((is_exchanged || plan->is_overtaken) && plan->tries < PLAN_TRIES)
        plan_restart(plan);
    else if (is_exchanged)
        plan_fail(plan, -ESTALE, plan->at);
    else if (r < 0)
        plan_note_error(plan, NULL, r, plan->at);
    else
        plan->state = plan->buffer ? PLAN_FILL : PLAN_LEND;
}
