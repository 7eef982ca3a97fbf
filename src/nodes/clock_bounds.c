// SPDX-License-Identifier: Apache-2.0
/* The sources of bounds for this node's clock (commit/node_clock.h). A thread, cairn-clock, looks
 * at the clock every 100 ms, and asks the kernel for the error of the wall clock. The medium's
 * clock is read by the thread of look.c. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/pool.h"
#include "commit/history.h"
#include "nodes/node_internal.h"

#define TICK_NS (100 * MS_NS)
#define VOUCH_NS SECOND_NS
#define LACK_NS (10 * SECOND_NS) /* shorter problems are not logged */

/* The kernel adds 500 us a second to the last value of the time daemon. chrony sets one every 17
 * minutes at the latest, systemd-timesyncd every 34: after 50 minutes without one, no daemon is
 * running. */
#define STALE_NS (3 * SECOND_NS / 2)
/* In fact a clock steered by a daemon until recently stays within this, as its frequency was
 * measured. */
#define STEERED_PPM 15
/* Of a value set before this daemon began, only the sum with that addition is known. Servers
 * further away than this are rare. */
#define UNSEEN_NS (50 * MS_NS)

/* --- the wall clock --------------------------------------------------------------------------- */

/* Returns the possible error of the wall clock, ns; negative: nobody sets the clock. `tx`: from the
 * kernel; `now`: CLOCK_BOOTTIME, ns. */
static int64_t clock_error_of(struct kernel_clock *kernel, const struct timex *tx, int64_t now)
{
    int64_t max_error = (int64_t)tx->maxerror * 1000;
    bool was_set = max_error < kernel->max_error;
    if (tx->status & STA_UNSYNC || max_error > STALE_NS) {
        *kernel = (struct kernel_clock){0};
        return -1;
    }
    if (kernel->max_error == 0)
        kernel->base = max_error < UNSEEN_NS ? max_error : UNSEEN_NS;
    else if (was_set)
        kernel->base = max_error;
    if (kernel->max_error == 0 || was_set)
        kernel->based_at = now;
    kernel->max_error = max_error > 0 ? max_error : 1;
    return kernel->base + (now - kernel->based_at) * STEERED_PPM / 1000000;
}

/* Reading needs no privilege; containers may lack clock_adjtime(), which could also set the
 * clock. */
static int64_t ask_kernel(struct kernel_clock *kernel, int64_t now)
{
    struct timex tx = {0};
    if (adjtimex(&tx) < 0)
        tx.status = STA_UNSYNC;
    return clock_error_of(kernel, &tx, now);
}

static void vouch(struct node *node, int64_t now)
{
    struct timekeeper *keeper = &node->timekeeper;
    int64_t by_hand = node->options.clock_error_ns, by_kernel = ask_kernel(&keeper->kernel, now);
    node_clock_vouch(keeper->clock, by_hand ? by_hand : by_kernel);
    keeper->vouch_at = now + VOUCH_NS;
}

/* --- log -------------------------------------------------------------------------------------- */

#define WHAT_TO_DO "start a time daemon such as chrony, or mount with -o clock_error=TIME"

static void describe_lack(const struct node *node, const struct node_clock_status *status,
                          char *buf, size_t size)
{
    const char *remote = node->options.name;
    *buf = '\0';
    if (status->state == CLOCK_UNREAD)
        (void)snprintf(buf, size, "the clock of %s has to be read first", remote);
    if (status->state == CLOCK_WIDE)
        (void)snprintf(buf, size,
                       "the clock of this node is known within %.0f ms, and %lld ms are needed: "
                       "%s",
                       (double)status->error / 1e6, (long long)(NODE_CLOCK_ERROR_MAX_NS / MS_NS),
                       WHAT_TO_DO);
    if (status->state == CLOCK_UNKNOWN)
        (void)snprintf(buf, size,
                       "nothing says how right the clock of this node is, and the filesystem of "
                       "%s does not tell the time: %s",
                       remote, WHAT_TO_DO);
}

void node_clock_trouble(struct node *node, char *buf, size_t size)
{
    struct node_clock_status status;
    node_clock_status(node->timekeeper.clock, &status);
    describe_lack(node, &status, buf, size);
}

static void say_lack(struct node *node, const struct node_clock_status *status, int64_t now)
{
    struct timekeeper *keeper = &node->timekeeper;
    char why[256];
    if (status->state == CLOCK_BOUND) {
        if (keeper->has_said_lack)
            log_info("nodes: the clock of this node is known within %.0f ms: it tells the others "
                     "what it does",
                     (double)status->error / 1e6);
        keeper->lacks_since = 0;
        keeper->has_said_lack = false;
        return;
    }
    keeper->lacks_since = keeper->lacks_since ? keeper->lacks_since : now;
    bool is_worth_it = status->state == CLOCK_UNKNOWN || now - keeper->lacks_since > LACK_NS;
    if (keeper->has_said_lack || !is_worth_it)
        return;
    keeper->has_said_lack = true;
    describe_lack(node, status, why, sizeof why);
    log_warn("nodes: what this node does shows on no other node, and no newer state of any: %s",
             why);
}

