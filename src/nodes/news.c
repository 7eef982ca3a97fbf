// SPDX-License-Identifier: Apache-2.0
/* News of union heads: which operations of this node are merged, and whether nodes are active. */
#include "base/clock.h"
#include "commit/history.h"
#include "commit/touched.h"
#include "nodes/merger.h"
#include "nodes/node_internal.h"

#define ACTIVE_NS (60ll * SECOND_NS)
#define ACTIVE_OF_MANY_NS (10ll * SECOND_NS) /* of more than NODES_FEW nodes, after own work */

void news_init(struct news *news)
{
    mutex_init(&news->lock, LOCK_LEAF);
    cond_init(&news->changed);
}

void news_done(struct news *news)
{
    mutex_done(&news->lock);
    (void)pthread_cond_destroy(&news->changed);
}

void node_hear(struct node *node, enum node_hearer who, void (*fn)(void *arg), void *arg)
{
    struct news *news = &node->news;
    LOCK_SCOPE(&news->lock);
    news->hearers[who] = (struct hearer){0};
    while (news->calls > 0)
        (void)mutex_wait(&news->lock, &news->changed, -1);
    news->hearers[who] = (struct hearer){fn, arg};
}

static void call_hearers(struct news *news)
{
    struct hearer hearers[NODE_HEARERS];
    mutex_lock(&news->lock);
    memcpy(hearers, news->hearers, sizeof hearers);
    news->calls++;
    mutex_unlock(&news->lock);
    for (size_t i = 0; i < ARRAY_LEN(hearers); i++)
        if (hearers[i].fn)
            hearers[i].fn(hearers[i].arg);
    LOCK_SCOPE(&news->lock);
    news->calls--;
    (void)pthread_cond_broadcast(&news->changed);
}

void node_note_work(struct node *node)
{
    atomic_store(&node->news.active_at, clock_monotonic_ns());
}

bool node_is_active(void *arg)
{
    struct node *node = arg;
    int64_t at = atomic_load(&node->news.active_at);
    bool are_few = atomic_load(&node->news.nodes) <= NODES_FEW;
    return at && clock_monotonic_ns() - at < (are_few ? ACTIVE_NS : ACTIVE_OF_MANY_NS);
}

/* A newest run with another id contains new operations. The head that a mount finds at its start
 * may be old; the clocks of nodes agree. */
void node_note_head(const struct head *head, void *arg)
{
    struct node *node = arg;
    uint64_t run = head->run_count ? head->runs[head->run_count - 1].id : 0;
    uint32_t nodes = head_living(head);
    bool is_recent = clock_realtime_ns() - head->published < ACTIVE_NS;
    atomic_store(&node->news.nodes, nodes);
    if (run != node->news.run && is_recent && nodes <= NODES_FEW)
        node_note_work(node);
    node->news.run = run;
    touched_merged(history_touched(node->commit->history), head_merged(head, node->local->sb.node));
    call_hearers(&node->news);
}

/* --- stopping --------------------------------------------------------------------------------- */

bool node_pause(void *arg, int64_t ms)
{
    struct node *node = arg;
    LOCK_SCOPE(&node->feeder.lock);
    if (!node->feeder.stops && ms > 0)
        (void)mutex_wait(&node->feeder.lock, &node->feeder.changed, ms);
    return !node->feeder.stops;
}
