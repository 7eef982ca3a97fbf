// SPDX-License-Identifier: Apache-2.0
#include "cli/horizon.h"

#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/human.h"
#include "daemon/control.h"

#define POLL_FIRST_MS 5
#define POLL_MAX_MS 250
#define BAR_WIDTH 30

static volatile sig_atomic_t interrupted;

#define REFUSED_NS (10ll * 1000000000) /* then a disk that takes no file is not waited for */

struct progress {
    int64_t refused_since; /* NVMe takes nothing; monotonic ns; 0: it does */
    bool shown;            /* standard error is a terminal */
    bool drawn;
    int64_t began;
    uint64_t most; /* bytes left when it was most: the whole of the bar */
    char *last_error;
};

static void on_interrupt(int signo)
{
    (void)signo;
    interrupted = 1;
}

void horizon_catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}; /* no SA_RESTART: a sleep is to end */
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

int64_t horizon_deadline(int64_t timeout_ns)
{
    int64_t now = clock_monotonic_ns();
    return timeout_ns < 0 || timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
}

bool horizon_sleep_ms(unsigned ms)
{
    struct timespec t = {ms / 1000, (long)(ms % 1000) * 1000000};
    if (!interrupted)
        (void)nanosleep(&t, NULL);
    return !interrupted;
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

static void progress_end(struct progress *p)
{
    if (p->drawn)
        (void)fprintf(stderr, "\n");
    p->drawn = false;
}

/* Prints an error of writeback once, not at each poll: the daemon retries. */
static void progress_show_error(struct progress *p, const char *command, const char *place,
                                const cJSON *error)
{
    if (!cJSON_IsString(error) || (p->last_error && strcmp(p->last_error, error->valuestring) == 0))
        return;
    progress_end(p);
    complain(command, "writes to %s are failing; retrying: %s", place, error->valuestring);
    free(p->last_error);
    p->last_error = xstrdup(error->valuestring);
}

/* Returns true if nothing is uploaded as long as the mount lasts. */
static bool goal_needs_new_view(struct progress *p, const char *command,
                                const struct horizon_goal *goal, const cJSON *reply)
{
    const char *why =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(reply, "view_not_made_anew"));
    if (!goal->is_remote || !why)
        return false;
    progress_end(p);
    complain(command,
             "store %s: its view is damaged, so nothing is uploaded; unmount without --drain "
             "remote and mount again, which rebuilds it; it is not rebuilt now: %s",
             goal->store, why);
    return true;
}

/* Returns true if the remote will never have the data: another writer has taken it over. */
static bool goal_is_lost(struct progress *p, const char *command, const struct horizon_goal *goal,
                         const cJSON *reply)
{
    const char *state =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(reply, "remote_state"));
    const char *error =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(reply, "remote_error"));
    if (!goal->is_remote || !state || strcmp(state, "fenced") != 0)
        return false;
    progress_end(p);
    complain(command,
             "store %s: another writer has taken over the remote; nothing more is uploaded from "
             "this mount: %s",
             goal->store, error ? error : "see 'cairn status'");
    return true;
}

/* Returns true if NVMe has taken nothing for a while, which waiting does not change. */
static bool goal_is_refused(struct progress *p, const char *command,
                            const struct horizon_goal *goal, const cJSON *reply)
{
    int64_t now = clock_monotonic_ns();
    if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(reply, "nvme_refuses")))
        p->refused_since = 0;
    else if (p->refused_since == 0)
        p->refused_since = now;
    if (p->refused_since == 0 || now - p->refused_since < REFUSED_NS)
        return false;
    const char *error = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(reply, "error"));
    progress_end(p);
    complain(command,
             "store %s: nothing can be written to its disk: %s. Data that is not on NVMe stays in "
             "the stage of the mount, which is kept. Give the disk room, inodes or write access, "
             "then try again",
             goal->store, error ? error : "see 'cairn status'");
    return true;
}

