// SPDX-License-Identifier: Apache-2.0
#include "cli/job.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "daemon/control.h"

#define POLL_FIRST_MS 10
#define POLL_MAX_MS 250

struct watch {
    const char *name; /* of the command */
    const char *store;
    uint64_t number, lines; /* lines: that were printed, or are in `kept` */
    cJSON *kept;            /* NULL: they are printed */
    int64_t began;
    bool drawn;
};

enum watch_state {
    WATCH_RUNS,
    WATCH_ENDED,
    WATCH_FAILED, /* after a message */
};

static void watch_draw(struct watch *w, const struct job_report *report)
{
    if (!isatty(STDERR_FILENO) || report->bytes_total == 0)
        return;
    double seconds = (double)(clock_monotonic_ns() - w->began) / 1e9;
    double rate = seconds > 0 ? (double)report->bytes / seconds : 0;
    (void)fprintf(stderr, "\r%s of %s read, %s/s, %llu damaged, %s \033[K",
                  human_bytes(report->bytes).text, human_bytes(report->bytes_total).text,
                  human_bytes((uint64_t)rate).text, (unsigned long long)report->found,
                  human_seconds(seconds).text);
    (void)fflush(stderr);
    w->drawn = true;
}

static void watch_print_lines(struct watch *w, const cJSON *reply)
{
    const cJSON *line;
    cJSON_ArrayForEach(line, json_part(reply, "lines"))
    {
        const char *text = cJSON_GetStringValue(line) ? cJSON_GetStringValue(line) : "";
        w->lines++;
        if (w->kept) {
            (void)cJSON_AddItemToArray(w->kept, cJSON_CreateString(text));
            continue;
        }
        human_end_drawing(&w->drawn, "\r\033[K");
        text_print(stdout, "%s", text);
    }
    (void)fflush(stdout);
}

static void read_report(const cJSON *reply, struct job_report *r)
{
    *r = (struct job_report){.bytes = json_count(reply, "bytes"),
                             .bytes_total = json_count(reply, "bytes_total"),
                             .packs = json_count(reply, "packs"),
                             .chunks = json_count(reply, "chunks"),
                             .found = json_count(reply, "found"),
                             .healed = json_count(reply, "healed"),
                             .unhealed = json_count(reply, "unhealed"),
                             .files = json_count(reply, "files"),
                             .objects = json_count(reply, "objects"),
                             .removed_bytes = json_count(reply, "removed_bytes"),
                             .cancelled = json_true(reply, "cancelled")};
}

/* The daemon knows only the last job, and a successor knows none: the result of ours is lost. */
static enum watch_state watch_lost(struct watch *w)
{
    human_end_drawing(&w->drawn, "\r\033[K");
    complain(w->name,
             "cannot tell the result: the daemon of store %s was replaced, or started another job; "
             "run it again",
             w->store);
    return WATCH_FAILED;
}

static enum watch_state watch_poll(struct watch *w, struct job_report *report)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *ask = cJSON_CreateObject();
    uint64_t number = 0;
    control_add_u64(ask, "from", w->lines);
    if (ask_daemon(w->name, w->store, "job", ask, &reply) < 0)
        return WATCH_FAILED;
    if (control_get_u64(reply, "number", &number) && number != w->number)
        return watch_lost(w);
    watch_print_lines(w, reply);
    read_report(reply, report);
    if (json_true(reply, "running"))
        return WATCH_RUNS;
    const char *failed = json_text(reply, "failed");
    if (failed) {
        human_end_drawing(&w->drawn, "\r\033[K");
        complain(w->name, "incomplete: %s", failed);
        report->failed = true;
    }
    return WATCH_ENDED;
}

static int watch_until_done(struct watch *w, struct job_report *report)
{
    unsigned pause_ms = POLL_FIRST_MS;
    enum watch_state state;
    while ((state = watch_poll(w, report)) == WATCH_RUNS) {
        watch_draw(w, report);
        if (!interrupt_sleep_ms(pause_ms))
            break;
        pause_ms = (unsigned)min_u64(pause_ms * 2, POLL_MAX_MS);
    }
    human_end_drawing(&w->drawn, "\r\033[K");
    _cleanup_json_ cJSON *reply = NULL;
    if (state == WATCH_RUNS)
        (void)!ask_daemon(w->name, w->store, "job_cancel", NULL, &reply);
    return state == WATCH_RUNS ? CLI_INTERRUPTED : state == WATCH_ENDED ? CLI_OK : CLI_FAILED;
}

int job_execute(const struct call *call, cJSON *request, cJSON *lines, struct job_report *ret)
{
    struct watch w = {.name = call->command->name,
                      .store = call->target.store,
                      .kept = lines,
                      .began = clock_monotonic_ns()};
    _cleanup_json_ cJSON *reply = NULL;
    *ret = (struct job_report){0};
    interrupt_catch(false);
    if (ask_daemon(w.name, w.store, "job_start", request, &reply) < 0)
        return CLI_FAILED;
    return control_get_u64(reply, "number", &w.number) ? watch_until_done(&w, ret)
                                                       : complain_answer(w.name, w.store);
}
