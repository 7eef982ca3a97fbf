// SPDX-License-Identifier: Apache-2.0
#include <stdio.h>

#include "base/text.h"
#include "cli/fsck_remote.h"
#include "cli/json.h"
#include "cli/target.h"
#include "daemon/remote_address.h"
#include "daemon/service.h"

/* `json`, NULL for lines: {"problems":[...],"notes":[...]}. */
static void print_finding(const char *line, bool is_problem, void *json)
{
    if (json)
        (void)cJSON_AddItemToArray(json_part(json, is_problem ? "problems" : "notes"),
                                   cJSON_CreateString(line));
    else
        text_print(stdout, "%s%s", is_problem ? "problem: " : "", line);
}

static int check_directory(const char *store, cJSON *json)
{
    int r = service_fsck(store, print_finding, json);
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
    /* main.c reports lost output, but its exit status 1 would mean "repaired" here. */
    return fflush(stdout) != 0 || ferror(stdout) ? FSCK_OPERATIONAL : FSCK_CLEAN;
}

static int repair_store(const char *store, cJSON *json)
{
    bool truncated;
    int r = service_repair(store, print_finding, json, &truncated);
    if (r < 0) {
        complain("fsck", "cannot repair %s: %s", store, strerror(-r));
        return FSCK_OPERATIONAL;
    }
    if (json)
        (void)cJSON_AddBoolToObject(json, "repaired", truncated);
    else if (!truncated)
        text_print(stdout, "%s: the journal is whole; nothing was truncated", store);
    int code = check_directory(store, json);
    return code == FSCK_CLEAN && truncated ? FSCK_REPAIRED : code;
}

static cJSON *fsck_json(const char *store)
{
    cJSON *json = cJSON_CreateObject();
    (void)cJSON_AddStringToObject(json, "store", store);
    (void)cJSON_AddArrayToObject(json, "problems");
    (void)cJSON_AddArrayToObject(json, "notes");
    return json;
}

static int execute_fsck(struct call *call)
{
    const struct fsck_request *request = call->request;
    const char *store = *call->operands;
    _cleanup_close_ int lock_fd = -1;
    if (remote_address_is(store))
        return fsck_remote(call->command, request, store);
    if (request->sample)
        return complain_usage(call->command, "--sample is for a remote");
    if (!may_be_store(store))
        return complain_usage(call->command,
                              "%s is not a store; give the directory that 'cairn mount' was given, "
                              "or s3://BUCKET/PREFIX, or dir:/PATH",
                              store);
    if (!target_lock(call->command, store, &lock_fd))
        return FSCK_OPERATIONAL;
    _cleanup_json_ cJSON *json = request->is_json ? fsck_json(store) : NULL;
    return request->repair ? repair_store(store, json) : check_directory(store, json);
}

#define FIELD(f) offsetof(struct fsck_request, f)
static const struct flag flags[] = {
    {FLAG_OF('\0', "repair", FLAG_SET, FIELD(repair)),
     .help = "truncate a damaged journal of STORE before the damage; the part behind it moves to "
             "STORE/lost+found"},
    {FLAG_OF('\0', "sample", FLAG_COUNT, FIELD(sample)), .argument = "PERCENT",
     .help = "of a remote, read the content of so many packs, chosen at random (100); heads, runs "
             "and the indexes of packs are always verified",
     .min = 1},
    FLAG_JSON(FIELD(is_json)),
    {0},
};

const struct command fsck_command = {
    .name = "fsck",
    .summary = "check a store that is not mounted, or a remote: every reference, every chunk",
    .description = "A remote is only read: no mount and no write access are needed. Damaged files "
                   "are named, and the objects that damage them.",
    .flags = flags,
    REQUEST(struct fsck_request, 0),
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
