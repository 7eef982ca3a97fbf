// SPDX-License-Identifier: Apache-2.0
#include "nodes/merger.h"

#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/event.h"
#include "base/log.h"
#include "base/pool.h"
#include "nodes/stays.h"
#include "nodes/union.h"
#include "nodes/union_gc.h"
#include "prefix/heads.h"
#include "prefix/lease.h"
#include "prefix/runs.h"

#define TURN_NS SECOND_NS
#define URGED_MS 200
/* Without news, empty rounds are published at this interval: so that feeds can be removed. */
#define QUIET_NS (60ll * SECOND_NS)
/* A node that took over operations of others, or began again, has no operation to report, but an
 * increased number. */
#define MOVED_NS (5ll * SECOND_NS)
#define KEEP_RETRY_NS (30ll * SECOND_NS)
/* A waiting node checks for newer heads each turn while nodes are active, else at this interval. */
#define WATCH_IDLE_NS (3ll * SECOND_NS)
#define WATCH_EACH_NS (50 * MS_NS) /* per node, where more than NODES_FEW watch */

struct merger {
    struct merger_options options;
    char *path;
    struct local local; /* of STORE/union */
    struct prefix prefix;
    struct union_names names;
    struct stays stays;
    struct union_gc gc;
    struct busy busy;

    bool is_merger;
    int64_t fails_since;               /* monotonic; 0: the last turn succeeded */
    int64_t lease_at;                  /* monotonic: when to check it again */
    int64_t published_at;              /* monotonic */
    int64_t keep_at;                   /* monotonic: no earlier attempt to put runs again */
    int64_t watched_at;                /* monotonic: last check for another's heads */
    struct merge_counts counts_before; /* of names that are closed by now */
    char lease_holder[HOLDER_MAX];

    pthread_t thread;
    bool is_started;
    struct event event; /* signalled when the thread must end */
    _Atomic bool stops, is_urged;

    struct cairn_mutex lock; /* LOCK_LEAF; guards the next fields */
    struct merger_status status;
};

/* --- as the prefix's user --------------------------------------------------------------------- */

static bool pause_for(void *arg, int64_t ms)
{
    struct merger *m = arg;
    uint64_t seen = event_count(&m->event);
    int64_t until = clock_monotonic_ns() + ms * MS_NS;
    while (!atomic_load(&m->stops) && event_wait(&m->event, &seen, until))
        ;
    return !atomic_load(&m->stops);
}

static void note_trouble(void *arg, int error, const char *text)
{
    (void)arg;
    (void)error;
    log_warn("nodes: %s", text);
}

/* Renews the lease during a long turn. The next check finds out whether it is still ours. */
static void keep_lease(void *arg)
{
    struct merger *m = arg;
    int64_t now = clock_monotonic_ns();
    if (m->is_merger && now >= m->lease_at && lease_renew(&m->prefix) == 0)
        m->lease_at = now + m->options.remote->lease_ns / 4;
}

/* --- making and freeing ----------------------------------------------------------------------- */

struct merger *merger_new(const struct merger_options *options)
{
    struct merger *m = xcalloc(1, sizeof *m);
    /* runs of names are small */
    const struct prefix_user user = {.arg = m, .pause = pause_for, .trouble = note_trouble};
    m->options = *options;
    m->path = xstrdup(options->path);
    m->local = (struct local){.path = m->path, .sb = *options->sb, .epoch = options->epoch};
    prefix_init(&m->prefix, &m->local, options->room, options->remote, &user);
    tried_load(&m->prefix);
    m->names.prefix = &m->prefix;
    m->names.busy = &m->busy;
    m->busy = (struct busy){keep_lease, m};
    stays_init(&m->stays, &m->prefix, &m->busy, options->remote->lease_ns);
    if (options->told_bytes_max)
        m->stays.bytes_max = options->told_bytes_max;
    union_gc_init(&m->gc, &m->prefix, options->remote->gc_grace_ns);
    event_init(&m->event);
    mutex_init(&m->lock, LOCK_LEAF);
    return m;
}

