// SPDX-License-Identifier: Apache-2.0
/* The lease of a node, based on checks for verdicts of others; and its heartbeat. */
#include <stdio.h>

#include "base/cause.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/log.h"
#include "base/pool.h"
#include "nodes/node_internal.h"
#include "nodes/stays.h"
#include "prefix/heads.h"

#define LOOKS 6u /* checks per lease */
#define BEATS 4u
#define ASIDE_EVERY_NS (60 * SECOND_NS)
#define RETRY_NS (SECOND_NS / 2)
#define ERA_POLL_NS (100 * MS_NS)

/* --- as the prefix's user --------------------------------------------------------------------- */

static bool pause_for(void *arg, int64_t ms)
{
    struct looker *looker = &((struct node *)arg)->looker;
    uint64_t seen = event_count(&looker->event);
    int64_t until = clock_monotonic_ns() + ms * MS_NS;
    while (!atomic_load(&looker->stops) && event_wait(&looker->event, &seen, until))
        ;
    return !atomic_load(&looker->stops);
}

static void note_trouble(void *arg, int error, const char *text)
{
    (void)arg;
    (void)error;
    log_debug("nodes: %s", text);
}

/* --- life ------------------------------------------------------------------------------------- */

void looker_init(struct node *node)
{
    const struct prefix_user user = {node, pause_for, note_trouble, NULL, NULL};
    event_init(&node->looker.event);
    prefix_init(&node->looker.prefix, node->local, node->commit->room, &node->options, &user);
}

void looker_stop(struct node *node)
{
    atomic_store(&node->looker.stops, true);
    event_signal(&node->looker.event);
}

void looker_done(struct node *node)
{
    looker_stop(node);
    if (node->looker.is_started)
        (void)pthread_join(node->looker.thread, NULL);
    prefix_done(&node->looker.prefix);
    event_done(&node->looker.event);
}

void node_on_open(struct node *node, void (*fn)(void *arg, int64_t opens), void *arg)
{
    node->looker.on_open = fn;
    node->looker.arg = arg;
}

bool node_is_behind(const struct node *node)
{
    return atomic_load(&node->looker.is_behind);
}

/* --- a look ----------------------------------------------------------------------------------- */

/* A damaged head stops only the merger, and a person has to repair it. */
int looker_read_newest(struct prefix *prefix)
{
    _cleanup_free_ struct head *head = xmalloc(sizeof *head);
    int r = heads_newest(prefix, prefix->head.number, head);
    if (r == 0)
        prefix->head = *head;
    return r == -ENOENT || r == -EUCLEAN || r == -EBADMSG ? 0 : r;
}

int looker_find_end(struct prefix *prefix, uint64_t stay, bool *ret_ended)
{
    char object[OBJECT_NAME_LEN];
    uint64_t len;
    object_name("ended", stay, object);
    int r = prefix->tier->ops->stat(prefix->tier, object, &len);
    *ret_ended = r == 0;
    return r == -ENOENT ? 0 : r;
}

static void close_lease(struct node *node)
{
    history_set_lease(node->commit->history, &(struct history_lease){0});
}

static void fall_behind(struct node *node, const char *why)
{
    struct looker *looker = &node->looker;
    atomic_store(&looker->may_tell, false);
    atomic_store(&looker->next_generation, head_generation(&looker->prefix.head));
    close_lease(node);
    if (!atomic_exchange(&looker->is_behind, true))
        log_warn("nodes: %s: all nodes go back to the newest state that all had told; what was "
                 "done here since is set aside",
                 why);
}

/* Computes when it opens, by CLOCK_BOOTTIME, and notifies the subscriber. */
static int settle_opening(struct node *node, int64_t boottime)
{
    struct looker *looker = &node->looker;
    struct tier *tier = node->options.tier;
    int64_t now;
    if (looker->opens || node->file.generation == 0)
        return 0;
    TRY(tier->ops->now(tier, &now));
    int64_t opens = boottime + node->file.opens - now; /* may be before this boot */
    looker->opens = opens > 1 ? opens : 1;
    if (looker->on_open)
        looker->on_open(looker->arg, looker->opens);
    return 0;
}

/* `began`: before the first request. */
static int look(struct node *node, int64_t began)
{
    struct looker *looker = &node->looker;
    bool has_ended;
    if (node->is_lost)
        TRY(ended_put(&looker->prefix, node->file.stay, ENDED_LOST, node->local->epoch));
    TRY(looker_read_newest(&looker->prefix));
    TRY(looker_find_end(&looker->prefix, node->file.stay, &has_ended));
    if (head_generation(&looker->prefix.head) > node->file.generation) {
        fall_behind(node, "a node was lost");
        return 0;
    }
    atomic_store(&looker->may_tell, !has_ended);
    if (has_ended) { /* the head with the state to which nodes go back does not exist yet */
        atomic_store(&looker->is_open, false);
        close_lease(node);
        return 0;
    }
    TRY(settle_opening(node, clock_boottime_ns()));
    const struct history_lease lease = {looker->opens, began + node->options.lease_ns, began};
    history_set_lease(node->commit->history, &lease);
    atomic_store(&looker->is_open, clock_boottime_ns() >= looker->opens);
    return 0;
}

