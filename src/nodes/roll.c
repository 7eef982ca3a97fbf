// SPDX-License-Identifier: Apache-2.0
#include "nodes/roll.h"

#include <stdio.h>

#include "base/cause.h"
#include "base/pool.h"
#include "nodes/node_internal.h"
#include "nodes/stays.h"
#include "prefix/heads.h"
#include "prefix/lease.h"

#define TRIES 4 /* if lists change during the check */

static void no_lease(void *arg)
{
    (void)arg;
}

/* --- one check -------------------------------------------------------------------------------- */

struct look {
    struct node *node;
    struct prefix prefix;
    struct busy busy;
    struct stays stays;
    struct head head; /* number 0: none */
    struct numbers ended;
    struct lease_seen lease;
    int64_t medium_now;
};

static bool has_doubts(const struct look *look)
{
    for (size_t i = 0; i < look->stays.list.count; i++)
        if (look->stays.list.at[i].doubted)
            return true;
    return false;
}

/* A feed that does not follow is refused only after it was read twice. */
static int look_at_stays(struct look *look)
{
    int r = -EAGAIN;
    stays_begin(&look->stays, &look->head);
    for (int i = 0; i < TRIES && (r == -EAGAIN || (r == 0 && has_doubts(look))); i++)
        r = stays_look(&look->stays, &look->head);
    return r;
}

static int look_at_prefix(struct look *look)
{
    int r = heads_newest(&look->prefix, 0, &look->head);
    if (r == -ENOENT)
        look->head = (struct head){0};
    else if (r < 0)
        return r;
    TRY(look_at_stays(look));
    TRY(prefix_list_numbers(&look->prefix, "ended", 0, &look->ended));
    TRY(lease_look(&look->prefix, &look->lease));
    return look->prefix.tier->ops->now(look->prefix.tier, &look->medium_now);
}

/* --- the result ------------------------------------------------------------------------------- */

static enum roll_state state_of(const struct look *look, const struct stay *stay, int64_t heard_ns)
{
    if (vector_search(&look->ended, &stay->epoch, compare_u64))
        return ROLL_ENDED;
    if (stay_has_left(stay))
        return ROLL_LEFT;
    return stay->why || heard_ns > look->stays.lease_ns ? ROLL_SILENT : ROLL_LIVES;
}

static struct roll_stay describe_stay(const struct look *look, const struct stay *stay, int64_t now)
{
    uint64_t newest = (uint64_t)(now / NODE_ROUND_NS), cut = head_round(&look->head);
    struct roll_stay ret = {.epoch = stay->epoch,
                            .node = stay->node,
                            .is_own = node_has_epoch(look->node, stay->epoch),
                            .is_over = stay->has_row && stay->row.state == HEAD_WRITER_ENDED,
                            .round = stay_round(stay, newest, cut),
                            .merged = stay->has_row ? stay->row.merged : 0,
                            .clock_error_ns = stay->clock_error_ns,
                            .heard_ns = look->medium_now - stay->heard_of};
    if (stay->has_row)
        ret.round = max_u64(ret.round, cut);
    ret.state = state_of(look, stay, ret.heard_ns);
    ret.behind_ns = ret.round ? now - (int64_t)ret.round * NODE_ROUND_NS : ret.heard_ns;
    memcpy(ret.holder, stay->holder, sizeof ret.holder);
    (void)snprintf(ret.why, sizeof ret.why, "%s", stay->why ? stay->why : "");
    return ret;
}

static bool holds_back(const struct roll *roll, const struct roll_stay *stay)
{
    bool is_late = stay->state == ROLL_LIVES && stay->behind_ns > roll->lease_ns;
    return stay->state == ROLL_SILENT || is_late;
}

/* Finds, among the silent stays, the one that determines the oldest round; else among those that
 * have reported nothing new for long. A node without news reports that every few seconds. */
static uint64_t find_held_back_by(const struct roll *roll)
{
    const struct roll_stay *least = NULL;
    for (size_t i = 0; i < roll->stay_count; i++) {
        const struct roll_stay *stay = &roll->stays[i];
        bool is_worse = least && stay->state == least->state ? stay->round < least->round
                                                             : stay->state == ROLL_SILENT;
        if (holds_back(roll, stay) && (!least || is_worse))
            least = stay;
    }
    return least ? least->epoch : 0;
}

/* A job that begins now must not see data that is about to be set aside. */
static void find_waits_for(struct roll *roll)
{
    for (size_t i = 0; i < roll->stay_count && !*roll->waits_for; i++) {
        const struct roll_stay *stay = &roll->stays[i];
        const char *why = stay->state == ROLL_SILENT ? *stay->why ? stay->why : "is silent"
                          : stay->state == ROLL_ENDED && !stay->is_over
                              ? "was ended, and all nodes are about to go back"
                              : NULL;
        if (why)
            cause_format(roll->waits_for, sizeof roll->waits_for, "%s (epoch %llu): %s",
                         stay->holder, (unsigned long long)stay->epoch, why);
    }
}

