// SPDX-License-Identifier: Apache-2.0
/* Turns to receive. One thread waits for the kernel, and the thread that received a request goes on
 * to wait for the next when it has answered: with requests that come one at a time, as those of one
 * program do, nothing is handed from thread to thread. (All threads waiting at once would be woken
 * in rotation, which costs more than most requests themselves.) Another thread is woken
 *
 *   - before a request of a kind that took long last time,
 *   - when requests wait again and again while others are answered, so that several are answered
 *     at once. (What has come when the answer was sent is no sign of that: its caller may have run
 *     before this thread could go on, and one program would seem to be many.)
 *   - when no thread has received for RESCUE_MS: the one that had the turn is held up.
 *
 * A thread rests only when it has seen that another waits for the kernel, and that one does not
 * rest before it has seen the same. */
#include <poll.h>

#include "base/clock.h"
#include "fuse/internal.h"

#define LONG_NS 200000
#define RESCUE_MS 100
#define BACKLOG 4u

/* Requests in a row before whose answer, by this thread, others waited. */
static _Thread_local unsigned backlog;

void turns_init(struct turns *turns)
{
    mutex_init(&turns->lock, LOCK_LEAF);
    cond_init(&turns->changed);
}

void turns_done(struct turns *turns)
{
    mutex_done(&turns->lock);
    (void)pthread_cond_destroy(&turns->changed);
}

void turns_end(struct turns *turns)
{
    LOCK_SCOPE(&turns->lock);
    turns->ended = true;
    (void)pthread_cond_broadcast(&turns->changed);
}

static bool turn_claim(struct turns *turns)
{
    bool free = false;
    return atomic_compare_exchange_strong(&turns->is_receiving, &free, true);
}

/* Rests until woken. One of the resting threads checks now and then that some thread receives. */
static void turn_rest(struct turns *turns)
{
    LOCK_SCOPE(&turns->lock);
    bool watches = false;
    atomic_fetch_add(&turns->resting, 1);
    while (!turns->ended && turns->wanted == 0) {
        if (!turns->is_watched)
            turns->is_watched = watches = true;
        if (!mutex_wait(&turns->lock, &turns->changed, watches ? RESCUE_MS : -1) &&
            !atomic_load(&turns->is_receiving))
            break;
    }
    if (turns->wanted > 0)
        turns->wanted--;
    if (watches) {
        turns->is_watched = false;
        (void)pthread_cond_signal(&turns->changed); /* the next one watches */
    }
    atomic_fetch_sub(&turns->resting, 1);
}

bool turn_try(struct turns *turns)
{
    return turn_claim(turns);
}

bool turn_take(struct turns *turns)
{
    while (!turn_claim(turns)) {
        turn_rest(turns);
        LOCK_SCOPE(&turns->lock);
        if (turns->ended)
            return false;
    }
    return true;
}

void turn_leave(struct turns *turns)
{
    atomic_store(&turns->is_receiving, false);
}

static void turn_wake_one(struct turns *turns)
{
    if (atomic_load(&turns->resting) == 0 || atomic_load(&turns->is_receiving))
        return;
    LOCK_SCOPE(&turns->lock);
    turns->wanted = 1;
    (void)pthread_cond_signal(&turns->changed);
}

/* Kinds that the kernel has not thought of yet share a place. */
static _Atomic bool *turn_kind(struct turns *turns, uint32_t opcode)
{
    return &turns->is_long[opcode < TURN_KINDS ? opcode : 0];
}

int64_t turn_begin(struct turns *turns, uint32_t opcode)
{
    if (atomic_load_explicit(turn_kind(turns, opcode), memory_order_relaxed))
        turn_wake_one(turns);
    return clock_monotonic_ns();
}

void turn_answering(struct turns *turns, int fd)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    if (atomic_load(&turns->resting) > 0)
        backlog = poll(&waiting, 1, 0) > 0 ? backlog + 1 : 0;
}

void turn_end(struct turns *turns, uint32_t opcode, int64_t begun)
{
    bool took_long = clock_monotonic_ns() - begun > LONG_NS;
    if (atomic_load_explicit(turn_kind(turns, opcode), memory_order_relaxed) != took_long)
        atomic_store_explicit(turn_kind(turns, opcode), took_long, memory_order_relaxed);
    if (backlog >= BACKLOG)
        turn_wake_one(turns);
}