static void add_counts(struct merge_counts *sum, const struct merge_counts *more)
{
    sum->done += more->done;
    sum->joined += more->joined;
    sum->replaced += more->replaced;
    sum->renamed += more->renamed;
    sum->revived += more->revived;
    sum->refused += more->refused;
    sum->impossible += more->impossible;
}

static struct merge_counts counts_of(const struct merger *m)
{
    struct merge_counts counts = m->counts_before, now;
    if (union_is_open(&m->names)) {
        now = merge_counts(m->names.merge);
        add_counts(&counts, &now);
    }
    return counts;
}

/* The merger's state may be wrong: starts over with the newest head. */
static void begin_again(struct merger *m)
{
    m->counts_before = counts_of(m);
    union_close(&m->names);
    m->prefix.head = (struct head){0};
}

void merger_free(struct merger *m)
{
    if (!m)
        return;
    merger_end(m);
    union_close(&m->names);
    union_gc_done(&m->gc);
    stays_done(&m->stays);
    prefix_done(&m->prefix);
    merger_status_done(&m->status);
    event_done(&m->event);
    mutex_done(&m->lock);
    explicit_bzero(&m->local.sb.key, sizeof m->local.sb.key);
    free(m->path);
    free(m);
}

/* --- the lease -------------------------------------------------------------------------------- */

static bool is_ours(const struct merger *m, const struct lease_seen *seen)
{
    return memcmp(seen->lease.store, m->local.sb.store, sizeof seen->lease.store) == 0;
}

/* 1: another node holds it, and is alive. */
static int look_at_lease(struct merger *m)
{
    struct lease_seen seen;
    int64_t now;
    TRY(lease_look(&m->prefix, &seen));
    if (!seen.exists || is_ours(m, &seen))
        return 0;
    TRY(m->prefix.tier->ops->now(m->prefix.tier, &now));
    if (now - seen.modified > m->options.remote->lease_ns)
        return 0;
    (void)snprintf(m->lease_holder, sizeof m->lease_holder, "%s", seen.lease.holder);
    return 1;
}

/* Renews the lease a few times before it expires. So if two nodes take it at once, one gives way
 * soon; until then exclusive heads keep them apart. */
static int hold_lease(struct merger *m)
{
    int64_t now = clock_monotonic_ns();
    if (now < m->lease_at && !atomic_load(&m->is_urged))
        return 0;
    int r = look_at_lease(m);
    if (r == 0)
        r = lease_renew(&m->prefix);
    if (r < 0)
        return r;
    if (r == 0 && !m->is_merger)
        log_info("nodes: this node merges what the nodes of %s write", m->prefix.name);
    if (r == 1 && m->is_merger)
        log_info("nodes: %s merges now what the nodes of %s write", m->lease_holder,
                 m->prefix.name);
    if ((r == 0) != m->is_merger)
        begin_again(m);
    m->is_merger = r == 0;
    if (m->is_merger)
        m->lease_holder[0] = '\0';
    m->lease_at = now + m->options.remote->lease_ns / 4;
    return 0;
}

/* --- the union -------------------------------------------------------------------------------- */

static void tell_of_head(const struct merger *m)
{
    if (m->options.on_head)
        m->options.on_head(&m->prefix.head, m->options.arg);
}

static bool is_active(const struct merger *m)
{
    return !m->options.is_active || m->options.is_active(m->options.arg);
}

/* The more nodes watch, the less often each does. */
static int64_t watch_pause(const struct merger *m)
{
    uint32_t nodes = head_living(&m->prefix.head);
    int64_t all = nodes > NODES_FEW ? nodes * WATCH_EACH_NS : 0;
    int64_t own = is_active(m) ? 0 : WATCH_IDLE_NS;
    return all > own ? all : own;
}

/* Another node merges: its heads may include operations that this one merged. */
static int watch_union(struct merger *m)
{
    int64_t now = clock_monotonic_ns();
    if (now - m->watched_at < watch_pause(m))
        return 0;
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = heads_newest(&m->prefix, m->prefix.head.number, head);
    m->watched_at = now;
    if (r == 0) {
        m->prefix.head = *head;
        tell_of_head(m);
    }
    return r == -ENOENT ? 0 : r;
}

