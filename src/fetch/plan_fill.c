// SPDX-License-Identifier: Apache-2.0
/* Reads parts into memory: first the parts that are in memory, then chunk after chunk, from its
 * present place. Chunks of NVMe are decoded into places where other reads find them, and an answer
 * points there; other chunks are read into the plan's buffer. */
#include "base/log.h"
#include "dense/dense.h"
#include "fetch/plan.h"
#include "remote/state.h"

/* The chunk cannot be read from NVMe. */
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

/* A chunk that was not on NVMe may have been stored there while the plan waited for a thread. */
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

/* --- decoded chunks --------------------------------------------------------------------------- */

void plan_unpin(struct plan *plan)
{
    for (size_t i = 0; i < plan->part_count; i++) {
        struct plan_part *part = &plan->parts[i];
        if (!part->decoded)
            continue;
        decoded_unpin(&plan->store->fetch->decoded, part->decoded);
        part->decoded = NULL;
        part->is_filled = false;
    }
}

/* Copies parts from decoded chunks into the buffer: for an answer that points into the buffer only,
 * or before the places are released. */
static void plan_copy_decoded(struct plan *plan)
{
    for (size_t i = 0; i < plan->part_count; i++) {
        struct plan_part *part = &plan->parts[i];
        if (!part->decoded)
            continue;
        memcpy(plan->buffer + part->offset, part->decoded->bytes + part->within, part->length);
        decoded_unpin(&plan->store->fetch->decoded, part->decoded);
        part->decoded = NULL;
    }
}

/* The place holds the part's chunk, pinned: the part lies there. */
static int plan_take_decoded(struct plan *plan, struct plan_part *part, struct decoded *place)
{
    part->decoded = place;
    part->is_filled = part->within + part->length <= place->len;
    if (part->is_filled)
        return 0;
    decoded_unpin(&plan->store->fetch->decoded, place);
    part->decoded = NULL;
    return -EUCLEAN;
}

/* --- where each part is ----------------------------------------------------------------------- */

/* Fills a part from memory, or looks up its place. */
static void plan_gather_part(struct plan *plan, struct plan_part *part)
{
    struct decoded *decoded = NULL;
    struct pull *pull = pull_of(plan->store);
    uint8_t *to = plan->buffer + part->offset;
    check(part->kind != KIND_STAGED); /* the step that resolved the part has filled it */
    part->is_filled = true;
    if (part->kind == KIND_HOLE)
        memset(to, 0, part->length);
    else if (part->kind == KIND_INLINE)
        memcpy(to, plan->bytes.at + part->within, part->length);
    else if ((decoded = decoded_find(&plan->store->fetch->decoded, &part->name)) != NULL)
        part->error = plan_take_decoded(plan, part, decoded);
    else if (!(pull &&
               pull_read_ready(pull, &part->name, part->within, to, part->length, &part->error))) {
        part->is_filled = false;
        part->error = plan_find_place(plan, part);
    }
}

/* --- from NVMe -------------------------------------------------------------------------------- */

/* Reads and verifies the whole chunk, in `raw` of CHUNK_SIZE_MAX bytes; if that is NULL, in the
 * plan's buffer if the part is the whole chunk, else in a buffer of the thread. *ret: where the
 * chunk is. */
static int plan_decode(struct plan *plan, struct plan_part *part, uint8_t *raw, uint8_t **ret)
{
    struct packs *packs = plan->store->commit.packs;
    for (int try = 0; try < CHUNK_TRIES; try++) {
        uint32_t len = part->place.raw_len;
        bool is_whole = part->within == 0 && len == part->length;
        *ret = raw        ? raw
               : is_whole ? plan->buffer + part->offset
                          : thread_buffer(THREAD_BUFFER_FETCH, CHUNK_SIZE_MAX);
        int r = packs_read_at(packs, &part->place, *ret);
        if (r == 0)
            return part->within + part->length <= len ? 0 : -EUCLEAN;
        if (r != -ENOENT)
            return r;
        /* it may have left the pack since the lookup */
        TRY(packs_find(packs, &part->name, &part->place));
    }
    return -ENODATA;
}

static int plan_decode_alone(struct plan *plan, struct plan_part *part)
{
    uint8_t *to = plan->buffer + part->offset, *raw;
    TRY(plan_decode(plan, part, NULL, &raw));
    if (raw != to)
        memcpy(to, raw + part->within, part->length);
    part->is_filled = true;
    return 0;
}

/* Decodes into a place from which all plans can read. */
static int plan_decode_for_all(struct plan *plan, struct plan_part *part, struct decoded *place)
{
    uint8_t *raw;
    int r = plan_decode(plan, part, place->bytes, &raw);
    decoded_end(&plan->store->fetch->decoded, place, r == 0 ? part->place.raw_len : 0, plan->woken);
    return r == 0 ? plan_take_decoded(plan, part, place) : r;
}

/* Returns whether the plan may leave its thread: the buffer is the thread's, so its content must be
 * possible to fill again. */
static bool plan_may_wait(const struct plan *plan)
{
    bool may = plan->at == 0;
    for (size_t i = 0; i < plan->part_count; i++)
        may = may && plan->parts[i].kind != KIND_STAGED;
    return may;
}

