// SPDX-License-Identifier: Apache-2.0
/* One read, from the request to the answer.
 *
 * A plan resolves its range once: the stage has the parts that lie in memory, and one snapshot of
 * the view has the chunks of the rest. From then on all content has names, so compaction, eviction
 * and fetching change where a chunk is read, but never which bytes are read.
 *
 *   state    its thread may wait for   action                          next state
 *   -------  ------------------------  ------------------------------  --------------------------
 *   LOOK     nothing                   size and parts of the range,    ANSWER   all is in memory
 *                                      from the stage                  RESOLVE
 *                                      (fetch_start_read() alone)
 *   RESOLVE  nothing, if parts that    parts: memory, holes, chunks,   LEND     without a buffer
 *            are not staged may be in  of one generation of the view   FILL     with a buffer
 *            memory; else NVMe                                         RESOLVE  the view changed
 *   LEND     nothing                   an answer without a copy, from  ANSWER   all parts are in
 *                                      the window into which bytes of           memory
 *                                      the remote are received         WAIT     a chunk is on its
 *                                                                               way
 *                                                                      FILL     else
 *   WAIT     no thread has the plan    waits with a chunk until it     LEND     in the thread that
 *                                      has arrived or failed                    fetched the chunk
 *   FILL     NVMe                      copies parts that are in        ANSWER
 *                                      memory, finds a place for each  FILL     a chunk is in the
 *                                      other chunk, decodes it from             remote; or in the
 *                                      NVMe, once for all plans that            thread that decodes
 *                                      need it now                              a chunk, without a
 *                                                                               thread until then
 *                                                                      RESOLVE  more parts than a
 *                                                                               plan has, or a
 *                                                                               chunk is gone
 *            the remote                the same, for this plan alone,  ANSWER, RESOLVE
 *                                      and from the remote
 *   ANSWER                             calls the reply function, once
 *
 * plan_step() moves from state to state, by plan_resolve(), plan_lend() and plan_fill();
 * plan_on_arrival() ends WAIT when the chunk has arrived, and a thread that decoded a chunk
 * continues the plans that waited for it (plan->woken). plan_queue() changes the thread,
 * plan_answer() answers.
 *
 * Invariants:
 *
 *   1. Sizes and parts are of one generation (change_generation()) and of one version of the
 *      content, or the plan resolves again.
 *   2. No answer has a byte of a chunk that was not verified against its name.
 *   3. A plan that waits, in a queue or with a chunk, pins no memory of the stage: a remote that
 *      hangs must not take the room of writers. So a range that is partly in memory is resolved by
 *      the thread that copies it. Nor does a plan that waits for the remote hold the place of a
 *      decoded chunk.
 *   4. A plan moves from NVMe's threads to the remote's, and not back. A range that lies on NVMe
 *      never waits for the remote.
 *   5. PLAN_TRIES bounds how often a plan resolves. Then the missing chunk is damage, and the cause
 *      of the error names it.
 *
 * Threads: a plan belongs to one at a time; its fields need no lock. */
#include <sys/mman.h>

#include "base/cause.h"
#include "fetch/plan.h"
#include "remote/follow.h"

#define LOOK_PARTS 512u /* parts of an answer from the stage */

static _Alignas(4096) const uint8_t zeros[ZEROS_LEN];

void fetch_map_zeros(void)
{
    (void)madvise((void *)(uintptr_t)zeros, sizeof zeros, MADV_POPULATE_READ);
}

/* Adds `length` zeros. False: there is no room for them. */
static bool add_zeros(struct iovec *iov, size_t max, size_t *count, size_t length)
{
    while (length > 0) {
        if (*count == max)
            return false;
        size_t n = min_u64(length, sizeof zeros);
        iov[(*count)++] = (struct iovec){(void *)(uintptr_t)zeros, n};
        length -= n;
    }
    return true;
}

/* --- errors ----------------------------------------------------------------------------------- */

void plan_restart(struct plan *plan)
{
    plan->tries++;
    plan->at = 0;
    plan->is_looked = false;
    plan->state = PLAN_RESOLVE;
    plan->needs = plan->needs > WAIT_NVME ? plan->needs : WAIT_NVME;
}

