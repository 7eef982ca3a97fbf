// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>
#include <sys/stat.h>

#include "base/text.h"
#include "cli/fsck_remote.h"
#include "cli/json.h"
#include "daemon/service.h"
#include "daemon/store_directory.h"

/* `json`, NULL for lines: {"problems":[...],"notes":[...]}. */
static void print_fsck_finding(const char *line, bool is_problem, void *json)
{
    if (json)
        (void)cJSON_AddItemToArray(cJSON_GetObjectItem(json, is_problem ? "problems" : "notes"),
                                   cJSON_CreateString(line));
    else
        text_print(stdout, "%s%s", is_problem ? "problem: " : "", line);
}

static int fsck_check_directory(const char *store, cJSON *json)
{
    int r = service_fsck(store, print_fsck_finding, json);
    if (r < 0) {
        complain("fsck", "cannot check %s: %s", store, strerror(-r));
        return FSCK_OPERATIONAL;
    }
    if (json) {
        (void)cJSON_AddBoolToObject(json, "clean", r == 0);
        json_print(json);
    } else if (r > 0) {
        text_print(stdout, "%s: %d problems", store, r);
    } else {
        text_print(stdout, "%s: clean", store);
    }
    if (r > 0)
        return FSCK_PROBLEMS;
    /* main.c says what of the output was lost, but 1 would say that something was mended. */
    return fflush(stdout) != 0 || ferror(stdout) ? FSCK_OPERATIONAL : FSCK_CLEAN;
}

static int repair_store(const char *store, cJSON *json)
{
    int r = service_repair(store, print_fsck_finding, json);
    if (r < 0) {
        complain("fsck", "cannot repair %s: %s", store, strerror(-r));
        return FSCK_OPERATIONAL;
    }
    if (json)
        (void)cJSON_AddBoolToObject(json, "repaired", r > 0);
    else if (r == 0)
        text_print(stdout, "%s: the journal is whole; nothing was truncated", store);
    int code = fsck_check_directory(store, json);
    return code == FSCK_CLEAN && r > 0 ? FSCK_REPAIRED : code;
}

static cJSON *fsck_json(const char *store)
{
    cJSON *json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(json, "store", store);
    (void)cJSON_AddArrayToObject(json, "problems");
    (void)cJSON_AddArrayToObject(json, "notes");
    return json;
}

static int check_taken(const char *store, const struct fsck_request *request)
{
    int lock_fd = -1;
    pid_t holder = 0;
    int r = store_lock_patiently(store, NULL, &lock_fd, &holder);
    if (r == -EBUSY) {
        complain("fsck", "store %s is in use by pid %d; unmount it first with 'cairn umount'",
                 store, (int)holder);
        return FSCK_OPERATIONAL;
    }
    if (r < 0) {
        complain("fsck", "cannot lock store %s: %s; run as its owner, on a writable disk", store,
                 strerror(-r));
        return FSCK_OPERATIONAL;
    }
    cJSON *json = request->is_json ? fsck_json(store) : NULL;
    int code = request->repair ? repair_store(store, json) : fsck_check_directory(store, json);
    cJSON_Delete(json);
    (void)close(lock_fd);
    return code;
}

static int execute_fsck(const struct command *command, int argc, char **argv)
{
    struct fsck_request request = {0};
    char **operands;
    options_init(&request.options);
    int code = flags_parse(command, argc, argv, &request, &operands);
    if (code != CLI_OK)
        return code;
    if (fsck_is_remote(*operands)) {
        code = fsck_remote(command, &request, *operands);
        options_done(&request.options);
        return code;
    }
    options_done(&request.options);
    if (request.sample)
        return complain_usage(command, "--sample is for a remote");
    _cleanup_free_ char *superblock = xasprintf("%s/superblock", *operands);
    struct stat st;
    if (lstat(superblock, &st) < 0 && (errno == ENOENT || errno == ENOTDIR))
        return complain_usage(command,
                              "%s is not a store; give the directory that 'cairn mount' was "
                              "given, or s3://BUCKET/PREFIX, or dir:/PATH",
                              *operands);
    return check_taken(*operands, &request);
}

#define FIELD(f) offsetof(struct fsck_request, f)
static const struct flag fsck_flags[] = {
    {.name = "repair",
     .help = "truncate a damaged journal of STORE before the damage; the part behind it moves to "
             "STORE/lost+found",
     .offset = FIELD(repair)},
    {.name = "sample",
     .argument = "PERCENT",
     .help = "of a remote, read the content of so many packs, chosen at random (100); heads, runs "
             "and the indexes of packs are always verified",
     .kind = FLAG_COUNT,
     .offset = FIELD(sample),
     .min = 1},
    FLAG_JSON(FIELD(is_json)),
    {0},
};

const struct command fsck_command = {
    .name = "fsck",
    .summary = "check a store that is not mounted, or a remote: every reference, every chunk",
    .description = "A remote is only read: no mount and no write access are needed. Damaged files "
                   "are named, and the objects that damage them.",
    .flags = fsck_flags,
    .operands =
        (const struct operand[]){{.name = "STORE|REMOTE", .offers = OFFER_DIRECTORIES}, {0}},
    .exits =
        (const struct exit_status[]){
            {FSCK_CLEAN, "clean"},
            {FSCK_REPAIRED, "the journal was truncated, and the store is clean now"},
            {FSCK_PROBLEMS, "problems found"},
            {FSCK_OPERATIONAL, "the check could not run, or not to its end"},
            {FSCK_USAGE, "wrong usage"},
            {0}},
    .usage_exit = FSCK_USAGE,
    .takes_option = source_takes_option,
    .options_offset = FIELD(options),
    .more_help = fsck_more_help,
    .execute = execute_fsck,
};
