// SPDX-License-Identifier: Apache-2.0
/* The list of operations that are not durable yet: entering it, choosing a cut of it, and removing
 * durable ones. */
#include "base/clock.h"
#include "commit/history_internal.h"
#include "commit/horizon_internal.h"
#include "commit/local.h"
#include "overlay/ns.h"
#include "stage/stage.h"

void history_unlist_op_locked(struct history *history, struct op *op)
{
    check_held(&history->lock);
    TAILQ_REMOVE(&history->ops, op, link);
    history->op_count--;
    history->op_bytes -= op->len;
    free(op);
}

/* Allocates an operation with its encoded bytes. It is encoded here and nowhere else: the stage's
 * log and the journal get copies. Owned by the caller until it is listed. */
struct op *history_op_new(const struct record *rec)
{
    uint32_t len = (uint32_t)record_encoded_len(rec);
    struct op *op = xmalloc(sizeof *op + len);
    *op = (struct op){.seq = rec->seq,
                      .type = rec->type,
                      .flags = rec->flags,
                      .ino = rec->ino,
                      .ino2 = rec->ino2,
                      .version = rec->version,
                      .len = len};
    record_encode(rec, op->bytes);
    return op;
}

/* `happened`: monotonic ns; 0: now. */
void history_list_op_locked(struct history *history, struct op *op, int64_t happened)
{
    check_held(&history->lock);
    op->happened = happened ? happened : clock_monotonic_ns();
    TAILQ_INSERT_TAIL(&history->ops, op, link);
    history->op_count++;
    history->op_bytes += op->len;
    history->newest = op->seq;
}

void history_touch_locked(struct history *history, const struct record *rec)
{
    check_held(&history->lock);
    if (history->touched)
        touched_add(history->touched, rec);
}

uint64_t history_newest(struct history *history)
{
    LOCK_SCOPE(&history->lock);
    return history->newest;
}

int64_t history_last_time(struct history *history)
{
    LOCK_SCOPE(&history->lock);
    return history->last_time;
}

void history_resume(struct history *history, int64_t last_time)
{
    LOCK_SCOPE(&history->lock);
    history->last_time = last_time;
}

/* Counts the last record, and not the latest time: that may come from a clock that was ahead. */
void history_readd(struct history *history, const struct record *rec)
{
    LOCK_SCOPE(&history->lock);
    history->last_time = rec->time;
    history_list_op_locked(history, history_op_new(rec), 0);
}

static struct op **up_to_locked(struct history *history, uint64_t seq, size_t *ret_count)
{
    check_held(&history->lock);
    struct op **ops = xcalloc(history->op_count, sizeof(struct op *));
    struct op *op;
    *ret_count = 0;
    TAILQ_FOREACH(op, &history->ops, link)
    if (op->seq <= seq)
        ops[(*ret_count)++] = op;
    return ops;
}

struct op **history_up_to(struct history *history, uint64_t cut, size_t *ret_count)
{
    LOCK_SCOPE(&history->lock);
    return up_to_locked(history, cut, ret_count);
}

struct op **history_look(struct history *history, size_t *ret_count)
{
    LOCK_SCOPE(&history->lock);
    history->lookers++;
    return up_to_locked(history, UINT64_MAX, ret_count);
}

void history_looked(struct history *history, struct op **ops)
{
    LOCK_SCOPE(&history->lock);
    check(history->lookers > 0);
    history->lookers--;
    free(ops);
}

size_t history_retire(struct history *history, uint64_t seq)
{
    LOCK_SCOPE(&history->lock);
    struct op *op;
    size_t count = 0;
    while ((op = TAILQ_FIRST(&history->ops)) && op->seq <= seq) {
        history_unlist_op_locked(history, op);
        count++;
    }
    return count;
}

void history_retire_lagging(struct history *history, uint64_t seq)
{
    atomic_fetch_add(&history->lagging, history_retire(history, seq));
}

void history_followed(struct history *history)
{
    atomic_store(&history->lagging, 0);
}

void history_retire_overlay(struct history *history, uint64_t cut)
{
    LOCK_SCOPE(&history->lock);
    ns_retire(history->local->ns, cut);
}

bool history_oldest(struct history *history, uint64_t *ret_seq, int64_t *ret_happened)
{
    LOCK_SCOPE(&history->lock);
    const struct op *op = TAILQ_FIRST(&history->ops);
    if (op) {
        *ret_seq = op->seq;
        *ret_happened = op->happened;
    }
    return op != NULL;
}

int64_t history_oldest_after(struct history *history, uint64_t seq)
{
    uint64_t oldest;
    int64_t happened = horizon_age_after(history->horizon, seq);
    if (!happened && !history_oldest(history, &oldest, &happened))
        happened = 0;
    return happened;
}

/* --- cuts ------------------------------------------------------------------------------------- */

static struct stage_sealed *list_sealed(struct stage *stage, size_t *ret_count)
{
    size_t max = stage_sealed_list(stage, NULL, 0);
    struct stage_sealed *list = xcalloc(max, sizeof *list);
    size_t count = stage_sealed_list(stage, list, max);
    *ret_count = count < max ? count : max;
    return list;
}

/* Called with the lock held, so that no version is sealed or dropped meanwhile. */
uint64_t history_choose(struct history *history, uint64_t most, bool is_own,
                        struct stage_sealed **ret_sealed, size_t *ret_count)
{
    struct stage *stage = history->local->stage;
    LOCK_SCOPE(&history->lock);
    uint64_t floor = stage_floor(stage), missing = 0, cut = history->newest;
    size_t count;
    struct stage_sealed *sealed = list_sealed(stage, &count);
    for (size_t i = 0; i < count; i++) {
        missing += sealed[i].bytes;
        if (i > 0 && missing > most && sealed[i].seal_seq > floor) {
            cut = sealed[i].seal_seq - 1;
            count = i;
        }
    }
    uint64_t wanted = history_wanted_cut_locked(history, max_u64(floor, history->chosen + 1), cut);
    if (wanted) {
        cut = wanted;
        while (count > 0 && sealed[count - 1].seal_seq > cut)
            count--;
    }
    for (size_t i = 0; i < count; i++)
        stage_pin(stage, &sealed[i]);
    history->chosen = cut;
    if (is_own && history->op_count == 0)
        cut = history->newest = max_u64(stage_next_seq(stage), history->newest + 1);
    *ret_sealed = sealed;
    *ret_count = count;
    return cut;
}

/* --- the newest number ------------------------------------------------------------------------ */

/* Returns the number of the newest operation, raised to `cut` at least. */
static uint64_t raise_newest(struct history *history, uint64_t cut)
{
    LOCK_SCOPE(&history->lock);
    history->newest = max_u64(history->newest, cut);
    return history->newest;
}

void history_begin(struct history *history, uint64_t cut)
{
    (void)raise_newest(history, cut);
    horizon_begin(history->horizon, cut);
}

void history_raise(struct history *history, uint64_t cut)
{
    horizon_advance(history->horizon, raise_newest(history, cut));
}
