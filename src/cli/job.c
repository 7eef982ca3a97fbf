// SPDX-License-Identifier: Apache-2.0
#include "cli/job.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/human.h"
#include "cli/target.h"
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

static void watch_end_drawing(struct watch *w)
{
    if (w->drawn)
        (void)fprintf(stderr, "\r\033[K");
    w->drawn = false;
}

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
    cJSON_ArrayForEach(line, cJSON_GetObjectItem(reply, "lines"))
    {
        const char *text = cJSON_GetStringValue(line) ? cJSON_GetStringValue(line) : "";
        w->lines++;
        if (w->kept) {
            (void)cJSON_AddItemToArray(w->kept, cJSON_CreateString(text));
            continue;
        }
        watch_end_drawing(w);
        text_print(stdout, "%s", text);
    }
    (void)fflush(stdout);
}

static void read_job_report(const cJSON *reply, struct job_report *r)
{
    const struct {
        const char *name;
        uint64_t *value;
    } numbers[] = {{"bytes", &r->bytes},       {"bytes_total", &r->bytes_total},
                   {"packs", &r->packs},       {"chunks", &r->chunks},
                   {"found", &r->found},       {"healed", &r->healed},
                   {"unhealed", &r->unhealed}, {"files", &r->files},
                   {"objects", &r->objects},   {"removed_bytes", &r->removed_bytes}};
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        (void)control_get_u64(reply, numbers[i].name, numbers[i].value);
    r->cancelled = cJSON_IsTrue(cJSON_GetObjectItem(reply, "cancelled"));
}

/* The daemon knows the last job only, and a successor knows none: how ours ended is lost. */
static int watch_lost(struct watch *w)
{
    watch_end_drawing(w);
    complain(w->name,
             "cannot tell the result: the daemon of store %s was replaced, or started another job; "
             "run it again",
             w->store);
    return -ESTALE;
}

/* 1: it has ended; 0: not yet; negative: said why. */
static int watch_poll(struct watch *w, struct job_report *report)
{
    cJSON *ask = cJSON_CreateObject(), *reply = NULL;
    control_add_u64(ask, "from", w->lines);
    int r = ask_daemon(w->name, w->store, "job", ask, &reply);
    if (r < 0)
        return r;
    uint64_t number = 0;
    bool running = cJSON_IsTrue(cJSON_GetObjectItem(reply, "running"));
    if (control_get_u64(reply, "number", &number) && number != w->number) {
        cJSON_Delete(reply);
        return watch_lost(w);
    }
    watch_print_lines(w, reply);
    read_job_report(reply, report);
    const char *failed = cJSON_GetStringValue(cJSON_GetObjectItem(reply, "failed"));
    if (failed && !running) {
        watch_end_drawing(w);
        complain(w->name, "incomplete: %s", failed);
        report->failed = true;
    }
    cJSON_Delete(reply);
    return running ? 0 : 1;
}

static void watch_cancel(struct watch *w)
{
    cJSON *reply = NULL;
    if (ask_daemon(w->name, w->store, "job_cancel", NULL, &reply) == 0)
        cJSON_Delete(reply);
}

static int watch_until_done(struct watch *w, struct job_report *report)
{
    unsigned pause_ms = POLL_FIRST_MS;
    int r;
    while ((r = watch_poll(w, report)) == 0) {
        watch_draw(w, report);
        if (!horizon_sleep_ms(pause_ms)) {
            watch_end_drawing(w);
            watch_cancel(w);
            return CLI_INTERRUPTED;
        }
        pause_ms = pause_ms * 2 < POLL_MAX_MS ? pause_ms * 2 : POLL_MAX_MS;
    }
    watch_end_drawing(w);
    return r < 0 ? CLI_FAILED : CLI_OK;
}

int job_execute(const struct call *call, cJSON *request, cJSON *lines, struct job_report *ret)
{
    struct watch w = {.name = call->command->name,
                      .store = call->target.store,
                      .kept = lines,
                      .began = clock_monotonic_ns()};
    cJSON *reply = NULL;
    *ret = (struct job_report){0};
    horizon_catch_interrupts();
    if (ask_daemon(w.name, w.store, "job_start", request, &reply) < 0)
        return CLI_FAILED;
    bool known = control_get_u64(reply, "number", &w.number);
    cJSON_Delete(reply);
    return known ? watch_until_done(&w, ret) : complain_answer(w.name, w.store);
}
