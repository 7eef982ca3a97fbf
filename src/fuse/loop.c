// SPDX-License-Identifier: Apache-2.0
/* Receiving requests, and parking those that find no room. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/cause.h"
#include "base/clock.h"
#include "fs/taken.h"
#include "fuse/internal.h"
#include "fuse/earlier.h"

/* how often waiting callers are checked for a fatal signal, and room is tried again */
#define POLL_MS 200
#define PARKED_SLABS_FREE 3u /* number that may be parked without asking the stage */

_Thread_local struct current current;

/* Restores the request to its unprocessed form, and parks it. */
void front_park(fuse_req_t req)
{
    fuse_reply_none(req);
    current.park = true;
}

/* First come, first served: a new request queues behind waiting ones. */
bool front_must_queue(struct front *front)
{
    return !current.is_resumed && atomic_load(&front->parked_content) > 0;
}

static struct parked *make_parked(struct front *front, const struct fuse_buf *buf)
{
    const struct wire_in_header *header = buf->mem;
    struct parked *parked = xcalloc(1, sizeof *parked);
    *parked = (struct parked){.slab = SLAB_NONE,
                              .is_content = header->opcode == WIRE_WRITE ||
                                            header->opcode == WIRE_COPY_FILE_RANGE,
                              .size = buf->size,
                              .unique = header->unique,
                              .pid = (pid_t)header->pid,
                              .since = clock_monotonic_ns(),
                              .bringing = current.bringing};
    if (buf->size >= STAGE_STEAL_MIN) { /* smaller payloads are copied anyway */
        check(current.slab != SLAB_NONE && !current.stolen);
        atomic_fetch_add(&front->parked_slabs, 1);
        parked->slab = current.slab;
        parked->mem = buf->mem;
        current.stolen = true;
    } else {
        parked->mem = xmalloc(buf->size);
        memcpy(parked->mem, buf->mem, buf->size);
    }
    return parked;
}

/* The kernel calls the root of every mount 1. Here it may be that of an earlier state. */
static void find_root(const struct front *front, const struct fuse_buf *buf)
{
    struct wire_in_header *header = buf->mem;
    if (front->options.root && header->nodeid == FUSE_ROOT_ID)
        header->nodeid = front->options.root;
}

/* `parked`: its parked form until now; NULL: it has just arrived. */
static void process(struct front *front, uint32_t slab, struct fuse_buf *buf,
                    const struct parked *parked)
{
    find_root(front, buf);
    current = (struct current){.slab = slab, .header = buf->mem, .is_resumed = parked};
    current.bringing = parked ? parked->bringing : NULL;
    current.is_interrupted = parked && parked->is_interrupted;
    cause_clear();
    room_waits_since(parked ? parked->since : 0);
    adopt_enter(front, parked);
    if (!earlier_refuses(front) && !front_refuses(front))
        fuse_session_process_buf(front->se, buf);
    stage_request_leave();
}

/* Called when it is put into a list. */
static void note_interrupted_locked(struct front *front, struct parked *parked)
{
    check_held(&front->locked.lock);
    for (unsigned i = 0; i < INTERRUPTED_MAX; i++)
        if (front->locked.interrupted[i] == (parked->unique & ~WIRE_RESENT))
            parked->is_interrupted = true;
}

static bool interrupt_listed_locked(struct front *front, struct parked_list *list, uint64_t unique)
{
    check_held(&front->locked.lock);
    struct parked *parked;
    TAILQ_FOREACH(parked, list, link)
    if ((parked->unique & ~WIRE_RESENT) == unique) {
        parked->is_interrupted = true;
        return true;
    }
    return false;
}

