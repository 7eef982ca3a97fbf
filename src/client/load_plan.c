// SPDX-License-Identifier: Apache-2.0
/* The requests of a batch. Each target starts a grid of LOAD_STEP, like the chunks of a tensor. The
 * rest after the last full step is read together with directly following targets: so the small
 * tensors of a file, and the headers between them, need few requests. */
#include "client/load.h"

static int check_target(const struct cairn_target *target, size_t number, uint64_t size)
{
    if (target->offset > size || target->length > size - target->offset) {
        cause_note("target %zu is %llu bytes from %llu on, and the file has %llu", number,
                   (unsigned long long)target->length, (unsigned long long)target->offset,
                   (unsigned long long)size);
        return -EINVAL;
    }
    uintptr_t end;
    if (target->length > 0 &&
        (!target->host || __builtin_add_overflow((uintptr_t)target->host, target->length, &end))) {
        cause_note("target %zu has no memory for %llu bytes", number,
                   (unsigned long long)target->length);
        return -EINVAL;
    }
    bool is_reserved =
        target->reserved32 || target->reserved[0] || target->reserved[1] || target->reserved[2];
    if (target->flags & ~(uint32_t)CAIRN_TARGET_FRESH || is_reserved) {
        cause_note("target %zu has flags, or members, that this version of the library lacks",
                   number);
        return -EINVAL;
    }
    return 0;
}

static int take_targets(struct load_batch *batch, const struct cairn_target *targets, uint64_t size,
                        size_t *ret_pieces)
{
    uint64_t pieces = 0;
    for (size_t i = 0; i < batch->target_count; i++) {
        const struct cairn_target *given = &targets[i];
        TRY(check_target(given, i, size));
        batch->targets[i] = (struct load_target){.offset = given->offset,
                                                 .length = given->length,
                                                 .host = given->host,
                                                 .flags = given->flags,
                                                 .left = given->length};
        if (__builtin_add_overflow(pieces, (given->length + LOAD_STEP - 1) / LOAD_STEP, &pieces))
            return -ENOMEM;
    }
    *ret_pieces = pieces;
    return 0;
}

static int by_offset(const void *a, const void *b)
{
    const struct load_target *x = *(struct load_target *const *)a,
                             *y = *(struct load_target *const *)b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x < y ? -1 : x > y;
}

static struct load_target **sort_targets(struct load_batch *batch)
{
    struct load_target **order = calloc(batch->target_count + 1, sizeof *order);
    for (size_t i = 0; order && i < batch->target_count; i++)
        order[i] = &batch->targets[i];
    if (order)
        qsort(order, batch->target_count, sizeof *order, by_offset);
    return order;
}

/* Can the piece be read with the preceding request, which has `length` bytes? */
static bool may_join(const struct load_request *request, size_t length,
                     const struct load_piece *piece)
{
    return request->count < LOAD_PIECES_MAX && length + piece->length <= LOAD_STEP &&
           request->offset + length == piece->target->offset + piece->at;
}

static void plan_requests(struct load_batch *batch, struct load_target **order)
{
    struct load_piece *piece = batch->pieces;
    size_t length = LOAD_STEP; /* of the last request; initially nothing can be joined to it */
    for (size_t i = 0; i < batch->target_count; i++) {
        for (uint64_t at = 0; at < order[i]->length; at += piece++->length) {
            *piece = (struct load_piece){order[i], at, min_u64(LOAD_STEP, order[i]->length - at)};
            struct load_request *request = &batch->requests[batch->request_count];
            if (batch->request_count > 0 && may_join(request - 1, length, piece)) {
                request[-1].count++;
                length += piece->length;
                continue;
            }
            *request = (struct load_request){order[i]->offset + at, piece, 1};
            batch->request_count++;
            length = piece->length;
        }
    }
}

static int fill_batch(struct load_batch *batch, const struct cairn_target *targets, uint64_t size)
{
    size_t pieces;
    batch->targets = calloc(batch->target_count + 1, sizeof *batch->targets);
    if (!batch->targets)
        return -ENOMEM;
    TRY(take_targets(batch, targets, size, &pieces));
    batch->pieces = calloc(pieces + 1, sizeof *batch->pieces);
    batch->requests = calloc(pieces + 1, sizeof *batch->requests);
    _cleanup_free_ struct load_target **order = sort_targets(batch);
    if (!batch->pieces || !batch->requests || !order)
        return -ENOMEM;
    plan_requests(batch, order);
    return 0;
}

int load_batch_new(const struct cairn_target *targets, size_t count, uint64_t size,
                   struct load_batch **ret)
{
    *ret = NULL;
    struct load_batch *batch = calloc(1, sizeof *batch);
    if (!batch || count == SIZE_MAX) {
        free(batch);
        return -ENOMEM;
    }
    batch->target_count = count;
    int r = fill_batch(batch, targets, size);
    if (r < 0)
        load_batch_free(batch);
    else
        *ret = batch;
    return r;
}

void load_batch_free(struct load_batch *batch)
{
    if (!batch)
        return;
    free(batch->targets);
    free(batch->pieces);
    free(batch->requests);
    free(batch);
}