/* Ensures that the names are those of the newest head, of this node or another. */
static int meet_union(struct merger *m)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = heads_newest(&m->prefix, m->prefix.head.number, head);
    if (r < 0 && r != -ENOENT)
        return r;
    if (r == 0) {
        if (union_is_open(&m->names) && m->prefix.head.number > 0)
            log_info("nodes: head %llu is of another merger: going on from it",
                     (unsigned long long)head->number);
        begin_again(m);
        m->prefix.head = *head;
        tell_of_head(m);
    }
    if (union_is_open(&m->names))
        return 0;
    if (m->prefix.head.number > 0 && !head_has_nodes(&m->prefix.head))
        return -EUCLEAN;
    stays_begin(&m->stays, &m->prefix.head);
    m->published_at = clock_monotonic_ns();
    return union_open(&m->names);
}

/* Has anything happened up to the round that a reader would see? */
static bool has_news(const struct merger *m, uint64_t round)
{
    for (size_t i = 0; i < m->stays.list.count; i++) {
        const struct stay *stay = &m->stays.list.at[i];
        size_t count = stay_feeds_up_to(stay, round);
        if (count > 0 && !stay->has_row)
            return true;
        for (size_t k = 0; k < count; k++)
            if (stay->feeds.at[k].record_count > 0 || stay->feeds.at[k].flags & FEED_LEAVES)
                return true;
    }
    return false;
}

static bool has_moved(const struct merger *m, uint64_t round)
{
    for (size_t i = 0; i < m->stays.list.count; i++) {
        const struct stay *stay = &m->stays.list.at[i];
        size_t count = stay_feeds_up_to(stay, round);
        if (count > 0 && stay->feeds.at[count - 1].to > stay->row.merged)
            return true;
    }
    return false;
}

static int make_head(struct merger *m, const struct head *next)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    *head = *next;
    head->time = (int64_t)head_round(head) * m->options.round_ns;
    int r = union_apply(&m->names, &m->stays, head);
    if (r == 0)
        r = stays_fill_head(&m->stays, head_round(head), head);
    if (r == -E2BIG)
        log_error("nodes: more than %u nodes write %s, or did, and have content there: the union "
                  "of all goes no further",
                  HEAD_WRITERS_MAX, m->prefix.name);
    return r < 0 ? r : union_publish(&m->names, head);
}

/* After an error the publication may be partial, or complete without an answer. */
static int publish(struct merger *m, const struct head *next)
{
    int r = make_head(m, next);
    if (r < 0) {
        begin_again(m);
        return r == -ESTALE ? -EAGAIN : r;
    }
    stays_merged(&m->stays, &m->prefix.head);
    m->published_at = clock_monotonic_ns();
    tell_of_head(m);
    return 0;
}

static int64_t shortest_lease(const struct merger *m)
{
    int64_t lease = m->options.remote->lease_ns;
    for (size_t i = 0; i < m->stays.list.count; i++) {
        int64_t its = m->stays.list.at[i].lease_ns;
        lease = its && its < lease ? its : lease;
    }
    return lease;
}

/* Creating the head may have taken long: nodes that join later count from when it existed. */
static int note_end(struct merger *m)
{
    int64_t now;
    TRY(m->prefix.tier->ops->now(m->prefix.tier, &now));
    if (now > m->prefix.head.end_time)
        m->prefix.head.end_time = now;
    return 0;
}

/* A node is lost, with operations that may exist nowhere else: the union stays at the newest round
 * that it reported, and later operations of all nodes do not count. */
static int end_generation(struct merger *m, uint64_t round)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    char since[HEAD_TIME_LEN];
    *head = m->prefix.head;
    uint64_t generation = head_generation(head) + 1;
    if (generation > GENERATION_MAX)
        return -EOVERFLOW;
    head->cut = head_cut_of(generation, max_u64(round, head_round(head)));
    TRY(m->prefix.tier->ops->now(m->prefix.tier, &head->end_time));
    /* each node opens after a lease of its own; this ensures that the longest lease has expired,
     * too */
    head->end_time += stays_lease(&m->stays) - shortest_lease(m);
    TRY(publish(m, head));
    TRY(note_end(m));
    head_time_text(m->prefix.head.time, since);
    log_warn("nodes: generation %llu of %s begins with the state of %s: each node sets aside what "
             "it did later",
             (unsigned long long)generation, m->prefix.name, since);
    return 0;
}

