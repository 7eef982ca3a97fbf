// SPDX-License-Identifier: Apache-2.0
#include <fts.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/vector.h"
#include "cli/ask.h"
#include "cli/command.h"
#include "cli/horizon.h"
#include "cli/interrupt.h"
#include "cli/human.h"
#include "cli/json.h"
#include "cli/target.h"

enum wait_level { WAIT_STAGE, WAIT_NVME, WAIT_REMOTE }; /* in the order of the flag's words */

struct awaited {
    const char *path;
    char *store; /* belongs to the mount list */
    uint64_t ino;
};

struct wait_request {
    unsigned level; /* enum wait_level */
    int64_t timeout_ns;
    bool json;
    uint64_t left; /* that the tier still lacks when the time is over */
    struct mount_list mounts;
    /* one for each store, for all its paths together */
    VECTOR(struct horizon_goal) goals;
    VECTOR(struct awaited) awaited; /* with level `remote` */
};

/* Has the generation of the first path: if another path has a later one, the wait fails. */
static struct horizon_goal *goal_of(struct wait_request *request, char *store, uint64_t generation)
{
    for (size_t i = 0; i < request->goals.count; i++)
        if (strcmp(request->goals.at[i].store, store) == 0)
            return &request->goals.at[i];
    struct horizon_goal *goal = vector_next(&request->goals);
    *goal = (struct horizon_goal){
        .store = store, .is_remote = request->level == WAIT_REMOTE, .generation = generation};
    return goal;
}

/* Requests the operation that the horizon must include for the inode. */
static int add_goal(struct wait_request *request, const struct mount_entry *mount, uint64_t ino)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *ask = cJSON_CreateObject();
    uint64_t seq = 0;
    control_add_u64(ask, "ino", ino);
    (void)cJSON_AddStringToObject(ask, "level", request->level == WAIT_REMOTE ? "remote" : "nvme");
    if (ask_daemon("wait", mount->store, "need", ask, &reply) < 0)
        return CLI_FAILED;
    if (!control_get_u64(reply, "seq", &seq))
        return complain_answer("wait", mount->store);
    struct horizon_goal *goal = goal_of(request, mount->store, json_count(reply, "generation"));
    goal->seq = max_u64(goal->seq, seq);
    goal->bytes += json_count(reply, "bytes");
    return CLI_OK;
}

static int add_path(const struct command *command, struct wait_request *request, const char *path)
{
    uint64_t ino;
    const struct mount_entry *mount;
    int code = target_find(command, &request->mounts, path, &mount, &ino);
    if (code != CLI_OK)
        return code;
    if (request->level == WAIT_STAGE)
        return CLI_OK; /* the stage has every visible file, or a lower tier has it */
    if (request->level == WAIT_REMOTE)
        vector_add(&request->awaited, (struct awaited){path, mount->store, ino});
    return add_goal(request, mount, ino);
}

/* --- data that the remote lost ---------------------------------------------------------------- */

#define SETTLE_NS (15ll * 1000000000) /* without progress of the repeated upload */
#define SETTLE_MS 200

/* Counts packs that cannot be read, and chunks that no tier has: usually 0, and then no file is
 * queried. Also 0 for a daemon of an earlier version, which does not count them. */
static int count_doubts(const char *store, uint64_t *ret_count, bool *ret_is_busy)
{
    _cleanup_json_ cJSON *status = NULL;
    if (ask_daemon("wait", store, "status", NULL, &status) < 0)
        return CLI_FAILED;
    const cJSON *remote = json_part(status, "remote");
    *ret_count = json_count(remote, "damaged_chunks") + json_count(remote, "suspect_packs");
    *ret_is_busy = strcmp(json_text_or(remote, "state", "idle"), "idle") != 0;
    return CLI_OK;
}

struct unsafe {
    const struct awaited *awaited;
    uint64_t lost, pending; /* bytes */
    unsigned files;         /* that lack bytes */
    char *first;            /* path of one of them */
    int code;
};

static void ask_unsafe(struct unsafe *unsafe, const char *path, uint64_t ino)
{
    _cleanup_json_ cJSON *reply = NULL;
    cJSON *ask = cJSON_CreateObject();
    control_add_u64(ask, "ino", ino);
    if (ask_daemon("wait", unsafe->awaited->store, "damaged", ask, &reply) < 0) {
        unsafe->code = CLI_FAILED;
        return;
    }
    uint64_t lost = json_count(reply, "bytes");
    unsafe->lost += lost;
    unsafe->pending += json_count(reply, "pending_bytes");
    unsafe->files += lost > 0;
    if (lost > 0 && !unsafe->first)
        unsafe->first = xstrdup(path);
}

/* Searches the path and all files below it, on that mount alone; links are not followed. */
static int find_unsafe(const struct awaited *awaited, struct unsafe *ret)
{
    char *roots[] = {(char *)(uintptr_t)awaited->path, NULL};
    *ret = (struct unsafe){.awaited = awaited};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_COMFOLLOW | FTS_XDEV | FTS_NOCHDIR, NULL);
    if (!walk)
        return complain("wait", "%s: %s", awaited->path, strerror(errno));
    for (FTSENT *entry; ret->code == CLI_OK && (entry = fts_read(walk));)
        if (entry->fts_info == FTS_F)
            ask_unsafe(ret, entry->fts_path, entry->fts_statp->st_ino);
    (void)fts_close(walk);
    return ret->code;
}