static void say_ends_of_eras(struct node *node, const struct node_clock_status *status)
{
    const struct node_clock_status *said = &node->timekeeper.said;
    if (status->steps != said->steps)
        log_warn("nodes: a clock was set by %+.3f s: changes wait until this node has looked at "
                 "%s again",
                 (double)status->step / 1e9, node->options.name);
    if (status->pauses != said->pauses)
        log_warn("nodes: this daemon, or the machine, stood still for %.1f s: changes wait until "
                 "this node has looked at %s again",
                 (double)status->pause / 1e9, node->options.name);
}

static void say_contradiction(struct node *node, const struct node_clock_status *status)
{
    const struct node_clock_status *said = &node->timekeeper.said;
    if (status->contradicts && !said->contradicts)
        log_warn("nodes: the clock of this machine is %.3f s %s that of %s, though %s: this node "
                 "goes by that of the remote",
                 (double)llabs(status->contradicts) / 1e9,
                 status->contradicts > 0 ? "behind" : "ahead of", node->options.name,
                 node->options.clock_error_ns ? "clock_error says otherwise"
                                              : "a time daemon sets it");
}

/* --- the thread ------------------------------------------------------------------------------- */

static void tick(struct node *node)
{
    struct timekeeper *keeper = &node->timekeeper;
    struct node_clock_status status;
    struct clock_look look;
    node_clock_look(keeper->clock, &look);
    bool is_new_era = look.era != keeper->era;
    if (is_new_era || look.boottime >= keeper->vouch_at)
        vouch(node, look.boottime);
    keeper->era = look.era;
    node_clock_status(keeper->clock, &status);
    say_ends_of_eras(node, &status);
    say_contradiction(node, &status);
    say_lack(node, &status, look.boottime);
    keeper->said = status;
}

static void *run_ticks(void *arg)
{
    struct node *node = arg;
    struct timekeeper *keeper = &node->timekeeper;
    while (!atomic_load(&keeper->stops)) {
        uint64_t seen = event_count(&keeper->event);
        int64_t until = clock_monotonic_ns() + TICK_NS;
        tick(node);
        while (!atomic_load(&keeper->stops) && event_wait(&keeper->event, &seen, until))
            ;
    }
    return NULL;
}

void timekeeper_init(struct node *node)
{
    struct timekeeper *keeper = &node->timekeeper;
    keeper->clock = node_clock_new(
        &(struct node_clock_options){.error_least = NODE_CLOCK_ERROR_NS,
                                     .error_most = NODE_CLOCK_ERROR_MAX_NS,
                                     .needs_medium = node->options.tier->ops->read_clock != NULL});
    event_init(&keeper->event);
}

int timekeeper_start(struct node *node)
{
    struct timekeeper *keeper = &node->timekeeper;
    node_clock_is_watched(keeper->clock, true);
    int r = thread_start(&keeper->thread, "cairn-clock", run_ticks, node);
    keeper->is_started = r == 0;
    return r;
}

static void stop(struct node *node)
{
    struct timekeeper *keeper = &node->timekeeper;
    node_clock_is_watched(keeper->clock, false);
    atomic_store(&keeper->stops, true);
    event_signal(&keeper->event);
    if (keeper->is_started)
        (void)pthread_join(keeper->thread, NULL);
    keeper->is_started = false;
}

void timekeeper_done(struct node *node)
{
    stop(node);
    event_done(&node->timekeeper.event);
    node_clock_free(node->timekeeper.clock);
}

/* --- for other parts of the node -------------------------------------------------------------- */

struct node_clock *node_clock(struct node *node)
{
    return node->timekeeper.clock;
}

int64_t node_time(struct node *node)
{
    struct clock_look look;
    node_clock_look(node->timekeeper.clock, &look);
    return look.now;
}

/* Others have reported rounds that are in the future by this node's clock: their clock has been set
 * back since, or this one. No round may have two times. */
void node_skip_rounds_told(struct node *node, uint64_t newest)
{
    int64_t ahead = (int64_t)newest * NODE_ROUND_NS - node_time(node);
    if (ahead <= NODE_ROUND_NS)
        return;
    history_begin_rounds_after(node->commit->history, newest);
    log_warn("nodes: other nodes of %s are %.0f s ahead, or were before a clock was set back: what "
             "this node does shows elsewhere in so long",
             node->common.name, (double)ahead / 1e9);
}

static uint32_t ms_of(int64_t ns)
{
    return ns < 0 ? 0 : (uint32_t)min_u64((uint64_t)(ns / MS_NS), UINT32_MAX);
}

/* If the clock has no bound now, it had one at the reported rounds. */
void node_describe_clock(const struct node *node, const struct rounds_span *span, struct feed *feed)
{
    struct clock_look look;
    node_clock_look(node->timekeeper.clock, &look);
    feed->time = look.now;
    feed->clock = (struct feed_clock){
        .error = NODE_CLOCK_ERROR_MAX_NS / MS_NS, .before = UINT32_MAX, .after = UINT32_MAX};
    if (look.error >= 0)
        feed->clock.error = ms_of(look.error);
    if (!span)
        return;
    int64_t at = (int64_t)span->hi * NODE_ROUND_NS;
    if (span->last)
        feed->clock.before = ms_of(at - span->last);
    feed->clock.after = ms_of((span->next ? span->next : look.now) - at);
}

int64_t node_time_passed(void *arg)
{
    struct node *node = arg;
    struct clock_look look;
    node_clock_look(node->timekeeper.clock, &look);
    return look.error < 0 ? -1 : look.now - look.error;
}