/* The kernel reports it once, at the caller's first signal. */
static void note_interrupt(struct front *front, const struct fuse_buf *buf)
{
    uint64_t unique;
    if (buf->size < WIRE_IN_HEADER_LEN + sizeof unique)
        return;
    memcpy(&unique, (const uint8_t *)buf->mem + WIRE_IN_HEADER_LEN, sizeof unique);
    unique &= ~WIRE_RESENT;
    LOCK_SCOPE(&front->locked.lock);
    if (interrupt_listed_locked(front, &front->locked.changes, unique) ||
        interrupt_listed_locked(front, &front->locked.content, unique))
        return;
    front->locked.interrupted[front->locked.interrupted_next++ % INTERRUPTED_MAX] = unique;
}

static void enqueue(struct front *front, struct parked *parked)
{
    mutex_lock(&front->locked.lock);
    note_interrupted_locked(front, parked);
    TAILQ_INSERT_TAIL(parked->is_content ? &front->locked.content : &front->locked.changes, parked,
                      link);
    unsigned count = atomic_fetch_add(&front->parked_count, 1) + 1;
    atomic_fetch_add(&front->parked_content, parked->is_content);
    front->locked.wait_count++;
    mutex_unlock(&front->locked.lock);
    front_wake(front);
    horizon_note_waiting(front->commit->horizon, count);
}

void front_wake(struct front *front)
{
    LOCK_SCOPE(&front->wake.lock);
    front->wake.wanted = true;
    (void)pthread_cond_signal(&front->wake.changed);
}

static void handle(struct front *front, uint32_t *slab, struct fuse_buf *buf)
{
    const struct wire_in_header *header = buf->mem;
    front_see_request(front, buf->mem, buf->size);
    if (header->opcode == WIRE_INTERRUPT) {
        note_interrupt(front, buf);
        /* The resumer checks which callers have a fatal signal, and which wait for a copy; others
         * keep waiting. */
        front_wake(front);
    }
    atomic_fetch_add_explicit(&front->requests, 1, memory_order_relaxed);
    process(front, *slab, buf, NULL);
    if (current.park)
        enqueue(front, make_parked(front, buf));
    if (current.stolen)
        *slab = SLAB_NONE;
}

static void no_op(int sig)
{
    (void)sig;
}

