// SPDX-License-Identifier: Apache-2.0
#include "cli/horizon.h"

#include <stdio.h>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "daemon/control.h"

#define BAR_WIDTH 30
/* usual time for the union of all nodes, before the delay is explained */
#define UNION_NS (5 * SECOND_NS)
#define REFUSED_NS (10 * SECOND_NS) /* afterwards a disk that takes no file is not waited for */

struct progress {
    const char *command;
    int64_t refused_since; /* NVMe takes no file; monotonic ns; 0: it does */
    bool shown;            /* standard error is a terminal */
    bool drawn;
    int64_t began;
    uint64_t most; /* most bytes that were left: the whole of the bar */
    char *last_error;
    /* everything is uploaded, but the union lacks some of it; monotonic ns; 0: not yet */
    int64_t union_since;
    char *cause;      /* why the union lacks it */
    char *last_cause; /* as printed last */
};

enum goal_state {
    GOAL_WAITS,
    GOAL_REACHED,
    GOAL_FAILED, /* after a message */
    GOAL_ENDED,  /* the daemon has ended, which it may */
};

int64_t horizon_deadline(int64_t timeout_ns)
{
    int64_t now = clock_monotonic_ns();
    return timeout_ns < 0 || timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

static void progress_draw(struct progress *p, uint64_t left)
{
    p->most = max_u64(p->most, left);
    if (!p->shown || p->most == 0)
        return;
    double done = 1.0 - (double)left / (double)p->most;
    double seconds = (double)(clock_monotonic_ns() - p->began) / 1e9;
    char bar[BAR_WIDTH + 1];
    memset(bar, ' ', BAR_WIDTH);
    memset(bar, '=', (size_t)(done * BAR_WIDTH));
    bar[BAR_WIDTH] = '\0';
    double rate = seconds > 0 ? (double)(p->most - left) / seconds : 0;
    (void)fprintf(stderr, "\r[%s] %3.0f%%  %s left, %s/s, %s \033[K", bar, done * 100,
                  human_bytes(left).text, human_bytes((uint64_t)rate).text,
                  human_seconds(seconds).text);
    (void)fflush(stderr);
    p->drawn = true;
}

/* Prints an error of writeback once, not at each poll: the daemon retries. */
static void progress_show_error(struct progress *p, const char *place, const char *error)
{
    if (!error || (p->last_error && strcmp(p->last_error, error) == 0))
        return;
    human_end_drawing(&p->drawn, "\n");
    complain(p->command, "writes to %s are failing; retrying: %s", place, error);
    free(p->last_error);
    p->last_error = xstrdup(error);
}

/* If several nodes write the remote, uploaded data is not visible to readers at once. NULL: it is
 * not uploaded, or there are no other nodes. */
static const char *union_cause(const struct horizon_goal *goal, const cJSON *reply)
{
    uint64_t uploaded;
    bool is_there =
        goal->is_remote && control_get_u64(reply, "uploaded", &uploaded) && uploaded >= goal->seq;
    return is_there ? json_text(reply, "union_waits") : NULL;
}

/* Prints once which node is waited for. */
static void progress_show_union(struct progress *p)
{
    if (!p->cause || (p->last_cause && strcmp(p->last_cause, p->cause) == 0))
        return;
    human_end_drawing(&p->drawn, "\n");
    complain(p->command, "all is in the remote, and readers do not see it yet: waiting %s",
             p->cause);
    free(p->last_cause);
    p->last_cause = xstrdup(p->cause);
}

static void progress_note_union(struct progress *p, const char *cause)
{
    int64_t now = clock_monotonic_ns();
    free(p->cause);
    p->cause = cause ? xstrdup(cause) : NULL;
    if (cause && p->union_since == 0)
        p->union_since = now;
    if (cause && now - p->union_since >= UNION_NS)
        progress_show_union(p);
}

/* Returns whether NVMe has taken no file for so long that waiting is useless. */
static bool is_refused(struct progress *p, const cJSON *reply)
{
    int64_t now = clock_monotonic_ns();
    if (!json_true(reply, "nvme_refuses"))
        p->refused_since = 0;
    else if (p->refused_since == 0)
        p->refused_since = now;
    return p->refused_since && now - p->refused_since >= REFUSED_NS;
}

static bool is_set_aside(const struct horizon_goal *goal, const cJSON *reply)
{
    return json_count(reply, "generation") != goal->generation;
}

/* The reason why the goal will not be reached; NULL: it may be. Caller frees. */
static char *obstacle_of(struct progress *p, const struct horizon_goal *goal, const cJSON *reply)
{
    const char *view = json_text(reply, "view_not_made_anew");
    if (is_set_aside(goal, reply))
        return xasprintf("all nodes went back to an earlier state, since one was lost; what this "
                         "node had done since is set aside: 'cairn nodes aside' lists it");
    if (goal->is_remote && strcmp(json_text_or(reply, "remote_state", ""), "fenced") == 0)
        return xasprintf("another writer has taken over the remote; nothing more is uploaded from "
                         "this mount: %s",
                         json_text_or(reply, "remote_error", "see 'cairn status'"));
    if (goal->is_remote && view)
        return xasprintf("its view is damaged, so nothing is uploaded; unmount without --drain "
                         "remote and mount again, which rebuilds it; it is not rebuilt now: %s",
                         view);
    if (is_refused(p, reply))
        return xasprintf("nothing can be written to its disk: %s. Data that is not on NVMe stays "
                         "in the stage of the mount, which is kept. Give the disk room, inodes or "
                         "write access, then try again",
                         json_text_or(reply, "error", "see 'cairn status'"));
    return NULL;
}

/* Judges the reply to "horizon". GOAL_WAITS: *ret_left bytes are missing. */
static enum goal_state goal_judge(struct progress *p, const struct horizon_goal *goal,
                                  const cJSON *reply, uint64_t *ret_left)
{
    uint64_t reached = 0;
    if (!control_get_u64(reply, goal->is_remote ? "remote" : "nvme", &reached)) {
        human_end_drawing(&p->drawn, "\n");
        complain_answer(p->command, goal->store);
        return GOAL_FAILED;
    }
    if (reached >= goal->seq && !is_set_aside(goal, reply))
        return GOAL_REACHED;
    _cleanup_free_ char *obstacle = obstacle_of(p, goal, reply);
    if (obstacle) {
        human_end_drawing(&p->drawn, "\n");
        complain(p->command, "store %s: %s", goal->store, obstacle);
        return GOAL_FAILED;
    }
    uint64_t missing =
        json_count(reply, goal->is_remote ? "remote_missing_bytes" : "missing_bytes");
    *ret_left = goal->bytes > 0 ? min_u64(goal->bytes, missing) : missing;
    const char *remote_error = goal->is_remote ? json_text(reply, "remote_error") : NULL;
    progress_show_error(p, remote_error ? "the remote" : "NVMe",
                        remote_error ? remote_error : json_text(reply, "error"));
    progress_note_union(p, union_cause(goal, reply));
    return GOAL_WAITS;
}

static enum goal_state goal_ask(const char *command, const struct horizon_goal *goal,
                                const char *name, cJSON *request, cJSON **ret_reply)
{
    int r = goal->may_end ? ask_daemon_or_end(command, goal->store, name, request, ret_reply)
                          : ask_daemon(command, goal->store, name, request, ret_reply);
    return r == -ESHUTDOWN ? GOAL_ENDED : r < 0 ? GOAL_FAILED : GOAL_WAITS;
}

/* Lifts the limits, again at each poll: after the last request the daemon restores them, so a
 * waiter may be killed. */
static enum goal_state goal_urge(const char *command, const struct horizon_goal *goal, bool on)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *request = cJSON_CreateObject();
    (void)cJSON_AddBoolToObject(request, "on", on);
    (void)cJSON_AddStringToObject(request, "level", goal->is_remote ? "remote" : "nvme");
    return goal_ask(command, goal, "urgent", request, &reply);
}