static int publish_round(struct merger *m, uint64_t round)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    *head = m->prefix.head;
    head->cut = head_cut_of(head_generation(head), round);
    return publish(m, head);
}

/* The time is read before the lists: a node that joins later numbers nothing before it. A verdict
 * is carried out by the next turn, which lists the feeds put until then. No head is created in
 * between: it would say that the node ended, in a generation that continues. */
static int merge_news(struct merger *m, int64_t now)
{
    int64_t mono = clock_monotonic_ns();
    uint64_t newest = (uint64_t)(now / m->options.round_ns);
    uint64_t cut = head_round(&m->prefix.head);
    TRY(stays_look(&m->stays, &m->prefix.head));
    TRY(stays_judge(&m->stays, mono));
    stays_say_contradictions(&m->stays);
    uint64_t round = stays_round(&m->stays, min_u64(newest, ROUND_MAX - 1), cut);
    if (stays_have_dead(&m->stays))
        return end_generation(m, round);
    TRY(stays_give_verdicts(&m->stays, m->options.epoch));
    if (stays_have_dead(&m->stays))
        return 0;
    int64_t pause = has_news(m, round) ? 0 : has_moved(m, round) ? MOVED_NS : QUIET_NS;
    if (round == 0 || mono - m->published_at < pause)
        return 0;
    return publish_round(m, round);
}

/* Puts copies of runs that failed before, and replaces missing or damaged ones. */
static int keep_runs(struct merger *m)
{
    static const uint64_t none[RUN_PLACES];
    int64_t now = clock_monotonic_ns();
    if (now < m->keep_at || !atomic_exchange(&m->prefix.runs.are_due, false))
        return 0;
    int r = runs_keep(&m->prefix, none);
    if (r < 0) {
        atomic_store(&m->prefix.runs.are_due, true);
        m->keep_at = now + KEEP_RETRY_NS;
    }
    return r;
}

static int turn_as_merger(struct merger *m, int64_t now)
{
    int r = meet_union(m);
    if (r == 0 && now >= 0)
        r = merge_news(m, now);
    if (r == 0)
        r = keep_runs(m);
    if (r == 0)
        r = union_gc_tick(&m->gc, &m->stays, clock_monotonic_ns());
    return r == -EAGAIN || r == -ESTALE ? 0 : r; /* the next turn checks again */
}

/* --- status ----------------------------------------------------------------------------------- */

static struct merger_stay describe_stay(const struct stay *stay, uint64_t newest, uint64_t cut)
{
    struct merger_stay ret = {.epoch = stay->epoch,
                              .node = stay->node,
                              .round = stay_round(stay, newest, cut),
                              .merged = stay->has_row ? stay->row.merged : 0,
                              .age_ns = stay->age_ns,
                              .has_left = stay_has_left(stay),
                              .is_silent = stay->is_silent};
    if (stay->has_row)
        ret.round = max_u64(ret.round, cut);
    memcpy(ret.holder, stay->holder, sizeof ret.holder);
    (void)snprintf(ret.why, sizeof ret.why, "%s", stay->why ? stay->why : "");
    return ret;
}

static void describe_stays(const struct merger *m, uint64_t newest, struct merger_status *ret)
{
    uint64_t least = newest;
    ret->stay_count = m->stays.list.count;
    ret->stays = xcalloc(ret->stay_count + 1, sizeof *ret->stays);
    for (size_t i = 0; i < ret->stay_count; i++) {
        ret->stays[i] = describe_stay(&m->stays.list.at[i], newest, ret->round);
        if (ret->stays[i].round < least)
            ret->held_back_by = ret->stays[i].epoch;
        least = min_u64(least, ret->stays[i].round);
    }
}

