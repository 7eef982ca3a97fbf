// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>

#include "base/vector.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/target.h"
#include "daemon/control.h"

enum wait_level { WAIT_STAGE, WAIT_NVME, WAIT_REMOTE }; /* in the order of the flag's words */

struct awaited {
    const char *path;
    char *store; /* the mount list's */
    uint64_t ino;
};

struct wait_request {
    unsigned level; /* enum wait_level */
    int64_t timeout_ns;
    bool json;
    uint64_t left; /* bytes that the tier lacks at the end of the time */
    struct mount_list mounts;
    VECTOR(struct horizon_goal)
    goals; /* one a store, as much as the paths of that store need together */
    VECTOR(struct awaited) awaited; /* at the level of the remote */
};

static struct horizon_goal *goal_of(struct wait_request *request, char *store)
{
    for (size_t i = 0; i < request->goals.count; i++)
        if (strcmp(request->goals.at[i].store, store) == 0)
            return &request->goals.at[i];
    struct horizon_goal *goal = vector_next(&request->goals);
    *goal = (struct horizon_goal){.store = store, .is_remote = request->level == WAIT_REMOTE};
    return goal;
}

/* Asks what the horizon must reach for the inode. */
static int add_wait_goal(struct wait_request *request, const struct mount_entry *mount,
                         uint64_t ino)
{
    cJSON *ask = cJSON_CreateObject();
    cJSON *reply = NULL;
    uint64_t seq = 0, bytes = 0;
    control_add_u64(ask, "ino", ino);
    (void)cJSON_AddStringToObject(ask, "level", request->level == WAIT_REMOTE ? "remote" : "nvme");
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

static int add_wait_path(const struct command *command, struct wait_request *request,
                         const char *path)
{
    uint64_t ino;
    const struct mount_entry *mount;
    int code = target_find(command, &request->mounts, path, &mount, &ino);
    if (code != CLI_OK)
        return code;
    if (request->level == WAIT_STAGE)
        return CLI_OK; /* the stage has every file that can be seen, or a lower tier has it */
    if (request->level == WAIT_REMOTE)
        vector_add(&request->awaited, (struct awaited){path, mount->store, ino});
    return add_wait_goal(request, mount, ino);
}

/* 0 also of a daemon of an earlier version, which knows of none. */
static int count_damaged_chunks(const char *store, uint64_t *ret_count)
{
    cJSON *status = NULL;
    if (ask_daemon("wait", store, "status", NULL, &status) < 0)
        return CLI_FAILED;
    *ret_count = json_count(json_part(status, "remote"), "damaged_chunks");
    cJSON_Delete(status);
    return CLI_OK;
}

static int wait_find_damage(const struct awaited *awaited)
{
    struct stat st;
    uint64_t chunks = 0, bytes = 0;
    int code = count_damaged_chunks(awaited->store, &chunks);
    if (code != CLI_OK || chunks == 0)
        return code;
    if (stat(awaited->path, &st) == 0 && S_ISDIR(st.st_mode)) {
        complain("wait",
                 "%s: %llu chunks of the store were damaged before they could be uploaded; 'cairn "
                 "scrub' names their files",
                 awaited->path, (unsigned long long)chunks);
        return CLI_FAILED;
    }
    cJSON *ask = cJSON_CreateObject(), *reply = NULL;
    control_add_u64(ask, "ino", awaited->ino);
    if (ask_daemon("wait", awaited->store, "damaged", ask, &reply) < 0)
        return CLI_FAILED;
    (void)control_get_u64(reply, "bytes", &bytes);
    cJSON_Delete(reply);
    if (bytes == 0)
        return CLI_OK;
    complain("wait",
             "%s: %s of it are damaged on NVMe, and the remote will never have them: restore the "
             "file",
             awaited->path, human_bytes(bytes).text);
    return CLI_FAILED;
}

static int wait_for_paths(const struct command *command, struct wait_request *request, char **paths)
{
    int64_t deadline = horizon_deadline(request->timeout_ns);
    for (; *paths; paths++) {
        int code = add_wait_path(command, request, *paths);
        if (code != CLI_OK)
            return code;
    }
    int code = horizon_wait(command->name, request->goals.at, request->goals.count, deadline,
                            &request->left);
    if (code == CLI_NOT_MET)
        complain(command->name, "timed out: %s not yet %s; wait longer, or see 'cairn status'",
                 human_bytes(request->left).text,
                 request->level == WAIT_REMOTE ? "in the remote" : "on NVMe");
    for (size_t i = 0; i < request->awaited.count && code == CLI_OK; i++)
        code = wait_find_damage(&request->awaited.at[i]);
    return code;
}

static void print_wait_json(const struct wait_request *request, char **paths, int code)
{
    static const char *const levels[] = {"stage", "nvme", "remote"};
    cJSON *object = cJSON_CreateObject();
    cJSON *all = cJSON_AddArrayToObject(object, "paths");
    for (; *paths; paths++)
        (void)cJSON_AddItemToArray(all, cJSON_CreateString(*paths));
    (void)cJSON_AddStringToObject(object, "level", levels[request->level]);
    (void)cJSON_AddBoolToObject(object, "reached", code == CLI_OK);
    (void)cJSON_AddBoolToObject(object, "timed_out", code == CLI_NOT_MET);
    control_add_u64(object, "left_bytes", request->left);
    json_print(object);
    cJSON_Delete(object);
}

static int execute_wait(const struct command *command, int argc, char **argv)
{
    struct wait_request request = {.level = WAIT_NVME, .timeout_ns = -1};
    char **paths;
    int code = flags_parse(command, argc, argv, &request, &paths);
    if (code == CLI_OK)
        code = target_mounts(command, &request.mounts);
    if (code != CLI_OK)
        return code;
    horizon_catch_interrupts();
    code = wait_for_paths(command, &request, paths);
    if (request.json && code != CLI_USAGE)
        print_wait_json(&request, paths, code);
    vector_free(&request.goals);
    vector_free(&request.awaited);
    mounts_done(&request.mounts);
    return code;
}

#define FIELD(f) offsetof(struct wait_request, f)
static const struct flag flags[] = {
    {.letter = 'l',
     .name = "level",
     .argument = "stage|nvme|remote",
     .help = "the tier to wait for (default nvme)",
     .kind = FLAG_WORD,
     .offset = FIELD(level)},
    {.letter = 't',
     .name = "timeout",
     .argument = "TIME",
     .help = "give up after TIME (10s, 5m)",
     .kind = FLAG_TIME,
     .offset = FIELD(timeout_ns)},
    {.letter = 'j', .name = "json", .help = "print JSON", .offset = FIELD(json)},
    {0},
};

const struct command wait_command = {
    .name = "wait",
    .summary = "wait until files or directories are on NVMe or in the remote",
    .flags = flags,
    .operands =
        (const struct operand[]){{.name = "PATH", .offers = OFFER_FILES, .is_repeated = true}, {0}},
    .exits = (const struct exit_status[]){{CLI_OK, "the tier has all of it"},
                                          {CLI_FAILED,
                                           "failed, or the remote will never have all of it"},
                                          {CLI_USAGE, "wrong usage"},
                                          {CLI_NOT_MET, "timed out"},
                                          {CLI_INTERRUPTED, "interrupted"},
                                          {0}},
    .usage_exit = CLI_USAGE,
    .execute = execute_wait,
};