static enum goal_state goal_poll(struct progress *p, const struct horizon_goal *goal,
                                 uint64_t *ret_left)
{
    _cleanup_json_ cJSON *reply = NULL;
    enum goal_state state = goal_ask(p->command, goal, "horizon", NULL, &reply);
    if (state == GOAL_WAITS)
        state = goal_judge(p, goal, reply, ret_left);
    return state == GOAL_WAITS ? goal_urge(p->command, goal, true) : state;
}

static enum goal_state goals_poll(struct progress *p, const struct horizon_goal *goals,
                                  size_t count, uint64_t *ret_left)
{
    enum goal_state all = GOAL_REACHED;
    *ret_left = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t left = 0;
        enum goal_state one = goal_poll(p, &goals[i], &left);
        if (one == GOAL_FAILED || one == GOAL_ENDED)
            return one;
        if (one == GOAL_WAITS)
            all = GOAL_WAITS;
        *ret_left += left;
    }
    return all;
}

/* Waits a while. CLI_OK, CLI_NOT_MET at the deadline, or CLI_INTERRUPTED. */
static int pause_until(int64_t deadline, int64_t began)
{
    int64_t now = clock_monotonic_ns();
    int64_t left_ms = deadline == INT64_MAX ? HORIZON_POLL_MAX_MS : (deadline - now) / MS_NS;
    if (left_ms <= 0)
        return CLI_NOT_MET;
    uint64_t ms = min_u64(horizon_poll_ms(now - began), (uint64_t)left_ms);
    return interrupt_sleep_ms((unsigned)ms) ? CLI_OK : CLI_INTERRUPTED;
}

int horizon_wait(const char *command, const struct horizon_goal *goals, size_t count,
                 int64_t deadline, uint64_t *ret_left)
{
    struct progress p = {
        .command = command, .shown = isatty(STDERR_FILENO), .began = clock_monotonic_ns()};
    bool waited = false;
    enum goal_state state;
    int code = CLI_OK;
    while (code == CLI_OK && (state = goals_poll(&p, goals, count, ret_left)) == GOAL_WAITS) {
        progress_draw(&p, *ret_left);
        waited = true;
        code = pause_until(deadline, p.began);
    }
    check((state == GOAL_WAITS) == (code != CLI_OK));
    if (state == GOAL_REACHED && p.drawn)
        progress_draw(&p, 0);
    human_end_drawing(&p.drawn, "\n");
    if (code == CLI_NOT_MET)
        progress_show_union(&p);
    for (size_t i = 0; waited && state <= GOAL_REACHED && i < count; i++)
        if (goal_urge(command, &goals[i], false) == GOAL_FAILED)
            state = GOAL_FAILED;
    free(p.last_error);
    free(p.cause);
    free(p.last_cause);
    return state == GOAL_ENDED ? HORIZON_ENDED : state == GOAL_FAILED ? CLI_FAILED : code;
}
