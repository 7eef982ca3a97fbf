// SPDX-License-Identifier: Apache-2.0
/* The horizon: how far the history is durable, its waiters, and what hurries the
 * background. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/internal.h"

#define SAME_ERROR_QUIET_NS (10ll * 1000000000) /* a failing disk must not fill the log */

void horizon_init(struct store *store)
{
    mutex_init(&store->commit->horizon.lock, LOCK_WAITERS);
    cond_init(&store->commit->horizon.changed);
    TAILQ_INIT(&store->commit->horizon.waiters);
    store->commit->horizon.next_ticket = 1;
}

void horizon_done(struct store *store)
{
    waiters_call(&store->commit->horizon.waiters, -ESHUTDOWN);
    mutex_done(&store->commit->horizon.lock);
    (void)pthread_cond_destroy(&store->commit->horizon.changed);
}

bool horizon_is_awaited_locked(struct store *store)
{
    check_held(&store->commit->horizon.lock);
    return !TAILQ_EMPTY(&store->commit->horizon.waiters) ||
           store->commit->horizon.urge_until > clock_monotonic_ns();
}

bool horizon_is_urgent_locked(struct store *store)
{
    check_held(&store->commit->horizon.lock);
    return horizon_is_awaited_locked(store) || store->commit->horizon.waiting_writers > 0;
}

bool horizon_is_urgent(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return horizon_is_urgent_locked(store);
}

bool horizon_is_stopping(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return store->commit->horizon.stopping;
}

bool horizon_pause(struct store *store, int64_t ms)
{
    int64_t until = clock_monotonic_ns() + ms * MS_NS;
    LOCK_SCOPE(&store->commit->horizon.lock);
    while (!store->commit->horizon.stopping && clock_monotonic_ns() < until)
        (void)mutex_wait_until(&store->commit->horizon.lock, &store->commit->horizon.changed,
                               until);
    return !store->commit->horizon.stopping;
}

void horizon_kick(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    store->commit->horizon.kicked = true;
    (void)pthread_cond_signal(&store->commit->horizon.changed);
}

/* An operation that is noted now is due when writeback_delay is over, and the rest may end later.
 */
bool horizon_must_wake_locked(struct store *store)
{
    check_held(&store->commit->horizon.lock);
    const struct horizon *horizon = &store->commit->horizon;
    if (!horizon->noted || horizon_is_urgent_locked(store))
        return horizon->noted;
    return horizon->rest_until > clock_monotonic_ns() + store->options.writeback_delay_ns;
}

void horizon_note(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    store->commit->horizon.noted = true;
    if (horizon_must_wake_locked(store))
        (void)pthread_cond_signal(&store->commit->horizon.changed);
}

uint64_t horizon_reached(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return store->commit->horizon.horizon;
}

void horizon_advance(struct store *store, uint64_t seq)
{
    struct waiters served = WAITERS_EMPTY(served);
    mutex_lock(&store->commit->horizon.lock);
    check(seq >= store->commit->horizon.horizon);
    store->commit->horizon.horizon = seq;
    waiters_take(&store->commit->horizon.waiters, seq, &served);
    mutex_unlock(&store->commit->horizon.lock);
    waiters_call(&served, 0);
    event_signal(&store->commit->progress);
}

void horizon_refuse(struct store *store, int error)
{
    struct waiters all = WAITERS_EMPTY(all);
    mutex_lock(&store->commit->horizon.lock);
    waiters_take(&store->commit->horizon.waiters, UINT64_MAX, &all);
    mutex_unlock(&store->commit->horizon.lock);
    waiters_call(&all, error);
}

/* The number of the newest operation, which is `cut` at least. */
static uint64_t raise_newest(struct store *store, uint64_t cut)
{
    struct history *history = &store->commit->history;
    LOCK_SCOPE(&history->lock);
    history->newest = max_u64(history->newest, cut);
    return history->newest;
}

void horizon_begin(struct store *store, uint64_t cut)
{
    (void)raise_newest(store, cut);
    LOCK_SCOPE(&store->commit->horizon.lock);
    store->commit->horizon.horizon = cut;
}

void horizon_raise(struct store *store, uint64_t cut)
{
    horizon_advance(store, raise_newest(store, cut));
}

uint64_t horizon_target_bytes(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return store->commit->horizon.target_bytes;
}

