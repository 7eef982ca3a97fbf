// SPDX-License-Identifier: Apache-2.0
/* Turns to receive. One thread waits for the kernel; the thread that received a request answers it,
 * and then waits for the next: if requests come one at a time, as those of a single program do,
 * nothing is passed from thread to thread. (If all threads waited at once, they would be woken in
 * rotation, which costs more than most requests themselves.) Another thread is woken
 *
 * - before a request of a kind that took long last time,
 * - when requests repeatedly wait while others are answered, so that several are answered at
 *   once. (Requests that are there right after an answer was sent are no evidence: its caller may
 *   have run before this thread could continue, and one program would look like many.)
 * - when no thread has received for RESCUE_MS: the one that had the turn is blocked.
 *
 * The bytes of a write are copied during the receipt. So with one receiver, writers would wait for
 * each other's copies. If more requests arrived during the receipt of a large one, any number of
 * threads may receive for the next TOGETHER_FOR receipts, and one more is woken.
 *
 * A thread rests only when it has seen that another one waits for the kernel, and that one does not
 * rest before it has seen the same. */
#include <poll.h>

#include "base/clock.h"
#include "fuse/internal.h"

#define LONG_NS 200000
#define RESCUE_MS 100
#define BACKLOG 4u
#define LARGE (64 * KIB) /* receiving a write of this size takes longer than waking a thread */
#define TOGETHER_FOR 64
#define TURN_ALL (1u << 16) /* more than the number of threads */

/* Consecutive requests, answered by this thread, during which others were waiting. */
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

static bool turn_is_free(struct turns *turns, unsigned receiving)
{
    return receiving == 0 || (receiving < TURN_ALL && atomic_load(&turns->together) > 0);
}

static bool turn_claim(struct turns *turns)
{
    unsigned receiving = atomic_load(&turns->receiving);
    while (turn_is_free(turns, receiving))
        if (atomic_compare_exchange_weak(&turns->receiving, &receiving, receiving + 1))
            return true;
    return false;
}

/* Rests until woken. One of the resting threads regularly checks that some thread receives. */
static void turn_rest(struct turns *turns)
{
    LOCK_SCOPE(&turns->lock);
    bool watches = false;
    atomic_fetch_add(&turns->resting, 1);
    while (!turns->ended && turns->wanted == 0) {
        if (!turns->is_watched)
            turns->is_watched = watches = true;
        if (!mutex_wait(&turns->lock, &turns->changed, watches ? RESCUE_MS : -1) &&
            atomic_load(&turns->receiving) == 0)
            break;
    }
    if (turns->wanted > 0)
        turns->wanted--;
    if (watches) {
        turns->is_watched = false;
        (void)pthread_cond_signal(&turns->changed); /* the next one keeps watch */
    }
    atomic_fetch_sub(&turns->resting, 1);
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
    unsigned receiving = atomic_fetch_sub(&turns->receiving, 1);
    check(receiving > 0 && receiving < TURN_ALL);
}

bool turns_try_all(struct turns *turns)
{
    unsigned none = 0;
    return atomic_compare_exchange_strong(&turns->receiving, &none, TURN_ALL);
}

void turns_leave_all(struct turns *turns)
{
    check(atomic_exchange(&turns->receiving, 0) == TURN_ALL);
}

static void turn_wake_one(struct turns *turns)
{
    if (atomic_load(&turns->resting) == 0 || !turn_is_free(turns, atomic_load(&turns->receiving)))
        return;
    LOCK_SCOPE(&turns->lock);
    turns->wanted = 1;
    (void)pthread_cond_signal(&turns->changed);
}

static bool turn_more_has_come(int fd)
{
    struct pollfd waiting = {.fd = fd, .events = POLLIN};
    return poll(&waiting, 1, 0) > 0;
}

void turn_received(struct turns *turns, int fd, size_t size)
{
    if (size >= LARGE && turn_more_has_come(fd)) {
        atomic_store(&turns->together, TOGETHER_FOR);
        turn_wake_one(turns);
    } else if (atomic_load(&turns->together) > 0) {
        /* two at once may get below 0, which counts as 0 */
        (void)atomic_fetch_sub(&turns->together, 1);
    }
}

/* Unknown opcodes share one entry. */
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
    if (atomic_load(&turns->resting) > 0)
        backlog = turn_more_has_come(fd) ? backlog + 1 : 0;
}

void turn_end(struct turns *turns, uint32_t opcode, int64_t begun)
{
    bool took_long = clock_monotonic_ns() - begun > LONG_NS;
    if (atomic_load_explicit(turn_kind(turns, opcode), memory_order_relaxed) != took_long)
        atomic_store_explicit(turn_kind(turns, opcode), took_long, memory_order_relaxed);
    if (backlog >= BACKLOG)
        turn_wake_one(turns);
}
