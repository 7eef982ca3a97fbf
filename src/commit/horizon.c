// SPDX-License-Identifier: Apache-2.0
/* The horizon: how far the history is durable, its waiters, and their urgency. */
#include <stdarg.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "commit/commit.h"
#include "commit/horizon_internal.h"

#define SAME_ERROR_QUIET_NS (10ll * 1000000000) /* a failing disk must not fill the log */

struct horizon *horizon_new(int64_t delay_ns, uint64_t limit, struct priority *priority)
{
    struct horizon *horizon = xcalloc(1, sizeof *horizon);
    horizon->priority = priority;
    horizon->delay_ns = delay_ns;
    horizon->next_ticket = 1;
    rate_limit_init(&horizon->limit, limit);
    event_init(&horizon->progress);
    mutex_init(&horizon->lock, LOCK_WAITERS);
    cond_init(&horizon->changed);
    TAILQ_INIT(&horizon->waiters);
    return horizon;
}

void horizon_free(struct horizon *horizon)
{
    waiters_call(&horizon->waiters, -ESHUTDOWN);
    mutex_done(&horizon->lock);
    (void)pthread_cond_destroy(&horizon->changed);
    rate_limit_done(&horizon->limit);
    event_done(&horizon->progress);
    free(horizon);
}

static bool is_awaited_locked(struct horizon *horizon)
{
    check_held(&horizon->lock);
    return !TAILQ_EMPTY(&horizon->waiters) || horizon->urge_until > clock_monotonic_ns();
}

static bool is_urgent_locked(struct horizon *horizon)
{
    check_held(&horizon->lock);
    return is_awaited_locked(horizon) || horizon->waiting_writers > 0;
}

bool horizon_is_urgent(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    return is_urgent_locked(horizon);
}

bool horizon_is_stopping(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    return horizon->stopping;
}

bool horizon_pause(struct horizon *horizon, int64_t ms)
{
    int64_t until = clock_monotonic_ns() + ms * MS_NS;
    LOCK_SCOPE(&horizon->lock);
    while (!horizon->stopping && clock_monotonic_ns() < until)
        (void)mutex_wait_until(&horizon->lock, &horizon->changed, until);
    return !horizon->stopping;
}

void horizon_kick(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->kicked = true;
    (void)pthread_cond_signal(&horizon->changed);
}

/* An operation noted now is due after writeback_delay, and the rest may end later than that. */
static bool must_wake_locked(struct horizon *horizon)
{
    check_held(&horizon->lock);
    if (!horizon->noted || is_urgent_locked(horizon))
        return horizon->noted;
    return horizon->rest_until > clock_monotonic_ns() + horizon->delay_ns;
}

void horizon_note(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->noted = true;
    if (must_wake_locked(horizon))
        (void)pthread_cond_signal(&horizon->changed);
}

uint64_t horizon_reached(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    return horizon->reached;
}

void horizon_advance(struct horizon *horizon, uint64_t seq)
{
    struct waiters served = WAITERS_EMPTY(served);
    mutex_lock(&horizon->lock);
    check(seq >= horizon->reached);
    horizon->reached = seq;
    waiters_take(&horizon->waiters, seq, &served);
    mutex_unlock(&horizon->lock);
    waiters_call(&served, 0);
    event_signal(&horizon->progress);
}

void horizon_refuse(struct horizon *horizon, int error)
{
    struct waiters all = WAITERS_EMPTY(all);
    mutex_lock(&horizon->lock);
    waiters_take(&horizon->waiters, UINT64_MAX, &all);
    mutex_unlock(&horizon->lock);
    waiters_call(&all, error);
}

void horizon_begin(struct horizon *horizon, uint64_t cut)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->reached = cut;
}

bool horizon_has_writers(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    return horizon->waiting_writers > 0;
}

struct event *horizon_progress(struct horizon *horizon)
{
    return &horizon->progress;
}

void horizon_set_target(struct horizon *horizon, uint64_t bytes)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->target_bytes = bytes;
}

void horizon_wrote(struct horizon *horizon, uint64_t bytes)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->target_bytes -= min_u64(horizon->target_bytes, bytes);
}

uint64_t horizon_target_bytes(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    return horizon->target_bytes;
}

void horizon_await(struct horizon *horizon, uint64_t seq, waiter_fn *fn, void *arg,
                   uint64_t *ret_ticket)
{
    mutex_lock(&horizon->lock);
    *ret_ticket = horizon->next_ticket++;
    bool reached = seq <= horizon->reached;
    if (!reached) {
        waiters_add(&horizon->waiters, seq, *ret_ticket, fn, arg);
        rate_limit_lift(&horizon->limit, true);
        horizon->noted = true;
        (void)pthread_cond_signal(&horizon->changed);
    }
    mutex_unlock(&horizon->lock);
    if (reached)
        fn(0, arg);
    else
        priority_raise(horizon->priority);
}

uint64_t horizon_new_ticket(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    return horizon->next_ticket++;
}

bool horizon_unwait(struct horizon *horizon, uint64_t ticket)
{
    LOCK_SCOPE(&horizon->lock);
    return waiters_remove(&horizon->waiters, ticket);
}

