// SPDX-License-Identifier: Apache-2.0
/* Parts come into a buffer: what is in memory first, then chunk after chunk, from where each lies
 * now. */
#include "base/log.h"
#include "dense/dense.h"
#include "fetch/plan.h"
#include "remote/state.h"

/* NVMe does not give the chunk. */
static int plan_go_remote(struct plan *plan, struct plan_part *part, int local_error)
{
    struct store *store = plan->store;
    if (dense_find_place(store, &part->name, &part->place) < 0)
        return local_error;
    if (!pull_of(store))
        return local_error == -ENOENT ? -ENOTCONN : local_error;
    if (local_error != -ENOENT)
        damage_note_local(store->commit.damage, &part->name);
    part->kind = KIND_REMOTE;
    part->local_error = local_error;
    return 0;
}

/* A chunk that was not on NVMe may have come there while the plan waited for a thread. */
static int plan_find_place(struct plan *plan, struct plan_part *part)
{
    struct chunk_entry place;
    bool is_remote = part->kind == KIND_REMOTE;
    if (part->kind == KIND_LOCAL || (is_remote && part->local_error != -ENOENT))
        return 0;
    int r = packs_find(plan->store->commit.packs, &part->name, &place);
    if (r < 0)
        return is_remote ? 0 : plan_go_remote(plan, part, r);
    part->kind = KIND_LOCAL;
    part->place = place;
    return 0;
}

/* Fills a part from memory, or finds where it is to be read. */
static void plan_gather_part(struct plan *plan, struct plan_part *part)
{
    struct pull *pull = pull_of(plan->store);
    uint8_t *to = plan->buffer + part->offset;
    check(part->kind != KIND_STAGED); /* the step that resolved it has filled it */
    part->is_filled = true;
    if (part->kind == KIND_HOLE)
        memset(to, 0, part->length);
    else if (part->kind == KIND_INLINE)
        memcpy(to, plan->bytes.at + part->within, part->length);
    else if (!chunk_cache_read(plan->store, &part->name, part->within, to, part->length,
                               &part->error) &&
             !(pull &&
               pull_read_ready(pull, &part->name, part->within, to, part->length, &part->error))) {
        part->is_filled = false;
        part->error = plan_find_place(plan, part);
    }
}

/* Chunks are verified whole. One that is wanted whole is decoded where it is wanted. */
static int plan_read_local(struct plan *plan, struct plan_part *part)
{
    struct store *store = plan->store;
    uint8_t *to = plan->buffer + part->offset;
    for (int try = 0; try < CHUNK_TRIES; try++) {
        uint32_t len = part->place.raw_len;
        bool is_whole = part->within == 0 && len == part->length;
        uint8_t *raw = is_whole ? to : thread_buffer(THREAD_BUFFER_FETCH, CHUNK_SIZE_MAX);
        int r = packs_read_at(store->commit.packs, &part->place, raw);
        if (r == 0 && is_whole)
            return 0;
        if (r == 0 && part->within + part->length > len)
            return -EUCLEAN;
        if (r == 0) {
            memcpy(to, raw + part->within, part->length);
            /* whole chunks are read by streams: these come once */
            chunk_cache_put(store, &part->name, raw, len);
            return 0;
        }
        if (r != -ENOENT)
            return r;
        /* it may have left the pack since we asked */
        TRY(packs_find(store->commit.packs, &part->name, &part->place));
    }
    return -ENODATA;
}

static int plan_read_remote(struct plan *plan, struct plan_part *part)
{
    struct store *store = plan->store;
    int local = part->local_error;
    int r = pull_read(pull_of(store), &part->place, part->within, plan->buffer + part->offset,
                      part->length);
    if (r == 0 && local != -ENOENT)
        log_warn("a chunk is damaged on NVMe (%s): read from %s instead, and stored anew",
                 damage_describe(local), remote_name(store->remote));
    return r < 0 && r != -EHOSTDOWN && local != -ENOENT ? local : r;
}

enum part_result {
    PART_IS_READ,
    PART_MUST_WAIT, /* for the remote, as this thread may not */
    PART_FAILED,    /* part->error says why */
};

static enum part_result plan_read_part(struct plan *plan, struct plan_part *part)
{
    if (part->error == 0 && part->kind == KIND_LOCAL) {
        int r = plan_read_local(plan, part);
        if (r == 0)
            return PART_IS_READ;
        part->error = plan_go_remote(plan, part, r);
    }
    if (part->error == 0 && plan->may < WAIT_REMOTE)
        return PART_MUST_WAIT;
    if (part->error == 0)
        part->error = plan_read_remote(plan, part);
    return part->error == 0 ? PART_IS_READ : PART_FAILED;
}

/* To a thread that may wait for the remote, which has a buffer of its own. */
static void plan_move_on(struct plan *plan)
{
    bool was_staged = plan->at > 0;
    for (size_t i = 0; i < plan->part_count; i++) {
        was_staged = was_staged || plan->parts[i].kind == KIND_STAGED;
        plan->parts[i].is_filled = false;
    }
    plan->needs = WAIT_REMOTE;
    if (!was_staged)
        return;
    plan->at = 0;
    plan->state = PLAN_RESOLVE;
}

static void plan_gather(struct plan *plan, bool *ret_remote, bool *ret_gone)
{
    for (size_t i = 0; i < plan->part_count; i++) {
        struct plan_part *part = &plan->parts[i];
        if (!part->is_filled)
            plan_gather_part(plan, part);
        *ret_remote = *ret_remote || (!part->is_filled && part->kind == KIND_REMOTE);
        *ret_gone = *ret_gone || part->error == -ENOENT;
    }
}

/* The parts are in the buffer. */
static void plan_advance(struct plan *plan)
{
    plan->at = plan->end;
    plan->state = plan->at < plan->length ? PLAN_RESOLVE : PLAN_ANSWER;
    if (plan->state == PLAN_ANSWER)
        plan->iov[plan->iov_count++] = (struct iovec){plan->buffer, plan->length};
}

void plan_fill(struct plan *plan)
{
    bool is_remote = false, is_gone = false;
    plan_gather(plan, &is_remote, &is_gone);
    if (is_remote)
        prefetch_note_miss(pull_of(plan->store), plan->want.ino);
    if (is_gone && plan->tries < PLAN_TRIES) {
        plan_restart(plan);
        return;
    }
    enum part_result result = is_remote && plan->may < WAIT_REMOTE ? PART_MUST_WAIT : PART_IS_READ;
    for (size_t i = 0; i < plan->part_count && result == PART_IS_READ; i++) {
        struct plan_part *part = &plan->parts[i];
        if (!part->is_filled || part->error < 0)
            result = plan_read_part(plan, part);
        if (result == PART_FAILED) {
            plan_note_error(plan, &part->name, part->error, part->offset);
            return;
        }
    }
    if (result == PART_MUST_WAIT)
        plan_move_on(plan);
    else
        plan_advance(plan);
}
