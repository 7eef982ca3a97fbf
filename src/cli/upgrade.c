// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/horizon.h"
#include "cli/mounts.h"
#include "daemon/control.h"
#include "daemon/store_folder.h"

#define ASK_MS 30000
#define POLL_MS 20

struct upgrade {
    const struct verb *verb;
    const char *store, *mountpoint, *binary;
    int64_t deadline;
};

/* The daemon's answer to a status request, as far as an upgrade needs it. */
struct seen {
    uint64_t tries, given_up; /* the second of this daemon alone */
    bool upgrading;
    char version[64], error[512];
    double pause;
};

static void copy(char *to, size_t room, const cJSON *text)
{
    (void)snprintf(to, room, "%s", cJSON_IsString(text) ? text->valuestring : "");
}

/* An error is not printed: that no daemon serves for a moment is no fault. */
static int look(const struct upgrade *u, struct seen *ret)
{
    cJSON *request = cJSON_CreateObject(), *reply = NULL;
    (void)cJSON_AddStringToObject(request, "verb", "status");
    int r = control_request(u->store, request, ASK_MS, &reply);
    cJSON_Delete(request);
    if (r < 0)
        return r;
    const cJSON *successor = cJSON_GetObjectItem(cJSON_GetObjectItem(reply, "mount"), "successor");
    const cJSON *pause = cJSON_GetObjectItem(successor, "pause_seconds");
    *ret = (struct seen){.pause = cJSON_IsNumber(pause) ? pause->valuedouble : 0};
    copy(ret->version, sizeof ret->version, cJSON_GetObjectItem(reply, "version"));
    copy(ret->error, sizeof ret->error, cJSON_GetObjectItem(successor, "upgrade_error"));
    ret->upgrading = cJSON_IsTrue(cJSON_GetObjectItem(successor, "upgrading"));
    bool known = control_get_u64(successor, "upgrade_tries", &ret->tries) &&
                 control_get_u64(successor, "upgrades_given_up", &ret->given_up);
    cJSON_Delete(reply);
    return known ? 0 : -EOPNOTSUPP;
}

/* The daemon may end before its answer is here: that is 0, too. */
static int ask(const struct upgrade *u)
{
    cJSON *request = cJSON_CreateObject(), *reply = NULL;
    (void)cJSON_AddStringToObject(request, "verb", "upgrade");
    (void)cJSON_AddStringToObject(request, "binary", u->binary);
    int r = control_request(u->store, request, ASK_MS, &reply);
    cJSON_Delete(request);
    const cJSON *error = cJSON_GetObjectItem(reply, "error");
    if (r == -ECONNRESET || r == -EPIPE)
        r = 0;
    else if (r < 0)
        complain(u->verb->name, "store %s: %s", u->store, daemon_trouble(r));
    else if (cJSON_IsString(error))
        complain(u->verb->name, "%s stays as it is: %s", u->mountpoint, error->valuestring);
    r = r == 0 && error ? -EREMOTEIO : r;
    cJSON_Delete(reply);
    return r;
}

static int show(const struct upgrade *u, const struct seen *before, const struct seen *now)
{
    if (*now->error) {
        complain(u->verb->name, "%s is served by version %s as before: %s", u->mountpoint, now->version, now->error);
        return CLI_FAILED;
    }
    text_print(stdout, "%s: version %s handed over to version %s; calls waited for %s", u->mountpoint, before->version, now->version,
               human_seconds(now->pause).text);
    return CLI_OK;
}

/* Returns 0 while nothing is known, and 1 with *code when the upgrade is decided. */
static int judge(const struct upgrade *u, const struct seen *before, int *code)
{
    struct seen now;
    pid_t holder;
    int r = look(u, &now);
    if (r == 0 && (now.tries != before->tries || now.given_up > before->given_up)) {
        *code = show(u, before, &now);
        return 1;
    }
    if (r == 0 && !now.upgrading)
        complain(u->verb->name, "the daemon of %s died before it had handed over; try again", u->mountpoint);
    else if (r < 0 && store_lock_holder(u->store, &holder) == 0)
        complain(u->verb->name, "the mount of %s has ended", u->mountpoint);
    else
        return 0;
    *code = CLI_FAILED;
    return 1;
}

static int await(const struct upgrade *u, const struct seen *before)
{
    int code;
    while (!judge(u, before, &code)) {
        if (clock_monotonic_ns() >= u->deadline) {
            complain(u->verb->name, "the time is up, and the upgrade of %s goes on; 'cairn status %s' tells what became of it", u->mountpoint,
                     u->mountpoint);
            return CLI_NOT_MET;
        }
        if (!horizon_sleep_ms(POLL_MS))
            return CLI_INTERRUPTED;
    }
    return code;
}

static int upgrade(const struct upgrade *u)
{
    struct seen before;
    int r = look(u, &before);
    if (r == -EOPNOTSUPP)
        complain(u->verb->name, "the daemon of %s is of a version that cannot hand over; unmount it, and mount it with the other version",
                 u->mountpoint);
    else if (r < 0)
        complain(u->verb->name, "store %s: %s", u->store, daemon_trouble(r));
    if (r < 0 || ask(u) < 0)
        return CLI_FAILED;
    return await(u, &before);
}

/* --- arguments -------------------------------------------------------------------------------------------------------------------- */

/* The path must be absolute: the daemon has another working folder. */
static char *find_binary(const char *given)
{
    char *path = realpath(given ? given : "/proc/self/exe", NULL);
    struct stat st;
    if (!path)
        complain("upgrade", "%s: %s", given ? given : "the program that runs this", errno == ENOENT && !given ? "it was removed; give --binary" : strerror(errno));
    else if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        complain("upgrade", "%s is no program; give another with --binary", path);
    else if (access(path, X_OK) < 0)
        complain("upgrade", "%s: %s; give another with --binary", path, strerror(errno));
    else
        return path;
    free(path);
    return NULL;
}

static int upgrade_at(const struct verb *verb, const char *mountpoint, const char *binary, int64_t timeout_ns)
{
    struct mount_list mounts;
    int r = mounts_read("/proc/self/mountinfo", &mounts);
    if (r < 0) {
        complain(verb->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r));
        return CLI_FAILED;
    }
    const struct mount_entry *mount = mounts_find(&mounts, mountpoint);
    int code;
    horizon_catch_interrupts();
    if (mount) {
        _cleanup_free_ char *path = find_binary(binary);
        struct upgrade u = {verb, mount->store, mount->mountpoint, path, horizon_deadline(timeout_ns)};
        code = path ? upgrade(&u) : CLI_FAILED;
    } else {
        code = complain_usage(verb, "%s is not a mount of CairnFS; 'cairn status' lists them", mountpoint);
    }
    mounts_done(&mounts);
    return code;
}

int verb_upgrade(const struct verb *verb, int argc, char **argv)
{
    static const struct option flags[] = {{"binary", required_argument, NULL, 'b'}, {"timeout", required_argument, NULL, 't'}, {0}};
    const char *binary = NULL;
    int64_t timeout_ns = -1;
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":b:t:", flags, NULL)) != -1) {
        if (found != 'b' && found != 't')
            return complain_option(verb, found, argv);
        if (found == 'b')
            binary = optarg;
        else if (parse_duration(optarg, &timeout_ns) < 0)
            return complain_usage(verb, "--timeout '%s' is no time; give one such as 10s or 5m", optarg);
    }
    if (argc - optind != 1)
        return complain_usage(verb, "one MOUNTPOINT is needed; run: cairn upgrade %s", verb->synopsis);
    return upgrade_at(verb, argv[optind], binary, timeout_ns);
}
