// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "cli/json.h"
#include "daemon/control.h"
#include "daemon/store_directory.h"

#define ASK_MS 30000
#define POLL_MS 20

struct upgrade {
    const char *store, *mountpoint, *binary;
    bool json;
    int64_t deadline;
};

/* The parts of the daemon's status that an upgrade needs. */
struct seen {
    uint64_t tries, given_up; /* given_up: of this daemon alone */
    bool upgrading;
    char version[64], error[512];
    double pause;
};

/* No message is printed for an error: it is no fault that no daemon serves for a moment. */
static int upgrade_look(const struct upgrade *u, struct seen *ret)
{
    _cleanup_json_ cJSON *request = cJSON_CreateObject(), *reply = NULL;
    (void)cJSON_AddStringToObject(request, "verb", "status");
    TRY(control_request(u->store, request, ASK_MS, &reply));
    const cJSON *successor = json_part(json_part(reply, "mount"), "successor");
    *ret = (struct seen){.pause = json_number(successor, "pause_seconds"),
                         .upgrading = json_true(successor, "upgrading")};
    (void)snprintf(ret->version, sizeof ret->version, "%s", json_text_or(reply, "version", ""));
    (void)snprintf(ret->error, sizeof ret->error, "%s",
                   json_text_or(successor, "upgrade_error", ""));
    return control_get_u64(successor, "upgrade_tries", &ret->tries) &&
                   control_get_u64(successor, "upgrades_given_up", &ret->given_up)
               ? 0
               : -EOPNOTSUPP;
}

/* CLI_OK also if the daemon ends before its answer arrives. */
static int upgrade_ask(const struct upgrade *u)
{
    _cleanup_json_ cJSON *request = cJSON_CreateObject(), *reply = NULL;
    (void)cJSON_AddStringToObject(request, "verb", "upgrade");
    (void)cJSON_AddStringToObject(request, "binary", u->binary);
    int r = control_request(u->store, request, ASK_MS, &reply);
    if (r == -ECONNRESET || r == -EPIPE)
        return CLI_OK;
    if (r < 0)
        return complain("upgrade", "store %s: %s", u->store, daemon_trouble(r));
    const char *error = json_text(reply, "error");
    return error ? complain("upgrade", "%s is unchanged: %s", u->mountpoint, error) : CLI_OK;
}

static void upgrade_print_json(const struct upgrade *u, const struct seen *before,
                               const struct seen *now)
{
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(object, "mountpoint", u->mountpoint);
    (void)cJSON_AddStringToObject(object, "from", before->version);
    (void)cJSON_AddStringToObject(object, "to", now->version);
    (void)cJSON_AddNumberToObject(object, "pause_s", now->pause);
    json_print(object);
}

static int upgrade_show(const struct upgrade *u, const struct seen *before, const struct seen *now)
{
    if (*now->error)
        return complain("upgrade", "%s is still served by version %s: %s", u->mountpoint,
                        now->version, now->error);
    if (u->json)
        upgrade_print_json(u, before, now);
    else
        text_print(stdout, "%s: version %s handed over to version %s; calls waited for %s",
                   u->mountpoint, before->version, now->version, human_seconds(now->pause).text);
    return CLI_OK;
}

/* Returns 0 while nothing is known, and 1 with *code when the upgrade is decided. */
static int upgrade_evaluate(const struct upgrade *u, const struct seen *before, int *code)
{
    struct seen now;
    pid_t holder;
    int r = upgrade_look(u, &now);
    if (r == 0 && (now.tries != before->tries || now.given_up > before->given_up)) {
        *code = upgrade_show(u, before, &now);
        return 1;
    }
    if (r == 0 && !now.upgrading)
        complain("upgrade", "the daemon of %s died before the handover; try again", u->mountpoint);
    else if (r < 0 && store_directory_lock_holder(u->store, &holder) == STORE_IS_FREE)
        complain("upgrade", "the mount of %s has ended", u->mountpoint);
    else
        return 0;
    *code = CLI_FAILED;
    return 1;
}

static int upgrade_await(const struct upgrade *u, const struct seen *before)
{
    int code;
    while (!upgrade_evaluate(u, before, &code)) {
        if (clock_monotonic_ns() >= u->deadline) {
            complain("upgrade",
                     "timed out: the upgrade of %s is still in progress; see 'cairn status %s'",
                     u->mountpoint, u->mountpoint);
            return CLI_NOT_MET;
        }
        if (!interrupt_sleep_ms(POLL_MS))
            return CLI_INTERRUPTED;
    }
    return code;
}

static int upgrade_mount(const struct upgrade *u)
{
    struct seen before;
    int r = upgrade_look(u, &before);
    if (r == -EOPNOTSUPP)
        complain(
            "upgrade",
            "the daemon of %s is too old to hand over; unmount, then mount with the other version",
            u->mountpoint);
    else if (r < 0)
        complain("upgrade", "store %s: %s", u->store, daemon_trouble(r));
    if (r < 0 || upgrade_ask(u) != CLI_OK)
        return CLI_FAILED;
    return upgrade_await(u, &before);
}

/* --- arguments -------------------------------------------------------------------------------- */

/* The path must be absolute: the daemon has another working directory. */
static char *find_binary(const char *given)
{
    char *path = realpath(given ? given : "/proc/self/exe", NULL);
    struct stat st;
    if (!path)
        complain("upgrade", "%s: %s", given ? given : "the program that runs this",
                 errno == ENOENT && !given ? "it was removed; give --binary" : strerror(errno));
    else if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        complain("upgrade", "%s is not a program; give another with --binary", path);
    else if (access(path, X_OK) < 0)
        complain("upgrade", "%s: %s; give another with --binary", path, strerror(errno));
    else
        return path;
    free(path);
    return NULL;
}

struct upgrade_request {
    const char *binary; /* NULL: this program */
    int64_t timeout_ns; /* negative: none */
    bool json;
};

static int execute_upgrade(struct call *call)
{
    const struct upgrade_request *request = call->request;
    interrupt_catch(false);
    _cleanup_free_ char *path = find_binary(request->binary);
    const struct upgrade u = {call->target.store, call->target.mountpoint, path, request->json,
                              horizon_deadline(request->timeout_ns)};
    return path ? upgrade_mount(&u) : CLI_FAILED;
}

#define FIELD(f) offsetof(struct upgrade_request, f)
static const struct flag flags[] = {
    {FLAG_OF('b', "binary", FLAG_TEXT, FIELD(binary)), .argument = "PATH",
     .help = "hand over to this program (default: the cairn that runs this command)"},
    FLAG_TIMEOUT("wait at most TIME (10s, 5m); the upgrade continues after that",
                 FIELD(timeout_ns)),
    FLAG_JSON(FIELD(json)),
    {0},
};

const struct command upgrade_command = {
    .name = "upgrade",
    .summary = "replace the daemon of a mount by another version, under running programs",
    .description = "Nothing is unmounted: open files, maps and locks stay, and calls wait. If the "
                   "other version cannot take the mount over,\n"
                   "this one continues.",
    .flags = flags,
    REQUEST(struct upgrade_request, .timeout_ns = -1),
    .target = TARGET_MOUNT,
    .operands = operands_mount,
    .exits = EXITS_TIMED("done", "failed"),
    .execute = execute_upgrade,
};
