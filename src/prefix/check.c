// SPDX-License-Identifier: Apache-2.0
#include "prefix/check.h"

#include <stdio.h>

#include "base/pool.h"
#include "base/vector.h"
#include "commit/run_lists.h"
#include "prefix/heads.h"
#include "prefix/runs.h"

#define QUEUE 64u
#define AGAIN_MS 2000
#define AGAIN_MAX 64u   /* objects; if more are missing, it is no lapse of the server */
#define LEAP (1u << 20) /* numbers that a new beginning skips: see prefix.c */

/* A run that some head or feed names, in both places. */
struct checked_run {
    struct run_info info; /* sorted by id and node */
    uint64_t first, last; /* the first and the last head that name it */
    bool is_shown;        /* it is needed for the state that is shown */
    int result[RUN_PLACES];
};

struct checked_head {
    uint64_t number;
    int result;
    bool has_history; /* states before it stay, with gaps between them */
    uint32_t run_count;
    struct run_info *runs;
    struct head *nodes; /* a copy of the head, if it is of several nodes; else NULL */
};

/* A feed that some head names. Those of the head that is shown, and of newer ones, are read. */
struct checked_feed {
    uint64_t epoch, round;
    const struct head *head; /* the newest head that names it */
    uint32_t writer;         /* number of the writer in that head */
    bool is_listed;
    int result;
    uint32_t node, run_count;
    struct run_info *runs;
};

struct head_check {
    struct prefix *prefix;
    struct prefix_check *check;
    VECTOR(struct checked_head) heads; /* ascending */
    VECTOR(struct checked_feed) feeds; /* by epoch and round */
    VECTOR(struct checked_run) runs;   /* by id and node */
    _Atomic unsigned again;            /* objects that were requested again */
};

/* A job of the pool. */
struct check_job {
    struct head_check *c;
    struct checked_head *head; /* or: */
    struct checked_feed *feed; /* or: */
    struct checked_run *run;
    enum run_place place;
};

/* --- heads ------------------------------------------------------------------------------------ */

static int add_head(uint64_t number, const struct tier_object *object, void *arg)
{
    struct head_check *c = arg;
    (void)object;
    vector_add(&c->heads, (struct checked_head){.number = number});
    return 0;
}

static int check_head(struct prefix *prefix, struct checked_head *checked)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    TRY(head_read(prefix, checked->number, head));
    if (head->run_count > 0) {
        checked->run_count = head->run_count;
        checked->runs = xcalloc(head->run_count, sizeof *checked->runs);
        memcpy(checked->runs, head->runs, head->run_count * sizeof *checked->runs);
    }
    checked->has_history = head_has_history(head);
    if (head_has_nodes(head)) {
        checked->nodes = xmalloc(sizeof *checked->nodes);
        *checked->nodes = *head;
    }
    return 0;
}

/* --- feeds ------------------------------------------------------------------------------------ */

static int compare_feeds(const void *a, const void *b)
{
    const struct checked_feed *x = a, *y = b;
    return x->epoch != y->epoch ? (x->epoch > y->epoch) - (x->epoch < y->epoch)
                                : (x->round > y->round) - (x->round < y->round);
}

static void add_feeds(struct head_check *c, const struct head *head)
{
    for (uint32_t i = 0; i < head->writer_count; i++)
        if (head_reads_writer(head, i))
            vector_add(&c->feeds, (struct checked_feed){.epoch = head->writers[i].epoch,
                                                        .round = head->writers[i].feed_round,
                                                        .head = head,
                                                        .writer = i});
}

static void collect_feeds(struct head_check *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->heads.count; i++)
        if (c->heads.at[i].nodes)
            add_feeds(c, c->heads.at[i].nodes);
    vector_sort(&c->feeds, compare_feeds);
    for (size_t i = 0; i < c->feeds.count; i++) {
        struct checked_feed *last = kept ? &c->feeds.at[kept - 1] : NULL;
        if (!last || compare_feeds(last, &c->feeds.at[i]) != 0)
            c->feeds.at[kept++] = c->feeds.at[i];
        else if (last->head->number < c->feeds.at[i].head->number)
            *last = c->feeds.at[i];
    }
    c->feeds.count = kept;
}

