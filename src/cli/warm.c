// SPDX-License-Identifier: Apache-2.0
/* cairn warmup, cairn evict: one path after the other, each by a job of its daemon. */
#include <stdio.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/human.h"
#include "cli/target.h"
#include "daemon/control.h"

#define POLL_MS 100

struct warm {
    const struct command *command;
    bool evicts;
    int64_t deadline;
    struct mount_list mounts;
    bool drawn;
};

static uint64_t reply_number(const cJSON *reply, const char *name)
{
    uint64_t value = 0;
    (void)control_get_u64(reply, name, &value);
    return value;
}

static void warm_draw(struct warm *w, const char *path, const cJSON *reply)
{
    uint64_t total = reply_number(reply, "total_bytes"), done = reply_number(reply, "done_bytes");
    if (!isatty(STDERR_FILENO))
        return;
    _cleanup_free_ char *shown = xstrdup(path);
    text_hide_controls(shown);
    (void)fprintf(stderr, "\r%s: %s of %s \033[K", shown, human_bytes(done).text,
                  human_bytes(total).text);
    (void)fflush(stderr);
    w->drawn = true;
}

static void warm_end_drawing(struct warm *w)
{
    if (w->drawn)
        (void)fprintf(stderr, "\n");
    w->drawn = false;
}

static void warm_print_left(const struct warm *w, const char *path, const cJSON *reply,
                            const char *name, const char *why)
{
    uint64_t bytes = reply_number(reply, name);
    if (bytes)
        complain(w->command->name, "%s: %s stay on NVMe: %s", path, human_bytes(bytes).text, why);
}

/* Prints the result of the job; returns the exit status. */
static int warm_conclude(const struct warm *w, const char *path, const cJSON *reply)
{
    const char *failed = cJSON_GetStringValue(cJSON_GetObjectItem(reply, "failed"));
    const char *cause = cJSON_GetStringValue(cJSON_GetObjectItem(reply, "remote_error"));
    if (failed)
        complain(w->command->name, "%s: %s", path, failed);
    if (reply_number(reply, "failed_bytes"))
        complain(w->command->name, "%s: %s could not be fetched: %s", path,
                 human_bytes(reply_number(reply, "failed_bytes")).text,
                 cause && *cause ? cause : "see 'cairn status'");
    if (reply_number(reply, "not_kept_bytes"))
        complain(w->command->name,
                 "%s: NVMe has no space for %s of it; raise -o nvme=SIZE, or evict other files",
                 path, human_bytes(reply_number(reply, "not_kept_bytes")).text);
    warm_print_left(w, path, reply, "unpublished_bytes",
                    "the remote does not have them yet; see 'cairn wait --level remote'");
    warm_print_left(w, path, reply, "pinned_bytes",
                    "pinned by user.cairn.pin on these files, or on others with the same content");
    warm_print_left(w, path, reply, "busy_bytes", "in use at the moment; try again");
    bool whole = !failed &&
                 reply_number(reply, "failed_bytes") + reply_number(reply, "not_kept_bytes") +
                         reply_number(reply, "unpublished_bytes") +
                         reply_number(reply, "pinned_bytes") + reply_number(reply, "busy_bytes") ==
                     0;
    return whole ? CLI_OK : CLI_FAILED;
}

static int ask_job(const struct warm *w, const char *store, uint64_t job, bool cancel,
                   cJSON **ret_reply)
{
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "job", job);
    (void)cJSON_AddBoolToObject(ask, "cancel", cancel);
    return ask_daemon(w->command->name, store, "warm_status", ask, ret_reply);
}

static int warm_cancel(const struct warm *w, const char *store, uint64_t job, int code)
{
    cJSON *reply = NULL;
    if (ask_job(w, store, job, true, &reply) == 0)
        cJSON_Delete(reply);
    return code;
}

static int watch_job(struct warm *w, const char *path, const char *store, uint64_t job)
{
    for (;;) {
        cJSON *reply = NULL;
        if (ask_job(w, store, job, false, &reply) < 0)
            return CLI_FAILED;
        warm_draw(w, path, reply);
        int code = -1;
        if (cJSON_IsTrue(cJSON_GetObjectItem(reply, "ended"))) {
            warm_end_drawing(w);
            code = warm_conclude(w, path, reply);
        }
        cJSON_Delete(reply);
        if (code >= 0)
            return code;
        if (clock_monotonic_ns() >= w->deadline) {
            warm_end_drawing(w);
            complain(w->command->name, "timed out: %s is incomplete; the part that is done stays",
                     path);
            return warm_cancel(w, store, job, CLI_NOT_MET);
        }
        if (!horizon_sleep_ms(POLL_MS)) {
            warm_end_drawing(w);
            return warm_cancel(w, store, job, CLI_INTERRUPTED);
        }
    }
}

