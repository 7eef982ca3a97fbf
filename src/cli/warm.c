// SPDX-License-Identifier: Apache-2.0
/* cairn warmup, cairn evict: one path after the other, each by a job of its daemon. */
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/target.h"

#define POLL_MS 100

struct warm {
    const struct command *command;
    int64_t timeout_ns; /* negative: none */
    bool json, evicts;
    int64_t deadline;
    struct mount_list mounts;
    bool drawn;
    cJSON *results; /* with json */
};

static void warm_draw(struct warm *w, const char *path, const cJSON *reply)
{
    if (!isatty(STDERR_FILENO))
        return;
    _cleanup_free_ char *shown = xstrdup(path);
    text_hide_controls(shown);
    (void)fprintf(stderr, "\r%s: %s of %s \033[K", shown, json_bytes(reply, "done_bytes").text,
                  json_bytes(reply, "total_bytes").text);
    (void)fflush(stderr);
    w->drawn = true;
}

static void warm_print_left(const struct warm *w, const char *path, const cJSON *reply,
                            const char *name, const char *why)
{
    if (json_count(reply, name))
        complain(w->command->name, "%s: %s stay on NVMe: %s", path, json_bytes(reply, name).text,
                 why);
}

/* Adds the last answer of the daemon about the job as a result; `code` is its exit status. */
static void warm_add_result(const struct warm *w, const char *path, const cJSON *reply, int code)
{
    static const char *const numbers[] = {"total_bytes",    "done_bytes",        "failed_bytes",
                                          "not_kept_bytes", "unpublished_bytes", "pinned_bytes",
                                          "busy_bytes",     "other_bytes"};
    if (!w->results)
        return;
    cJSON *result = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(result, "path", path);
    (void)cJSON_AddBoolToObject(result, "complete", code == CLI_OK);
    (void)cJSON_AddBoolToObject(result, "timed_out", code == CLI_NOT_MET);
    for (size_t i = 0; i < ARRAY_LEN(numbers); i++)
        control_add_u64(result, numbers[i], json_count(reply, numbers[i]));
    (void)cJSON_AddItemToArray(w->results, result);
}

/* Prints the result of the job; returns the exit status. */
static int warm_conclude(const struct warm *w, const char *path, const cJSON *reply)
{
    const char *failed = json_text(reply, "failed"),
               *cause = json_text_or(reply, "remote_error", "");
    if (failed)
        complain(w->command->name, "%s: %s", path, failed);
    if (json_count(reply, "failed_bytes"))
        complain(w->command->name, "%s: %s could not be fetched: %s", path,
                 json_bytes(reply, "failed_bytes").text, *cause ? cause : "see 'cairn status'");
    if (json_count(reply, "not_kept_bytes"))
        complain(w->command->name,
                 "%s: NVMe has no space for %s of it; raise -o nvme=SIZE, or evict other files",
                 path, json_bytes(reply, "not_kept_bytes").text);
    if (json_count(reply, "other_bytes"))
        complain(w->command->name,
                 "%s: %s are of files that other nodes wrote: those are fetched when they are read",
                 path, json_bytes(reply, "other_bytes").text);
    warm_print_left(w, path, reply, "unpublished_bytes",
                    "the remote does not have them yet; see 'cairn wait --level remote'");
    warm_print_left(w, path, reply, "pinned_bytes",
                    "pinned by user.cairn.pin on these files, or on others with the same content");
    warm_print_left(w, path, reply, "busy_bytes", "in use at the moment; try again");
    uint64_t left = json_count(reply, "failed_bytes") + json_count(reply, "not_kept_bytes") +
                    json_count(reply, "unpublished_bytes") + json_count(reply, "pinned_bytes") +
                    json_count(reply, "busy_bytes") + json_count(reply, "other_bytes");
    return failed || left ? CLI_FAILED : CLI_OK;
}

static int ask_job(const struct warm *w, const char *store, uint64_t job, bool cancel,
                   cJSON **ret_reply)
{
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "job", job);
    (void)cJSON_AddBoolToObject(ask, "cancel", cancel);
    return ask_daemon(w->command->name, store, "warm_status", ask, ret_reply);
}