void plan_fail(struct plan *plan, int error, size_t good)
{
    bool is_short = plan->want.may_be_short && good > 0;
    plan->error = is_short ? 0 : error;
    plan->length = good;
    plan->iov[0] = (struct iovec){plan->buffer, good};
    plan->iov_count = is_short;
    plan->state = PLAN_ANSWER;
}

/* Objects that an old head names may be deleted: a follower that lags reads the newest head before
 * this counts as damage. */
static bool plan_is_outdated(const struct plan *plan)
{
    struct store *store = plan->store;
    if (plan->generation == change_generation_now(store->commit.change) && plan->may == WAIT_REMOTE)
        follow_look_now(store);
    return plan->generation != change_generation_now(store->commit.change);
}

/* An error of the remote may pass: it is reported in the status, and is not damage. */
void plan_note_error(struct plan *plan, const struct chunk_name *name, int error, size_t good)
{
    struct store *store = plan->store;
    if (error == -ENOENT && plan->tries < PLAN_TRIES) { /* superseded meanwhile */
        plan_restart(plan);
        return;
    }
    if (error == -EHOSTDOWN) {
        struct remote_status remote;
        remote_get_status(store, &remote);
        cause_note("it is not on NVMe, and the remote did not give it: %s", remote.error);
        plan_fail(plan, -EIO, good);
        return;
    }
    if (plan_is_past(plan)) {
        if (error == -ENOENT)
            cause_note("it is not on NVMe, and the remote has it no more: gc may have taken the "
                       "snapshot");
        else if (error != -ESTALE && !*cause_text())
            cause_note("a chunk of this snapshot cannot be read: %s", damage_describe(error));
        plan_fail(plan, error == -ESTALE ? -ESTALE : -EIO, good);
        return;
    }
    bool is_outdated = plan_is_outdated(plan);
    if (is_outdated && plan->tries < PLAN_TRIES) {
        plan_restart(plan);
        return;
    }
    if (!is_outdated)
        damage_note(store->commit.damage, plan->want.ino, name ? name : &(struct chunk_name){0},
                    error);
    plan_fail(plan, is_outdated ? -ESTALE : -EIO, good);
}

/* --- lend ------------------------------------------------------------------------------------- */

enum lend_result {
    LEND_GIVEN,   /* all chunks are pinned */
    LEND_LATER,   /* a chunk is on its way, and the plan waits with it */
    LEND_REFUSED, /* not all chunks are in memory */
};

/* The first chunk that is not in memory determines the result. */
static enum lend_result plan_lend_locked(struct plan *plan, struct pull *pull)
{
    check_held(&pull->locked.lock);
    for (size_t i = 0; i < plan->part_count; i++) {
        struct plan_part *part = &plan->parts[i];
        if (part->kind != KIND_CHUNK)
            continue;
        struct pull_chunk *chunk = pull_find_locked(pull, &part->name);
        if (!chunk || pull->locked.stopping || chunk->state == PULL_PLANNED ||
            chunk->state == PULL_FAILED)
            return LEND_REFUSED;
        if (chunk->state == PULL_LOADING) {
            plan->state = PLAN_WAIT;
            pull_wait_locked(pull, chunk, &plan->waiter);
            return LEND_LATER;
        }
        if (part->within + part->length > chunk->len)
            return LEND_REFUSED;
        part->lent = chunk;
    }
    for (size_t i = 0; i < plan->part_count; i++)
        if (plan->parts[i].kind == KIND_CHUNK)
            plan->parts[i].lent->pins++;
    plan->is_lent = true;
    return LEND_GIVEN;
}

/* Returns whether the parts cover the read, and fit into an answer. */
static bool plan_is_lendable(const struct plan *plan, bool *ret_has_chunks)
{
    size_t iovs = 0;
    *ret_has_chunks = false;
    for (size_t i = 0; i < plan->part_count; i++) {
        const struct plan_part *part = &plan->parts[i];
        *ret_has_chunks = *ret_has_chunks || part->kind == KIND_CHUNK;
        iovs += part->kind == KIND_HOLE ? align_up(part->length, ZEROS_LEN) / ZEROS_LEN : 1;
    }
    return plan->end == plan->length && iovs <= PLAN_IOVS;
}