/* Evaluates the reply to "horizon" for one goal; returns as goal_poll(). */
static int goal_evaluate(struct progress *p, const char *command, const struct horizon_goal *goal,
                         const cJSON *reply, uint64_t *ret_left)
{
    uint64_t reached = 0, missing = 0;
    if (!control_get_u64(reply, goal->is_remote ? "remote" : "nvme", &reached)) {
        progress_end(p);
        complain_answer(command, goal->store);
        return -EBADMSG;
    }
    if (reached >= goal->seq)
        return 1;
    if (goal_is_lost(p, command, goal, reply) || goal_needs_new_view(p, command, goal, reply))
        return -EREMOTEIO;
    if (goal_is_refused(p, command, goal, reply))
        return -EIO;
    (void)control_get_u64(reply, goal->is_remote ? "remote_missing_bytes" : "missing_bytes",
                          &missing);
    *ret_left = goal->bytes > 0 ? min_u64(goal->bytes, missing) : missing;
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(reply, "error");
    const cJSON *remote_error = cJSON_GetObjectItemCaseSensitive(reply, "remote_error");
    if (goal->is_remote && remote_error)
        progress_show_error(p, command, "the remote", remote_error);
    else
        progress_show_error(p, command, "NVMe", error);
    return 0;
}

static int goal_ask(const char *command, const struct horizon_goal *goal, const char *name,
                    cJSON *request, cJSON **ret_reply)
{
    return goal->may_end ? ask_daemon_or_end(command, goal->store, name, request, ret_reply)
                         : ask_daemon(command, goal->store, name, request, ret_reply);
}

/* 1: reached; 0: not yet, *ret_left bytes are missing; negative: said why. */
static int goal_poll(struct progress *p, const char *command, const struct horizon_goal *goal,
                     uint64_t *ret_left)
{
    cJSON *reply = NULL;
    int r = goal_ask(command, goal, "horizon", NULL, &reply);
    if (r < 0)
        return r;
    r = goal_evaluate(p, command, goal, reply, ret_left);
    cJSON_Delete(reply);
    return r;
}

/* Lifts the limits, again at each poll: after the last request the daemon restores them, so a
 * waiter may be killed. */
static int goal_ask_urgent(const char *command, const struct horizon_goal *goal, bool on)
{
    cJSON *request = cJSON_CreateObject();
    cJSON *reply = NULL;
    (void)cJSON_AddBoolToObject(request, "on", on);
    (void)cJSON_AddStringToObject(request, "level", goal->is_remote ? "remote" : "nvme");
    int r = goal_ask(command, goal, "urgent", request, &reply);
    if (r == 0)
        cJSON_Delete(reply);
    return r;
}

static int goals_poll(struct progress *p, const char *command, const struct horizon_goal *goals,
                      size_t count, uint64_t *ret_left)
{
    int all_reached = 1;
    *ret_left = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t left = 0;
        int r = goal_poll(p, command, &goals[i], &left);
        if (r == 0)
            r = goal_ask_urgent(command, &goals[i], true);
        else if (r > 0)
            continue;
        if (r < 0)
            return r;
        all_reached = 0;
        *ret_left += left;
    }
    return all_reached;
}

int horizon_wait(const char *command, const struct horizon_goal *goals, size_t count,
                 int64_t deadline, uint64_t *ret_left)
{
    struct progress p = {.shown = isatty(STDERR_FILENO), .began = clock_monotonic_ns()};
    unsigned pause_ms = POLL_FIRST_MS;
    bool waited = false;
    int r, code = CLI_OK;
    *ret_left = 0;
    while ((r = goals_poll(&p, command, goals, count, ret_left)) == 0) {
        progress_draw(&p, *ret_left);
        waited = true;
        int64_t left_ms =
            deadline == INT64_MAX ? POLL_MAX_MS : (deadline - clock_monotonic_ns()) / 1000000;
        if (left_ms <= 0) {
            code = CLI_NOT_MET;
            break;
        }
        if (!horizon_sleep_ms((unsigned)min_u64(pause_ms, (uint64_t)left_ms))) {
            code = CLI_INTERRUPTED;
            break;
        }
        pause_ms = pause_ms * 2 < POLL_MAX_MS ? pause_ms * 2 : POLL_MAX_MS;
    }
    if (r > 0 && p.drawn)
        progress_draw(&p, 0);
    progress_end(&p);
    for (size_t i = 0; waited && r >= 0 && i < count; i++) {
        int off = goal_ask_urgent(command, &goals[i], false);
        r = off < 0 && off != -ESHUTDOWN ? off : r;
    }
    free(p.last_error);
    if (r == -ESHUTDOWN)
        return HORIZON_ENDED;
    return r < 0 ? CLI_FAILED : code;
}