static int note_listed_feed(const struct tier_object *object, void *arg)
{
    struct head_check *c = arg;
    struct checked_feed key;
    if (!feed_numbers(object->name, &key.round, &key.epoch))
        return 0;
    struct checked_feed *feed = vector_search(&c->feeds, &key, compare_feeds);
    if (feed)
        feed->is_listed = true;
    return 0;
}

static int take_runs_of_feed(const void *bytes, size_t len, void *arg)
{
    struct checked_feed *checked = arg;
    _cleanup_free_ struct feed *feed = xmalloc(sizeof *feed);
    TRY(feed_decode_named(checked->head, checked->writer, bytes, len, feed));
    checked->node = feed->node;
    checked->run_count = feed->run_count;
    checked->runs = xcalloc(feed->run_count + 1, sizeof *checked->runs);
    memcpy(checked->runs, feed->runs, feed->run_count * sizeof *checked->runs);
    return 0;
}

static int check_feed(struct prefix *prefix, struct checked_feed *checked)
{
    char object[FEED_NAME_LEN];
    uint64_t len;
    feed_name(checked->round, checked->epoch, object);
    if (checked->head->number < prefix->head.number)
        return checked->is_listed ? 0 : prefix->tier->ops->stat(prefix->tier, object, &len);
    return prefix_read_object(prefix, object, FEED_LEN_MAX, take_runs_of_feed, checked);
}

/* --- runs ------------------------------------------------------------------------------------- */

static int compare_runs(const void *a, const void *b)
{
    const struct run_info *x = &((const struct checked_run *)a)->info,
                          *y = &((const struct checked_run *)b)->info;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id)
                          : (x->node > y->node) - (x->node < y->node);
}

static bool feed_is_shown(const struct head *shown, const struct checked_feed *feed)
{
    const struct head_writer *writer = head_writer_of(shown, feed->epoch);
    return writer && writer->feed_round == feed->round;
}

static void collect_runs_of_feeds(struct head_check *c)
{
    for (size_t i = 0; i < c->feeds.count; i++) {
        const struct checked_feed *feed = &c->feeds.at[i];
        struct checked_run run = {.first = feed->head->number,
                                  .last = feed->head->number,
                                  .is_shown = feed_is_shown(&c->prefix->head, feed)};
        for (uint32_t k = 0; k < feed->run_count; k++) {
            run.info = feed->runs[k];
            run.info.node = feed->node;
            vector_add(&c->runs, run);
        }
    }
}

static void collect_runs(struct head_check *c)
{
    const struct head *shown = &c->prefix->head;
    for (size_t i = 0; i < c->heads.count; i++)
        for (uint32_t k = 0; k < c->heads.at[i].run_count; k++) {
            uint64_t number = c->heads.at[i].number;
            vector_add(&c->runs, (struct checked_run){.info = c->heads.at[i].runs[k],
                                                      .first = number,
                                                      .last = number});
        }
    collect_runs_of_feeds(c);
    vector_sort(&c->runs, compare_runs);
    size_t kept = 0;
    for (size_t i = 0; i < c->runs.count; i++) {
        struct checked_run *last = kept ? &c->runs.at[kept - 1] : NULL;
        if (last && compare_runs(last, &c->runs.at[i]) == 0) {
            last->is_shown = last->is_shown || c->runs.at[i].is_shown;
            last->first = min_u64(last->first, c->runs.at[i].first);
            last->last = max_u64(last->last, c->runs.at[i].last);
            continue;
        }
        c->runs.at[kept++] = c->runs.at[i];
    }
    c->runs.count = kept;
    for (size_t i = 0; i < kept; i++)
        c->runs.at[i].is_shown =
            c->runs.at[i].is_shown ||
            (!c->runs.at[i].info.node && head_names_run(shown, c->runs.at[i].info.id));
}

/* --- in parallel ------------------------------------------------------------------------------ */