static enum lend_result plan_borrow(struct plan *plan)
{
    struct pull *pull = pull_of(plan->store);
    /* copied: a chunk with which the plan waits may have ended the plan by then */
    uint64_t ino = plan->want.ino;
    bool has_chunks, is_lendable = plan_is_lendable(plan, &has_chunks);
    if (is_lendable && !has_chunks)
        return LEND_GIVEN;
    if (!is_lendable || !pull)
        return LEND_REFUSED;
    mutex_lock(&pull->locked.lock);
    enum lend_result result = plan_lend_locked(plan, pull);
    mutex_unlock(&pull->locked.lock);
    if (result != LEND_REFUSED)
        prefetch_note_miss(pull, ino);
    return result;
}

/* Makes the answer from memory without copying. */
static void plan_point(struct plan *plan)
{
    for (size_t i = 0; i < plan->part_count; i++) {
        const struct plan_part *part = &plan->parts[i];
        if (part->kind == KIND_HOLE) {
            check(add_zeros(plan->iov, PLAN_IOVS, &plan->iov_count, part->length));
            continue;
        }
        const uint8_t *bytes = part->kind == KIND_INLINE ? plan->bytes.at : part->lent->bytes;
        check(plan->iov_count < PLAN_IOVS);
        plan->iov[plan->iov_count++] =
            (struct iovec){(void *)(uintptr_t)(bytes + part->within), part->length};
    }
}

static void plan_give_back(struct plan *plan)
{
    struct pull *pull = pull_of(plan->store);
    if (!plan->is_lent)
        return;
    LOCK_SCOPE(&pull->locked.lock);
    for (size_t i = 0; i < plan->part_count; i++) {
        struct plan_part *part = &plan->parts[i];
        if (part->kind != KIND_CHUNK)
            continue;
        pull_note_read_locked(pull, part->lent, part->length);
        pull_unpin_locked(pull, part->lent);
    }
}

/* False: the plan waits with a chunk. */
static bool plan_lend(struct plan *plan)
{
    enum lend_result result = plan_borrow(plan);
    if (result == LEND_LATER)
        return false;
    if (result == LEND_GIVEN)
        plan_point(plan);
    plan->state = result == LEND_GIVEN ? PLAN_ANSWER : PLAN_FILL;
    plan->needs = result == LEND_GIVEN ? WAIT_NOTHING : WAIT_NVME;
    return true;
}

/* --- from state to state ---------------------------------------------------------------------- */

enum plan_result {
    PLAN_IS_ANSWERED, /* the answer is complete */
    PLAN_MUST_MOVE,   /* to a thread that may wait for the tier of the next step */
    PLAN_IS_AWAY,     /* a chunk has the plan */
};

static enum plan_result plan_step(struct plan *plan)
{
    while (plan->state != PLAN_ANSWER) {
        if (plan->needs > plan->may)
            return PLAN_MUST_MOVE;
        if (plan->state == PLAN_RESOLVE)
            plan_resolve(plan);
        else if (!(plan->state == PLAN_FILL ? plan_fill(plan) : plan_lend(plan)))
            return PLAN_IS_AWAY;
    }
    return PLAN_IS_ANSWERED;
}

static void plan_done(struct plan *plan)
{
    plan_unpin(plan);
    vector_free(&plan->bytes);
    free(plan);
}

static void plan_answer(struct plan *plan)
{
    struct fetch_answer answer = {.ino = plan->want.ino, .error = plan->error};
    if (answer.error == 0) {
        answer.length = plan->length;
        answer.iov = plan->iov;
        answer.iov_count = plan->iov_count;
    }
    plan->want.reply(&answer, plan->want.arg);
    plan_give_back(plan);
    plan_done(plan);
}

static void plan_queue(struct plan *plan);

static void plan_proceed(struct plan *plan, enum plan_wait may)
{
    plan->may = may;
    plan->buffer =
        may == WAIT_NOTHING ? NULL : thread_buffer(THREAD_BUFFER_REPLY, plan->want.length);
    enum plan_result result = plan_step(plan);
    if (result == PLAN_IS_ANSWERED)
        plan_answer(plan);
    else if (result == PLAN_MUST_MOVE)
        plan_queue(plan);
}