static int warm_path(struct warm *w, const char *path)
{
    const struct mount_entry *mount;
    cJSON *reply = NULL;
    uint64_t ino;
    int code = target_find(w->command, &w->mounts, path, &mount, &ino);
    if (code != CLI_OK)
        return code;
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "ino", ino);
    (void)cJSON_AddBoolToObject(ask, "evict", w->evicts);
    if (ask_daemon(w->command->name, mount->store, "warm", ask, &reply) < 0)
        return CLI_FAILED;
    uint64_t job = reply_number(reply, "job");
    cJSON_Delete(reply);
    return watch_job(w, path, mount->store, job);
}

struct warm_request {
    int64_t timeout_ns; /* negative: none */
};

static int warm_execute(const struct command *command, bool evicts, int argc, char **argv)
{
    struct warm_request request = {.timeout_ns = -1};
    struct warm w = {.command = command, .evicts = evicts};
    char **path;
    int code = flags_parse(command, argc, argv, &request, &path);
    if (code == CLI_OK)
        code = target_mounts(command, &w.mounts);
    if (code != CLI_OK)
        return code;
    w.deadline = horizon_deadline(request.timeout_ns);
    horizon_catch_interrupts();
    for (; *path; path++) {
        int one = warm_path(&w, *path);
        if (one != CLI_OK)
            code = one;
        if (one != CLI_OK && one != CLI_FAILED)
            break;
    }
    mounts_done(&w.mounts);
    return code;
}

static int execute_warmup(const struct command *command, int argc, char **argv)
{
    return warm_execute(command, false, argc, argv);
}

static int execute_evict(const struct command *command, int argc, char **argv)
{
    return warm_execute(command, true, argc, argv);
}

static const struct flag warmup_flags[] = {
    {.letter = 't',
     .name = "timeout",
     .argument = "TIME",
     .help = "give up after TIME (10s, 5m); fetched data stays",
     .kind = FLAG_TIME,
     .offset = offsetof(struct warm_request, timeout_ns)},
    {0},
};

static const struct flag evict_flags[] = {
    {.letter = 't',
     .name = "timeout",
     .argument = "TIME",
     .help = "give up after TIME (10s, 5m)",
     .kind = FLAG_TIME,
     .offset = offsetof(struct warm_request, timeout_ns)},
    {0},
};

static const struct operand operands[] = {
    {.name = "PATH", .offers = OFFER_FILES, .is_repeated = true}, {0}};

const struct command warmup_command = {
    .name = "warmup",
    .summary = "fetch files or directories from the remote to NVMe",
    .description =
        "Symbolic links below a directory are not followed. Of a Hugging Face cache name\n"
        "the whole models--* directory: its snapshots are links to its blobs.",
    .flags = warmup_flags,
    .operands = operands,
    .exits = (const struct exit_status[]){{CLI_OK, "NVMe has all of it"},
                                          {CLI_FAILED, "failed, or NVMe has too little space"},
                                          {CLI_USAGE, "wrong usage"},
                                          {CLI_NOT_MET, "timed out"},
                                          {CLI_INTERRUPTED, "interrupted"},
                                          {0}},
    .usage_exit = CLI_USAGE,
    .execute = execute_warmup,
};

const struct command evict_command = {
    .name = "evict",
    .summary = "remove local NVMe copies of files already in the remote",
    .description = "Data that the remote does not have yet stays, and so do pinned files (setfattr "
                   "-n user.cairn.pin -v 1).",
    .flags = evict_flags,
    .operands = operands,
    .exits = (const struct exit_status[]){{CLI_OK, "no copy is left on NVMe"},
                                          {CLI_FAILED, "failed, or some data had to stay"},
                                          {CLI_USAGE, "wrong usage"},
                                          {CLI_NOT_MET, "timed out"},
                                          {CLI_INTERRUPTED, "interrupted"},
                                          {0}},
    .usage_exit = CLI_USAGE,
    .execute = execute_evict,
};