/* Lets front_interrupt() interrupt a blocking read. */
static void accept_wake_signal(void)
{
    struct sigaction sa = {.sa_handler = no_op};
    sigset_t set;
    (void)sigaction(SIGUSR1, &sa, NULL);
    (void)sigemptyset(&set);
    (void)sigaddset(&set, SIGUSR1);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

void front_interrupt(struct front *front)
{
    for (unsigned i = 0; i < front->thread_count; i++)
        (void)pthread_kill(front->threads[i], SIGUSR1);
}

/* Waiting requests must not use all buffers: receiving stops until some of them have continued. */
static bool must_hold_back(struct front *front)
{
    return atomic_load(&front->parked_slabs) > PARKED_SLABS_FREE &&
           atomic_load(&front->parked_slabs) >= stage_slabs_for_waiting(front->stage);
}

static void await_receiving(struct front *front)
{
    uint64_t seen = event_count(&front->progress);
    while (!atomic_load(&front->stopping) &&
           (atomic_load(&front->holding) || must_hold_back(front)))
        (void)event_wait(&front->progress, &seen, INT64_MAX);
}

/* Called by the thread that still has the turn. Resent requests precede all others, and are handled
 * in that order: as long as there may be some, only one thread receives. */
static void note_received(struct front *front, const struct fuse_buf *buf)
{
    atomic_fetch_add(&front->working, 1); /* before another thread has the turn */
    adopt_see(front, buf->mem);
    if (!front->adoption.is_adopted || atomic_load(&front->adoption.is_settled))
        turn_received(&front->turns, fuse_session_fd(front->se), buf->size);
}

void *front_receive(void *arg)
{
    struct front *front = arg;
    uint32_t slab = SLAB_NONE;
    accept_wake_signal();
    for (;;) {
        await_receiving(front);
        if (atomic_load(&front->stopping))
            break;
        if (slab == SLAB_NONE)
            slab = stage_slab_take(front->stage, &front->stopping);
        if (slab == SLAB_NONE)
            break;
        if (!turn_take(&front->turns))
            break;
        uint8_t *memory = stage_slab_memory(front->stage, slab);
        struct fuse_buf buf = {.mem = memory + RECEIVED_OFFSET};
        int r = fuse_session_receive_buf(front->se, &buf);
        if (r > 0)
            note_received(front, &buf);
        turn_leave(&front->turns);
        hold_note(front);
        if (r == -EINTR || r == -EAGAIN)
            continue;
        if (r <= 0)
            break;
        /* Afterwards the slab may belong to the stage, or to another thread: then the request must
         * not be read any more. */
        uint32_t opcode = ((const struct wire_in_header *)buf.mem)->opcode;
        int64_t begun = turn_begin(&front->turns, opcode);
        handle(front, &slab, &buf);
        turn_end(&front->turns, opcode, begun);
        check(atomic_fetch_sub(&front->working, 1) > 0);
        hold_note(front);
    }
    turns_end(&front->turns);
    if (slab != SLAB_NONE)
        stage_slab_give(front->stage, slab);
    if (atomic_fetch_sub(&front->live_threads, 1) == 1) {
        atomic_store(&front->over, true);
        (void)eventfd_write(front->event_fd, 1);
    }
    event_signal(&front->progress);
    return NULL;
}

/* --- waiting callers -------------------------------------------------------------------------- */

void parked_free(struct front *front, struct parked *parked)
{
    check(atomic_fetch_sub(&front->parked_count, 1) > 0);
    check(atomic_fetch_sub(&front->parked_content, parked->is_content) >= parked->is_content);
    if (parked->slab != SLAB_NONE) {
        stage_slab_give(front->stage, parked->slab);
        atomic_fetch_sub(&front->parked_slabs, 1);
    } else {
        free(parked->mem);
    }
    if (parked->bringing)
        fs_bring_leave(parked->bringing);
    free(parked);
    event_signal(&front->progress);
}

static void reply_interrupted(struct front *front, uint64_t unique)
{
    front_answer(front, unique, EINTR);
}

static void take_killed_locked(struct parked_list *list, struct parked_list *killed)
{
    check_rank_held(LOCK_CONTROL);
    struct parked *parked, *next;
    for (parked = TAILQ_FIRST(list); parked; parked = next) {
        next = TAILQ_NEXT(parked, link);
        if (!caller_is_dying(parked->pid))
            continue;
        TAILQ_REMOVE(list, parked, link);
        TAILQ_INSERT_TAIL(killed, parked, link);
    }
}

static void drop_killed_parked(struct front *front)
{
    struct parked_list killed = TAILQ_HEAD_INITIALIZER(killed);
    struct parked *parked;
    mutex_lock(&front->locked.lock);
    take_killed_locked(&front->locked.content, &killed);
    take_killed_locked(&front->locked.changes, &killed);
    mutex_unlock(&front->locked.lock);
    while ((parked = TAILQ_FIRST(&killed))) {
        TAILQ_REMOVE(&killed, parked, link);
        reply_interrupted(front, parked->unique);
        parked_free(front, parked);
    }
}

static void drop_killed_syncing(struct front *front)
{
    struct syncing_list killed = TAILQ_HEAD_INITIALIZER(killed);
    struct syncing *syncing, *next;
    mutex_lock(&front->locked.lock);
    for (syncing = TAILQ_FIRST(&front->locked.syncing); syncing; syncing = next) {
        next = TAILQ_NEXT(syncing, link);
        if (!caller_is_dying(syncing->pid) || !store_unwait(front->store, syncing->ticket))
            continue;
        TAILQ_REMOVE(&front->locked.syncing, syncing, link);
        TAILQ_INSERT_TAIL(&killed, syncing, link);
    }
    mutex_unlock(&front->locked.lock);
    while ((syncing = TAILQ_FIRST(&killed))) {
        TAILQ_REMOVE(&killed, syncing, link);
        (void)fuse_reply_err(syncing->req, EINTR);
        free(syncing);
    }
}

static struct parked *pop(struct front *front, struct parked_list *list)
{
    LOCK_SCOPE(&front->locked.lock);
    struct parked *parked = TAILQ_FIRST(list);
    if (parked)
        TAILQ_REMOVE(list, parked, link);
    return parked;
}

/* False: it must wait longer, and is still owned by the caller. */
static bool repeat(struct front *front, struct parked *parked)
{
    struct fuse_buf buf = {.mem = parked->mem, .size = parked->size};
    process(front, parked->slab, &buf, parked);
    parked->bringing = current.bringing;
    if (current.park)
        return false;
    mutex_lock(&front->locked.lock);
    front->locked.wait_ns += (uint64_t)(clock_monotonic_ns() - parked->since);
    mutex_unlock(&front->locked.lock);
    if (current.stolen) { /* the stage owns the slab now */
        atomic_fetch_sub(&front->parked_slabs, 1);
        parked->slab = SLAB_NONE;
        parked->mem = NULL;
    }
    parked_free(front, parked);
    return true;
}

/* Repeats each request; those that must wait keep their order. */
static void resume_changes(struct front *front)
{
    struct parked_list waiting = TAILQ_HEAD_INITIALIZER(waiting);
    struct parked *parked;
    while (!atomic_load(&front->stopping) && (parked = pop(front, &front->locked.changes)))
        if (!repeat(front, parked))
            TAILQ_INSERT_TAIL(&waiting, parked, link);
    LOCK_SCOPE(&front->locked.lock);
    TAILQ_FOREACH(parked, &waiting, link)
    note_interrupted_locked(front, parked);
    TAILQ_CONCAT(&waiting, &front->locked.changes, link);
    TAILQ_CONCAT(&front->locked.changes, &waiting, link);
}

/* Repeats the oldest request, and the next ones as long as they can continue. */
static void resume_content(struct front *front)
{
    struct parked *parked;
    while (!atomic_load(&front->stopping) && (parked = pop(front, &front->locked.content))) {
        if (repeat(front, parked))
            continue;
        LOCK_SCOPE(&front->locked.lock);
        TAILQ_INSERT_HEAD(&front->locked.content, parked, link);
        return;
    }
}

static void wait_for_wake(struct front *front)
{
    mutex_lock(&front->locked.lock);
    bool idle = atomic_load(&front->parked_count) == 0 && TAILQ_EMPTY(&front->locked.syncing);
    mutex_unlock(&front->locked.lock);
    int64_t held = idle ? 0 : history_hold_ns(front->commit->history) / MS_NS + 1;
    LOCK_SCOPE(&front->wake.lock);
    if (!front->wake.wanted && !atomic_load(&front->stopping))
        (void)mutex_wait(&front->wake.lock, &front->wake.changed,
                         idle       ? 2000
                         : held > 1 ? (uint64_t)held
                                    : POLL_MS);
    front->wake.wanted = false;
}

void *front_resume(void *arg)
{
    struct front *front = arg;
    while (!atomic_load(&front->stopping)) {
        drop_killed_parked(front);
        drop_killed_syncing(front);
        resume_changes(front);
        resume_content(front);
        hold_note(front); /* requests that wait longer are listed again */
        bool is_held = history_hold_ns(front->commit->history) > 0; /* not for lack of room */
        horizon_note_waiting(front->commit->horizon,
                             is_held ? 0 : atomic_load(&front->parked_count));
        wait_for_wake(front);
    }
    return NULL;
}

void front_room(struct front *front)
{
    if (atomic_load(&front->parked_count) > 0)
        front_wake(front);
}