/* Continues the plan, and then the plans that waited for chunks that it decoded. */
static void plan_on_nvme(void *arg)
{
    struct plan_list woken = STAILQ_HEAD_INITIALIZER(woken);
    struct plan *plan = arg;
    while (plan) {
        cause_clear();
        plan->woken = &woken;
        plan_proceed(plan, WAIT_NVME);
        plan = STAILQ_FIRST(&woken);
        if (plan)
            STAILQ_REMOVE_HEAD(&woken, link);
    }
}

static void plan_on_remote(void *arg)
{
    struct plan *plan = arg;
    cause_clear();
    plan->woken = NULL;
    plan_proceed(plan, WAIT_REMOTE);
}

static void plan_on_arrival(void *arg)
{
    struct plan *plan = arg;
    plan->state = PLAN_LEND;
    plan_proceed(plan, WAIT_NOTHING);
}

static void plan_queue(struct plan *plan)
{
    struct store *store = plan->store;
    if (plan->needs == WAIT_REMOTE)
        pool_submit(pull_of(store)->readers, plan_on_remote, plan);
    else
        pool_submit(store->fetch->readers, plan_on_nvme, plan);
}

static struct plan *plan_new(struct store *store, const struct fetch_read_request *want)
{
    struct plan *plan = xmalloc(sizeof *plan);
    memset(plan, 0, offsetof(struct plan, parts));
    plan->store = store;
    plan->want = *want;
    plan->state = PLAN_RESOLVE;
    plan->needs = WAIT_NVME;
    plan->waiter = (struct pull_waiter){.job = plan_on_arrival, .arg = plan};
    return plan;
}

/* --- look ------------------------------------------------------------------------------------- */

/* The state of a look, in the calling thread. */
struct look {
    uint64_t generation;
    struct commit_now now;
    size_t length;
    size_t part_count, iov_count;
    struct stage_part parts[LOOK_PARTS];
    struct iovec iov[LOOK_PARTS];
};

static int plan_look_at(struct store *store, const struct fetch_read_request *want,
                        struct look *look)
{
    const struct stage_range range = {want->ino, want->offset, want->length};
    look->iov_count = 0;
    look->generation = change_generation(store->commit.change);
    look->part_count =
        stage_resolve(store->local.stage, &range, look->parts, LOOK_PARTS, &look->now.staged);
    TRY(ns_inode(store->local.ns, want->ino, &look->now.inode));
    commit_now_settle(&look->now);
    look->length =
        look->now.size > want->offset ? min_u64(want->length, look->now.size - want->offset) : 0;
    return 0;
}

/* True: all content is in memory, and fits into an answer. */
static bool plan_look_answers(struct look *look)
{
    size_t covered = 0;
    for (size_t i = 0; i < look->part_count && covered < look->length; i++) {
        const struct stage_part *part = &look->parts[i];
        size_t length = min_u64(part->length, look->length - covered);
        covered += length;
        if (part->kind == PART_HOLE && add_zeros(look->iov, LOOK_PARTS, &look->iov_count, length))
            continue;
        if (part->kind != PART_MEMORY || look->iov_count == LOOK_PARTS)
            return false;
        look->iov[look->iov_count++] = (struct iovec){(void *)(uintptr_t)part->memory, length};
    }
    return covered == look->length;
}

static void plan_look_done(struct store *store, struct look *look)
{
    if (look->part_count)
        stage_unpin_parts(store->local.stage, look->parts, look->part_count);
    look->part_count = 0;
}

/* Returns whether no part of the range is staged. */
static bool plan_look_is_below(const struct look *look)
{
    return look->part_count > 0 && look->parts[0].kind == PART_BELOW &&
           look->parts[0].length >= look->length;
}

/* Returns whether the rest may be answered without waiting: a small file lies in the view, and a
 * fetched chunk in the window. Else the thread that receives requests does not even read the
 * view. */