/* Returns 1 if another thread decodes the chunk, and the plan may wait for it. */
static int plan_read_local(struct plan *plan, struct plan_part *part)
{
    struct decoded *place;
    if (!plan->woken)
        return plan_decode_alone(plan, part);
    enum decoded_get get = decoded_get(&plan->store->fetch->decoded, &part->name, &place);
    if (get == DECODED_FOUND)
        return plan_take_decoded(plan, part, place);
    if (get == DECODED_MINE)
        return plan_decode_for_all(plan, part, place);
    if (get == DECODED_OTHERS && plan_may_wait(plan))
        return 1;
    return plan_decode_alone(plan, part);
}

/* False: no thread decodes the chunk any more. */
static bool plan_wait_for(struct plan *plan, struct plan_part *part)
{
    for (size_t i = 0; i < plan->part_count; i++)
        if (!plan->parts[i].decoded)
            plan->parts[i].is_filled = false;
    return decoded_wait(&plan->store->fetch->decoded, &part->name, plan);
}

/* --- from the remote -------------------------------------------------------------------------- */

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
    PART_IS_COMING, /* another thread decodes it */
    PART_MUST_WAIT, /* for the remote, as this thread may not */
    PART_FAILED,    /* the reason is in part->error */
};

static enum part_result plan_read_part(struct plan *plan, struct plan_part *part)
{
    if (part->error == 0 && part->kind == KIND_LOCAL) {
        int r = plan_read_local(plan, part);
        if (r >= 0)
            return r == 0 ? PART_IS_READ : PART_IS_COMING;
        part->error = plan_go_remote(plan, part, r);
    }
    if (part->error == 0 && plan->may < WAIT_REMOTE)
        return PART_MUST_WAIT;
    if (part->error == 0)
        part->error = plan_read_remote(plan, part);
    return part->error == 0 ? PART_IS_READ : PART_FAILED;
}

/* Moves the plan to a thread that may wait for the remote, which has a buffer of its own. */
static void plan_move_on(struct plan *plan)
{
    bool keeps_parts = plan_may_wait(plan);
    plan_unpin(plan);
    for (size_t i = 0; i < plan->part_count; i++)
        plan->parts[i].is_filled = false;
    plan->needs = WAIT_REMOTE;
    if (keeps_parts)
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

/* --- all of it -------------------------------------------------------------------------------- */

static void plan_add_to_answer(struct plan *plan, uint8_t *bytes, size_t length)
{
    struct iovec *last = plan->iov_count ? &plan->iov[plan->iov_count - 1] : NULL;
    if (last && (uint8_t *)last->iov_base + last->iov_len == bytes)
        last->iov_len += length;
    else
        plan->iov[plan->iov_count++] = (struct iovec){bytes, length};
}

/* The answer consists of the content before the parts, in the buffer, and each part in its
 * place. */
static void plan_point_at_parts(struct plan *plan, size_t at)
{
    if (at > 0)
        plan_add_to_answer(plan, plan->buffer, at);
    for (size_t i = 0; i < plan->part_count; i++) {
        const struct plan_part *part = &plan->parts[i];
        uint8_t *bytes =
            part->decoded ? part->decoded->bytes + part->within : plan->buffer + part->offset;
        plan_add_to_answer(plan, bytes, part->length);
    }
}

/* Without a reply function the buffer is the caller's, so everything is copied into it. */
static void plan_advance(struct plan *plan)
{
    size_t at = plan->at;
    bool is_last = plan->end == plan->length;
    if (!is_last || !plan->want.reply)
        plan_copy_decoded(plan);
    plan->at = plan->end;
    plan->state = is_last ? PLAN_ANSWER : PLAN_RESOLVE;
    if (is_last)
        plan_point_at_parts(plan, at);
}

/* PART_IS_COMING: sets *ret_coming; the parts behind it are read, too. */
static enum part_result plan_read_parts(struct plan *plan, struct plan_part **ret_coming)
{
    enum part_result result = PART_IS_READ;
    for (size_t i = 0; i < plan->part_count && result <= PART_IS_COMING; i++) {
        struct plan_part *part = &plan->parts[i];
        if (part->is_filled && part->error == 0)
            continue;
        result = plan_read_part(plan, part);
        if (result == PART_IS_COMING)
            *ret_coming = part;
        if (result == PART_FAILED) {
            plan_copy_decoded(plan);
            plan_note_error(plan, &part->name, part->error, part->offset);
        }
    }
    return result <= PART_IS_COMING && *ret_coming ? PART_IS_COMING : result;
}

bool plan_fill(struct plan *plan)
{
    bool is_remote = false, is_gone = false;
    struct plan_part *coming = NULL;
    plan_gather(plan, &is_remote, &is_gone);
    if (is_remote)
        prefetch_note_miss(pull_of(plan->store), plan->want.ino);
    if (is_gone && plan->tries < PLAN_TRIES) {
        plan_restart(plan);
        return true;
    }
    enum part_result result =
        is_remote && plan->may < WAIT_REMOTE ? PART_MUST_WAIT : plan_read_parts(plan, &coming);
    if (result == PART_IS_COMING)
        return !plan_wait_for(plan, coming);
    if (result == PART_MUST_WAIT)
        plan_move_on(plan);
    else if (result == PART_IS_READ)
        plan_advance(plan);
    return true;
}
