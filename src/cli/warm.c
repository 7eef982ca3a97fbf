// SPDX-License-Identifier: Apache-2.0
/* cairn warmup, cairn evict: one path after the other, each by a job of its daemon. */
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/horizon.h"
#include "cli/mounts.h"
#include "daemon/control.h"
#include "daemon/options.h"

#define POLL_MS 100

struct warm {
    const struct verb *verb;
    bool evicts;
    int64_t deadline;
    struct mount_list mounts;
    bool drawn;
};

static uint64_t number(const cJSON *reply, const char *name)
{
    uint64_t value = 0;
    (void)control_get_u64(reply, name, &value);
    return value;
}

static void draw(struct warm *w, const char *path, const cJSON *reply)
{
    uint64_t total = number(reply, "total_bytes"), done = number(reply, "done_bytes");
    if (!isatty(STDERR_FILENO))
        return;
    _cleanup_free_ char *shown = xstrdup(path);
    text_hide_controls(shown);
    (void)fprintf(stderr, "\r%s: %s of %s \033[K", shown, human_bytes(done).text, human_bytes(total).text);
    (void)fflush(stderr);
    w->drawn = true;
}

static void end_drawing(struct warm *w)
{
    if (w->drawn)
        (void)fprintf(stderr, "\n");
    w->drawn = false;
}

static void say_stays(const struct warm *w, const char *path, const cJSON *reply, const char *name, const char *why)
{
    uint64_t bytes = number(reply, name);
    if (bytes)
        complain(w->verb->name, "%s: %s stay on NVMe: %s", path, human_bytes(bytes).text, why);
}

/* What became of it; the exit code. */
static int conclude(const struct warm *w, const char *path, const cJSON *reply)
{
    const char *failed = cJSON_GetStringValue(cJSON_GetObjectItem(reply, "failed"));
    const char *cause = cJSON_GetStringValue(cJSON_GetObjectItem(reply, "remote_error"));
    if (failed)
        complain(w->verb->name, "%s: %s", path, failed);
    if (number(reply, "failed_bytes"))
        complain(w->verb->name, "%s: %s could not be fetched: %s", path, human_bytes(number(reply, "failed_bytes")).text,
                 cause && *cause ? cause : "see 'cairn status'");
    if (number(reply, "not_kept_bytes"))
        complain(w->verb->name, "%s: NVMe has no room for %s of it; give more with -o nvme=SIZE, or evict something", path,
                 human_bytes(number(reply, "not_kept_bytes")).text);
    say_stays(w, path, reply, "unpublished_bytes", "the remote does not have them yet; see 'cairn wait --level remote'");
    say_stays(w, path, reply, "pinned_bytes", "pinned by user.cairn.pin, of these files or others with the same content");
    say_stays(w, path, reply, "busy_bytes", "in use at the moment; try again");
    bool whole = !failed && number(reply, "failed_bytes") + number(reply, "not_kept_bytes") +
                                    number(reply, "unpublished_bytes") + number(reply, "pinned_bytes") +
                                    number(reply, "busy_bytes") ==
                                0;
    return whole ? CLI_OK : CLI_FAILED;
}

static int ask_job(const struct warm *w, const char *store, uint64_t job, bool cancel, cJSON **ret_reply)
{
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "job", job);
    (void)cJSON_AddBoolToObject(ask, "cancel", cancel);
    return ask_daemon(w->verb->name, store, "warm_status", ask, ret_reply);
}

static int cancel(const struct warm *w, const char *store, uint64_t job, int code)
{
    cJSON *reply = NULL;
    if (ask_job(w, store, job, true, &reply) == 0)
        cJSON_Delete(reply);
    return code;
}

static int follow_job(struct warm *w, const char *path, const char *store, uint64_t job)
{
    for (;;) {
        cJSON *reply = NULL;
        if (ask_job(w, store, job, false, &reply) < 0)
            return CLI_FAILED;
        draw(w, path, reply);
        int code = -1;
        if (cJSON_IsTrue(cJSON_GetObjectItem(reply, "ended"))) {
            end_drawing(w);
            code = conclude(w, path, reply);
        }
        cJSON_Delete(reply);
        if (code >= 0)
            return code;
        if (clock_monotonic_ns() >= w->deadline) {
            end_drawing(w);
            complain(w->verb->name, "the time is up, and %s is not done; what was done stays so", path);
            return cancel(w, store, job, CLI_NOT_MET);
        }
        if (!horizon_sleep_ms(POLL_MS)) {
            end_drawing(w);
            return cancel(w, store, job, CLI_INTERRUPTED);
        }
    }
}

static int warm_path(struct warm *w, const char *path)
{
    struct stat st;
    cJSON *reply = NULL;
    if (stat(path, &st) < 0) {
        complain(w->verb->name, "cannot look at %s: %s; give a file or folder on a mount of CairnFS", path, strerror(errno));
        return errno == ENOENT || errno == ENOTDIR ? CLI_USAGE : CLI_FAILED;
    }
    const struct mount_entry *mount = mounts_find_device(&w->mounts, st.st_dev);
    if (!mount)
        return complain_usage(w->verb, "%s is not on a mount of CairnFS; 'cairn status' lists them", path);
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "ino", st.st_ino);
    (void)cJSON_AddBoolToObject(ask, "evict", w->evicts);
    if (ask_daemon(w->verb->name, mount->store, "warm", ask, &reply) < 0)
        return CLI_FAILED;
    uint64_t job = number(reply, "job");
    cJSON_Delete(reply);
    return follow_job(w, path, mount->store, job);
}

static int parse_arguments(const struct verb *verb, int64_t *timeout_ns, int argc, char **argv)
{
    static const struct option flags[] = {{"timeout", required_argument, NULL, 't'}, {0}};
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":t:", flags, NULL)) != -1) {
        if (found != 't')
            return complain_option(verb, found, argv);
        if (parse_duration(optarg, timeout_ns) < 0)
            return complain_usage(verb, "--timeout '%s' is no time; give one such as 10s or 5m", optarg);
    }
    if (argc == optind)
        return complain_usage(verb, "a PATH is needed; run: cairn %s %s", verb->name, verb->synopsis);
    return 0;
}

static int run(const struct verb *verb, bool evicts, int argc, char **argv)
{
    int64_t timeout_ns = -1;
    int code = parse_arguments(verb, &timeout_ns, argc, argv);
    if (code != 0)
        return code;
    struct warm w = {.verb = verb, .evicts = evicts, .deadline = horizon_deadline(timeout_ns)};
    int r = mounts_read("/proc/self/mountinfo", &w.mounts);
    if (r < 0) {
        complain(verb->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r));
        return CLI_FAILED;
    }
    horizon_catch_interrupts();
    for (char **path = argv + optind; *path; path++) {
        int one = warm_path(&w, *path);
        if (one != CLI_OK)
            code = one;
        if (one != CLI_OK && one != CLI_FAILED)
            break;
    }
    mounts_done(&w.mounts);
    return code;
}

int verb_warmup(const struct verb *verb, int argc, char **argv)
{
    return run(verb, false, argc, argv);
}

int verb_evict(const struct verb *verb, int argc, char **argv)
{
    return run(verb, true, argc, argv);
}