static void complain_of_unsafe(const struct unsafe *unsafe)
{
    const char *path = unsafe->awaited->path;
    _cleanup_free_ char *more =
        unsafe->files > 1 ? xasprintf(", and of %u more files", unsafe->files - 1) : xstrdup("");
    if (unsafe->lost > 0)
        complain("wait",
                 "%s: %s of %s%s can be read neither from NVMe nor from the remote now; 'cairn "
                 "scrub' names the packs",
                 path, human_bytes(unsafe->lost).text, unsafe->first, more);
    else
        complain("wait", "%s: %s of it could not be uploaded again yet; see 'cairn status'", path,
                 human_bytes(unsafe->pending).text);
}

/* The remote lost or cannot read part of the content. If NVMe has it, it is uploaded again, and
 * this is waited for. */
static int wait_until_safe(const struct awaited *awaited, int64_t deadline)
{
    uint64_t before = UINT64_MAX;
    int64_t changed = clock_monotonic_ns();
    for (;;) {
        struct unsafe unsafe;
        uint64_t doubts = 0;
        bool is_busy = false;
        int code = count_doubts(awaited->store, &doubts, &is_busy);
        if (code != CLI_OK || doubts == 0)
            return code;
        code = find_unsafe(awaited, &unsafe);
        int64_t now = clock_monotonic_ns();
        if (unsafe.pending != before || is_busy)
            changed = now;
        before = unsafe.pending;
        bool is_over = unsafe.lost > 0 || unsafe.pending == 0 || now - changed > SETTLE_NS;
        bool is_late = deadline >= 0 && now >= deadline;
        if (code == CLI_OK && (unsafe.lost > 0 || (unsafe.pending > 0 && (is_over || is_late)))) {
            complain_of_unsafe(&unsafe);
            code = is_over ? CLI_FAILED : CLI_NOT_MET;
        }
        free(unsafe.first);
        if (code != CLI_OK || is_over || is_late)
            return code;
        if (!interrupt_sleep_ms(SETTLE_MS))
            return CLI_INTERRUPTED;
    }
}

static int wait_for_paths(const struct command *command, struct wait_request *request, char **paths)
{
    int64_t deadline = horizon_deadline(request->timeout_ns);
    for (; *paths; paths++) {
        int code = add_path(command, request, *paths);
        if (code != CLI_OK)
            return code;
    }
    int code = horizon_wait(command->name, request->goals.at, request->goals.count, deadline,
                            &request->left);
    if (code == CLI_NOT_MET && request->left == 0) /* 0 also for changes without content */
        complain(command->name, "timed out; wait longer, or see 'cairn status'");
    else if (code == CLI_NOT_MET)
        complain(command->name, "timed out: %s not yet %s; wait longer, or see 'cairn status'",
                 human_bytes(request->left).text,
                 request->level == WAIT_REMOTE ? "in the remote" : "on NVMe");
    for (size_t i = 0; i < request->awaited.count && code == CLI_OK; i++)
        code = wait_until_safe(&request->awaited.at[i], deadline);
    return code;
}

static void print_json(const struct wait_request *request, char **paths, int code)
{
    static const char *const levels[] = {"stage", "nvme", "remote"};
    _cleanup_json_ cJSON *object = cJSON_CreateObject();
    cJSON *all = cJSON_AddArrayToObject(object, "paths");
    for (; *paths; paths++)
        (void)cJSON_AddItemToArray(all, cJSON_CreateString(*paths));
    (void)cJSON_AddStringToObject(object, "level", levels[request->level]);
    (void)cJSON_AddBoolToObject(object, "reached", code == CLI_OK);
    (void)cJSON_AddBoolToObject(object, "timed_out", code == CLI_NOT_MET);
    control_add_u64(object, "left_bytes", request->left);
    json_print(object);
}

static int execute_wait(struct call *call)
{
    struct wait_request *request = call->request;
    int code = target_mounts(call->command, &request->mounts);
    if (code != CLI_OK)
        return code;
    interrupt_catch(false);
    code = wait_for_paths(call->command, request, call->operands);
    if (request->json && code != CLI_USAGE)
        print_json(request, call->operands, code);
    vector_free(&request->goals);
    vector_free(&request->awaited);
    mounts_done(&request->mounts);
    return code;
}

#define FIELD(f) offsetof(struct wait_request, f)
static const struct flag flags[] = {
    {FLAG_OF('l', "level", FLAG_WORD, FIELD(level)), .argument = "stage|nvme|remote",
     .help = "the tier to wait for (default nvme)"},
    FLAG_TIMEOUT("give up after TIME (10s, 5m)", FIELD(timeout_ns)),
    FLAG_JSON(FIELD(json)),
    {0},
};

const struct command wait_command = {
    .name = "wait",
    .summary = "wait until files or directories are on NVMe or in the remote",
    .flags = flags,
    REQUEST(struct wait_request, .level = WAIT_NVME, .timeout_ns = -1),
    .operands = operands_paths,
    .exits =
        EXITS_TIMED("the tier has all of it", "failed, or the remote cannot give all of it now"),
    .execute = execute_wait,
};