static bool plan_look_may_suffice(struct store *store, const struct look *look)
{
    struct pull *pull = pull_of(store);
    if (look->now.size <= INLINE_MAX)
        return true;
    if (!pull)
        return false;
    LOCK_SCOPE(&pull->locked.lock);
    return pull->locked.chunks != NULL;
}

static void start_plan(struct store *store, const struct fetch_read_request *want,
                       struct look *look)
{
    struct plan *plan = plan_new(store, want);
    if (plan_look_is_below(look)) {
        plan->is_looked = true;
        plan->needs = plan_look_may_suffice(store, look) ? WAIT_NOTHING : WAIT_NVME;
        plan->generation = look->generation;
        plan->version = look->now.inode.version;
        plan->length = look->length;
    }
    plan_look_done(store, look);
    plan_proceed(plan, WAIT_NOTHING);
}

/* Of an earlier state: the stage has nothing of it. */
static int plan_look_at_past(struct store *store, const struct fetch_read_request *want,
                             struct plan *plan)
{
    struct view_inode inode;
    const struct fetch_view of = fetch_view_enter(store, want->ino);
    int r = of.view ? view_inode(of.view, of.ino, &inode) : -ESTALE;
    fetch_view_leave(store, want->ino, &of);
    TRY(r);
    plan->version = inode.version;
    if (inode.attrs.size > want->offset)
        plan->length = min_u64(want->length, inode.attrs.size - want->offset);
    return 0;
}

static void start_past_read(struct store *store, const struct fetch_read_request *want)
{
    struct plan *plan = plan_new(store, want);
    int r = plan_look_at_past(store, want, plan);
    if (r < 0)
        plan_fail(plan, r, 0);
    else if (plan->length == 0)
        plan->state = PLAN_ANSWER;
    plan_proceed(plan, WAIT_NOTHING);
}

void fetch_start_read(struct store *store, const struct fetch_read_request *want)
{
    static _Thread_local struct look look;
    packs_note_reading(store->commit.packs);
    if (past_slot(want->ino)) {
        start_past_read(store, want);
        return;
    }
    int r = plan_look_at(store, want, &look);
    if (r == 0 && want->looked)
        want->looked(&look.now, want->looked_arg);
    if (r == 0 && !plan_look_answers(&look)) {
        start_plan(store, want, &look);
        return;
    }
    struct fetch_answer answer = {.ino = want->ino, .error = r};
    if (r == 0) {
        stage_map_parts(store->local.stage, look.parts, look.part_count);
        answer.length = look.length;
        answer.iov = look.iov;
        answer.iov_count = look.iov_count;
    }
    want->reply(&answer, want->arg);
    plan_look_done(store, &look);
}

int fetch_read(struct store *store, const struct fetch_read *how, struct fetch_read_end *ret)
{
    const struct fetch_read_request want = {
        .ino = how->ino, .offset = how->offset, .length = how->length};
    struct plan *plan = plan_new(store, &want);
    packs_note_reading(store->commit.packs);
    plan->may = how->reach == STORE_REACH_REMOTE ? WAIT_REMOTE : WAIT_NVME;
    plan->buffer = how->buf;
    int looked = past_slot(how->ino) ? plan_look_at_past(store, &want, plan) : 0;
    if (looked < 0)
        plan_fail(plan, looked, 0);
    else if (past_slot(how->ino) && plan->length == 0)
        plan->state = PLAN_ANSWER;
    bool is_answered = plan_step(plan) == PLAN_IS_ANSWERED;
    int r = is_answered ? plan->error : 0;
    *ret = (struct fetch_read_end){.good = is_answered ? plan->length : plan->at,
                                   .is_beyond_reach = !is_answered};
    if (is_answered && r == 0) { /* the range beyond the end of the file */
        memset((uint8_t *)how->buf + plan->length, 0, how->length - plan->length);
        ret->good = how->length;
    }
    plan_done(plan);
    return r;
}

void fetch_end_reads(struct store *store)
{
    struct pull *pull = pull_of(store);
    /* A read moves from waiters to readers of NVMe to readers of the remote, and not back. */
    if (pull)
        pull_await_waiters(pull);
    if (store->fetch->readers)
        pool_drain(store->fetch->readers);
    if (pull && pull->readers)
        pool_drain(pull->readers);
}