static int check_object(const struct check_job *job)
{
    if (job->c->check->is_interrupted())
        return -EINTR;
    if (job->head)
        return check_head(job->c->prefix, job->head);
    if (job->feed)
        return check_feed(job->c->prefix, job->feed);
    return run_check_at(job->c->prefix, &job->run->info, job->place, job->run->is_shown);
}

/* An object that the server does not return just now may be there a moment later. */
static void run_check_job(void *arg)
{
    struct check_job *job = arg;
    struct head_check *c = job->c;
    int r = check_object(job);
    if (r == -ENOENT && atomic_fetch_add(&c->again, 1) < AGAIN_MAX &&
        prefix_pause(c->prefix, AGAIN_MS))
        r = check_object(job);
    *(job->head   ? &job->head->result
      : job->feed ? &job->feed->result
                  : &job->run->result[job->place]) = r;
    free(job);
}

static void submit(struct pool *pool, struct check_job job)
{
    struct check_job *copy = xmalloc(sizeof *copy);
    *copy = job;
    pool_submit(pool, run_check_job, copy);
}

static int check_all(struct head_check *c)
{
    struct pool *pool;
    TRY(pool_new("cairn-check", c->check->threads, QUEUE, NULL, NULL, &pool));
    for (size_t i = 0; i < c->heads.count; i++)
        submit(pool, (struct check_job){.c = c, .head = &c->heads.at[i]});
    pool_drain(pool);
    collect_feeds(c);
    int r = c->feeds.count
                ? c->prefix->tier->ops->list(c->prefix->tier, "feeds", NULL, note_listed_feed, c)
                : 0;
    for (size_t i = 0; i < c->feeds.count; i++)
        submit(pool, (struct check_job){.c = c, .feed = &c->feeds.at[i]});
    pool_drain(pool);
    collect_runs(c);
    for (size_t i = 0; i < c->runs.count; i++)
        for (unsigned place = 0; place < RUN_PLACES; place++)
            submit(pool, (struct check_job){.c = c, .run = &c->runs.at[i], .place = place});
    pool_free(pool);
    return r;
}

/* --- messages --------------------------------------------------------------------------------- */

static const char *describe(int error)
{
    return error == -ENOENT    ? "is missing"
           : error == -EUCLEAN ? "is truncated or malformed"
                               : "is damaged";
}

/* Heads that were given up may lack objects: this was known at that time. */
static void leave_out_given_up(struct head_check *c)
{
    const struct head *shown = &c->prefix->head;
    char line[160], when[HEAD_TIME_LEN];
    size_t kept = 0;
    for (size_t i = 0; i < c->heads.count; i++)
        if (head_after_given_up(shown, c->heads.at[i].number) == c->heads.at[i].number)
            c->heads.at[kept++] = c->heads.at[i];
    if (kept < c->heads.count) {
        head_time_text(shown->given_up[shown->given_up_count - 1].time, when);
        (void)snprintf(line, sizeof line,
                       "%zu heads are not looked at: they were given up with --rollback, the last "
                       "time on %s",
                       c->heads.count - kept, when);
        c->check->note(line, c->check->arg);
    }
    c->heads.count = kept;
}

/* Returns whether gc may have deleted heads between others. */
static bool may_have_gaps(const struct head_check *c)
{
    bool may = c->prefix->head.number > 0 && head_has_history(&c->prefix->head);
    for (size_t i = 0; i < c->heads.count; i++)
        may = may || c->heads.at[i].has_history;
    return may;
}

static int report_heads(struct head_check *c)
{
    char object[OBJECT_NAME_LEN], what[96];
    bool has_gaps = may_have_gaps(c);
    for (size_t i = 0; i < c->heads.count; i++) {
        const struct checked_head *head = &c->heads.at[i];
        object_name("heads", head->number, object);
        if (head->result < 0 && !prefix_object_is_lost(head->result))
            return head->result;
        /* A head that was listed a moment ago was deleted by gc, which never deletes the newest
         * one. */
        bool is_gone = head->result == -ENOENT && i + 1 < c->heads.count;
        if (head->result < 0 && !is_gone)
            c->check->problem(object, describe(head->result), c->check->arg);
        uint64_t before = i > 0 ? c->heads.at[i - 1].number + 1 : head->number;
        before = head_after_given_up(&c->prefix->head, before);
        if (has_gaps || before >= head->number || head->number - before >= LEAP)
            continue;
        object_name("heads", head->number - 1, object);
        (void)snprintf(what, sizeof what, "is missing, with all heads from number %llu on",
                       (unsigned long long)before);
        c->check->problem(object, what, c->check->arg);
    }
    return 0;
}