/* Returns the exit status once the job is over, or is to be ended; negative: it continues. */
static int warm_judge(struct warm *w, const char *path, const cJSON *reply)
{
    int code = -1;
    bool has_ended = json_true(reply, "ended");
    if (has_ended)
        code = CLI_OK;
    else if (clock_monotonic_ns() >= w->deadline)
        code = CLI_NOT_MET;
    else if (!interrupt_sleep_ms(POLL_MS))
        code = CLI_INTERRUPTED;
    if (code < 0)
        return code;
    human_end_drawing(&w->drawn, "\n");
    if (has_ended)
        code = warm_conclude(w, path, reply);
    else if (code == CLI_NOT_MET)
        complain(w->command->name, "timed out: %s is incomplete; the part that is done stays",
                 path);
    warm_add_result(w, path, reply, code);
    return code;
}

static int watch_job(struct warm *w, const char *path, const char *store, uint64_t job)
{
    int code = -1;
    while (code < 0) {
        _cleanup_json_ cJSON *reply = NULL;
        if (ask_job(w, store, job, false, &reply) < 0)
            return CLI_FAILED;
        warm_draw(w, path, reply);
        code = warm_judge(w, path, reply);
    }
    _cleanup_json_ cJSON *reply = NULL;
    if (code == CLI_NOT_MET || code == CLI_INTERRUPTED)
        (void)!ask_job(w, store, job, true, &reply);
    return code;
}

static int warm_path(struct warm *w, const char *path)
{
    const struct mount_entry *mount;
    _cleanup_json_ cJSON *reply = NULL;
    uint64_t ino;
    int code = target_find(w->command, &w->mounts, path, &mount, &ino);
    if (code != CLI_OK)
        return code;
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "ino", ino);
    (void)cJSON_AddBoolToObject(ask, "evict", w->evicts);
    if (ask_daemon(w->command->name, mount->store, "warm", ask, &reply) < 0)
        return CLI_FAILED;
    return watch_job(w, path, mount->store, json_count(reply, "job"));
}

static int execute_warm(struct call *call)
{
    struct warm *w = call->request;
    int code = target_mounts(call->command, &w->mounts);
    if (code != CLI_OK)
        return code;
    w->command = call->command;
    w->deadline = horizon_deadline(w->timeout_ns);
    interrupt_catch(false);
    w->results = w->json ? cJSON_CreateArray() : NULL;
    for (char **path = call->operands; *path; path++) {
        int one = warm_path(w, *path);
        if (one != CLI_OK)
            code = one;
        if (one != CLI_OK && one != CLI_FAILED)
            break;
    }
    if (w->results)
        json_print(w->results);
    cJSON_Delete(w->results);
    mounts_done(&w->mounts);
    return code;
}

static const struct flag warmup_flags[] = {
    FLAG_TIMEOUT("give up after TIME (10s, 5m); fetched data stays",
                 offsetof(struct warm, timeout_ns)),
    FLAG_JSON(offsetof(struct warm, json)),
    {0},
};

static const struct flag evict_flags[] = {
    FLAG_TIMEOUT("give up after TIME (10s, 5m)", offsetof(struct warm, timeout_ns)),
    FLAG_JSON(offsetof(struct warm, json)),
    {0},
};

const struct command warmup_command = {
    .name = "warmup",
    .summary = "fetch files or directories from the remote to NVMe",
    .description =
        "Symbolic links below a directory are not followed. Of a Hugging Face cache name\n"
        "the whole models--* directory: its snapshots are links to its blobs.",
    .flags = warmup_flags,
    REQUEST(struct warm, .timeout_ns = -1),
    .operands = operands_paths,
    .exits = EXITS_TIMED("NVMe has all of it", "failed, or NVMe has too little space"),
    .execute = execute_warm,
};

const struct command evict_command = {
    .name = "evict",
    .summary = "remove local NVMe copies of files already in the remote",
    .description = "Data that the remote does not have yet stays, and so do pinned files (setfattr "
                   "-n user.cairn.pin -v 1).",
    .flags = evict_flags,
    REQUEST(struct warm, .timeout_ns = -1, .evicts = true),
    .operands = operands_paths,
    .exits = EXITS_TIMED("no copy is left on NVMe", "failed, or some data had to stay"),
    .execute = execute_warm,
};