void horizon_urge(struct horizon *horizon, int64_t until_ns)
{
    mutex_lock(&horizon->lock);
    horizon->urge_until = until_ns;
    horizon->noted = true;
    rate_limit_lift(&horizon->limit, true);
    (void)pthread_cond_signal(&horizon->changed);
    mutex_unlock(&horizon->lock);
    priority_raise(horizon->priority);
}

void horizon_note_waiting(struct horizon *horizon, unsigned waiting)
{
    mutex_lock(&horizon->lock);
    horizon->waiting_writers = waiting;
    if (waiting)
        (void)pthread_cond_signal(&horizon->changed);
    mutex_unlock(&horizon->lock);
    if (waiting)
        priority_raise(horizon->priority);
}

void horizon_error(struct horizon *horizon, const char *fmt, ...)
{
    char text[CAUSE_MAX];
    va_list ap;
    va_start(ap, fmt);
    cause_vformat(text, sizeof text, fmt, ap);
    va_end(ap);
    mutex_lock(&horizon->lock);
    int64_t now = clock_monotonic_ns();
    bool repeated = strcmp(text, horizon->last_error) == 0 &&
                    now - horizon->last_error_ns < SAME_ERROR_QUIET_NS;
    horizon->errors++;
    if (!repeated) {
        (void)snprintf(horizon->last_error, sizeof horizon->last_error, "%s", text);
        horizon->last_error_ns = now;
    }
    mutex_unlock(&horizon->lock);
    if (!repeated)
        log_error("%s", text);
}

void horizon_status(struct horizon *horizon, struct commit_status *ret)
{
    LOCK_SCOPE(&horizon->lock);
    ret->horizon_seq = horizon->reached;
    ret->errors = horizon->errors;
    memcpy(ret->last_error, horizon->last_error, sizeof ret->last_error);
    ret->last_error_ns = horizon->last_error_ns;
    ret->nvme_busy_ns = horizon->nvme.total_ns;
    ret->remote_busy_ns = horizon->remote.total_ns;
}

/* --- the writeback thread --------------------------------------------------------------------- */

struct pressure horizon_pressure(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->kicked = horizon->noted = false;
    rate_limit_lift(&horizon->limit, is_awaited_locked(horizon));
    return (struct pressure){.urgent = is_urgent_locked(horizon),
                             .stopping = horizon->stopping,
                             .waiting = horizon->waiting_writers};
}

void horizon_rest(struct horizon *horizon, int64_t until)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->rest_until = until;
    if (!horizon->stopping && !horizon->kicked && !must_wake_locked(horizon))
        (void)mutex_wait_until(&horizon->lock, &horizon->changed, until);
    horizon->rest_until = 0;
}

void horizon_stop(struct horizon *horizon)
{
    LOCK_SCOPE(&horizon->lock);
    horizon->stopping = true;
    (void)pthread_cond_signal(&horizon->changed);
}

/* --- the horizon of the remote ---------------------------------------------------------------- */

uint64_t horizon_published(struct horizon *horizon)
{
    return atomic_load(&horizon->published);
}

void horizon_set_published(struct horizon *horizon, uint64_t seq)
{
    atomic_store(&horizon->published, seq);
}

void horizon_note_age(struct horizon *horizon, uint64_t cut, int64_t happened)
{
    uint64_t there = horizon_published(horizon);
    LOCK_SCOPE(&horizon->lock);
    unsigned kept = 0, count = horizon->age_count;
    for (unsigned i = 0; i < count; i++)
        if (horizon->ages[i].cut > there)
            horizon->ages[kept++] = horizon->ages[i];
    if (kept == AGES_MAX) {
        /* merges each pair of adjacent cuts into one with the age of the older */
        for (unsigned i = 0; i < AGES_MAX / 2; i++) {
            horizon->ages[i].cut = horizon->ages[2 * i + 1].cut;
            horizon->ages[i].happened = horizon->ages[2 * i].happened;
        }
        kept = AGES_MAX / 2;
    }
    horizon->ages[kept].cut = cut;
    horizon->ages[kept].happened = happened;
    horizon->age_count = kept + 1;
}

static void busy_until_now(struct horizon_busy *busy, int64_t since)
{
    int64_t now = clock_monotonic_ns(), from = since > busy->last ? since : busy->last;
    busy->total_ns += now > from ? (uint64_t)(now - from) : 0;
    busy->last = now;
}

void horizon_note_durable(struct horizon *horizon, int64_t happened)
{
    LOCK_SCOPE(&horizon->lock);
    busy_until_now(&horizon->nvme, happened);
}

void horizon_note_published(struct horizon *horizon, uint64_t cut)
{
    uint64_t before = horizon_published(horizon);
    int64_t since = cut > before ? horizon_age_after(horizon, before) : 0;
    LOCK_SCOPE(&horizon->lock);
    if (since)
        busy_until_now(&horizon->remote, since);
}

int64_t horizon_age_after(struct horizon *horizon, uint64_t seq)
{
    LOCK_SCOPE(&horizon->lock);
    for (unsigned i = 0; i < horizon->age_count; i++)
        if (horizon->ages[i].cut > seq)
            return horizon->ages[i].happened;
    return 0;
}