static int report_feeds(struct head_check *c)
{
    char object[FEED_NAME_LEN], what[96];
    for (size_t i = 0; i < c->feeds.count; i++) {
        const struct checked_feed *feed = &c->feeds.at[i];
        if (feed->result < 0 && !prefix_object_is_lost(feed->result))
            return feed->result;
        if (feed->result == 0)
            continue;
        feed_name(feed->round, feed->epoch, object);
        (void)snprintf(what, sizeof what, "%s: head %llu cannot be read", describe(feed->result),
                       (unsigned long long)feed->head->number);
        c->check->problem(object, what, c->check->arg);
    }
    return 0;
}

static void report_run_place(struct head_check *c, const struct checked_run *run,
                             enum run_place place)
{
    char object[RUN_OBJECT_LEN], copy[RUN_OBJECT_LEN], what[192];
    int other = run->result[RUN_PLACES - 1 - place];
    run_object_name(&run->info, place, object);
    run_object_name(&run->info, RUN_PLACES - 1 - place, copy);
    if (other == 0)
        (void)snprintf(what, sizeof what, "%s; %s has the same content, and is whole",
                       describe(run->result[place]), copy);
    else
        (void)snprintf(what, sizeof what, "%s, as is %s: heads %llu to %llu cannot be read",
                       describe(run->result[place]), copy, (unsigned long long)run->first,
                       (unsigned long long)run->last);
    c->check->problem(object, what, c->check->arg);
}

static int report_runs(struct head_check *c)
{
    size_t copies = 0;
    for (size_t i = 0; i < c->runs.count; i++)
        for (unsigned place = 0; place < RUN_PLACES; place++) {
            int r = c->runs.at[i].result[place];
            if (r < 0 && !prefix_object_is_lost(r))
                return r;
            copies += place == RUN_COPY && r != -ENOENT;
        }
    if (c->runs.count > 0 && copies == 0)
        c->check->note("no run has a copy yet: the next mount that writes makes them",
                       c->check->arg);
    for (size_t i = 0; i < c->runs.count; i++) {
        const struct checked_run *run = &c->runs.at[i];
        if (run->result[RUN_FIRST] < 0)
            report_run_place(c, run, RUN_FIRST);
        else if (run->result[RUN_COPY] < 0 && copies > 0)
            report_run_place(c, run, RUN_COPY);
    }
    return 0;
}

int prefix_check_heads(struct prefix *prefix, struct prefix_check *check)
{
    struct head_check c = {.prefix = prefix, .check = check};
    int r = prefix_list(prefix, "heads", 0, add_head, &c);
    vector_sort(&c.heads, compare_u64);
    leave_out_given_up(&c);
    if (c.heads.count > PREFIX_CHECK_HEADS) {
        size_t left_out = c.heads.count - PREFIX_CHECK_HEADS;
        memmove(c.heads.at, c.heads.at + left_out, PREFIX_CHECK_HEADS * sizeof *c.heads.at);
        c.heads.count = PREFIX_CHECK_HEADS;
    }
    if (r == 0)
        r = check_all(&c);
    if (r == 0)
        r = report_heads(&c);
    if (r == 0)
        r = report_feeds(&c);
    if (r == 0)
        r = report_runs(&c);
    check->heads = c.heads.count;
    check->runs = c.runs.count;
    for (size_t i = 0; i < c.heads.count; i++) {
        free(c.heads.at[i].runs);
        free(c.heads.at[i].nodes);
    }
    for (size_t i = 0; i < c.feeds.count; i++)
        free(c.feeds.at[i].runs);
    vector_free(&c.heads);
    vector_free(&c.feeds);
    vector_free(&c.runs);
    return r;
}