void horizon_await(struct store *store, uint64_t seq, waiter_fn *fn, void *arg,
                   uint64_t *ret_ticket)
{
    mutex_lock(&store->commit->horizon.lock);
    *ret_ticket = store->commit->horizon.next_ticket++;
    bool reached = seq <= store->commit->horizon.horizon;
    if (!reached) {
        waiters_add(&store->commit->horizon.waiters, seq, *ret_ticket, fn, arg);
        rate_limit_lift(&store->commit->limit, true);
        store->commit->horizon.noted = true;
        (void)pthread_cond_signal(&store->commit->horizon.changed);
    }
    mutex_unlock(&store->commit->horizon.lock);
    if (reached)
        fn(0, arg);
    else
        priority_raise(store);
}

uint64_t horizon_new_ticket(struct store *store)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return store->commit->horizon.next_ticket++;
}

bool horizon_unwait(struct store *store, uint64_t ticket)
{
    LOCK_SCOPE(&store->commit->horizon.lock);
    return waiters_remove(&store->commit->horizon.waiters, ticket);
}

void horizon_urge(struct store *store, int64_t until_ns)
{
    mutex_lock(&store->commit->horizon.lock);
    store->commit->horizon.urge_until = until_ns;
    store->commit->horizon.noted = true;
    rate_limit_lift(&store->commit->limit, true);
    (void)pthread_cond_signal(&store->commit->horizon.changed);
    mutex_unlock(&store->commit->horizon.lock);
    priority_raise(store);
}

void horizon_note_waiting(struct store *store, unsigned waiting)
{
    mutex_lock(&store->commit->horizon.lock);
    store->commit->horizon.waiting_writers = waiting;
    if (waiting)
        (void)pthread_cond_signal(&store->commit->horizon.changed);
    mutex_unlock(&store->commit->horizon.lock);
    if (waiting)
        priority_raise(store);
}

void horizon_error(struct store *store, const char *fmt, ...)
{
    char text[CAUSE_MAX];
    va_list ap;
    va_start(ap, fmt);
    cause_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    mutex_lock(&store->commit->horizon.lock);
    int64_t now = clock_monotonic_ns();
    bool repeated = strcmp(text, store->commit->horizon.last_error) == 0 &&
                    now - store->commit->horizon.last_error_ns < SAME_ERROR_QUIET_NS;
    store->commit->horizon.errors++;
    if (!repeated) {
        (void)snprintf(store->commit->horizon.last_error, sizeof store->commit->horizon.last_error,
                       "%s", text);
        store->commit->horizon.last_error_ns = now;
    }
    mutex_unlock(&store->commit->horizon.lock);
    if (!repeated)
        log_error("%s", text);
}

uint64_t horizon_published(struct store *store)
{
    return atomic_load(&store->published_seq);
}

/* --- ages ------------------------------------------------------------------------------------- */

void horizon_note_age(struct store *store, uint64_t cut, int64_t happened)
{
    uint64_t there = horizon_published(store);
    LOCK_SCOPE(&store->commit->horizon.lock);
    unsigned kept = 0, count = store->commit->horizon.age_count;
    for (unsigned i = 0; i < count; i++)
        if (store->commit->horizon.ages[i].cut > there)
            store->commit->horizon.ages[kept++] = store->commit->horizon.ages[i];
    if (kept == AGES_MAX) {
        /* Cuts that follow each other count as one, as old as the older. */
        for (unsigned i = 0; i < AGES_MAX / 2; i++) {
            store->commit->horizon.ages[i].cut = store->commit->horizon.ages[2 * i + 1].cut;
            store->commit->horizon.ages[i].happened = store->commit->horizon.ages[2 * i].happened;
        }
        kept = AGES_MAX / 2;
    }
    store->commit->horizon.ages[kept].cut = cut;
    store->commit->horizon.ages[kept].happened = happened;
    store->commit->horizon.age_count = kept + 1;
}

int64_t history_oldest_after(struct store *store, uint64_t seq)
{
    uint64_t oldest;
    int64_t happened = 0;
    mutex_lock(&store->commit->horizon.lock);
    for (unsigned i = 0; i < store->commit->horizon.age_count && !happened; i++)
        if (store->commit->horizon.ages[i].cut > seq)
            happened = store->commit->horizon.ages[i].happened;
    mutex_unlock(&store->commit->horizon.lock);
    if (!happened && !history_oldest(store, &oldest, &happened))
        happened = 0;
    return happened;
}