/* 0: not known. */
static uint32_t clock_error_ms(const struct node *node)
{
    struct clock_look now;
    node_clock_look(node->timekeeper.clock, &now);
    return now.error < 0 ? 0 : (uint32_t)(now.error / MS_NS);
}

/* Writes the entry of the newest numbers again: its age shows that the node is alive. */
static int beat(struct node *node, struct writer_entry *entry)
{
    struct looker *looker = &node->looker;
    uint8_t bytes[WRITER_ENTRY_LEN];
    char object[OBJECT_NAME_LEN];
    uint32_t error = clock_error_ms(node);
    if (clock_monotonic_ns() < looker->heard_at && !error == !entry->clock_error_ms)
        return 0;
    object_name("writers", entry->number, object);
    entry->clock_error_ms = error;
    writer_entry_encode(entry, bytes);
    TRY(prefix_put_object(&looker->prefix, object, bytes, sizeof bytes, false));
    looker->heard_at = clock_monotonic_ns() + node->options.lease_ns / BEATS;
    return 0;
}

/* --- stores that were set aside --------------------------------------------------------------- */

/* STORE/aside may vanish at any time: an operator removes it. */
static void measure_aside(struct node *node)
{
    struct looker *looker = &node->looker;
    _cleanup_free_ char *path = xasprintf("%s/aside", node->local->path);
    struct io_sizes sizes;
    if (clock_monotonic_ns() < looker->aside_at)
        return;
    int r = io_tree_sizes(path, &sizes);
    looker->aside_at = clock_monotonic_ns() + ASIDE_EVERY_NS;
    if (r < 0)
        return;
    atomic_store(&looker->aside_bytes, sizes.bytes);
    atomic_store(&looker->aside_only_there_bytes, sizes.only_there_bytes);
}

void node_aside(const struct node *node, struct io_sizes *ret)
{
    *ret = (struct io_sizes){.bytes = atomic_load(&node->looker.aside_bytes),
                             .only_there_bytes = atomic_load(&node->looker.aside_only_there_bytes)};
}

bool node_changes_wait(const struct node *node)
{
    return !history_has_lease(node->commit->history);
}

/* --- the thread ------------------------------------------------------------------------------- */

static void note_result(struct node *node, int r)
{
    struct looker *looker = &node->looker;
    char why[sizeof looker->why] = "";
    if (r < 0 && r != -ECANCELED)
        (void)snprintf(why, sizeof why, "%s", *cause_text() ? cause_text() : strerror(-r));
    if (strcmp(why, looker->why) != 0 && *why)
        log_warn("nodes: this node cannot look at %s (%s): changes wait after %.0f s of that",
                 looker->prefix.name, why, (double)node->options.lease_ns / 1e9);
    memcpy(looker->why, why, sizeof why);
}

/* The node's time is based on the medium's clock. Returns when to read it again: CLOCK_BOOTTIME,
 * ns. */
static int64_t read_clock(struct node *node)
{
    struct tier *tier = node->options.tier;
    struct tier_reading reading;
    if (!tier->ops->read_clock)
        return INT64_MAX;
    int r = tier->ops->read_clock(tier, &reading);
    if (r == 0)
        node_clock_read_medium(node->timekeeper.clock, &reading);
    return clock_boottime_ns() +
           (r < 0 ? RETRY_NS : node_clock_next_reading(node->timekeeper.clock));
}

/* Returns the time of the next check: CLOCK_BOOTTIME, ns. */
static int64_t make_look(struct node *node)
{
    int64_t began = clock_boottime_ns(), interval = node->options.lease_ns / LOOKS;
    int64_t soon = (int64_t)min_u64(RETRY_NS, (uint64_t)interval);
    struct clock_look now;
    node_clock_look(node->timekeeper.clock, &now);
    node->looker.era = now.era;
    cause_clear();
    int r = beat(node, &node->looker.entry);
    if (r == 0)
        r = look(node, clock_boottime_ns());
    note_result(node, r);
    measure_aside(node);
    return began + (r < 0 || !atomic_load(&node->looker.is_open) ? soon : interval);
}

/* In a new era changes wait for the first check. */
static bool is_new_era(const struct node *node)
{
    struct clock_look now;
    node_clock_look(node->timekeeper.clock, &now);
    return now.era != node->looker.era;
}

static void *run_looks(void *arg)
{
    struct node *node = arg;
    int64_t look_at = 0, read_at = 0, pause;
    do {
        if (clock_boottime_ns() >= read_at || is_new_era(node))
            read_at = read_clock(node);
        if (clock_boottime_ns() >= look_at || is_new_era(node))
            look_at = make_look(node);
        pause = (look_at < read_at ? look_at : read_at) - clock_boottime_ns();
        pause = pause < ERA_POLL_NS ? pause : ERA_POLL_NS;
    } while (pause_for(node, pause > 0 ? pause / MS_NS + 1 : 1));
    return NULL;
}

int looker_start(struct node *node, const struct writer_entry *entry)
{
    node->looker.entry = *entry;
    int r = thread_start(&node->looker.thread, "cairn-node", run_looks, node);
    node->looker.is_started = r == 0;
    return r;
}