static void describe(const struct look *look, struct roll *ret)
{
    int64_t now = node_time(look->node);
    ret->head = look->head.number;
    ret->generation = head_generation(&look->head);
    ret->round = head_round(&look->head);
    ret->age_ns = now - (int64_t)ret->round * NODE_ROUND_NS;
    ret->lease_ns = look->stays.lease_ns;
    ret->merges = look->lease.exists &&
                  memcmp(look->lease.lease.store, look->node->store, sizeof look->node->store) == 0;
    if (look->lease.exists && look->medium_now - look->lease.modified <= ret->lease_ns)
        (void)snprintf(ret->merger, sizeof ret->merger, "%s", look->lease.lease.holder);
    ret->stays = xcalloc(look->stays.list.count + 1, sizeof *ret->stays);
    for (size_t i = 0; i < look->stays.list.count; i++)
        ret->stays[ret->stay_count++] = describe_stay(look, &look->stays.list.at[i], now);
    ret->held_back_by = find_held_back_by(ret);
    find_waits_for(ret);
    /* the node notices a moment later than this check that it is behind */
    if (atomic_load(&look->node->looker.is_behind) || ret->generation > look->node->file.generation)
        cause_format(ret->waits_for, sizeof ret->waits_for,
                     "this node, which goes back to an earlier state");
}

/* A prefix is used by one thread: this check has its own. */
static int make_look(struct node *node, struct roll *ret)
{
    const struct prefix_user user = {.arg = node, .pause = node_pause};
    struct look *look = xcalloc(1, sizeof *look);
    look->node = node;
    look->busy = (struct busy){no_lease, NULL};
    prefix_init(&look->prefix, node->local, node->commit->room, &node->options, &user);
    stays_init(&look->stays, &look->prefix, &look->busy, node->options.lease_ns);
    look->stays.bytes_max = 0; /* the content of feeds is not needed */
    int r = look_at_prefix(look);
    if (r == 0)
        describe(look, ret);
    stays_done(&look->stays);
    vector_free(&look->ended);
    prefix_done(&look->prefix);
    free(look);
    return r;
}

/* --- requests --------------------------------------------------------------------------------- */

static void *run_look(void *arg)
{
    struct node *node = arg;
    struct roll roll = {0};
    _cleanup_free_ char *text = NULL;
    cause_clear();
    const struct roll_before *before = &node->roll.before; /* constant until the check has ended */
    if (before->fn)
        roll.error = before->fn(node, before->epoch, &text);
    if (roll.error == 0)
        roll.error = make_look(node, &roll);
    if (roll.error < 0)
        (void)snprintf(roll.error_text, sizeof roll.error_text, "%s",
                       text            ? text
                       : *cause_text() ? cause_text()
                                       : strerror(-roll.error));
    LOCK_SCOPE(&node->roll.lock);
    roll.number = node->roll.last.number;
    roll_done(&node->roll.last);
    node->roll.last = roll;
    return NULL;
}

int node_roll_start(struct node *node, const struct roll_before *before, uint64_t *ret_number)
{
    LOCK_SCOPE(&node->roll.lock);
    struct roll *last = &node->roll.last;
    if (last->is_running && before->fn)
        return -EBUSY;
    if (!last->is_running) {
        if (node->roll.is_started)
            (void)pthread_join(node->roll.thread, NULL); /* it has finished its work */
        node->roll.before = *before;
        int r = thread_start(&node->roll.thread, "cairn-roll", run_look, node);
        node->roll.is_started = r == 0;
        if (r < 0)
            return r;
        last->is_running = true;
        last->number++;
    }
    *ret_number = last->number;
    return 0;
}

void node_roll(struct node *node, struct roll *ret)
{
    LOCK_SCOPE(&node->roll.lock);
    *ret = node->roll.last;
    ret->stays = xcalloc(ret->stay_count + 1, sizeof *ret->stays);
    for (size_t i = 0; i < ret->stay_count; i++)
        ret->stays[i] = node->roll.last.stays[i];
}

void roll_done(struct roll *roll)
{
    free(roll->stays);
    roll->stays = NULL;
    roll->stay_count = 0;
}

void roll_call_init(struct node *node)
{
    mutex_init(&node->roll.lock, LOCK_LEAF);
}

void roll_call_done(struct node *node)
{
    if (node->roll.is_started)
        (void)pthread_join(node->roll.thread, NULL);
    roll_done(&node->roll.last);
    mutex_done(&node->roll.lock);
}
