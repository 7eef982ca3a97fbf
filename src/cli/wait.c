// SPDX-License-Identifier: Apache-2.0
#include <getopt.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/vector.h"
#include "cli/cli.h"
#include "cli/horizon.h"
#include "cli/mounts.h"
#include "daemon/control.h"
#include "daemon/options.h"

struct wait_request {
    const char *level;
    int64_t timeout_ns;
    struct mount_list mounts;
    VECTOR(struct horizon_goal) goals; /* one a store, as much as the paths of that store need together */
};

static bool is_remote(const struct wait_request *request)
{
    return strcmp(request->level, "remote") == 0;
}

static struct horizon_goal *goal_of(struct wait_request *request, char *store)
{
    for (size_t i = 0; i < request->goals.count; i++)
        if (strcmp(request->goals.at[i].store, store) == 0)
            return &request->goals.at[i];
    struct horizon_goal *goal = vector_next(&request->goals);
    *goal = (struct horizon_goal){.store = store, .is_remote = is_remote(request)};
    return goal;
}

/* Asks what the horizon must reach for the inode. */
static int add_need(struct wait_request *request, const struct mount_entry *mount, uint64_t ino)
{
    cJSON *ask = cJSON_CreateObject();
    cJSON *reply = NULL;
    uint64_t seq = 0, bytes = 0;
    control_add_u64(ask, "ino", ino);
    (void)cJSON_AddStringToObject(ask, "level", request->level);
    if (ask_daemon("wait", mount->store, "need", ask, &reply) < 0)
        return CLI_FAILED;
    bool known = control_get_u64(reply, "seq", &seq);
    (void)control_get_u64(reply, "bytes", &bytes);
    cJSON_Delete(reply);
    if (!known) {
        complain("wait", "store %s: %s", mount->store, daemon_trouble(-EBADMSG));
        return CLI_FAILED;
    }
    struct horizon_goal *goal = goal_of(request, mount->store);
    goal->seq = max_u64(goal->seq, seq);
    goal->bytes += bytes;
    return CLI_OK;
}

static int add_path(const struct verb *verb, struct wait_request *request, const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0) {
        complain(verb->name, "cannot look at %s: %s; give a file or folder on a mount of CairnFS", path,
                 strerror(errno));
        return errno == ENOENT || errno == ENOTDIR ? CLI_USAGE : CLI_FAILED;
    }
    const struct mount_entry *mount = mounts_find_device(&request->mounts, st.st_dev);
    if (!mount)
        return complain_usage(verb, "%s is not on a mount of CairnFS; 'cairn status' lists them", path);
    if (strcmp(request->level, "stage") == 0)
        return CLI_OK; /* what can be seen is in the stage, or further */
    return add_need(request, mount, st.st_ino);
}

static int check_level(const struct verb *verb, const char *level)
{
    if (strcmp(level, "nvme") != 0 && strcmp(level, "stage") != 0 && strcmp(level, "remote") != 0)
        return complain_usage(verb, "--level '%s' is not known; use stage, nvme or remote", level);
    return 0;
}

static int parse_arguments(const struct verb *verb, struct wait_request *request, int argc, char **argv)
{
    static const struct option flags[] = {
        {"level", required_argument, NULL, 'l'}, {"timeout", required_argument, NULL, 't'}, {0}};
    int found;
    opterr = 0;
    optind = 1;
    while ((found = getopt_long(argc, argv, ":l:t:", flags, NULL)) != -1) {
        if (found == 'l')
            request->level = optarg;
        else if (found != 't')
            return complain_option(verb, found, argv);
        else if (parse_duration(optarg, &request->timeout_ns) < 0)
            return complain_usage(verb, "--timeout '%s' is no time; give one such as 10s or 5m", optarg);
    }
    if (argc == optind)
        return complain_usage(verb, "a PATH is needed; run: cairn wait %s", verb->synopsis);
    return check_level(verb, request->level);
}

static int wait_for_paths(const struct verb *verb, struct wait_request *request, char **paths)
{
    int64_t deadline = horizon_deadline(request->timeout_ns);
    uint64_t left = 0;
    for (; *paths; paths++) {
        int code = add_path(verb, request, *paths);
        if (code != CLI_OK)
            return code;
    }
    int code = horizon_wait(verb->name, request->goals.at, request->goals.count, deadline, &left);
    if (code == CLI_NOT_MET)
        complain(verb->name, "the time is up and %s are not %s yet; wait longer or see 'cairn status'",
                 human_bytes(left).text, is_remote(request) ? "in the remote" : "on NVMe");
    return code;
}

int verb_wait(const struct verb *verb, int argc, char **argv)
{
    struct wait_request request = {.level = "nvme", .timeout_ns = -1};
    int code = parse_arguments(verb, &request, argc, argv);
    if (code != 0)
        return code;
    int r = mounts_read("/proc/self/mountinfo", &request.mounts);
    if (r < 0) {
        complain(verb->name, "cannot read /proc/self/mountinfo: %s; is /proc mounted?", strerror(-r));
        return CLI_FAILED;
    }
    horizon_catch_interrupts();
    code = wait_for_paths(verb, &request, argv + optind);
    vector_free(&request.goals);
    mounts_done(&request.mounts);
    return code;
}