static void note_status(struct merger *m, int64_t now, int error)
{
    struct merger_status status = {.is_merger = m->is_merger,
                                   .head = m->prefix.head.number,
                                   .round = head_round(&m->prefix.head),
                                   .generation = head_generation(&m->prefix.head),
                                   .error = error,
                                   .counts = counts_of(m)};
    memcpy(status.holder, m->lease_holder, sizeof status.holder);
    now = now < 0 ? clock_realtime_ns() : now;
    if (status.head > 0)
        status.age_ns = now - (int64_t)status.round * m->options.round_ns;
    if (m->is_merger) {
        status.ended = m->stays.ended.count;
        describe_stays(m, (uint64_t)(now / m->options.round_ns), &status);
    }
    LOCK_SCOPE(&m->lock);
    merger_status_done(&m->status);
    m->status = status;
}

void merger_status(struct merger *m, struct merger_status *ret)
{
    LOCK_SCOPE(&m->lock);
    *ret = m->status;
    ret->stays = xcalloc(ret->stay_count + 1, sizeof *ret->stays);
    for (size_t i = 0; i < ret->stay_count; i++)
        ret->stays[i] = m->status.stays[i];
}

void merger_status_done(struct merger_status *status)
{
    free(status->stays);
    status->stays = NULL;
    status->stay_count = 0;
}

/* A node that cannot merge leaves it to others; if there are none, it tries again. */
static void give_up(struct merger *m, int error)
{
    int64_t now = clock_monotonic_ns(), lease = m->options.remote->lease_ns;
    if (error == 0)
        m->fails_since = 0;
    else if (m->fails_since == 0)
        m->fails_since = now;
    if (error == 0 || now - m->fails_since < lease)
        return;
    log_warn("nodes: merging what the nodes of %s write has failed for %.0f s (%s): another node "
             "may do it",
             m->prefix.name, (double)(now - m->fails_since) / 1e9, strerror(-error));
    lease_give_back(&m->prefix);
    begin_again(m);
    m->is_merger = false;
    m->fails_since = 0;
    m->lease_at = now + lease;
}

/* --- turns ------------------------------------------------------------------------------------ */

int merger_turn(struct merger *m, int64_t now)
{
    int r = hold_lease(m);
    if (r == 0 && m->is_merger) {
        r = turn_as_merger(m, now);
        give_up(m, r);
    } else if (r == 0)
        r = watch_union(m);
    note_status(m, now, r);
    return r;
}

static void *run_turns(void *arg)
{
    struct merger *m = arg;
    int last = 0;
    do {
        cause_clear();
        int r = merger_turn(m, m->options.time_passed ? m->options.time_passed(m->options.arg)
                                                      : clock_realtime_ns());
        if (r < 0 && r != last && r != -ECANCELED)
            log_warn("nodes: merging what the nodes of %s write fails (%s); retrying",
                     m->prefix.name, strerror(-r));
        last = r;
    } while (pause_for(m, atomic_load(&m->is_urged) ? URGED_MS : TURN_NS / MS_NS));
    return NULL;
}

int merger_start(struct merger *m)
{
    int r = thread_start(&m->thread, "cairn-merger", run_turns, m);
    m->is_started = r == 0;
    return r;
}

void merger_stop(struct merger *m)
{
    atomic_store(&m->stops, true);
    event_signal(&m->event);
}

void merger_end(struct merger *m)
{
    merger_stop(m);
    if (m->is_started)
        (void)pthread_join(m->thread, NULL);
    if (m->is_merger)
        lease_give_back(&m->prefix);
    m->is_started = m->is_merger = false;
}

/* Also true if another node merges. */
static bool is_finished(struct merger *m, uint64_t stay, uint64_t number)
{
    LOCK_SCOPE(&m->lock);
    const struct merger_status *status = &m->status;
    if (!status->is_merger)
        return status->holder[0] != '\0';
    for (size_t i = 0; i < status->stay_count; i++)
        if (status->stays[i].epoch == stay)
            return status->stays[i].merged >= number;
    return status->head > 0;
}

void merger_finish(struct merger *m, uint64_t stay, uint64_t number, int64_t ns)
{
    int64_t until = clock_monotonic_ns() + ns;
    atomic_store(&m->is_urged, true);
    while (!is_finished(m, stay, number) && clock_monotonic_ns() < until && pause_for(m, URGED_MS))
        ;
}
